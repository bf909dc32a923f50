"""Verdicts: from results, consequences of one cause, reuse of stored ones, and the history."""

import hashlib
import json
import multiprocessing
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import H100, check, digest, environment, failed_verdict, gpu_verdict, inconclusive_verdict, verdict
from fake_engine import FakeEngine
from made_images import SITE, image_of, package

from envbuilder.errors import InputError, UsageError
from envbuilder.finding import Code, Finding, Severity
from envbuilder.matrix import Budgets
from envbuilder.validation import suite_plan, verdict_store
from envbuilder.validation import verdict_store as recording
from envbuilder.validation.image_context import CheckOutput
from envbuilder.validation.image_loader import owners
from envbuilder.validation.judge import budget_results, judge, mark_consequences
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.validate_request import as_text
from envbuilder.validation.verdict_store import History, Validated, read_verdict, users_verdict, validate_and_record
from envbuilder.verdict import (
    Addition,
    CheckLevel,
    CheckResult,
    HostRef,
    Measurement,
    Outcome,
    Verdict,
    contradiction,
    required_levels,
)
from envbuilder.workspace import Workspace, read_document, write_document


def result(level: CheckLevel, outcome: Outcome = "passed", name: str = "", **more: object) -> CheckResult:
    return CheckResult(name=name or f"{level}-check", level=level, outcome=outcome, **more)  # type: ignore[arg-type]


CPU = (result("static"), result("load"), result("cpu"))
GPU = (*CPU, result("gpu"))


SKIPPED = result("gpu", "skipped", "gpu-matmul", observed="no NVIDIA driver on this host")


@pytest.mark.parametrize(
    ("results", "host", "verdict", "level"),
    [
        (CPU, {"flavor": "cpu"}, "PASSED", "cpu"),
        ((*GPU, result("multi-gpu", "skipped")), {"flavor": "gpu", "gpus": 1}, "PASSED", "gpu"),
        ((*CPU, SKIPPED), {"flavor": "gpu"}, "INCONCLUSIVE", "cpu"),
        *(
            ((result("static"), result("load", outcome), result("cpu")), {"flavor": "cpu"}, "FAILED", "static")
            for outcome in ("failed", "error", "timeout")
        ),
        (CPU[:2], {"flavor": "cpu"}, "INCONCLUSIVE", "load"),
        ((), {"flavor": "cpu"}, "INCONCLUSIVE", "none"),
    ],
)
def test_verdict_and_level_follow_from_the_results(
    results: tuple[CheckResult, ...], host: dict[str, Any], verdict: str, level: str
) -> None:
    told = judge(results, **host)
    assert (told.verdict, told.level) == (verdict, level)


def test_reasons_name_what_was_not_run_and_a_simulation() -> None:
    told = judge((*CPU, SKIPPED), flavor="gpu")
    assert told.reasons == ("gpu: gpu-matmul was not run: no NVIDIA driver on this host",)
    assert "simulated" in judge(GPU, flavor="gpu", gpus=1, simulated=True).reasons[-1]
    assert required_levels("cpu", 8) == ("static", "load", "cpu")


def test_reason_of_a_failed_check_names_its_errors_only() -> None:
    error, warning = (
        Finding(code=Code.FILES_DIFFER, severity=severity, subject="x", message=severity.value)
        for severity in (Severity.ERROR, Severity.WARNING)
    )
    failed = check("files", "failed", level="static", findings=(warning, error))
    assert judge((*CPU, failed), flavor="cpu").reasons == ("static: files failed: FILES_DIFFER: error",)


def test_findings_are_told_once_and_worst_first() -> None:
    warning = Finding(code=Code.STALLS, severity=Severity.WARNING, subject="a", message="m")
    error = Finding(code=Code.CUDNN_MISMATCH, severity=Severity.ERROR, subject="b", message="m")
    results = (
        result("static", findings=(warning,)),
        result("load", "failed", findings=(warning, error)),
        result("cpu"),
    )
    assert judge(results, flavor="cpu").findings == (error, warning)


