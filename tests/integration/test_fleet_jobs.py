"""Each kind of job, run by an installed wheel in an empty folder: it carries all that its host needs.

The environment has everything that can be missing there: an own base with a company's authority, an authority, a file
and a template of the matrix, and the variant that leaves files out.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import certificate
from fleet_jobs import installed_wheel
from registries import docker_registry

from envbuilder.attest.keys import PRIVATE, PUBLIC, create
from envbuilder.catalog.store import load
from envbuilder.choice import Choice, choose
from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.errors import InfrastructureError
from envbuilder.image.bases import ensure_base
from envbuilder.image.context import ensure_lock, ensure_packages, write_context
from envbuilder.jobs.base import inspect
from envbuilder.jobs.fleet.job import BuildSpec, Job, ValidationSpec, packed, required
from envbuilder.registry.client import Repository
from envbuilder.registry.reference import Reference, parse
from envbuilder.validation import suite_plan
from envbuilder.workspace import Workspace, cache_dir

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(1500)]

TEMPLATE = '{% extends "Dockerfile.j2" %}\n{% block as_root %}\nRUN mkdir /srv/app\n{% endblock %}\n'
MATRIX = """\
name: corporate
bases: {corp: {image: "%s"}}
axes: {tensorflow: ["2.20.0"], os: [corp], variant: [runtime]}
files: {conf/motd: /etc/motd}
certificates: [conf/extra.crt]
template: ours.j2
"""


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Reference]:
    with docker_registry(tmp_path / "registry") as address:
        yield parse(f"{address}/team/image")


@pytest.fixture
def choice(tmp_path: Path, repository: Reference) -> Iterator[Choice]:
    """Lock the environment in a folder of its own; its base is in the registry only."""
    engine, catalog, workspace = connect(), load(), Workspace(tmp_path / "project")
    debian = catalog.system("debian-bookworm")
    assert debian is not None
    base = ensure_base(engine, debian, cache_dir() / "bases", lambda *_: None)
    company, extra = (certificate(tmp_path / name).read_bytes() for name in ("company", "extra"))
    place = "/usr/local/share/ca-certificates/company.crt"
    text = f"FROM {base.reference}\nCOPY company.crt {place}\nRUN update-ca-certificates\n"
    tag = f"{repository.name.partition('/')[0]}/team/corp:1"
    context = {"Dockerfile": text.encode(), "company.crt": company}
    engine.build(BuildRequest(context=context, dockerfile="Dockerfile", tag=tag), lambda _: None)
    engine.push(tag)
    facts = inspect(engine, tag, workspace, catalog, lambda _: None)
    for name, content in (("conf/motd", b"hello\n"), ("conf/extra.crt", extra), ("ours.j2", TEMPLATE.encode())):
        (workspace.root / name).parent.mkdir(exist_ok=True)
        (workspace.root / name).write_bytes(content)
    (workspace.root / "matrix.yaml").write_text(MATRIX % facts.image)
    found = choose(str(workspace.root / "matrix.yaml"), (), workspace, catalog)
    (environment,) = found.environments
    lock = ensure_lock(environment, found.catalog, workspace)
    ensure_packages(environment, lock, found.catalog, workspace)
    write_context(environment, lock, workspace)
    for name in (tag, facts.image):
        with suppress(InfrastructureError):
            engine.remove(name)
    yield found
    with suppress(InfrastructureError):
        engine.remove(f"envbuilder/tensorflow:{environment.image_tag}")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_wheel(tmp_path_factory.mktemp("wheel"))


def run(job: Job, folder: Path, installed: Path, key: Path) -> tuple[int, str]:
    folder.mkdir()
    ended = subprocess.run(
        (sys.executable, "-m", "envbuilder", "fleet", "prove", "-", "--format", "json", "--sign", str(key)),
        cwd=folder,
        input=job.data,
        env={**os.environ, "PYTHONPATH": str(installed), "HOME": os.environ.get("HOME", str(folder))},
        capture_output=True,
        check=False,
    )
    return ended.returncode, ended.stdout.decode() + ended.stderr.decode()


def test_empty_folder_builds_publishes_and_validates_by_the_jobs_only(
    tmp_path: Path, repository: Reference, choice: Choice, installed: Path
) -> None:
    (environment,) = choice.environments
    project = Workspace(tmp_path / "project")
    keys = [tmp_path / name for name in ("builder", "validator")]
    for folder in keys:
        create(folder)
    build = BuildSpec(
        repository=repository.name,
        environment=environment.id,
        arch="x86_64",
        suite=suite_plan.digest(),
        max_age_s=3600.0,
        trusted=((keys[0] / PUBLIC).read_text(),),
        matrix=choice.matrix,
        record=packed(environment, project),
        gpus="none",
    )
    code, said = run(Job(build), tmp_path / "first", installed, keys[0] / PRIVATE)
    assert code == 0, said
    assert not list((tmp_path / "first").glob("made/*")), "the folder of the build is removed"
    published = Repository(repository, {}).manifest(environment.image_tag)
    assert published is not None
    digest = published.digest
    validation = ValidationSpec(
        repository=repository.name,
        digest=digest,
        environment=environment.id,
        level="cpu",
        arch="x86_64",
        suite=suite_plan.digest(),
        max_age_s=3600.0,
        trusted=((keys[1] / PUBLIC).read_text(),),
        record=required(environment, project),
        gpus="none",
    )
    code, said = run(Job(validation), tmp_path / "second", installed, keys[1] / PRIVATE)
    assert (code, '"did": "attached"' in said, '"verdict": "PASSED"' in said) == (0, True, True), said
