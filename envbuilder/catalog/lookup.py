"""Find rows in the catalogue; None where it is silent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import TypeVar

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import (
    BaseImage,
    Catalog,
    CudaToolkit,
    Cudnn,
    CudnnWheel,
    DriverBranch,
    Gpu,
    OperatingSystem,
    TensorflowRelease,
)

Row = TypeVar("Row")
Index = TypeVar("Index")


def release(catalog: Catalog, version: str, package: str = "tensorflow") -> TensorflowRelease | None:
    """Return the row of one distribution at exactly this version (``2.20.0``; ``2.20`` means ``2.20.0``)."""
    found = _index(catalog, _releases_by_key)
    with_key = _key(version)
    return found.get((package, with_key)) if with_key is not None else None


def releases(
    catalog: Catalog, package: str = "tensorflow", *, gpu: bool | None = None
) -> tuple[TensorflowRelease, ...]:
    """Return a distribution's rows, oldest first; with ``gpu`` only those with or without GPU support."""
    rows = _index(catalog, _releases_by_package).get(package, ())
    return rows if gpu is None else tuple(row for row in rows if row.gpu is gpu)


def cuda_toolkit(catalog: Catalog, version: str) -> CudaToolkit | None:
    """Return the toolkit line that a CUDA version belongs to: ``11.2``, ``11.2.152`` and ``V11.2.67`` alike."""
    line = _line(version)
    return _index(catalog, _toolkits).get(line) if line else None


def cudnn(catalog: Catalog, version: str) -> Cudnn | None:
    """Return the row of a cuDNN version, or of its line where it has no row of its own: ``8.1.1.33 -> 8.1``."""
    rows = _index(catalog, _cudnns)
    key = _key(version)
    if key is None:
        return None
    exact = rows.get(".".join(map(str, key[0])))
    return exact or rows.get(versions.minor(version))


def cudnn_wheels(catalog: Catalog, package: str) -> CudnnWheel | None:
    """Return the versions of a cuDNN wheel line (``nvidia-cudnn-cu12``) that the index was seen to hold."""
    return _index(catalog, _cudnn_lines).get(package)


def branch_of(catalog: Catalog, driver: str) -> DriverBranch | None:
    """Return the branch of a Linux driver: ``535.104.05``, ``535`` and ``R535`` alike."""
    found = re.match(r"^[Rr]?(\d{3,4})(?:\.|\Z)", driver.strip())
    return _index(catalog, _branches).get(found[1]) if found else None


def gpu(catalog: Catalog, text: str) -> Gpu | None:
    """Return the GPU that a text names, as its vendor, ``nvidia-smi`` or a person writes it.

    Tries the whole text first, then without the vendor's words, form factors and memory sizes. None where it names no
    row, or rows of different compute capabilities.
    """
    return _gpu(_index(catalog, _gpus), text)


def system(catalog: Catalog, name: str) -> OperatingSystem | None:
    """Return a system by its name (``debian-bookworm``), its short name (``bookworm``) or its image."""
    return _index(catalog, _systems).get(name.strip().lower())


def base_image(catalog: Catalog, name: str) -> BaseImage | None:
    """Return a published image by its reference; a registry's host and a digest are passed over.

    The catalogue holds the runtime images with cuDNN. Their ``base``, ``runtime`` and ``devel`` siblings are built from
    the same base image, which sets the start-up requirement, and differ in flavor and cuDNN alone.
    """
    reference = name.strip().split("@")[0]
    head, _, rest = reference.partition("/")
    bare = rest if "." in head or ":" in head else reference
    images = _index(catalog, _images)
    return images.get(bare) or _sibling(images, bare)


_VARIANT = re.compile(
    r"(?P<cuda>nvidia/cuda:[\d.]+)(?P<cudnn>-cudnn\d*)?-(?P<flavor>base|runtime|devel)-(?P<os>ubuntu[\d.]+)"
)


def _sibling(images: dict[str, BaseImage], name: str) -> BaseImage | None:
    asked = _VARIANT.fullmatch(name)
    if asked is None:
        return None
    start, end = f"{asked['cuda']}{asked['cudnn'] or '-cudnn'}", f"-runtime-{asked['os']}"
    row = next((row for known, row in images.items() if known.startswith(start) and known.endswith(end)), None)
    if row is None:
        return None
    cudnn_version = row.cudnn if asked["cudnn"] else None
    return msgspec.structs.replace(row, name=name, flavor=asked["flavor"], cudnn=cudnn_version)


def runs_cubin(built: str, device: str) -> bool:
    """Tell whether machine code for ``built`` runs on ``device``: same major, minor not newer (8.0 code on 8.6)."""
    code, silicon = versions.numbers(built), versions.numbers(device)
    return code[0] == silicon[0] and code[1:] <= silicon[1:]


def runs_ptx(built: str, device: str) -> bool:
    """Tell whether PTX for ``built`` can be compiled for ``device`` (a driver that knows the PTX version provided)."""
    return versions.numbers(built) <= versions.numbers(device)


def _key(version: str) -> versions.Key | None:
    try:
        return versions.key(version)
    except ValueError:
        return None


def _line(version: str) -> str | None:
    try:
        return versions.minor(version.lstrip("vV"))
    except ValueError:
        return None


