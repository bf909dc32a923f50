"""Validation on a real engine: every Python of our bases, our image, an image of others, and what goes wrong."""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from misbehaving import MISBEHAVE
from suite_messages import events_of, order, row

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.controls.run import Controller
from envbuilder.engine.docker import DockerEngine
from envbuilder.engine.port import BuildRequest, ContainerSpec, LayerStream
from envbuilder.errors import UsageError
from envbuilder.finding import Code, Severity
from envbuilder.image.bases import ensure_base
from envbuilder.upgrade import observe
from envbuilder.validation import known_image, suite_plan
from envbuilder.validation.known_image import KnownImage
from envbuilder.validation.suite_plan import Facts
from envbuilder.validation.suite_session import START, SUITE_S, Progress, Session, in_container
from envbuilder.validation.validate import ValidationRequest, validate, validate_here
from envbuilder.validation.verdict_store import validate_and_record
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace, cache_dir

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.timeout(1800)]

FOREIGN, DERIVED = "scratch-suite:foreign", "scratch-suite:derived"
PYTHONS = (
    ("debian-bookworm", "3.11"),
    *(pytest.param(*row, marks=pytest.mark.full) for row in (("debian-bullseye", "3.9"), ("debian-trixie", "3.13"))),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    return Workspace(tmp_path_factory.mktemp("workspace"))


@pytest.fixture(scope="module")
def request_for_cpu(controller: Controller) -> ValidationRequest:
    """Return a request to validate the good CPU image, with the budgets of the shipped matrix."""
    budgets = choose("tensorflow", ("tf2.20.0-py311-cpu-bookworm",), controller.workspace, load()).matrix.budgets
    return ValidationRequest(budgets=budgets).of(controller.good("cpu"))


STALL_LOOPS = Path(__file__).parents[1] / "support" / "stall_loops.py"


def check(name: str, probe: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "tier": "static", "group": "g", "probe": probe, "limit_s": 60} | more


@pytest.mark.parametrize(("name", "version"), PYTHONS)
def test_probes_run_on_every_python(engine: DockerEngine, name: str, version: str) -> None:
    system = next(row for row in load().systems if row.name == name)
    base = ensure_base(engine, system, cache_dir() / "bases", lambda *_: None)
    checks = [
        check("well", "misbehaving_probes:well"),
        check("flood", "misbehaving_probes:flood", arguments={"megabytes": 8}),
        check("segfault", "misbehaving_probes:segfault"),
        check("hang", "misbehaving_probes:hang", limit_s=2),
        check("throw", "misbehaving_probes:throw"),
        check("identity", "build_info:identity"),
        check("driver", "driver:identity"),
    ]
    files = {f"probes/{item}": content for item, content in {**suite_plan.probe_files(), **MISBEHAVE}.items()}
    plan = {"facts": {}, "groups": [{"name": "g", "checks": checks}]}
    modules = [item.removesuffix(".py") for item in suite_plan.probe_files() if item.endswith(".py") and item[0] != "_"]
    files |= {name.replace("probes/", "both/", 1): content for name, content in observe.probe_files().items()}
    upgrade = [Path(name).stem for name in observe.probe_files() if "/upgrade/" in name and "/_" not in name]
    files["all.py"] = "\n".join(
        [
            "import importlib, runpy, sys, json",
            "runpy.run_path('/envbuilder/probes/__main__.py')['load_package']()",
            f"for name in {modules!r}: importlib.import_module('envbuilder_probes.' + name)",
            "runpy.run_path('/envbuilder/both/upgrade/__main__.py')['load_package']()",
            f"for name in {upgrade!r}: importlib.import_module('envbuilder_probes.upgrade.' + name)",
            "print(json.dumps({'event': 'imported', 'python': sys.version_info[:2]}))",
        ]
    ).encode()
    printed = bytearray()
    command = "python3 /envbuilder/all.py </dev/null && exec python3 -I -S /envbuilder/probes"
    spec = ContainerSpec(
        image=base.id, command=("/bin/sh", "-c", command), files=files, env={"HOME": "/tmp"}, stdin=order(plan)
    )
    log = bytearray()
    assert engine.run(spec, printed.extend, log.extend).exit_code == 0, (printed + log).decode()
    first, _, told = bytes(printed).partition(b"\n")
    assert json.loads(first)["python"] == [int(part) for part in version.split(".")]
    events = events_of(told)
    results = {event["result"]["name"]: event["result"] for event in events if event["event"] == "result"}
    outcomes = {key: result["outcome"] for key, result in results.items()}
    wrong = {"segfault": "error", "hang": "timeout", "throw": "error", "driver": "skipped"}
    assert outcomes == {one["name"]: wrong.get(one["name"], "passed") for one in checks}, results


@pytest.fixture(scope="module")
def ours(
    engine: DockerEngine, workspace: Workspace, request_for_cpu: ValidationRequest
) -> tuple[Verdict, bool, list[Progress]]:
    """Validate the good CPU image without its record, and record it."""
    said: list[Progress] = []
    request = replace(request_for_cpu, known=None)
    return *validate_and_record(request, engine, workspace, on_progress=said.append), said


def test_our_image_passes(
    engine: DockerEngine, workspace: Workspace, request_for_cpu: ValidationRequest, ours: tuple[Any, ...]
) -> None:
    verdict, fresh, said = ours
    assert (verdict.verdict, verdict.level, fresh) == ("PASSED", "cpu", True), verdict.reasons
    assert {one.outcome for one in verdict.checks} == {"passed"}
    assert {"import", "first op", "first matmul"} <= {phase.phase for phase in verdict.timeline}
    assert verdict.suite == suite_plan.digest()
    assert verdict.lock.startswith("sha256:")
    assert ("keras", "ended") in {(one.name, one.kind) for one in said}
    again, fresh = validate_and_record(request_for_cpu, engine, workspace, on_progress=said.append)
    assert (again, fresh) == (verdict, False)


@pytest.fixture(scope="module")
def known(workspace: Workspace, request_for_cpu: ValidationRequest, ours: tuple[Any, ...]) -> KnownImage:
    path = workspace.known_image(request_for_cpu.environment.id)
    found = known_image.parse(path.read_bytes(), request_for_cpu.context)
    assert found is not None
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    read = DockerEngine.layer_files

    def noted(engine: DockerEngine, *references: str, **options: Any) -> AbstractContextManager[Iterator[LayerStream]]:
        found.extend(references)
        return read(engine, *references, **options)

    monkeypatch.setattr(DockerEngine, "layer_files", noted)
    return found


def claims(verdict: Verdict) -> str:
    return next(one.observed for one in verdict.checks if one.name == "claims")


def test_known_image_passes_without_being_read(
    engine: DockerEngine,
    request_for_cpu: ValidationRequest,
    known: KnownImage,
    reads: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    verdict = validate(engine, replace(request_for_cpu, known=known))
    assert (verdict.verdict, reads, list(tmp_path.rglob("layers"))) == ("PASSED", [], []), verdict.reasons
    assert f"equal the record of {known.recorded}" in claims(verdict)


def test_image_with_one_more_layer_is_read(
    engine: DockerEngine, request_for_cpu: ValidationRequest, known: KnownImage, reads: list[str], tmp_path: Path
) -> None:
    good = f"envbuilder/tensorflow:{request_for_cpu.environment.id}"
    step = f"echo {time.time_ns()} > more"  # another layer in each run: its files are not in the cache
    (tmp_path / "Dockerfile").write_text(f"FROM {good}\nRUN {step}\n")
    image = engine.build(BuildRequest(context=tmp_path, tag=DERIVED), lambda _: None)
    try:
        verdict = validate(engine, replace(request_for_cpu, image=image.id, known=known))
        assert reads == [image.id]
        assert f"history, layer {len(known.layers) + 1} above the base ({step})" in claims(verdict)
    finally:
        engine.remove(DERIVED)


def test_image_by_name_only_is_known_by_its_content(engine: DockerEngine, request_for_cpu: ValidationRequest) -> None:
    extra = row("extra", "cpu", "misbehaving_probes:well", needs=("import",))
    request = ValidationRequest(image=request_for_cpu.image, catalog=load(), extra=(extra,), probes=MISBEHAVE)
    verdict = validate(engine, request)
    assert request_for_cpu.environment is not None
    assert verdict.environment == msgspec.structs.replace(request_for_cpu.environment, chosen=())
    assert {"locked", "claims", "extra"} <= {one.name for one in verdict.checks}
    assert verdict.verdict == "PASSED", verdict.reasons


@pytest.fixture(scope="module")
def foreign(
    engine: DockerEngine, request_for_cpu: ValidationRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Make an image of others: nothing of ours in it, its Python off the PATH, an entry point of its own."""
    folder = tmp_path_factory.mktemp("foreign")
    (folder / "Dockerfile").write_text(
        f"FROM envbuilder/tensorflow:{request_for_cpu.environment.id}\n"
        "USER root\n"
        "RUN rm -rf /opt/envbuilder\n"
        'LABEL org.envbuilder.environment="" org.envbuilder.lock=""\n'
        "ENV PATH=/usr/local/bin:/usr/bin:/bin\n"
        'ENTRYPOINT ["/bin/false"]\n'
    )
    engine.build(BuildRequest(context=folder, tag=FOREIGN), lambda _: None)
    yield FOREIGN
    engine.remove(FOREIGN)


def test_foreign_image_gets_a_verdict_without_a_lock(engine: DockerEngine, foreign: str) -> None:
    verdict = validate(engine, ValidationRequest(image=foreign, catalog=load()))
    assert verdict.environment is None
    assert "locked" not in {one.name for one in verdict.checks}
    red = {one.code for one in verdict.findings if one.severity is Severity.ERROR}
    assert (verdict.verdict, red) == ("FAILED", {Code.USER_START}), verdict.reasons


def test_image_without_tensorflow_is_refused(engine: DockerEngine) -> None:
    system = next(row for row in load().systems if row.name == "debian-bookworm")
    base = ensure_base(engine, system, cache_dir() / "bases", lambda *_: None)
    with pytest.raises(UsageError, match="no Python in it has TensorFlow"):
        validate(engine, ValidationRequest(image=base.id, catalog=load()))
    with pytest.raises(UsageError, match="no such image"):
        validate(engine, ValidationRequest(image="envbuilder/none:such"))


def test_here_without_tensorflow_is_refused() -> None:
    with pytest.raises(UsageError, match="no TensorFlow"):
        validate_here(load(), sys.executable)


def test_stalls_differ_and_a_healthy_loop_has_none(engine: DockerEngine, request_for_cpu: ValidationRequest) -> None:
    controls = row("stall-controls", "cpu", "stall_loops:controls", group="steps", limit_s=900)
    session = Session((controls,), lambda _: None)
    files = {"probes/stall_loops.py": STALL_LOOPS.read_bytes()}
    spec = ContainerSpec(request_for_cpu.image, START, files=files, time_limit=SUITE_S)
    why = in_container(engine, spec, suite_plan.plan((controls,), Facts(flavor="cpu")), session)
    (result,) = session.results(why)
    assert result.outcome == "passed", result.observed + result.log[-2000:]
