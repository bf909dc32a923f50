"""A wheel's own statements: its file name, its METADATA and its ``build_info.py``, parsed into values."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import InvalidVersion, Version

from envbuilder import versions
from envbuilder.catalog.rows import WheelSet
from envbuilder.support import decoding

_BUILD_INFO = "python/platform/build_info.py"
EXTRA = "and-cuda"

_GLIBC = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_ARCHES = ("x86_64", "aarch64")


class WheelName(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a Linux wheel's file name; ``python`` is '' for a wheel for any Python 3."""

    filename: str
    version: str
    python: str
    arch: str
    glibc: str
    tag: str


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements without and with the extra ``and-cuda``, sorted, without the extra's marker."""

    requires_python: str
    requires: tuple[str, ...]
    and_cuda: tuple[str, ...]


class BuildInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The content of ``build_info.py``; None and () for missing values."""

    gpu: bool | None = None
    cuda: str | None = None
    cudnn: str | None = None
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()


def wheel_name(filename: str) -> WheelName | None:
    """Parse the name of a Linux wheel; None for other systems, source distributions and invalid names."""
    if "linux" not in filename:
        return None
    try:
        _, version, _, tags = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    platforms = [tag.platform for tag in tags]
    arch = next((arch for arch in _ARCHES if any(p.endswith(f"_{arch}") for p in platforms)), None)
    if arch is None or not any("linux" in p for p in platforms):
        return None
    interpreter = next(iter(tags)).interpreter
    found = re.fullmatch(r"cp(\d)(\d+)", interpreter)
    python = f"{found[1]}.{found[2]}" if found else ""
    glibc = min((_glibc(p) for p in platforms), key=versions.key, default="")
    tag = filename.removesuffix(".whl").split("-")[-1]
    return WheelName(filename=filename, version=str(version), python=python, arch=arch, glibc=glibc, tag=tag)


def source_version(filename: str) -> str | None:
    """Return the version of a source distribution; None for any other file."""
    try:
        return str(parse_sdist_filename(filename)[1])
    except (InvalidSdistFilename, InvalidVersion):
        return None


def _glibc(platform: str) -> str:
    modern = re.match(r"manylinux_(\d+)_(\d+)_", platform)
    return f"{modern[1]}.{modern[2]}" if modern else _GLIBC.get(platform.partition("_")[0], "0")


def wheel_sets(names: Iterable[WheelName]) -> tuple[WheelSet, ...]:
    """Group one release's wheels by architecture and tag, x86-64 first, Pythons in order."""
    groups: dict[tuple[str, str, str], set[str]] = {}
    for name in names:
        groups.setdefault((name.arch, name.glibc, name.tag), set()).add(name.python)
    order = sorted(groups, key=lambda key: (_ARCHES.index(key[0]), key[1:]))
    return tuple(
        WheelSet(arch=arch, pythons=tuple(sorted(groups[arch, glibc, tag], key=versions.order)), glibc=glibc, tag=tag)
        for arch, glibc, tag in order
    )


def metadata(text: str) -> Metadata:
    """Read METADATA. A requirement that cannot be parsed stays as it is."""
    raw, _ = parse_email(text)
    plain: set[str] = set()
    extra: set[str] = set()
    for requirement, under in _requirements(raw.get("requires_dist", [])):
        if under in ("", EXTRA):
            (extra if under else plain).add(requirement)
    return Metadata(
        requires_python=raw.get("requires_python", ""), requires=tuple(sorted(plain)), and_cuda=tuple(sorted(extra))
    )


_OLD_STYLE = re.compile(r"^([A-Za-z0-9._\[\]-]+) *\(([^)]*)\)")
_EXTRA_MARKER = re.compile(r"""(?:\s*and\s*)?extra\s*==\s*["']([^"']+)["'](?:\s*and\s*)?""")


def _requirements(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        text, _, marker = _OLD_STYLE.sub(r"\1\2", line.strip()).partition(";")
        found = _EXTRA_MARKER.search(marker)
        rest = _EXTRA_MARKER.sub("", marker).strip()
        yield normal(f"{text.strip()}; {rest}" if rest else text.strip()), found[1] if found else ""


@lru_cache(maxsize=8192)
def normal(requirement: str) -> str:
    """Normalise a requirement, so that equal ones are equal texts."""
    try:
        found = Requirement(requirement)
    except InvalidRequirement:
        return requirement
    found.name = canonicalize_name(found.name)
    return str(found)


@lru_cache(maxsize=1024)
def build_info(source: str) -> BuildInfo:
    """Read ``build_info.py`` without running it: assignments, or one mapping of names to literals.

    ``sm_80`` is machine code for 8.0; ``compute_80`` is machine code and PTX for it (cuda_configure.bzl). Invalid
    Python has no content.
    """
    try:
        with decoding.damaged("not Python"):
            tree = ast.parse(source)
    except (SyntaxError, decoding.DamagedError):
        return BuildInfo()
    said = dict(_literals(tree))
    codes = [str(code) for code in _list(said.get("cuda_compute_capabilities"))]
    return BuildInfo(
        gpu=_truth(said.get("is_cuda_build")),
        cuda=_text(said.get("cuda_version", said.get("cuda_version_number"))),
        cudnn=_text(said.get("cudnn_version", said.get("cudnn_version_number"))),
        cubins=tuple(capability(code) for code in codes),
        ptx=tuple(capability(code) for code in codes if code.startswith("compute_")),
    )


def capability(code: str) -> str:
    """Turn ``sm_86``, ``compute_86``, ``86`` or ``8.6`` into ``8.6``; ``sm_120`` into ``12.0``."""
    digits = re.sub(r"^(?:sm_|compute_)", "", code)
    if versions.key_or_none(digits) and versions.names_line(digits):
        return digits
    number = re.match(r"\d+", digits)
    return f"{number[0][:-1]}.{number[0][-1]}" if number else digits


def _literals(tree: ast.Module) -> Iterator[tuple[str, object]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield from _pair((ast.Constant(node.targets[0].id), node.value))
        elif isinstance(node, ast.Tuple) and len(node.elts) == 2:  # noqa: PLR2004 - a pair
            yield from _pair((node.elts[0], node.elts[1]))
        elif isinstance(node, ast.Dict):
            for one in zip(node.keys, node.values, strict=True):
                yield from _pair(one)


def _pair(pair: tuple[ast.expr | None, ast.expr]) -> Iterator[tuple[str, object]]:
    name, value = pair
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        with suppress(decoding.DamagedError):
            with decoding.damaged("not a literal"):
                found = ast.literal_eval(value)
            yield name.value, found


def _list(value: object) -> list[object]:
    if isinstance(value, str):
        return [part for part in re.split(r"[,\s]+", value) if part]
    return list(value) if isinstance(value, list | tuple) else []


def _truth(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return str(value) if value not in (None, "") else None


def build_info_names(filename: str) -> tuple[str, ...]:
    """List the possible paths of ``build_info.py`` in a wheel: they differ in 1.15 to 2.1 and in the oldest wheels."""
    stem = "-".join(filename.split("-")[:2])
    return (
        f"tensorflow/{_BUILD_INFO}",
        f"tensorflow_core/{_BUILD_INFO}",
        f"{stem}.data/purelib/tensorflow/{_BUILD_INFO}",
        f"{stem}.data/purelib/tensorflow_core/{_BUILD_INFO}",
    )


def release_order(version: str) -> Version:
    """Order versions like installers. Raises packaging's InvalidVersion."""
    return Version(version)


def is_prerelease(version: str) -> bool:
    """Return True for an alpha, beta, candidate or development release."""
    return release_order(version).is_prerelease