def test_text_of_a_verdict_has_each_finding_once_and_names_a_few_added_files() -> None:
    wrong = Finding(code=Code.FILES_DIFFER, severity=Severity.ERROR, subject="x", message="/a; /b differ")
    failed = result("static", "failed", findings=(wrong,), observed="/a; /b differ; 7 more are equal")
    after = result("load", "skipped", observed="needs import, which did not pass")
    told = judge((*CPU, failed, after, SKIPPED), flavor="gpu")
    added = (
        Addition(kind="files", name="/etc/motd", files=1, size=12),
        Addition(kind="files", name="/srv", files=4, size=250_000),
    )
    text = as_text(
        msgspec.structs.replace(
            verdict(), checks=(failed, after, SKIPPED), additions=added, **msgspec.structs.asdict(told)
        )
    )
    assert [line for line in text.splitlines() if "/a" in line] == ["error: FILES_DIFFER /a; /b differ"]
    assert "FILES_DIFFER; 7 more are equal" in text.splitlines()[1]
    assert [line for line in text.splitlines() if line.startswith("reason: ")] == [
        "reason: gpu: gpu-matmul was not run: no NVIDIA driver on this host"
    ]
    assert text.splitlines()[-3:-1] == ["added: files /etc/motd (1 file, 12 B)", "added: files /srv (4 files, 0.2 MB)"]


def test_budgets_add_a_result_each() -> None:
    timed = result("load", measurements={"import": Measurement(3.0, "s")})
    budgets = Budgets(size_gb=2.0, import_s=2.5, first_op_s=1.0)
    size, importing, first_op = budget_results((timed,), budgets, 1_900_000_000)
    assert (size.name, size.outcome, size.level) == ("budget-size", "passed", "static")
    assert (importing.name, importing.outcome) == ("budget-import", "failed")
    assert [found.code for found in importing.findings] == [Code.BUDGET_EXCEEDED]
    assert (first_op.name, first_op.outcome) == ("budget-first-op", "skipped")
    assert not list(budget_results((timed,), Budgets(), 10**12))
    assert judge((*CPU, importing), flavor="cpu").verdict == "FAILED"


def error(code: Code, subject: str = "x") -> Finding:
    return Finding(code=code, severity=Severity.ERROR, subject=subject, message="it is wrong")


def failed_result(*findings: Finding, name: str = "import") -> CheckResult:
    return CheckResult(name=name, level="load", outcome="failed", findings=findings)


def left(effect: Finding, cause: Finding, *files: str) -> list[Code]:
    (told,) = mark_consequences([failed_result(effect)], CheckOutput((cause,), blamed=frozenset(files)))
    return [one.code for one in told.findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("effect", "cause"),
    [
        (error(Code.PROBE_CRASHED), error(Code.FILES_DIFFER)),
        (error(Code.USER_START), error(Code.IMAGE_CONFIGURATION)),
        (error(Code.USER_START), error(Code.FILES_DIFFER, "WORKDIR")),
        (error(Code.MISSING_LIBRARY, "libssl.so.3"), error(Code.FILES_DIFFER)),
        (error(Code.NOT_A_GPU_BUILD), error(Code.IMAGE_CLAIM, "build_info.py")),
        (error(Code.DRIVER_TOO_OLD), error(Code.STUB_LIBCUDA)),
    ],
)
def test_consequence_is_a_warning_that_names_its_cause(effect: Finding, cause: Finding) -> None:
    (told,) = mark_consequences([failed_result(effect)], CheckOutput((cause,), blamed=frozenset({"libssl.so.3"})))
    assert told.outcome == "failed"
    assert [one.severity for one in told.findings] == [Severity.WARNING]
    assert f"(follows from {cause.code}: {cause.subject})" in told.findings[0].message


