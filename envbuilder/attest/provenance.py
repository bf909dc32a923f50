"""SLSA provenance v1 of an image: its build context, its base and the tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote

from envbuilder import __version__
from envbuilder.attest.statements import PROVENANCE, Resource, Statement, about, digest_hex, resource
from envbuilder.image.build import ImageRecord
from envbuilder.image.lockfile import Locked

BUILD_TYPE = "urn:envbuilder:build/v1"
BUILDER = "urn:envbuilder:builder/v1"


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
    manifest's if it came from a registry, else the engine's image id. A locked package has the digests of every file
    that may have been installed.
    """
    materials = [resource(path, value) for path, value in sorted(context.items())]
    stated = record.base.rpartition("@")[2] if "@sha256:" in record.base else record.base_id
    materials.append(Resource(name=record.base, digest={"sha256": digest_hex(stated)}))
    materials += [_package(package) for package in locked]
    if record.revision:
        materials.append(Resource(name="source", digest={"gitCommit": record.revision}))
    parameters = {"environment": record.environment, **({"base": record.base_origin} if record.base_origin else {})}
    times = {
        "invocationId": record.started and f"{record.environment}/{record.started}",
        "startedOn": record.started,
        "finishedOn": record.finished,
    }
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": parameters,
            "resolvedDependencies": materials,
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": {"envbuilder": __version__, **tools}},
            "byproducts": [resource("image.json", known)] if known else [],
            "metadata": {key: value for key, value in times.items() if value},
        },
    }
    return about(name, digest, PROVENANCE, predicate)


def _package(package: Locked) -> Resource:
    uri = f"pkg:pypi/{quote(package.name, safe='')}@{quote(package.version, safe='')}"
    hashes = tuple(digest.removeprefix("sha256:") for digest in package.hashes)
    if len(hashes) == 1:
        return Resource(uri=uri, digest={"sha256": hashes[0]})
    return Resource(uri=uri, annotations={"sha256": hashes})
