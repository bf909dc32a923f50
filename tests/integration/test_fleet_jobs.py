"""A fleet from nothing to two proven hosts, by the commands of its page: a worker of Dask and a node of Slurm.

They have an installed wheel, empty folders, and their own keys and stores. The environment has everything that can be
missing there: an own base with a company's authority, every field that a matrix adds, a variant without some files.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from certificates import certificate
from dask_cluster import DaskCluster, dask_cluster
from fleet_jobs import installed_wheel
from index_server import Site, serving
from made_images import SITE, package, zipped
from registries import docker_registry, own_address
from slurm_cluster import MISSING, slurm_cluster
from table_rows import beside

from envbuilder.attest.keys import PRIVATE, PUBLIC, create
from envbuilder.catalog.store import load
from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.errors import InfrastructureError
from envbuilder.image.bases import ensure_base
from envbuilder.registry.reference import Reference, parse
from envbuilder.validation.image_files import read_image
from envbuilder.workspace import cache_dir

TEXTS = beside(__file__)

pytestmark = [
    *(pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(1500)),
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: scripts/setup slurm installs it"),
]

TEMPLATE = '{% extends "Dockerfile.j2" %}\n{% block as_root %}\nRUN mkdir -p /srv/app/motto\n{% endblock %}\n'


@pytest.fixture
def index() -> Iterator[str]:
    address = own_address()
    if address.startswith("127."):
        pytest.skip("steps of a build do not reach loopback")
    site = Site()
    wheel = zipped(package("team_tool", "1.0", {"team_tool.py": b"VERSION = '1.0'\n"}))
    site.add("team-tool", "team_tool-1.0-py3-none-any.whl", wheel)
    with serving(site, (address, 0)):
        yield site.url


@pytest.fixture
def to(tmp_path: Path) -> Iterator[Reference]:
    with docker_registry(tmp_path / "registry") as address:
        yield parse(f"{address}/team/image")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DaskCluster]:
    with dask_cluster(tmp_path / "dask") as running:
        yield running


@pytest.fixture
def base(tmp_path: Path, to: Reference) -> Iterator[str]:
    """Push a company's base; yield its tag."""
    engine, debian = connect(), load().system("debian-bookworm")
    assert debian is not None
    origin = ensure_base(engine, debian, cache_dir() / "bases", lambda *_: None).reference
    place = "/usr/local/share/ca-certificates/company.crt"
    text = f"FROM {origin}\nCOPY company.crt {place}\nRUN update-ca-certificates\n"
    context = {"Dockerfile": text.encode(), "company.crt": certificate(tmp_path / "company").read_bytes()}
    tag = f"{to.name.partition('/')[0]}/team/corp:1"
    engine.build(BuildRequest(context=context, dockerfile="Dockerfile", tag=tag), lambda _: None)
    engine.push(tag)
    yield tag
    with suppress(InfrastructureError):
        engine.remove(tag)


def test_two_hosts_reach_passed_with_an_own_base_and_every_field(
    tmp_path: Path, to: Reference, base: str, index: str, cluster: DaskCluster
) -> None:
    project, engine, program = tmp_path / "project", connect(), tmp_path / "bin" / "envbuilder"
    program.parent.mkdir()
    wheel_folder = installed_wheel(tmp_path / "wheel")
    program.write_text(f'#!/bin/sh\nPYTHONPATH={wheel_folder} exec {sys.executable} -m envbuilder "$@"\n')
    program.chmod(0o755)

    def command(*words: str) -> str:
        variables = {**os.environ, **cluster.variables}
        ended = subprocess.run(
            (program, *words), cwd=project, env=variables, capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def user(name: str) -> dict[str, str]:
        create(tmp_path / name)
        own = {"HOME": str(tmp_path / name), "TF_ENVBUILDER_WORK": str(tmp_path / name / "work")}
        path = f"{program.parent}:{os.environ['PATH']}"
        return {**own, "TF_ENVBUILDER_SIGNING_KEY": str(tmp_path / name / PRIVATE), "PATH": path, "XDG_CACHE_HOME": ""}

    def trusting(name: str) -> tuple[str, ...]:
        where = ("--fleet", "fleet.yaml", "--from", to.name, "--format", "json")
        return ("team.yaml", *where, "--key", str(tmp_path / name / PUBLIC))

    (project / "conf").mkdir(parents=True)
    found = json.loads(command("catalog", "inspect", base, "--format", "json"))
    contents = {
        "team.yaml": TEXTS["matrix"] % (found["image"], index),
        "team.txt": "humanize==4.12.3\n",
        "fleet.yaml": "- {name: any, count: 2}\n",
        "conf/motd": "hello\n",
        "conf/extra.crt": certificate(tmp_path / "extra").read_text(),
        "ours.j2": TEMPLATE,
    }
    for name, content in contents.items():
        (project / name).write_text(content)
    cluster.start("anna", str(program), "fleet", "worker", cluster.address, variables=user("anna"))
    command("lock", "team.yaml")
    run = ("fleet", "run", *trusting("anna"), "--dask", cluster.address, "--build")
    (built,) = json.loads(command(*run))["rows"]
    assert (built["state"], built["level"]) == ("passed", "cpu")
    assert not list((cluster.folder / "anna").glob("made/*")), "the folder of the build is removed"
    with slurm_cluster(tmp_path / "slurm", {"ben": "cpu"}) as slurm:
        variables = {**os.environ, **slurm.environment, **user("ben")}
        command("fleet", "export", "slurm", *trusting("ben"), "-o", "jobs")
        words = ("sbatch", "--wait", "any-host.sbatch")
        done = subprocess.run(words, cwd=project / "jobs", env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, [path.read_text() for path in (project / "jobs").glob("*.log")]
    (again,) = json.loads(command("fleet", "status", *trusting("ben")))["rows"]
    assert (again["state"], again["digest"]) == ("passed", built["digest"])
    reference = str(to.at(built["digest"]))
    image = engine.image(reference)
    assert image is not None
    files = read_image(engine, image)
    own = {"etc/app/motd", "srv/app/motto", "usr/local/share/ca-certificates/conf-extra.crt"}
    assert own | {f"{SITE}/team_tool.py", f"{SITE}/humanize/__init__.py"} <= files.paths.keys()
    assert (image.env["GREETING"], image.labels["com.example.team"]) == ("hello, $HOME", "vision")
    assert (image.user, image.workdir) == ("worker", "/srv/app")
    for name in (reference, f"envbuilder/tensorflow:{built['environment']}"):
        with suppress(InfrastructureError):
            engine.remove(name)