@pytest.mark.parametrize(
    ("effect", "cause"),
    [
        (error(Code.WRONG_NUMBERS), error(Code.FILES_DIFFER)),
        (error(Code.PROBE_TIMEOUT), error(Code.FILES_DIFFER)),
        (error(Code.KERAS_MISMATCH), error(Code.IMAGE_CONFIGURATION, "LD_PRELOAD")),
        (error(Code.MISSING_LIBRARY, "libcufft.so.11"), error(Code.FILES_DIFFER)),
        (error(Code.PROBE_CRASHED), error(Code.SECRET_IN_IMAGE)),
    ],
)
def test_independent_defect_stays_one(effect: Finding, cause: Finding) -> None:
    assert left(effect, cause, "libssl.so.3") == [effect.code]


MODULES = {
    "tensorflow/__init__.py": "tensorflow-cpu",
    "tensorflow/python/framework/dtypes.py": "tensorflow-cpu",
    "keras/__init__.py": "keras",
    "opt_einsum/__init__.py": "opt-einsum",
    "google/auth/__init__.py": "google-auth",
    "google/protobuf/internal/builder.py": "protobuf",
    "h5py/__init__.py": "h5py",
    "numpy/__init__.py": "numpy",
    "absl/logging/__init__.py": "absl-py",
    "flatbuffers/table.py": "flatbuffers",
    "ml_dtypes/__init__.py": "ml-dtypes",
    "wrapt/__init__.py": "wrapt",
    "six.py": "six",
}
PACKAGES = {
    name: package(name, "1", {path: b"" for path, one in MODULES.items() if one == name}) for name in MODULES.values()
}
OWNERS = owners(image_of({path: what for one in PACKAGES.values() for path, what in one.items()}))


def traceback(*frames: str, error: str) -> str:
    lines = (f'  File "/{SITE}/{path}", line 1, in <module>\n    import x\n' for path in frames)
    return f"Traceback (most recent call last):\n{''.join(lines)}{error}\n"


def caused(*logs: str, code: Code = Code.PROBE_CRASHED, errors: tuple[Finding, ...] = ()) -> str:
    """Return the package that is named as the cause of a failed import; '' for none."""
    probe = CheckResult(
        name="import", level="load", outcome="error", findings=(error(code),), log="\nDuring handling:\n".join(logs)
    )
    causes = errors or tuple(error(Code.FILES_DIFFER, name) for name in dict.fromkeys(MODULES.values()))
    (told,) = mark_consequences([probe], CheckOutput(causes, owners=OWNERS))
    return told.findings[0].message.partition(": ")[2].rstrip(")")


@pytest.mark.parametrize("path", MODULES)
def test_cause_of_a_failed_import_is_the_deepest_package_of_the_traceback(path: str) -> None:
    frames, name = ("tensorflow/__init__.py", "keras/__init__.py"), MODULES[path]
    assert caused(traceback(*frames, path, error="RuntimeError: it is broken")) == name
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    assert caused(traceback(*frames, error=f"ModuleNotFoundError: No module named '{module}'")) == name
    first = traceback(*frames, path, error="ImportError: it is broken")
    again = traceback(
        "tensorflow/__init__.py", error="ImportError: Keras cannot be imported. Check that it is installed."
    )
    assert caused(first, again, code=Code.KERAS_MISMATCH) == name


def test_package_that_a_traceback_does_not_name_is_no_cause_of_it() -> None:
    log = traceback("tensorflow/__init__.py", error="ModuleNotFoundError: No module named 'gast'")
    keras, gast = error(Code.FILES_DIFFER, "keras"), error(Code.LOCK_MISMATCH, "gast")
    assert [caused(log, errors=one) for one in ((keras,), (keras, gast))] == ["", "gast"]
    setting = error(Code.IMAGE_CONFIGURATION, "PYTHONOPTIMIZE")
    assert [caused(one, errors=(keras, setting)) for one in (log, "died")] == ["PYTHONOPTIMIZE", "keras"]
    assert caused("died", errors=(gast,)) == ""


