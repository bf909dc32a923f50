"""The packages of an image as a CycloneDX 1.6 document; the same image gives the same document."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import Any
from urllib.parse import quote

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


Json = dict[str, Any]


def bom(
    name: str,
    digest: str,
    contents: ImagePackages,
    lock: tuple[Locked, ...],
    *,
    created: str = "",
    left_out: RemovedFiles | None = None,
) -> Json:
    """Describe an image by its repository, manifest digest, contents and the lock that it was made from.

    ``created`` is when the image was built (ISO 8601; '' if unknown). ``left_out`` are the files that its variant
    removes from locked packages: stated for each package, and in sum for the image.
    """
    locked = {(package.name, package.version): package for package in lock}
    lacking = left_out or {}
    image = _some(
        type="container",
        name=name,
        version=digest,
        purl=_image_purl(name, digest),
        properties=list(_lacked(lacking.values())),
    )
    # Two copies of one version (one of them bundled inside another package) are one component.
    parts = {_purl(one, contents): _component(one, contents, locked, lacking) for one in contents.packages}
    if contents.distribution:
        version = contents.version or contents.release
        ref = f"os:{contents.distribution}@{version}"
        parts[ref] = {"type": "operating-system", "name": contents.distribution, "version": version}
    tool = {"type": "application", "bom-ref": "envbuilder", "name": "envbuilder", "version": __version__}
    return {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": _some(timestamp=created, component={"bom-ref": digest, **image}, tools={"components": [tool]}),
        "components": [{"bom-ref": ref, **part} for ref, part in parts.items()],
        "dependencies": [{"ref": digest, "dependsOn": list(parts)}, *_dependencies(contents)],
    }


def _some(**fields: Any) -> Json:  # noqa: ANN401 - JSON values
    """Return the fields that are not empty."""
    return {key: value for key, value in fields.items() if value}


def _dependencies(contents: ImagePackages) -> Iterator[Json]:
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


def is_cuda(package: ImagePackage) -> bool:
    return bool(_CUDA.match(package.name))


def _property(name: str, value: str) -> Json:
    return {"name": f"envbuilder:{name}", "value": value}


def _lacked(packages: Iterable[Sequence[Removed]]) -> Iterator[Json]:
    """Yield the number and size of removed files for each reason; the image has the complete list."""
    for one in sums(packages):
        yield _property(f"left-out:{one.reason}", f"{one.files} files, {one.size} bytes")


def _component(
    package: ImagePackage, contents: ImagePackages, locked: dict[tuple[str, str], Locked], lacking: RemovedFiles
) -> Json:
    purl = _purl(package, contents)
    properties = [_property("cuda", "true")] if is_cuda(package) else []
    hashes: list[Json] = []
    if package.kind == "pypi":
        pinned = locked.get((package.name, package.version))
        properties.append(_property("locked", str(pinned is not None).lower()))
        properties += _lacked([lacking.get((package.name, package.version), ())])
        hashes = [{"alg": "SHA-256", "content": one.removeprefix("sha256:")} for one in pinned.hashes] if pinned else []
    # A lock lists every file that may be installed: only a single one is known to be.
    files = {"type": "distribution", "url": purl, "hashes": hashes, "comment": "one of these files was installed"}
    return _some(
        type="library",
        name=package.name,
        version=package.version,
        purl=purl,
        hashes=hashes if len(hashes) == 1 else [],
        externalReferences=[files] if len(hashes) > 1 else [],
        licenses=_licences(package),
        properties=properties,
    )


def _licences(package: ImagePackage) -> list[Json]:
    if package.spdx:
        return [{"expression": package.licences[0]}]
    return [{"license": {"name": name}} for name in package.licences]


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
