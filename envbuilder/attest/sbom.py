"""The packages of an image: found in the files of its package managers, and written as a CycloneDX 1.6 document.

The image is neither run nor unpacked. The same image gives the same document.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol
from urllib.parse import quote

from packaging.requirements import InvalidRequirement, Requirement

from envbuilder import __version__
from envbuilder.image.lockfile import Locked
from envbuilder.image.removed_files import Removed, RemovedFiles, sums
from envbuilder.support import decoding, dpkg_status
from envbuilder.versions import distribution

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"

_NAMESPACE = uuid.UUID("5b0d5a6e-6c1f-5f53-9f6a-2c1d0d8c7f11")
"""A random namespace: serial numbers are derived from it and the image's digest."""

_CUDA = re.compile(
    r"(?:nvidia-|cuda-|lib(?:cublas|cudnn|cufft|curand|cusolver|cusparse|nccl|npp|nvjpeg|nvjitlink|nvrtc))"
)
_METADATA = re.compile(r"(?:\.dist-info/METADATA|\.egg-info/PKG-INFO|\.egg-info)\Z")
_PYTHON = re.compile(r"/python(\d+\.\d+)/")
_MOST_LICENCES = 40

Json = dict[str, Any]


class Files(Protocol):
    """An image's files as a container would see them."""

    def kept(self) -> Iterable[tuple[str, bytes]]:
        """Yield path (without leading slash) and content of the files of package managers."""

    def content(self, path: str) -> bytes | None:
        """Return the content of a file, following links; None if it is not there."""


@dataclass(frozen=True, order=True)
class ImagePackage:
    """One installed package; ``licences`` from its own files, ``spdx`` if that is one SPDX expression.

    ``source`` is its Debian source package (``name`` or ``name version``) if that has another name or version:
    vulnerabilities are listed by it. ``requires`` has for each requirement the names that meet it.
    """

    kind: Literal["deb", "pypi"]
    name: str
    version: str
    arch: str = ""
    licences: tuple[str, ...] = ()
    spdx: bool = False
    source: str = ""
    requires: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class ImagePackages:
    """The packages, sorted, and the distribution (``debian``, ``bookworm``, ``12``)."""

    packages: tuple[ImagePackage, ...]
    distribution: str = ""
    release: str = ""
    version: str = ""


def read(files: Files) -> ImagePackages:
    """Read the lists of Debian's and Python's package managers."""
    found: set[ImagePackage] = set()
    for path, content in files.kept():
        text = decoding.lossy(content)
        if dpkg_status.STATUS.fullmatch(path):
            found |= set(_debian(text, files))
        elif _METADATA.search(path):
            found |= set(_python(text, path))
    release_file = _os_release(
        decoding.lossy(files.content("etc/os-release") or files.content("usr/lib/os-release") or b"")
    )
    release = release_file.get("VERSION_CODENAME") or release_file.get("VERSION_ID", "")
    return ImagePackages(tuple(sorted(found)), release_file.get("ID", ""), release, release_file.get("VERSION_ID", ""))


def _debian(text: str, files: Files) -> Iterator[ImagePackage]:
    for fields in dpkg_status.installed(text):
        name = fields["Package"]
        copyright_ = files.content(f"usr/share/doc/{name}/copyright") or b""
        yield ImagePackage(
            "deb",
            name,
            fields.get("Version", ""),
            fields.get("Architecture", ""),
            _debian_licences(decoding.lossy(copyright_)),
            source=fields.get("Source", "").replace("(", "").replace(")", ""),
            requires=_debian_requires(fields.get("Pre-Depends", ""), fields.get("Depends", "")),
        )


def _debian_licences(text: str) -> tuple[str, ...]:
    """Return the licences of a machine-readable copyright file (DEP 5), by Debian's short names."""
    if not text.startswith("Format:"):
        return ()
    named = re.findall(r"^License:[ \t]*(\S.*)$", text, re.MULTILINE)
    return tuple(dict.fromkeys(name.strip()[:120] for name in named))[:_MOST_LICENCES]


def _debian_requires(*fields: str) -> tuple[tuple[str, ...], ...]:
    clauses = (clause for field in fields for clause in field.split(",") if clause.strip())
    return tuple(tuple(re.split(r"[\s(:]", one.strip(), maxsplit=1)[0] for one in c.split("|")) for c in clauses)


def _python(text: str, path: str) -> Iterator[ImagePackage]:
    header = text.partition("\n\n")[0]
    fields = dpkg_status.fields(header)
    if "Name" not in fields or "Version" not in fields:
        return
    expression = fields.get("License-Expression", "")
    stated = expression or fields.get("License", "") or "; ".join(_classified(header))
    licences = (stated[:120],) if stated else ()
    requires = tuple(_python_requires(header, path))
    yield ImagePackage(
        "pypi", distribution(fields["Name"]), fields["Version"], "", licences, bool(expression), "", requires
    )


def _classified(header: str) -> Iterator[str]:
    """Yield the last parts of the licence classifiers."""
    for line in header.splitlines():
        if line.startswith("Classifier: License ::"):
            yield line.rpartition("::")[2].strip()


def _python_requires(header: str, path: str) -> Iterator[tuple[str, ...]]:
    """Yield the requirements of a distribution on this Python and system, without extras."""
    python = _PYTHON.search(path)
    here = {"extra": "", "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    here |= {"python_version": python[1], "python_full_version": f"{python[1]}.0"} if python else {}
    for line in header.splitlines():
        if line.startswith("Requires-Dist:"):
            try:
                wanted = Requirement(line.removeprefix("Requires-Dist:").strip())
            except InvalidRequirement:
                continue
            if wanted.marker is None or wanted.marker.evaluate(here):
                yield (distribution(wanted.name),)


def _os_release(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key: value.strip().strip('"') for key, _, value in pairs}


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
    properties = [_property("cuda", "true")] if _CUDA.match(package.name) else []
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
