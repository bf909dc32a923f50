"""What a team puts on top, for real: packages of its own index and of the system, files, a template, and the suite."""

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from index_server import Site, serving
from made_images import SITE, package
from registries import own_address

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import connect
from envbuilder.finding import Severity
from envbuilder.image import lockfile, system_lock
from envbuilder.image.build import ensure
from envbuilder.image.context import stale
from envbuilder.pypi.client import open_index
from envbuilder.support import dpkg_status
from envbuilder.validation.image_files import read_image
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.workspace import Workspace

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(1800)]

TEMPLATE = """\
{% extends "Dockerfile.j2" %}
{% block as_root %}
RUN mkdir -p /srv/app && echo ours > /srv/app/motto
{% endblock %}
"""


def wheel(name: str, version: str) -> bytes:
    """Make a wheel that installers take: with its RECORD."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, data in package(name, version, {f"{name}.py": f"VERSION = {version!r}\n".encode()}).items():
            archive.writestr(path.removeprefix(f"{SITE}/"), data)
    return content.getvalue()


@pytest.fixture
def index() -> Iterator[Site]:
    address = own_address()
    if address.startswith("127."):
        pytest.skip("steps of a build do not reach loopback")
    site = Site()
    site.add("team-tool", "team_tool-1.0-py3-none-any.whl", wheel("team_tool", "1.0"))
    with serving(site, (address, 0)):
        yield site


def test_teams_matrix_is_built_and_judged(index: Site, tmp_path: Path) -> None:
    (tmp_path / "app.conf").write_text("a=1\n")
    (tmp_path / "ours.j2").write_text(TEMPLATE)
    wish = {
        "name": "team",
        "include": [{"tensorflow": "2.20.0", "os": "debian-bookworm"}],
        "packages": ["team-tool==1.0"],
        "indexes": [index.url],
        "system_packages": ["libgomp1", "python3"],
        "env": {"GREETING": "hello, $HOME"},
        "labels": {"com.example.team": "vision"},
        "user": "worker",
        "workdir": "/srv/app",
        "entrypoint": ["/usr/bin/env", "--"],
        "files": {"app.conf": "/etc/app.conf"},
        "template": "ours.j2",
    }
    (tmp_path / "team.yaml").write_text(json.dumps(wish))
    workspace, engine = Workspace(tmp_path), connect()
    choice = choose("team.yaml", (), workspace, load())
    (environment,) = choice.environments
    built = ensure(environment, choice.catalog, workspace, engine, lambda _: None)
    try:
        image = engine.image(built.record.image)
        assert image is not None
        verdict = validate(engine, ValidationRequest(gpus="none", index=open_index()).of(built))
        assert [one.message for one in verdict.findings if one.severity is Severity.ERROR] == []
        assert (verdict.verdict, verdict.level) == ("PASSED", "cpu")
        files = read_image(engine, image)
        there = dpkg_status.versions((files.content("var/lib/dpkg/status") or b"").decode())
        pinned = system_lock.parse(built.system[system_lock.SYSTEM_LOCK])
        assert "libgomp1" in {one.name for one in pinned}
        assert {one.name: there.get(one.name) for one in pinned} == {one.name: one.version for one in pinned}
        assert "team-tool" in {one.name for one in lockfile.parse(built.lock)}
        assert {"etc/app.conf", "srv/app/motto"} <= files.paths.keys()
        assert (image.env["GREETING"], image.labels["com.example.team"]) == ("hello, $HOME", "vision")
        assert (image.user, image.workdir) == ("worker", "/srv/app")
        assert stale(environment, workspace) == ()
    finally:
        engine.remove(built.record.reference)
