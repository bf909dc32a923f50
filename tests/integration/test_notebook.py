"""The variants that people work in: JupyterLab answers in a real browser, and any user id may add packages."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Browser, browser
from waiting import wait_for

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.image.build import Built, ensure
from envbuilder.image.host_settings import host_files
from envbuilder.jobs.project import export_project
from envbuilder.support.console import Console
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.validation.validate_request import validate_target
from envbuilder.workspace import Workspace, write_atomically

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(900)]

WORKSPACE = Workspace(Path(__file__).parents[2])
EXAMPLE = WORKSPACE.root / "examples" / "extend"
TOKEN = "a-token-of-this-test"  # noqa: S105 - of a container of this test
CODE = "import tensorflow as tf; print('computed', float(tf.reduce_sum(tf.ones((3, 2)) @ tf.ones((2, 4)))))"
MOST_S = 120


def docker(*words: str) -> str:
    done = subprocess.run(["docker", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def built(matrix: str, selector: str) -> Built:
    choice = choose(matrix, (selector,), WORKSPACE, load())
    (environment,) = choice.environments
    return ensure(environment, choice.catalog, WORKSPACE, connect(), lambda _: None)


@pytest.fixture(scope="module")
def notebook() -> str:
    return built("notebook", "flavor=cpu").record.image


@pytest.fixture(scope="module")
def devel() -> Built:
    return built("tensorflow", "tf2.20.0-py311-cpu-bookworm")


@pytest.fixture
def address(notebook: str) -> Iterator[str]:
    """Start the image as OpenShift does, with a user id of its own choice and group 0."""
    name = docker("run", "-d", "--user", "1234567:0", "-p", "127.0.0.1::8888", "-e", f"JUPYTER_TOKEN={TOKEN}", notebook)
    try:
        yield f"http://{docker('port', name, '8888').splitlines()[0]}"
    finally:
        docker("rm", "-f", "-v", name)


def test_any_user_id_runs_the_runtime_variant() -> None:
    image = built("quickstart", "flavor=cpu").record
    assert image.reference.endswith("-runtime")
    code = f"import pathlib; (pathlib.Path.home() / 'a').touch(); {CODE}"
    found = docker("run", "--rm", "--user", "1234567:0", image.image, "python", "-c", code)
    assert found.endswith("computed 24.0")


def wait(page: Browser, expression: str) -> None:
    told = "document.body.innerText.slice(0, 2000)"
    wait_for(lambda: page.js(expression), MOST_S, lambda: (expression, page.js(told), page.console))


def opened(page: Browser, address: str, query: str = "") -> None:
    asked = ["curl", "-fs", "-o", "/dev/null", f"{address}/api"]
    wait_for(lambda: not subprocess.run(asked, check=False).returncode, MOST_S, lambda: "JupyterLab does not answer")
    page.visit(f"{address}/lab{query}")


def test_jupyterlab_computes_with_tensorflow_in_a_browser(address: str, tmp_path: Path) -> None:
    with browser(tmp_path) as page:
        opened(page, address, f"?token={TOKEN}")
        card = "document.querySelector('.jp-LauncherCard[data-category=Notebook]')"
        wait(page, f"{card} && 'there'")
        page.js(f"{card}.click()")
        cell = "document.querySelector('.jp-Notebook .jp-CodeCell .cm-content')"
        wait(page, f"{cell} && 'there'")
        wait(page, "document.body.innerText.includes('| Idle') && 'the kernel is there'")
        wait(page, f"{cell}.focus(), document.execCommand('insertText', false, {CODE!r}) && 'typed'")
        wait(page, f"{cell}.innerText.includes('computed') && 'there'")
        page.key("Enter", shift=True)
        outputs = "[...document.querySelectorAll('.jp-OutputArea-output')].map(one => one.innerText).join()"
        wait(page, f"{outputs}.includes('computed 24.0') && 'there'")  # after what TensorFlow logs


def test_jupyterlab_asks_a_browser_for_the_token(address: str, tmp_path: Path) -> None:
    with browser(tmp_path) as page:
        opened(page, address)
        assert "token" in page.js("document.body.innerText").lower()
        assert page.js("document.querySelector('.jp-LauncherCard') === null")


HOST = "if [ -s /run/host/ca-certificates.crt ]; then export SSL_CERT_FILE=/run/host/ca-certificates.crt; fi;"
"""Lets an installer trust the authorities of this host, which may have a proxy that ends TLS."""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for name, content in {"host/README": b"", **host_files(folder="host")}.items():
        write_atomically(tmp_path / name, content)
    return tmp_path / "host"


@pytest.mark.parametrize("user", ["envbuilder", "1234567:0"])
@pytest.mark.parametrize("installer", ["pip", "uv pip"])
def test_user_adds_replaces_and_removes_packages(devel: Built, host: Path, user: str, installer: str) -> None:
    remove = f"{installer} uninstall {'-y ' if installer == 'pip' else ''}wheel"
    script = f"set -e; {HOST} touch ~/a; {installer} install --no-deps humanize termcolor==2.5.0 >&2; {remove} >&2"
    check = "python -c 'import humanize, termcolor, importlib.metadata as m; print(m.version(\"termcolor\"))'"
    mount = f"{host}:/run/host:ro"
    found = docker("run", "--rm", "--user", user, "-v", mount, devel.record.image, "sh", "-c", f"{script}; {check}")
    assert found == "2.5.0"


@pytest.fixture
def extended(devel: Built) -> Iterator[str]:
    """Build the example of the documentation; only this host's authorities are added to its step."""
    repository, engine = "envbuilder-test/example", connect()  # other tests build images of these names meanwhile
    bases = [one.record for one in (devel, built("quickstart", "flavor=cpu"))]
    tags = [f"{repository}:{one.reference.rpartition(':')[2]}" for one in bases]
    for one, tag in zip(bases, tags, strict=True):
        engine.tag(one.image, tag)
    text = (EXAMPLE / "Dockerfile").read_text()
    step = text.replace("RUN ", "RUN --mount=source=host,target=/run/host ").replace("    /run", f"    {HOST} /run")
    name = "envbuilder-test/extended"
    request = BuildRequest(
        context={"Dockerfile": step.encode(), "host/README": b""},
        dockerfile="Dockerfile",
        tag=name,
        extra=host_files(folder="host"),
        build_args={"REPOSITORY": repository},
    )
    engine.build(request, lambda _: None)
    try:
        yield name
    finally:
        for tag in (name, *tags):
            engine.remove(tag)


