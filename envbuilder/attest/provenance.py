"""Where an image came from: its build context, its base and the tools, in the shape of SLSA provenance v1."""

from __future__ import annotations

import msgspec

from envbuilder import __version__
from envbuilder.attest.statement import PROVENANCE, Resource, Statement, about, digest_hex, resource

BUILD_TYPE = "urn:envbuilder:build/v1"
BUILDER = "urn:envbuilder:builder/v1"


class _Definition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    build_type: str
    external_parameters: dict[str, str]
    resolved_dependencies: tuple[Resource, ...]


class _Builder(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    version: dict[str, str]


class _Details(msgspec.Struct, frozen=True, kw_only=True):
    builder: _Builder


class _Provenance(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    build_definition: _Definition
    run_details: _Details


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The image that was built on: its reference, its digest or id (``sha256:…``), and where it came from."""

    reference: str
    digest: str
    origin: str = ""


def provenance(  # noqa: PLR0913 - what a build is made of
    name: str, digest: str, *, environment: str, context: dict[str, str], base: Base | None, tools: dict[str, str]
) -> Statement:
    """State how an image was built: ``context`` is path → sha256 digest, ``tools`` name → version.

    Every tool's version is as the engine or the lock of tools states it; the base's digest is the engine's.
    """
    materials = [resource(path, value) for path, value in sorted(context.items())]
    if base is not None:
        materials.append(Resource(name=base.reference, digest={"sha256": digest_hex(base.digest)}))
    parameters = {"environment": environment, **({"base": base.origin} if base and base.origin else {})}
    predicate = _Provenance(
        build_definition=_Definition(
            build_type=BUILD_TYPE, external_parameters=parameters, resolved_dependencies=tuple(materials)
        ),
        run_details=_Details(builder=_Builder(id=BUILDER, version={"envbuilder": __version__, **tools})),
    )
    return about(name, digest, PROVENANCE, predicate)