def _index(catalog: Catalog, build: Callable[[Catalog], Index]) -> Index:
    """Build an index once per catalogue: rows are frozen, so identity is enough."""
    kept = _indexes(id(catalog))
    if kept.get("catalog") is not catalog:
        kept.clear()
        kept["catalog"] = catalog
    if build not in kept:
        kept[build] = build(catalog)
    result: Index = kept[build]  # type: ignore[assignment]
    return result


@lru_cache(maxsize=8)
def _indexes(_identity: int) -> dict[object, object]:
    return {}


def _releases_by_key(catalog: Catalog) -> dict[tuple[str, versions.Key], TensorflowRelease]:
    return {(row.package, versions.key(row.version)): row for row in catalog.tensorflow}


def _releases_by_package(catalog: Catalog) -> dict[str, tuple[TensorflowRelease, ...]]:
    grouped: dict[str, list[TensorflowRelease]] = {}
    for row in sorted(catalog.tensorflow, key=lambda row: versions.key(row.version)):
        grouped.setdefault(row.package, []).append(row)
    return {package: tuple(rows) for package, rows in grouped.items()}


def _toolkits(catalog: Catalog) -> dict[str, CudaToolkit]:
    return {row.version: row for row in catalog.cuda}


def _cudnns(catalog: Catalog) -> dict[str, Cudnn]:
    return {row.version: row for row in catalog.cudnn}


def _cudnn_lines(catalog: Catalog) -> dict[str, CudnnWheel]:
    return {row.package: row for row in catalog.cudnn_wheels}


def _branches(catalog: Catalog) -> dict[str, DriverBranch]:
    return {row.branch: row for row in catalog.drivers}


def _systems(catalog: Catalog) -> dict[str, OperatingSystem]:
    found: dict[str, OperatingSystem] = {}
    for row in catalog.systems:
        for name in (row.name, row.short, row.image):
            found.setdefault(name, row)
    return found


def _images(catalog: Catalog) -> dict[str, BaseImage]:
    return {row.name: row for row in catalog.images}


_NOISE = re.compile(
    r"\((?:r|tm)\)|\bnvidia\b|\bcorporation\b|\bgraphics\b|\bgpu\b|\bmig\b.*$|\b(?:super)?micro\b", re.IGNORECASE
)
_BRANDS = re.compile(r"\b(?:geforce|tesla|quadro|grid)\b", re.IGNORECASE)
_FORMS = re.compile(
    r"\b(?:sxm\d?|pci-?e|nvl|hbm\d?e?|fhhl|dgxs|hgx|active|sse2|\d+\s?gi?b?)\b|\blaptop\b|\bmobile\b"
    r"|\b(?:with\s+)?max[- ]?q(?:\s+design)?\b",
    re.IGNORECASE,
)
_MODEL = re.compile(r"\[([^\]]+)\]")
"""How ``lspci`` names the model: ``GP104 [GeForce GTX 1080] (rev a1)``."""
_JOINED = re.compile(r"[^a-z0-9]+")


def _squeeze(text: str) -> str:
    return _JOINED.sub("", text.lower())


def _forms(text: str) -> Iterable[str]:
    """Give ever shorter spellings of a GPU's name, the most telling first."""
    named = _MODEL.search(text)
    text = named[1] if named else text
    plain = _NOISE.sub(" ", text)
    bare = _FORMS.sub(" ", re.sub(r"[-/_]", " ", plain))
    for spelling in (text, plain, bare, _BRANDS.sub(" ", plain), _BRANDS.sub(" ", bare)):
        if squeezed := _squeeze(spelling):
            yield squeezed


def _gpus(catalog: Catalog) -> tuple[dict[str, tuple[Gpu, ...]], ...]:
    """Index GPUs by what the vendor writes, and by what is left of it when brands and model lines are left out."""
    exact: dict[str, dict[str, Gpu]] = {}
    loose: dict[str, dict[str, Gpu]] = {}
    for row in catalog.gpus:
        for name in (row.name, *row.smi_names, *row.aliases):
            exact.setdefault(_squeeze(name), {})[row.name] = row
            exact.setdefault(_squeeze(_NOISE.sub(" ", name)), {})[row.name] = row
            for spelling in _forms(name):
                loose.setdefault(spelling, {})[row.name] = row
        for short in _without_line(row.name):
            loose.setdefault(short, {})[row.name] = row
    return tuple({key: tuple(rows.values()) for key, rows in table.items()} for table in (exact, loose))


def _without_line(name: str) -> Iterable[str]:
    """Give what people write for a GeForce without ``RTX`` or ``GTX``: ``2080ti``."""
    squeezed = _squeeze(_BRANDS.sub(" ", _NOISE.sub(" ", name)))
    if name.startswith("GeForce") and re.match(r"^(?:rtx|gtx|gt)\d", squeezed):
        yield re.sub(r"^(?:rtx|gtx|gt)", "", squeezed)


def _gpu(tables: tuple[dict[str, tuple[Gpu, ...]], ...], text: str) -> Gpu | None:
    for table in tables:
        for spelling in _forms(text):
            if rows := table.get(spelling):
                return _agreed(rows)
    return None


def _agreed(rows: tuple[Gpu, ...]) -> Gpu | None:
    """Choose the row when all that a text could mean compute alike; the plainest name stands for them."""
    if len({row.compute_capability for row in rows}) > 1:
        return None
    return min(rows, key=lambda row: (len(row.name), row.name))