SETTING = Finding(code=Code.IMAGE_CONFIGURATION, severity=Severity.WARNING, subject="XLA_FLAGS", message="it changes")
FOLLOW = {"XLA_FLAGS": frozenset({Code.PROBE_TIMEOUT}), "KERAS_BACKEND": frozenset({Code.KERAS_MISMATCH})}


@pytest.mark.parametrize("outcome", ["failed", "timeout"])
def test_setting_is_named_as_the_cause_of_what_it_can_do_to_a_probe(outcome: Outcome) -> None:
    named = CheckResult(name="configuration", level="static", outcome="passed", findings=(SETTING,))
    probe = CheckResult(name="import", level="load", outcome=outcome, findings=(error(Code.PROBE_TIMEOUT),))
    cause, effect = mark_consequences([named, probe], CheckOutput((SETTING,), follow=FOLLOW))
    assert (cause.outcome, cause.findings[0].severity) == ("failed", Severity.ERROR)
    assert (effect.outcome, effect.findings[0].severity) == (outcome, Severity.WARNING)
    assert "(follows from IMAGE_CONFIGURATION: XLA_FLAGS)" in effect.findings[0].message


def test_setting_stays_a_warning_if_it_explains_nothing_or_an_error_is_known() -> None:
    named = CheckResult(name="configuration", level="static", outcome="passed", findings=(SETTING,))
    other, late = failed_result(error(Code.WRONG_NUMBERS)), failed_result(error(Code.PROBE_TIMEOUT))
    assert mark_consequences([named, other], CheckOutput((SETTING,), follow=FOLLOW)) == (named, other)
    known = CheckOutput((error(Code.FILES_DIFFER), SETTING), follow=FOLLOW)
    assert mark_consequences([named, late], known) == (named, late)


def test_error_of_a_setting_explains_what_its_row_says() -> None:
    cause = error(Code.IMAGE_CONFIGURATION, "KERAS_BACKEND")
    (told,) = mark_consequences([failed_result(error(Code.KERAS_MISMATCH))], CheckOutput((cause,), follow=FOLLOW))
    assert [one.severity for one in told.findings] == [Severity.WARNING]


def test_cause_is_never_its_own_excuse() -> None:
    cause = error(Code.MISSING_LIBRARY, "libcufft.so.11")
    (told,) = mark_consequences(
        [failed_result(cause, name="files")], CheckOutput((cause,), blamed=frozenset({"libcufft.so.11"}))
    )
    assert told.findings == (cause,)


@dataclass
class Host:
    folder: Path
    asked: list[str] = field(default_factory=list)

    def has(self, driver: str, *models: str) -> None:
        (self.folder / "version").write_text(driver)
        for old in self.folder.glob("gpus/*/information"):
            old.unlink()
        for number, model in enumerate(models):
            path = self.folder / "gpus" / f"0000:0{number}:00.0" / "information"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"Model: \t\t {model}\nIRQ:   \t\t {len(self.asked) + 40}\nGPU UUID: \t GPU-{number}\n")

    def validate(self, *, image: str = "sha256:1", fresh: bool = False, **given: object) -> bool:
        request = ValidationRequest(image, environment=environment(), fresh=fresh, **given)  # type: ignore[arg-type]
        return validate_and_record(request, FakeEngine(), Workspace(self.folder), on_progress=lambda _: None)[1]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path)
    monkeypatch.setattr(verdict_store, "DRIVER_VERSION", tmp_path / "version")
    monkeypatch.setattr(verdict_store, "GPUS", tmp_path / "gpus")

    def counted(engine: object, request: ValidationRequest, **more: object) -> Verdict:
        made.asked.append(request.image)
        return verdict()

    monkeypatch.setattr(verdict_store, "validate", counted)
    made.has("535.104.05", "NVIDIA H100", "NVIDIA A100")
    assert made.validate()
    return made


