"""Compare the contents of two images: packages with licences and sizes, the CUDA platform, Pythons and layers."""

from __future__ import annotations

import re
from collections.abc import Iterable
from operator import itemgetter

from packaging.requirements import InvalidRequirement, Requirement

from envbuilder import versions
from envbuilder.upgrade.document import ComparedImage, FactChange, LayerChange, PackageChange, Presence, SetChange
from envbuilder.upgrade.observed import Inventory, Package, paired

LIBRARIES: tuple[tuple[str, str], ...] = (
    ("NCCL", r"nvidia-nccl(-cu\d+)?"),
    ("cuBLAS", r"nvidia-cublas(-cu\d+)?"),
    ("NumPy", r"numpy"),
    ("Keras", r"keras"),
    ("protobuf", r"protobuf"),
)
"""Distributions whose versions are platform facts, by name pattern."""


def packages(old: Inventory, new: Inventory) -> tuple[PackageChange, ...]:
    """List the distributions that were added, removed, or changed in version or licence, by name."""
    both = sorted(paired(old.packages, new.packages), key=itemgetter(0))
    return tuple(_package(*each) for each in both if _told(each[1]) != _told(each[2]))


LICENCES: tuple[tuple[str, str], ...] = (
    (r"apache( software)?( licen[cs]e)?,?( version)?[ -]?(2(\.0)?)?", "Apache-2.0"),
    (r"(the )?mit( licen[cs]e)?( \(mit\))?", "MIT"),
    (
        r"(new |modified )?bsd[ -]3[ -]clause( licen[cs]e)?|new bsd( licen[cs]e)?|3-clause bsd( licen[cs]e)?",
        "BSD-3-Clause",
    ),
    (r"psf(-2\.0)?|python software foundation( licen[cs]e)?", "PSF-2.0"),
    (r"mozilla public license 2\.0 \(mpl 2\.0\)|mpl[ -]2\.0", "MPL-2.0"),
    (r"isc( licen[cs]e)?( \(iscl\))?", "ISC"),
)
"""Spellings of licences in metadata and their SPDX identifiers: another spelling is not another licence."""


def spdx(licence: str) -> str:
    """Return the SPDX identifier of a common licence text, else the text."""
    plain = " ".join(licence.split()).lower()
    return next((name for pattern, name in LICENCES if re.fullmatch(pattern, plain)), licence)


def _told(package: Package | None) -> tuple[str, str] | None:
    return (package.version, spdx(package.licence)) if package else None


def requirements(old: Inventory, new: Inventory) -> tuple[FactChange, ...]:
    """List changed requirements of TensorFlow by package and extra: ``numpy <2.1.0,>=1.26.0``."""
    before, after = _requirements(old.requires), _requirements(new.requires)
    every = (FactChange(name=name, old=before.get(name), new=after.get(name)) for name in sorted(before | after))
    return tuple(change for change in every if change.old != change.new)


def _requirements(stated: Iterable[str]) -> dict[str, str]:
    """Index requirements by package and condition; the bounds are sorted."""
    found: dict[str, str] = {}
    for text in stated:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        name = f"{wanted.name.lower()} ({wanted.marker})" if wanted.marker else wanted.name.lower()
        found[name] = ",".join(sorted(map(str, wanted.specifier))) or "any"
    return found


def _package(name: str, old: Package | None, new: Package | None) -> PackageChange:
    change: Presence = "added" if old is None else "removed" if new is None else "changed"
    return PackageChange(
        name=name,
        change=change,
        old=old.version if old else None,
        new=new.version if new else None,
        old_licence=old.licence if old else None,
        new_licence=new.licence if new else None,
        old_size=old.size if old else None,
        new_size=new.size if new else None,
    )


def platform(
    old: ComparedImage, new: ComparedImage, old_inventory: Inventory | None, new_inventory: Inventory | None
) -> tuple[FactChange, ...]:
    """List the platform facts of both images, changed or not; facts that neither has are omitted."""
    before, after = _facts(old, old_inventory), _facts(new, new_inventory)
    rows = (FactChange(name=name, old=value, new=after[name]) for name, value in before.items())
    return tuple(row for row in rows if row.old is not None or row.new is not None)


def _facts(side: ComparedImage, inventory: Inventory | None) -> dict[str, str | None]:
    environment = side.environment
    return {
        "TensorFlow": side.tensorflow,
        "Python": inventory.python if inventory else environment.python,
        "CUDA": environment.cuda,
        "cuDNN": environment.cudnn,
        "minimum driver": environment.minimum_driver,
        "CUDA built with": _built(inventory, "cuda"),
        "cuDNN built with": _built(inventory, "cudnn"),
        **{name: _version(inventory, pattern) for name, pattern in LIBRARIES},
    }


def _built(inventory: Inventory | None, library: str) -> str | None:
    value = inventory.build.get(f"{library}_version") if inventory else None
    return value if isinstance(value, str) and value else None


def _version(inventory: Inventory | None, pattern: str) -> str | None:
    if inventory is None:
        return None
    return next((p.version for p in inventory.packages if re.fullmatch(pattern, p.name)), None)


PYTHONS = "Python versions"
CUBINS = "compute capabilities (machine code)"
PTX = "compute capabilities (PTX)"


def sets(old: ComparedImage, new: ComparedImage) -> tuple[SetChange, ...]:
    """List changed Python versions, and compute capabilities with machine code and PTX."""
    known = old.pythons and new.pythons
    return (
        *((_set(PYTHONS, old.pythons, new.pythons),) if known else ()),
        _set(CUBINS, old.environment.cubins, new.environment.cubins),
        _set(PTX, old.environment.ptx, new.environment.ptx),
    )


def _set(name: str, old: Iterable[str], new: Iterable[str]) -> SetChange:
    before, after = set(old), set(new)
    return SetChange(name=name, gained=_sorted(after - before), lost=_sorted(before - after))


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=versions.key))


def layers(old: ComparedImage, new: ComparedImage) -> tuple[LayerChange, ...]:
    """Match layers by their instruction, in the new image's order; removed ones come last."""
    before, after = _by_instruction(old), _by_instruction(new)
    every = (LayerChange(created_by=name[0], old=before.get(name), new=after.get(name)) for name in after | before)
    return tuple(layer for layer in every if layer.old or layer.new)


def _by_instruction(side: ComparedImage) -> dict[tuple[str, int], int]:
    """Index layers by instruction and occurrence number."""
    found: dict[tuple[str, int], int] = {}
    for layer in side.layers:
        place = sum(name == layer.created_by for name, _ in found)
        found[layer.created_by, place] = layer.size
    return found


def size_ratio(old: ComparedImage, new: ComparedImage) -> float | None:
    """Return the size ratio new/old; None if an image is missing."""
    if old.image is None or new.image is None or not old.image.size:
        return None
    return new.image.size / old.image.size
