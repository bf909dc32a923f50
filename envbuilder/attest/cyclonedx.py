"""The packages of an image as a CycloneDX 1.6 document; the same image gives the same document."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

import msgspec

from envbuilder import __version__
from envbuilder.attest.installed_packages import ImagePackage, ImagePackages
from envbuilder.image.lockfile import Locked
from envbuilder.image.removed_files import Removed, RemovedFiles, sums

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"

_NAMESPACE = uuid.UUID("5b0d5a6e-6c1f-5f53-9f6a-2c1d0d8c7f11")
"""A random namespace: serial numbers are derived from it and the image's digest."""

_CUDA = re.compile(
    r"(?:nvidia-|cuda-|lib(?:cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|npp|nvjpeg|nvjitlink|nvrtc))"
)


class BomProperty(msgspec.Struct, frozen=True):
    """A named value outside the standard's fields."""

    name: str
    value: str


class BomHash(msgspec.Struct, frozen=True):
    """A digest; ``alg`` as the standard spells it."""

    alg: str
    content: str


class BomDistribution(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a package, of which one was installed."""

    url: str
    hashes: tuple[BomHash, ...]
    comment: str = "one of these files was installed"
    type: str = "distribution"


class BomComponent(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package, the operating system or the image itself."""

    type: str = msgspec.field(name="type")
    bom_ref: str = msgspec.field(name="bom-ref")
    name: str
    version: str
    purl: str = ""
    hashes: tuple[BomHash, ...] = ()
    external_references: tuple[BomDistribution, ...] = msgspec.field(name="externalReferences", default=())
    licenses: tuple[dict[str, object], ...] = ()
    properties: tuple[BomProperty, ...] = ()


class Bom(msgspec.Struct, frozen=True, kw_only=True):
    """The document."""

    schema: str = msgspec.field(name="$schema", default=SCHEMA)
    format: str = msgspec.field(name="bomFormat", default="CycloneDX")
    version_of_format: str = msgspec.field(name="specVersion", default="1.6")
    serial: str = msgspec.field(name="serialNumber")
    version: int = 1
    metadata: dict[str, object]
    components: tuple[BomComponent, ...]
    dependencies: tuple[dict[str, object], ...]


def bom(
    name: str,
    digest: str,
    contents: ImagePackages,
    lock: tuple[Locked, ...],
    *,
    created: str = "",
    left_out: RemovedFiles | None = None,
) -> Bom:
    """Describe an image by its repository, manifest digest, contents and the lock that it was made from.

    ``created`` is when it was built (ISO 8601), '' where that is not known: no clock of today is in the document.
    ``left_out`` is what its form leaves out of what its lock pins: said of each package, and in sum of the image.
    """
    locked = {(package.name, package.version): package for package in lock}
    lacking = left_out or {}
    image = BomComponent(
        type="container",
        bom_ref=digest,
        name=name,
        version=digest,
        purl=_image_purl(name, digest),
        properties=tuple(_lacked(lacking.values())),
    )
    # Two copies of one version (one of them bundled inside another package) are one component.
    parts = {part.purl: part for part in (_component(one, contents, locked, lacking) for one in contents.packages)}
    if contents.distribution:
        system = _system(contents)
        parts[system.bom_ref] = system
    tool = BomComponent(type="application", bom_ref="envbuilder", name="envbuilder", version=__version__)
    return Bom(
        serial=f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        metadata={
            **({"timestamp": created} if created else {}),
            "component": image,
            "tools": {"components": (tool,)},
        },
        components=tuple(parts.values()),
        dependencies=(
            {"ref": digest, "dependsOn": tuple(part.bom_ref for part in parts.values())},
            *_dependencies(contents),
        ),
    )


def _dependencies(contents: ImagePackages) -> Iterator[dict[str, object]]:
    """Yield the packages that each package requires, of those in the image."""
    here = {(package.kind, package.name): _purl(package, contents) for package in reversed(contents.packages)}
    edges: dict[str, dict[str, None]] = {}
    for package in contents.packages:
        needed = edges.setdefault(_purl(package, contents), {})
        for names in package.requires:
            met = next((here[package.kind, name] for name in names if (package.kind, name) in here), "")
            if met:
                needed[met] = None
    for ref, needed in edges.items():
        yield {"ref": ref, "dependsOn": tuple(sorted(needed.keys() - {ref}))}


def _system(contents: ImagePackages) -> BomComponent:
    version = contents.version or contents.release
    ref = f"os:{contents.distribution}@{version}"
    return BomComponent(type="operating-system", bom_ref=ref, name=contents.distribution, version=version)


def is_cuda(package: ImagePackage) -> bool:
    return bool(_CUDA.match(package.name))


def _lacked(packages: Iterable[Sequence[Removed]]) -> Iterator[BomProperty]:
    """Say how many files and bytes are not there, for each reason; the list itself is in the image."""
    for one in sums(packages):
        yield BomProperty(f"envbuilder:left-out:{one.reason}", f"{one.files} files, {one.size} bytes")


def _component(
    package: ImagePackage, contents: ImagePackages, locked: dict[tuple[str, str], Locked], lacking: RemovedFiles
) -> BomComponent:
    purl = _purl(package, contents)
    properties = [BomProperty("envbuilder:cuda", "true")] if is_cuda(package) else []
    hashes: tuple[BomHash, ...] = ()
    files: tuple[BomDistribution, ...] = ()
    if package.kind == "pypi":
        pinned = locked.get((package.name, package.version))
        properties.append(BomProperty("envbuilder:locked", str(pinned is not None).lower()))
        properties += _lacked([lacking.get((package.name, package.version), ())])
        # A lock lists every file that may be installed; only where it is one alone do we know which it was.
        every = tuple(BomHash("SHA-256", one.removeprefix("sha256:")) for one in pinned.hashes) if pinned else ()
        hashes = every if len(every) == 1 else ()
        if len(every) > 1:
            files = (BomDistribution(url=purl, hashes=every),)
    return BomComponent(
        type="library",
        bom_ref=purl,
        name=package.name,
        version=package.version,
        purl=purl,
        hashes=hashes,
        external_references=files,
        licenses=_licences(package),
        properties=tuple(properties),
    )


def _licences(package: ImagePackage) -> tuple[dict[str, object], ...]:
    if package.spdx:
        return ({"expression": package.licences[0]},)
    return tuple({"license": {"name": name}} for name in package.licences)


def _purl(package: ImagePackage, contents: ImagePackages) -> str:
    name, version = _encoded(package.name), _encoded(package.version)
    if package.kind == "pypi":
        return f"pkg:pypi/{name}@{version}"
    distribution = _encoded(contents.distribution or "debian")
    qualifiers = [f"arch={_encoded(package.arch)}"] if package.arch else []
    qualifiers += [f"distro={_encoded(contents.release)}"] if contents.release else []
    qualifiers += [f"upstream={_encoded(package.source.replace(' ', '@'))}"] if package.source else []
    return f"pkg:deb/{distribution}/{name}@{version}" + (f"?{'&'.join(qualifiers)}" if qualifiers else "")


def _image_purl(name: str, digest: str) -> str:
    last = name.rpartition("/")[2]
    return f"pkg:oci/{_encoded(last)}@{_encoded(digest)}?repository_url={_encoded(name, '/')}"


def _encoded(text: str, also: str = "") -> str:
    """Encode a part of a package URL; its specification leaves a colon as it is, and ``also``."""
    return quote(text, safe=f":{also}")
