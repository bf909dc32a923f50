"""Build and publish missing images on hosts of a fleet, from the matrix and the committed build context."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice, choose
from envbuilder.engine.docker import connect
from envbuilder.host import describe
from envbuilder.jobs.fleet.document import FleetDocument
from envbuilder.jobs.fleet.job import BuildSpec, Job, job_of
from envbuilder.jobs.fleet.record import required, unpacked
from envbuilder.jobs.run import RunOptions, run
from envbuilder.publish.attestation import PublishSession
from envbuilder.publish.publish_all import PublishOptions, publish_all, sealer_of
from envbuilder.publish.results import PublishDocument, PublishRow
from envbuilder.publish.tags import destination
from envbuilder.publish.verify_request import published_digest
from envbuilder.pypi.client import open_index
from envbuilder.support.console import Console
from envbuilder.validation.checks import Profile
from envbuilder.workspace import Workspace, write_atomically


def build_jobs(document: FleetDocument, choice: Choice, root: Path, *, profile: Profile, gpus: str) -> Iterable[Job]:
    """Yield a job for each environment that some host can run and that the repository lacks.

    Raises UsageError as `required` does: the hosts that validate the image later need the same record.
    """
    missing = {row.environment for row in document.rows if row.state == "unpublished"}
    for environment in choice.environments:
        if environment.id in missing:
            spec = BuildSpec(
                repository=document.repository,
                environment=environment.id,
                matrix=choice.matrix,
                record=required(environment, Workspace(root)),
                profile=profile,
                gpus=gpus,
            )
            yield job_of(spec, environment.arch)


def build_and_publish(
    spec: BuildSpec, root: Path, catalog: Catalog, signers: tuple[Path, ...], *, keyless: bool
) -> PublishDocument:
    """Build a specification's environment and publish it, unless the repository has it by now.

    A failed build is reported in the row, whose exit code differs from that of a broken host. The folder of the build,
    ``made/<job>``, is removed after the publication.
    """
    to, console = destination(spec.repository), Console()
    sealer = sealer_of(signers, keyless=keyless, environment=os.environ, say=console.say)
    folder = root / "made" / job_of(spec, "").name
    workspace = unpacked(spec.record, folder)
    write_atomically(folder / "matrix.yaml", msgspec.yaml.encode(spec.matrix))
    choice = choose(str(folder / "matrix.yaml"), (spec.environment,), workspace, catalog)
    row = PublishRow(environment=spec.environment, repository=to.name)
    published = published_digest(to, choice.environments[0].image_tag, os.environ)
    if published is not None:
        return PublishDocument(rows=(msgspec.structs.replace(row, published=True, digest=published),))
    engine = connect()
    built = run(choice, workspace, engine, console, RunOptions(validate=False), open_index()).rows[0]
    if built.error:
        return PublishDocument(rows=(msgspec.structs.replace(row, error=built.error, exit_code=built.exit_code),))
    options = PublishOptions(to, allow=("inconclusive",), profile=spec.profile, gpus=spec.gpus)
    session = PublishSession(engine, workspace, console.say, dict(os.environ), describe())
    document = publish_all(choice, options, sealer, session)
    if all(row.published for row in document.rows):
        with suppress(OSError):
            shutil.rmtree(folder)
    return document
