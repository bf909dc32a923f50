"""Ids of environments: valid image tags, readable, different for different combinations."""

import hashlib
import re

from envbuilder import versions
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.cuda_wheels import CudaInstallation
from envbuilder.compat.requirement import parse
from envbuilder.environment import NOTHING_ADDED, WHOLE, Combination

FOREIGN = re.compile(r"[^A-Za-z0-9_.-]")

LONGEST_TAG = 128  # the longest tag that the specification of registries allows


def environment_id(
    combination: Combination, release: TensorflowRelease, python: str, system: str, installed: CudaInstallation | None
) -> str:
    """Compose an id such as ``tf2.18.1-py311-cu12.5-cudnn9.3-bookworm``."""
    cuda = f"cu{_short(installed.cuda, combination.cuda)}" if installed else "cpu"
    cudnn = _short(installed.cudnn, combination.cudnn) if installed and installed.cudnn else ""
    place = system.removeprefix(f"py{python.replace('.', '')}-")
    return _composed(combination, (release.version, python, cuda, cudnn, place), release.package)


def rejected_id(combination: Combination) -> str:
    on_gpu, place = combination.flavor == "gpu", (combination.os or "").removeprefix("debian-")
    cuda = f"cu{combination.cuda}" if on_gpu and combination.cuda else combination.flavor
    cudnn = (combination.cudnn or "") if on_gpu else ""
    return _composed(
        combination, (combination.tensorflow, combination.python or "", cuda, cudnn, place), combination.package
    )


def _composed(combination: Combination, names: tuple[str, str, str, str, str], package: str | None) -> str:
    tensorflow, python, cuda, cudnn, place = names
    py, arch = python.replace(".", ""), "" if combination.arch == "x86_64" else combination.arch
    parts = (f"tf{tensorflow}", f"py{py}" * bool(py), cuda, f"cudnn{cudnn}" * bool(cudnn), place, arch)
    return _tag("-".join(filter(None, (*parts, *_suffixes(combination, package)))))


def _suffixes(combination: Combination, package: str | None) -> tuple[str, ...]:
    extras = [package] if package and combination.package else []
    extras += [_requirement(text) for text in combination.packages]
    added = combination.additions
    extras += [f"with-{_digest(repr(added))}"] if added != NOTHING_ADDED else []
    variant = [combination.variant] if combination.variant != WHOLE else []
    return (*extras, *combination.controls, *variant)


def _requirement(text: str) -> str:
    bound = parse(text)
    if len(bound.bounds) == 1 and bound.bounds[0][0] == "==" and "*" not in text and "[" not in text:
        return f"{bound.name}{bound.bounds[0][1]}"
    return f"{bound.name}-{_digest(text)}"


def _tag(tag: str) -> str:
    if FOREIGN.search(tag):
        tag = f"{FOREIGN.sub('-', tag)}-{_digest(tag)}"
    return tag if len(tag) <= LONGEST_TAG else f"{tag[: LONGEST_TAG - 9]}-{_digest(tag)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _short(version: str, given: str | None) -> str:
    """Return the version that an id shows: the minor version, or a longer one if the combination has it."""
    longer = given is not None and len(versions.numbers(given)) > 2 and versions.is_prefix(given, version)  # noqa: PLR2004
    return given if given is not None and longer else versions.minor(version)