def test_stored_verdict_is_reused_for_the_same_inputs(host: Host) -> None:
    assert not host.validate()
    host.has("535.104.05", "NVIDIA H100", "NVIDIA A100")
    assert not host.validate()
    assert len(host.asked) == 1


@pytest.mark.parametrize(
    ("driver", "models"),
    [("550.54.15", ("NVIDIA H100", "NVIDIA A100")), ("535.104.05", ("NVIDIA H100", "NVIDIA H100")), ("535.104.05", ())],
    ids=["driver", "another GPU", "no GPU"],
)
def test_other_driver_or_gpus_run_again(host: Host, driver: str, models: tuple[str, ...]) -> None:
    host.has(driver, *models)
    assert host.validate()
    assert not host.validate()


def test_other_image_budgets_or_profile_run_again(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    changes: tuple[dict[str, object], ...] = (
        {"image": "sha256:2"},
        {"budgets": Budgets(import_s=1.0)},
        {"profile": "full"},
        {"gpus": "none"},
        {"lock": "numpy==2"},
    )
    assert [host.validate(**change) for change in changes] == [True] * len(changes)  # type: ignore[arg-type]
    monkeypatch.setattr(suite_plan, "digest", lambda: "sha256:another")
    assert host.validate(lock="numpy==2")
    assert host.validate(lock="numpy==2", fresh=True)


def test_verdict_missing_in_the_history_is_not_reused(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:

    def stopped(history: object, verdicts: object) -> None:
        raise KeyboardInterrupt

    before = len(History(Workspace(host.folder).history).read()[0])
    monkeypatch.setattr(verdict_store, "validate", lambda *_, **__: verdict(finished="2026-11-22T10:00:00+00:00"))
    assert host.validate(image="sha256:2")
    assert len(History(Workspace(host.folder).history).read()[0]) == before + 1
    with monkeypatch.context() as patch:
        patch.setattr(History, "add", stopped)
        with pytest.raises(KeyboardInterrupt):
            host.validate(image="sha256:3")
    assert host.validate(image="sha256:3"), "it was interrupted before it was kept for good"


def test_consistent_verdicts_are_read() -> None:
    gpu = check("matmul", level="gpu")
    for sound in (verdict(), failed_verdict(level="static"), gpu_verdict(checks=(*verdict().checks, gpu))):
        assert contradiction(sound) == ""


def test_verdict_with_one_of_two_gpus_is_consistent() -> None:
    gpu = check("matmul", level="gpu")
    two = HostRef(driver="535.104.05", gpus=(H100, H100))
    one_used = gpu_verdict(checks=(*verdict().checks, gpu), host=two)
    assert contradiction(one_used) == ""
    assert contradiction(msgspec.structs.replace(one_used, level="multi-gpu")) != ""


@pytest.mark.parametrize(
    "altered",
    [
        failed_verdict(verdict="PASSED", level="cpu"),
        failed_verdict(verdict="INCONCLUSIVE"),
        verdict(level="gpu"),
        verdict(checks=()),
        verdict(simulated=True),
        gpu_verdict(checks=verdict().checks),
    ],
    ids=["a word", "a softer word", "a level", "no results", "simulated", "a level without a check"],
)
def test_contradictory_verdict_is_refused(altered: Verdict, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "verdict.json"
    write_document(path, altered)
    assert read_verdict(path) is None
    assert str(path) in capsys.readouterr().err
    with pytest.raises(InputError, match="but its own results give"):
        users_verdict(path)
    assert path.exists()


def test_invalid_file_of_the_user_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    for content in (b"\xff", b"{}", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(InputError, match="not a verdict"):
            users_verdict(path)
        assert path.read_bytes() == content
    with pytest.raises(UsageError, match="nonsuch"):
        users_verdict(tmp_path / "nonsuch")


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setattr(recording, "validate", lambda *_, **__: failed_verdict())
    assert again(Workspace(tmp_path)) == ("FAILED", True)
    return Workspace(tmp_path)


def again(workspace: Workspace) -> tuple[str, bool]:
    request = ValidationRequest(image="sha256:1", environment=environment())
    found, fresh = validate_and_record(request, FakeEngine(), workspace, on_progress=lambda _: None)
    return found.verdict, fresh


def test_failed_verdict_changed_to_passed_runs_again(kept: Workspace) -> None:
    path = kept.verdict(environment().id)
    path.write_text(path.read_text().replace('"verdict": "FAILED"', '"verdict": "PASSED"'))
    assert again(kept) == ("FAILED", True)
    assert path.with_name("verdict.json.damaged").exists()


def test_consistently_altered_verdict_runs_again(kept: Workspace) -> None:
    write_document(kept.verdict(environment().id), verdict())
    assert again(kept) == ("FAILED", True)


@pytest.mark.parametrize("name", ["verdict.json", "validated.json"])
def test_damaged_byte_never_changes_the_verdict(name: str, kept: Workspace) -> None:
    path = kept.results(environment().id) / name
    whole = path.read_bytes()
    chance = random.Random(7)  # noqa: S311 - the same damage in every run
    for _ in range(25):
        data = bytearray(whole)
        data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        path.write_bytes(data)
        assert again(kept)[0] == "FAILED"
        whole = path.read_bytes()


def test_record_without_a_checksum_runs_again(kept: Workspace) -> None:
    path = kept.results(environment().id) / "validated.json"
    found = read_document(path, Validated)
    path.write_text(json.dumps({"schema": found.schema, "key": found.key}))
    assert again(kept) == ("FAILED", True)
    assert again(kept) == ("FAILED", False)
    assert msgspec.json.decode(path.read_bytes(), type=Validated).verdict.startswith("sha256:")


ALL = (verdict(), failed_verdict(finished="2026-11-20T11:00:00+02:00"), gpu_verdict(), inconclusive_verdict())


def test_history_returns_each_verdict_once_unchanged_and_in_order(tmp_path) -> None:
    history = History(tmp_path / "sub" / "history")
    assert history.read()[0] == ()
    for verdicts in (ALL, ALL, ()):
        history.add(verdicts)
    found = history.read()[0]
    assert (len(found), all(one in found for one in ALL)) == (len(ALL), True)
    assert found[0].finished == "2026-11-20T11:00:00+02:00"
    at = datetime(2026, 11, 20, 10, 3, tzinfo=UTC)
    assert verdict() in history.read(at)[0]
    assert history.read(at + timedelta(days=9))[0] == ()


def _write(path: Path, writer: int) -> None:
    for number in range(20):
        History(path).add([verdict(suite=digest(f"{writer}/{number}"))])


def test_history_survives_concurrent_writers(tmp_path) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=_write, args=(tmp_path / "h", writer)) for writer in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * 4
    assert len(History(tmp_path / "h").read()[0]) == 80


def test_file_that_is_altered_or_of_another_version_is_named_and_not_returned(tmp_path) -> None:
    history, other = History(tmp_path / "h"), b'{"schema": "envbuilder/verdict/v9"}'
    history.add([verdict(), failed_verdict()])
    (altered,) = (file for file in history.path.iterdir() if b"FAILED" in file.read_bytes())
    altered.write_bytes(altered.read_bytes().replace(b"FAILED", b"PASSED"))
    newer = f"20270101T000000.000000Z-{hashlib.sha256(other).hexdigest()}"
    (history.path / f"{newer}.json").write_bytes(other)
    assert history.read() == ((verdict(),), (altered.stem, newer))
    assert history.read(datetime(2026, 12, 1, tzinfo=UTC)) == ((), (newer,))
    assert History(tmp_path / "none").read() == ((), ())
