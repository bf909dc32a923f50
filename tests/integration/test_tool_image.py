"""envbuilder as a container image: an ordinary user of it reaches the host's engine by the mounted socket."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from ci_steps import SHIPPED, repository
from good_images import shared_controller

from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.image.host_settings import host_files

TOP = Path(__file__).parents[2]
(LINE,) = re.findall(r"^docker run (?:.|\n)*?(?=\n```)", (TOP / "docs/how-to/ci.md").read_text(), re.MULTILINE)
TAG = "envbuilder-test/tool"

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def tool() -> Iterator[str]:
    """Build the image on one that has Python; its step gets this host's index and authorities."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    wanted = ("envbuilder/", "templates/", "matrices/", "pyproject.toml", "README.md", "LICENSE")
    names = [name for name in listed.split("\0") if name.startswith(wanted)]
    mounts = "--mount=source=host,target=/run/host --mount=source=templates/steps,target=/run/steps"
    text = (TOP / "Dockerfile").read_text().replace("RUN ", f"RUN {mounts} . /run/steps/host-settings; ")
    files = {name: (TOP / name).read_bytes() for name in names}
    engine = connect()
    request = BuildRequest(
        context={**files, "Dockerfile": text.encode(), "host/README": b""},
        tag=TAG,
        extra=host_files(folder="host"),
        build_args={"BASE": shared_controller().good("cpu").record.reference},
    )
    engine.build(request, lambda _: None)
    yield TAG
    engine.remove(TAG)


def test_ordinary_user_of_the_image_reaches_the_engine_and_the_mounted_folder(tool: str, tmp_path: Path) -> None:
    repository(tmp_path)
    tmp_path.chmod(0o755)

    def run(*words: str) -> str:
        line = LINE.replace("$(id -u)", "12345").replace(" envbuilder run", f" {tool} {' '.join(words)}")
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert f"engine              docker {connect().info().version}" in run("doctor")
    assert run("render", "--check", "matrix.yaml") == "1 build contexts are current\n"
    assert SHIPPED in run("plan")
