"""What an image is made of: its packages as a CycloneDX 1.6 document, its build as SLSA provenance v1.

Packages are found in the files of package managers; the image is neither run nor unpacked. The same image gives the
same document.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from packaging.requirements import InvalidRequirement, Requirement

from envbuilder import __version__
from envbuilder.attest.statements import PROVENANCE, Resource, Statement, about, resource
from envbuilder.image.build import ImageRecord
from envbuilder.image.lockfile import Locked
from envbuilder.image.removed_files import Removed, RemovedFiles, sums
from envbuilder.support import decoding, dpkg_status
from envbuilder.versions import distribution

SCHEMA = "http://cyclonedx.org/schema/bom-1.6.schema.json"
BUILD_TYPE = "urn:envbuilder:build/v1"
BUILDER = "urn:envbuilder:builder/v1"

_NAMESPACE = uuid.UUID("5b0d5a6e-6c1f-5f53-9f6a-2c1d0d8c7f11")
"""A random namespace: serial numbers are derived from it and the image's digest."""

_CUDA = re.compile(r"nvidia-|cuda-|lib(?:cu(?:blas|dnn|fft|rand|solver|sparse)|nccl|npp|nvjpeg|nvjitlink|nvrtc)")
_METADATA = re.compile(r"(?:\.dist-info/METADATA|\.egg-info/PKG-INFO|\.egg-info)\Z")
_PYTHON = re.compile(r"/python(\d+\.\d+)/")

Json = dict[str, Any]

Content = Callable[[str], bytes | None]
"""Returns the content of an image's file, following links; None if it is not there."""


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


def read(lists: Iterable[tuple[str, bytes]], content: Content) -> ImagePackages:
    """Read the files of Debian's and Python's package managers, each with its path (without leading slash)."""
    found: set[ImagePackage] = set()
    for path, data in lists:
        text = decoding.lossy(data)
        if dpkg_status.STATUS.fullmatch(path):
            found |= set(_debian(text, content))
        elif _METADATA.search(path):
            found |= set(_python(text, path))
    system = dpkg_status.os_release(content("etc/os-release") or content("usr/lib/os-release") or b"")
    release = system.get("VERSION_CODENAME") or system.get("VERSION_ID", "")
    return ImagePackages(tuple(sorted(found)), system.get("ID", ""), release, system.get("VERSION_ID", ""))


def _debian(text: str, content: Content) -> Iterator[ImagePackage]:
    for fields in dpkg_status.installed(text):
        name, version, arch = fields["Package"], fields.get("Version", ""), fields.get("Architecture", "")
        licences = dpkg_status.licences(decoding.lossy(content(f"usr/share/doc/{name}/copyright") or b""))
        source = fields.get("Source", "").replace("(", "").replace(")", "")
        requires = dpkg_status.requires(fields.get("Pre-Depends", ""), fields.get("Depends", ""))
        yield ImagePackage("deb", name, version, arch, licences, source=source, requires=requires)


def _python(text: str, path: str) -> Iterator[ImagePackage]:
    header = text.partition("\n\n")[0]
    fields = dpkg_status.fields(header)
    if "Name" not in fields or "Version" not in fields:
        return
    expression = fields.get("License-Expression", "")
    classified = re.findall(r"^Classifier: License ::(.*)$", header, re.MULTILINE)
    last = (one.rpartition("::")[2].strip() for one in classified)
    stated = expression or fields.get("License", "") or "; ".join(filter(None, last))
    licences, requires = (stated[:120],) if stated else (), tuple(_python_requires(header, path))
    name, version = distribution(fields["Name"]), fields["Version"]
    yield ImagePackage("pypi", name, version, "", licences, bool(expression), "", requires)


