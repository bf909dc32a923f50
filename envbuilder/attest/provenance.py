"""SLSA provenance v1 of an image: its build context, its base and the tools."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from envbuilder import __version__
from envbuilder.attest.statements import PROVENANCE, Resource, Statement, about, digest_hex, resource
from envbuilder.image.lockfile import Locked

BUILD_TYPE = "urn:envbuilder:build/v1"
BUILDER = "urn:envbuilder:builder/v1"


class BuildFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The locked packages of a build, the commit of its source, and its times."""

    locked: tuple[Locked, ...] = ()
    revision: str = ""
    started: str = ""
    finished: str = ""


class BuildBase(msgspec.Struct, frozen=True, kw_only=True):
    """The base image: its reference, its digest or id (``sha256:…``), and its origin."""

    reference: str
    digest: str
    origin: str = ""


def provenance(
    name: str,
    digest: str,
    *,
    environment: str,
    context: dict[str, str],
    base: BuildBase | None,
    tools: dict[str, str],
    made: BuildFacts | None = None,
) -> Statement:
    """Return the statement of a build: ``context`` is path → sha256 digest, ``tools`` name → version.

    The base's digest is the manifest's if it came from a registry, else the engine's image id. A locked package has
    the digests of every file that may have been installed.
    """
    made = made or BuildFacts()
    materials = [resource(path, value) for path, value in sorted(context.items())]
    if base is not None:
        stated = base.reference.rpartition("@")[2] if "@sha256:" in base.reference else base.digest
        materials.append(Resource(name=base.reference, digest={"sha256": digest_hex(stated)}))
    materials += [_package(package) for package in made.locked]
    if made.revision:
        materials.append(Resource(name="source", digest={"gitCommit": made.revision}))
    parameters = {"environment": environment, **({"base": base.origin} if base and base.origin else {})}
    times = {
        "invocationId": made.started and f"{environment}/{made.started}",
        "startedOn": made.started,
        "finishedOn": made.finished,
    }
    predicate = {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": parameters,
            "resolvedDependencies": materials,
        },
        "runDetails": {
            "builder": {"id": BUILDER, "version": {"envbuilder": __version__, **tools}},
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
