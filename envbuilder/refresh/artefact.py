"""A wheel's own statements: its file name, its METADATA and its ``build_info.py``, parsed into values."""

import ast
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache

import msgspec
from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from envbuilder import versions
from envbuilder.catalog.rows import WheelSet
from envbuilder.pypi.client import PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.support import decoding

EXTRA = "and-cuda"

_GLIBC = {"manylinux1": "2.5", "manylinux2010": "2.12", "manylinux2014": "2.17"}
_ARCHES = ("x86_64", "aarch64")


class WheelName(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a Linux wheel's file name; ``python`` is '' for a wheel for any Python 3."""

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
    except ValueError:
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
    return WheelName(version=str(version), python=python, arch=arch, glibc=glibc, tag=tag)


def source_version(filename: str) -> str | None:
    """Return the version of a source distribution; None for any other file."""
    try:
        return str(parse_sdist_filename(filename)[1])
    except ValueError:
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
    for line in raw.get("requires_dist", []):
        named, _, marker = line.partition(";")
        under = _EXTRA_MARKER.search(marker)
        rest = _EXTRA_MARKER.sub("", marker).strip()
        requirement = normal(f"{named}; {rest}" if rest else named)
        if under is None:
            plain.add(requirement)
        elif under[1] == EXTRA:
            extra.add(requirement)
    return Metadata(
        requires_python=raw.get("requires_python", ""), requires=tuple(sorted(plain)), and_cuda=tuple(sorted(extra))
    )


_EXTRA_MARKER = re.compile(r"""(?:\s*and\s*)?extra\s*==\s*["']([^"']+)["'](?:\s*and\s*)?""")


@lru_cache(maxsize=8192)
def normal(requirement: str) -> str:
    """Normalise a requirement, so that equal ones are equal texts."""
    try:
        found = Requirement(requirement)
    except InvalidRequirement:
        return requirement.strip()
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
    is_gpu = said.get("is_cuda_build")
    codes = [str(code) for code in _list(said.get("cuda_compute_capabilities"))]
    return BuildInfo(
        gpu=is_gpu if isinstance(is_gpu, bool) else None,
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
        pairs: Iterable[tuple[ast.expr | None, ast.expr]] = ()
        match node:
            case ast.Assign(targets=[ast.Name(id=target), *_], value=value):
                pairs = [(ast.Constant(target), value)]
            case ast.Tuple(elts=[key, value]):
                pairs = [(key, value)]
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
        for name, expression in pairs:
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                with suppress(decoding.DamagedError), decoding.damaged("not a literal"):
                    yield name.value, ast.literal_eval(expression)


def _list(value: object) -> list[object]:
    if isinstance(value, str):
        return [part for part in re.split(r"[,\s]+", value) if part]
    return list(value) if isinstance(value, list | tuple) else []


def _text(value: object) -> str | None:
    return str(value) if value not in (None, "") else None


def read_build_info(index: PackageIndex, file: DistFile) -> BuildInfo | None:
    """Read the ``build_info.py`` of a TensorFlow wheel; its path differs in 1.15 to 2.1 and in the oldest wheels."""
    stem = "-".join(file.filename.split("-")[:2])
    for folder in ("", f"{stem}.data/purelib/"):
        for package in ("tensorflow", "tensorflow_core"):
            content = index.member(file, f"{folder}{package}/python/platform/build_info.py")
            if content is not None:
                return build_info(decoding.lossy(content))
    return None