def _python_requires(header: str, path: str) -> Iterator[tuple[str, ...]]:
    """Yield the requirements of a distribution on this Python and system, without extras."""
    python = _PYTHON.search(path)
    here = {"extra": "", "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix"}
    here |= {"python_version": python[1], "python_full_version": f"{python[1]}.0"} if python else {}
    for line in re.findall(r"^Requires-Dist:(.*)$", header, re.MULTILINE):
        with suppress(InvalidRequirement):
            wanted = Requirement(line.strip())
            if wanted.marker is None or wanted.marker.evaluate(here):
                yield (distribution(wanted.name),)


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

    ``created`` is an ISO 8601 time ('' if unknown). ``left_out`` are the files that its variant removes from locked
    packages.
    """
    locked = {(package.name, package.version): package for package in lock}
    lacking, last = left_out or {}, _encoded(name.rpartition("/")[2])
    purl = f"pkg:oci/{last}@{_encoded(digest)}?repository_url={_encoded(name, '/')}"
    properties = list(_lacked(lacking.values()))
    image = _some(type="container", name=name, version=digest, purl=purl, properties=properties)
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
    edges: dict[str, set[str]] = {}
    for package in contents.packages:
        kind = package.kind
        met = ([here[kind, name] for name in names if (kind, name) in here] for names in package.requires)
        edges.setdefault(_purl(package, contents), set()).update(purl for known in met for purl in known[:1])
    for ref, needed in edges.items():
        yield {"ref": ref, "dependsOn": tuple(sorted(needed - {ref}))}


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
    licences = [{"expression": name} if package.spdx else {"license": {"name": name}} for name in package.licences]
    stated = {"type": "library", "name": package.name, "version": package.version, "purl": purl}
    known = {"externalReferences": [files]} if len(hashes) > 1 else {"hashes": hashes}
    return _some(**stated, **known, licenses=licences, properties=properties)


def _purl(package: ImagePackage, contents: ImagePackages) -> str:
    name, version = _encoded(package.name), _encoded(package.version)
    if package.kind == "pypi":
        return f"pkg:pypi/{name}@{version}"
    stated = _some(arch=package.arch, distro=contents.release, upstream=package.source.replace(" ", "@"))
    qualifiers = "&".join(f"{key}={_encoded(value)}" for key, value in stated.items())
    return f"pkg:deb/{_encoded(contents.distribution or 'debian')}/{name}@{version}?{qualifiers}".removesuffix("?")


def _encoded(text: str, also: str = "") -> str:
    """Encode a part of a package URL; its specification leaves a colon as it is, and ``also``."""
    return quote(text, safe=f":{also}")


def provenance(
    name: str,
    digest: str,
    record: ImageRecord,
    context: Mapping[str, str],
    locked: Iterable[Locked],
    tools: Mapping[str, str],
    known: str = "",
) -> Statement:
    """Return the statement of a build: ``context`` is path → sha256 digest, ``tools`` name → version.

    ``known`` is the digest of the record of its layers and configuration ('' without one). The base's digest is the
    manifest's if it came from a registry, else the engine's image id.
    """
    stated = record.base.rpartition("@")[2] if "@sha256:" in record.base else record.base_id
    materials = [*(resource(path, value) for path, value in sorted(context.items())), resource(record.base, stated)]
    for package in locked:
        uri = f"pkg:pypi/{quote(package.name, safe='')}@{quote(package.version, safe='')}"
        hashes = tuple(one.removeprefix("sha256:") for one in package.hashes)  # of each file that may be installed
        one_file = {"sha256": hashes[0]} if len(hashes) == 1 else {}
        materials.append(Resource(uri=uri, digest=one_file, annotations={} if one_file else {"sha256": hashes}))
    if record.revision:
        materials.append(Resource(name="source", digest={"gitCommit": record.revision}))
    parameters = {"environment": record.environment, **({"base": record.base_origin} if record.base_origin else {})}
    invocation = record.started and f"{record.environment}/{record.started}"
    build = {"buildType": BUILD_TYPE, "externalParameters": parameters, "resolvedDependencies": materials}
    run = {
        "builder": {"id": BUILDER, "version": {"envbuilder": __version__, **tools}},
        "byproducts": [resource("image.json", known)] if known else [],
        "metadata": _some(invocationId=invocation, startedOn=record.started, finishedOn=record.finished),
    }
    return about(name, digest, PROVENANCE, {"buildDefinition": build, "runDetails": run})
