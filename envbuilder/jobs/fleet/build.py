"""Build and publish missing images on hosts of a fleet, from the matrix and the committed build context."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice, choose
from envbuilder.engine.docker import connect
from envbuilder.errors import UsageError
from envbuilder.host import describe
from envbuilder.jobs.fleet.document import FleetDocument
from envbuilder.jobs.fleet.job import Job
from envbuilder.jobs.run import RunOptions, run
from envbuilder.matrix import Matrix
from envbuilder.publish.attestation import PublishSession
from envbuilder.publish.publish_all import PublishOptions, publish_all, sealer_of
from envbuilder.publish.results import PublishDocument, PublishRow
from envbuilder.publish.tags import destination
from envbuilder.publish.verify_request import published_digest
from envbuilder.pypi.client import open_index
from envbuilder.support import decoding
from envbuilder.support.console import Console
from envbuilder.validation.checks import Profile
from envbuilder.workspace import Workspace, digest, folder_contents, write_atomically


class BuildSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One image to build, validate and publish: the input of `envbuilder fleet make`.

    ``files`` is the committed build context by path, so that no host resolves versions again; empty if there is none.
    """

    schema: str = "envbuilder/make-order/v1"
    repository: str
    environment: str
    matrix: Matrix
    files: dict[str, bytes] = {}
    profile: Profile = "quick"
    gpus: str = "auto"

    @property
    def content(self) -> bytes:
        return msgspec.json.encode(self, order="deterministic")

    @property
    def key(self) -> str:
        """Short digest of the whole specification."""
        return digest(self.content).removeprefix("sha256:")[:16]


def build_jobs(document: FleetDocument, choice: Choice, root: Path, *, profile: Profile, gpus: str) -> Iterable[Job]:
    """Yield a job for each environment that some host can run and that the repository lacks."""
    workspace = Workspace(root)
    missing = {row.environment for row in document.rows if row.state == "unpublished"}
    for environment in choice.environments:
        if environment.id not in missing:
            continue
        context = workspace.context(environment.id)
        spec = BuildSpec(
            repository=document.repository,
            environment=environment.id,
            matrix=choice.matrix,
            files=folder_contents(context) if context.is_dir() else {},
            profile=profile,
            gpus=gpus,
        )
        name = f"envbuilder-make-{spec.key}"
        yield Job(name, ("fleet", "make", "-"), spec.content, "", "", environment.arch)


def spec_of(job: Job) -> BuildSpec:
    spec: BuildSpec = decoding.from_json(job.spec, BuildSpec)
    return spec


def unpack(spec: BuildSpec, root: Path, catalog: Catalog) -> tuple[Choice, Workspace]:
    """Write a specification's matrix and context to a folder below ``root``, and choose its environment.

    Raises UsageError for a path outside of the context.
    """
    workspace = Workspace(root / "made" / spec.key)
    path = workspace.root / "matrix.yaml"
    write_atomically(path, msgspec.yaml.encode(spec.matrix))
    for name, content in spec.files.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise UsageError(
                f"the path {name!r} is outside of the build context",
                hint="start the build with `envbuilder fleet run --dask ADDRESS --build`",
            )
        write_atomically(workspace.context(spec.environment) / place, content)
    return choose(str(path), (spec.environment,), workspace, catalog), workspace


def build_and_publish(
    spec: BuildSpec, root: Path, catalog: Catalog, signers: tuple[Path, ...], *, keyless: bool
) -> PublishDocument:
    """Build a specification's environment and publish it, unless the repository has it by now.

    A failed build is reported in the row, whose exit code differs from that of a broken host.
    """
    to, console = destination(spec.repository), Console()
    sealer = sealer_of(signers, keyless=keyless, environment=os.environ, say=console.say)
    choice, workspace = unpack(spec, root, catalog)
    row = PublishRow(environment=spec.environment, repository=to.name)
    published = published_digest(to, spec.environment, os.environ)
    if published is not None:
        return PublishDocument(rows=(msgspec.structs.replace(row, published=True, digest=published),))
    engine = connect()
    built = run(choice, workspace, engine, console, RunOptions(validate=False), open_index()).rows[0]
    if built.error:
        return PublishDocument(rows=(msgspec.structs.replace(row, error=built.error, exit_code=built.exit_code),))
    options = PublishOptions(to, allow=("inconclusive",), profile=spec.profile, gpus=spec.gpus)
    session = PublishSession(engine, workspace, console.say, dict(os.environ), describe())
    return publish_all(choice, options, sealer, session)