def test_dockerfile_of_the_documentation_adds_a_package_and_leaves_no_installer(extended: str) -> None:
    verdict = validate_target(ValidationRequest(image=extended), WORKSPACE, Console(), load())
    assert (verdict.verdict, verdict.level) == ("PASSED", "cpu"), verdict.findings
    assert ("humanize", "4.12.3") in {(one.name, one.version) for one in verdict.additions}
    left = "command -v uv pip; ls /run/tools; python -c 'import humanize'"
    assert docker("run", "--rm", extended, "sh", "-c", left) == ""


def test_matrix_of_the_documentation_adds_a_package(tmp_path: Path) -> None:
    choice = choose(str(EXAMPLE / "matrix.yaml"), (), Workspace(tmp_path), load())
    (environment,) = choice.environments
    found = ensure(environment, choice.catalog, Workspace(tmp_path), connect(), lambda _: None)
    verdict = validate(connect(), ValidationRequest().of(found))
    assert (verdict.verdict, verdict.level) == ("PASSED", "cpu"), verdict.findings
    assert "humanize==4.12.3" in found.lock
    page = (EXAMPLE.parents[1] / "docs/how-to/extend-an-image.md").read_text()
    for file in ("Dockerfile", "matrix.yaml"):
        assert (EXAMPLE / file).read_text().partition("\n")[2] in page


def test_development_container_of_the_export_runs_the_code_of_the_folder(tmp_path: Path) -> None:
    built("quickstart", "flavor=cpu")
    choice = choose("quickstart", (), WORKSPACE, load())
    file = json.loads(export_project("devcontainer", "quickstart", (choice,)))
    (tmp_path / "own.py").write_text("import tensorflow as tf; print(tf.__version__)")
    tmp_path.chmod(0o755)
    mount = file["workspaceMount"].replace("${localWorkspaceFolder}", str(tmp_path))
    words = [*file.get("runArgs", ()), "--mount", mount, "-w", file["workspaceFolder"], file["image"]]
    name = docker("run", "-d", *words, "sleep", "infinity")  # as its overrideCommand asks for
    try:
        assert docker("exec", name, "python", "own.py") == "2.20.0"
    finally:
        docker("rm", "-f", "-v", name)


def test_notebook_is_at_most_a_quarter_larger_than_devel(notebook: str, devel: Built) -> None:
    assert int(docker("image", "inspect", "-f", "{{.Size}}", notebook)) <= 1.25 * devel.record.size
    assert docker("run", "--rm", notebook, "git", "--version").startswith("git version 2.")
