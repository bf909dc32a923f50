"""The tutorial, word for word: its commands run in order in a fresh home with the built wheel, as the page shows."""

import json
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from console_pages import commands, fits
from registries import docker_registry
from uv import find_uv_bin

from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.image.host_settings import host_files
from envbuilder.pypi.index_config import for_uv, read

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs" / "tutorial.md").read_text()
REGISTRY = "localhost:5000"

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(3000)]


def saved_files(text: str) -> dict[str, str]:
    return dict(re.findall(r"Save this as `([^`]+)`:\n\n```\w+\n(.*?)```", text, re.DOTALL))


@pytest.fixture
def home(tmp_path: Path) -> Mapping[str, str]:
    wheels, venv, uv, index = tmp_path / "wheels", tmp_path / "venv", find_uv_bin(), os.environ | for_uv(read())
    subprocess.run([uv, "build", "--wheel", "--quiet", "-o", wheels, TOP], check=True, cwd=tmp_path, env=index)
    subprocess.run([uv, "venv", "--quiet", "--seed", venv], check=True, cwd=tmp_path)
    (tmp_path / "home").mkdir()
    clean = {name: value for name, value in index.items() if not name.startswith(("XDG_", "TF_ENVBUILDER_", "DOCKER_"))}
    own = {"HOME": str(tmp_path / "home"), "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    return clean | own | {"PIP_FIND_LINKS": " ".join([str(wheels), *read().links])}


@pytest.fixture
def tags() -> Iterator[None]:
    """Give each tag of the page back to the image that had it before."""
    engine = connect()
    names = {*re.findall(r"envbuilder/tensorflow:[\w.-]+", PAGE), "team/extended"}
    before = {name: engine.image(name) for name in names}
    yield
    for name, image in before.items():
        if image is None:
            engine.remove(name)
        else:
            engine.tag(image.id, name)


def build_with_buildkit(folder: Path, tag: str) -> None:
    """Build as `docker build` does: newer clients need a plugin for it. Steps get this host's authorities."""
    for record in map(Path.read_bytes, folder.glob("out/*/image.json")):
        built = json.loads(record)
        connect().tag(built["image"], built["reference"])  # a test beside this one may have moved it
    host = "if [ -s /run/host/ca-certificates.crt ]; then export SSL_CERT_FILE=/run/host/ca-certificates.crt; fi;"
    text = (folder / "Dockerfile").read_text()
    step = text.replace("RUN ", "RUN --mount=source=host,target=/run/host ").replace("    /run", f"    {host} /run")
    context = {"Dockerfile": step.encode(), "host/README": b""}
    connect().build(BuildRequest(context=context, tag=tag, extra=host_files(folder="host")), lambda _: None)


def run(line: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    words = shlex.split(line)
    if words[:2] == ["docker", "build"]:
        build_with_buildkit(folder, words[3])
        words = ["true"]
    if words[:2] == ["docker", "compose"] and subprocess.run([*words[:2], "version"], check=False).returncode:
        words = ["docker-compose", "--no-ansi", *words[2:]]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("tags")
def test_tutorial_commands_succeed_and_print_what_the_page_shows(
    tmp_path: Path, home: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", home["PATH"])  # finds the programs of the fresh virtual environment
    folder = Path(home["HOME"])
    ran = []
    with docker_registry(tmp_path / "registry") as address:
        for command, shown in commands(PAGE):
            line, output = (text.replace(REGISTRY, address) for text in (command, shown))
            if line.startswith("cd "):
                folder = folder / line.removeprefix("cd ")
                for name, text in saved_files(PAGE).items():
                    (folder / name).write_text(text)
                continue
            done = run(line, folder, home)
            expected = 1 if "\nincompatible:" in output else 0
            assert done.returncode == expected, f"{line}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
            assert fits(output, done.stdout), f"{line}:\n{done.stdout}"
            ran.append(line.split()[:2])
    run("docker compose down", folder, home)
    assert {"check", "choose", "init", "plan", "run", "validate", "publish", "verify"} <= {two for _, two in ran}
    assert (folder / "out" / "report" / "index.html").exists()
