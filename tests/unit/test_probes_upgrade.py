"""The upgrade probes, with a small package, small formats of models or a timed module in place of TensorFlow."""

import base64
import json
import os
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from table_rows import beside, rows

import envbuilder
from envbuilder.probes.upgrade import models, timing, user_tests
from envbuilder.upgrade.document import TimingSample

PROGRAMS = beside(__file__)
UPGRADE = Path(envbuilder.__file__).parent / "probes" / "upgrade"


def answer(probe: str, arguments: object = None, **env: str) -> list[Any]:
    done = subprocess.run(
        [sys.executable, str(UPGRADE), probe, json.dumps(arguments or {})],
        capture_output=True,
        check=True,
        env={**os.environ, **env},
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_inventory_has_versions_licences_and_sizes() -> None:
    (found,) = answer("inventory")
    packages = {package["name"]: package for package in found["packages"]}
    assert packages["pytest"]["version"] == pytest.__version__
    assert packages["pytest"]["licence"] == "MIT"
    assert packages["pytest"]["size"] > 10_000
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))


def framework(folder: Path) -> dict[str, str]:
    """Write a package that looks like Keras with one public module and its implementation."""
    for module, text in (("src", "def hidden(): pass\n"), ("layers", PROGRAMS["layers"]), ("", PROGRAMS["keras"])):
        (folder / "keras" / module).mkdir(parents=True, exist_ok=True)
        (folder / "keras" / module / "__init__.py").write_text(text)
    return {"PYTHONPATH": str(folder)}


def test_surface_has_public_names_only(tmp_path: Path) -> None:
    (found,) = answer("surface", {"module": "keras"}, **framework(tmp_path))
    own = ["a", "self", None]
    assert found["names"] == {
        "layers": ["module", None, False],
        "layers.Dense": [
            "class",
            [["a", "self", None], ["a", "units", None], ["a", "activation", "None"], ["w", "more", None]],
            False,
        ],
        "layers.Dense.build": ["value", None, False],
        "layers.Dense.call": ["function", [own, ["a", "x", None], ["k", "training", "False"]], False],
        "layers.Dense.weights": ["property", None, False],
        "old": ["function", [["a", "x", None], ["a", "y", "<object object>"]], True],
    }


def test_warning_lines_are_normalised(tmp_path: Path) -> None:
    work = (
        "import sys, warnings\n"
        "warnings.warn('old at 0x7f00aa', DeprecationWarning)\n"
        "print('2026-01-01 10:00:00.123: W tensorflow/core/x.cc:12] slow', file=sys.stderr)\n"
        "print('W0000 00:00:1795222467.123    6150 y.cc:7] ignored', file=sys.stderr)\n"
        "print('2026-01-01 10:00:00.123: I tensorflow/core/x.cc:12] fine', file=sys.stderr)\n"
    )
    (found,) = answer("warning_lines", {"work": work})
    assert found["used"] == [
        "<script>: DeprecationWarning: old at 0x…",
        "W tensorflow/core/x.cc] slow",
        "W y.cc] ignored",
    ]


def test_crash_of_the_framework_is_a_line() -> None:
    (found,) = answer("warning_lines", {"work": "import os; os._exit(9)"})
    assert found["used"] == ["ERROR: the process ended with exit code 9"]


def outcomes_of(folder: Path, limit_s: int = 20, skip: Any = (), **files: str) -> dict[str, tuple[str, str]]:
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    order = {
        "tests": sorted(path.name for path in folder.glob("test_*.py")),
        "scripts": sorted(name.replace("__", ".") for name in files if name.startswith("script_")),
        "root": str(folder),
        "pytest": str(Path(pytest.__file__).parents[1]),
        "limit_s": limit_s,
        "skip": skip,
    }
    *documents, end = answer("user_tests", order)
    assert end == {"end": True}
    return {document["name"]: (document["outcome"], document["message"]) for document in documents}


def test_each_user_test_only_costs_itself(tmp_path: Path) -> None:
    outcomes = outcomes_of(
        tmp_path,
        15,
        test_all__py=PROGRAMS["tests"],
        test_exit__py=PROGRAMS["exit"],
        test_import__py="import no_such_module_here\n",
        test_interrupted__py="raise KeyboardInterrupt\n",
        script_good__py='if __name__ == "__main__":\n    print("fine")\n',
        script_bad__sh="echo broken pipe dream >&2\nexit 3\n",
    )
    assert {name: outcome for name, (outcome, _) in outcomes.items()} == PROGRAMS["outcomes"]
    assert "arithmetic" in outcomes["test_all.py::test_fails"][1]
    assert outcomes["test_all.py::test_crashes"][1].endswith("signal 11")
    assert outcomes["test_exit.py::test_last"][1].endswith("at its exit: signal 6")
    assert "no_such_module_here" in outcomes["test_import.py"][1]
    assert outcomes["script_bad.sh"][1] == "exit code 3: broken pipe dream"


def test_test_that_hangs_or_floods_is_stopped_once_and_named(tmp_path: Path) -> None:
    began = time.monotonic()
    found = outcomes_of(
        tmp_path,
        10,
        test_import__py="import time\ntime.sleep(600)\n",
        test_stopped__py=PROGRAMS["stopped"],
        script_floods__sh="yes\n",
        script_hangs__sh="sleep 600\n",
    )
    assert time.monotonic() - began < 300
    flood, hang = ("error", user_tests.FLOODS), ("timeout", user_tests.SILENT)
    assert found == {
        "test_import.py": hang,
        "test_stopped.py::test_floods": flood,
        "test_stopped.py::test_floods_past_the_capture": flood,
        "test_stopped.py::test_tear_down": hang,
        "test_stopped.py::test_last": ("passed", ""),
        "script_floods.sh": flood,
        "script_hangs.sh": hang,
    }


def test_child_or_odd_output_of_a_test_costs_the_others_nothing(tmp_path: Path) -> None:
    began = time.monotonic()
    found = outcomes_of(
        tmp_path, test_forks__py=PROGRAMS["forks"], test_odd__py=PROGRAMS["odd"], script_s__sh="sleep 120 &\n"
    )
    assert time.monotonic() - began < 300
    assert "caf?" in found.pop("test_odd.py::test_odd_message")[1]
    forks = ("test_leaves_a_child", "test_after", "test_child_runs_on", "test_leaves_a_thread", "test_last")
    names = (*(f"test_forks.py::{name}" for name in forks), "test_odd.py::test_writes_everywhere", "script_s.sh")
    assert found == dict.fromkeys(names, ("passed", ""))


@rows
def test_pytest_options_without_their_plugin_are_dropped(tmp_path: Path, settings: str) -> None:
    text = "def test_a(): assert 0\ndef test_b(): pass\n"
    found = outcomes_of(tmp_path, test_some__py=text, pytest__ini=settings)
    assert {name: outcome for name, (outcome, _) in found.items()} == {
        "test_some.py::test_a": "failed",
        "test_some.py::test_b": "passed",
    }


def test_tests_after_the_end_of_a_session_are_errors(tmp_path: Path) -> None:
    text = "import pytest\ndef test_a(): pass\ndef test_b(): pytest.exit('enough')\ndef test_c(): pass\n"
    found = outcomes_of(tmp_path, skip=("test_some.py::test_a",), test_some__py=text)
    assert "test_some.py::test_a" not in found
    assert found["test_some.py::test_c"] == ("error", "was not run: pytest ended before it")


def test_broken_conftest_is_one_result_for_each_file(tmp_path: Path) -> None:
    found = outcomes_of(tmp_path, test_some__py="def test_a(): pass\n", conftest__py="import no_such_module_here\n")
    assert {name: outcome for name, (outcome, _) in found.items()} == {"test_some.py": "error"}


TF: Any = types.SimpleNamespace(reduce_max=lambda value: value, abs=abs)
"""Of the framework, what the comparison needs: predictions are plain numbers here."""


def writes(_: Any, folder: str) -> None:
    (Path(folder) / "variables").mkdir()
    (Path(folder) / "variables" / "data").write_bytes(b"\0\xff" * 3)
    (Path(folder) / "m.json").write_text("1.0")


def reads(_: Any, folder: str) -> float:
    assert (Path(folder) / "variables" / "data").read_bytes() == b"\0\xff" * 3
    return float((Path(folder) / "m.json").read_text())


def raises(*_: Any) -> float:
    raise ValueError("no such layer: Dense\nin line 7")


@pytest.fixture(autouse=True)
def formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put small formats in the place of TensorFlow's; every model must predict 1."""
    made = {
        "whole": (writes, reads),
        "unwritable": (raises, reads),
        "unreadable": (writes, raises),
        "silent": (writes, lambda *_: (_ for _ in ()).throw(RuntimeError())),
        "drifting": (writes, lambda *_: 1.001),
        "rounded": (writes, lambda *_: 1.00005),
    }
    monkeypatch.setattr(models, "FORMATS", made)
    monkeypatch.setattr(models, "expected", lambda *_: 1.0)


def test_formats_that_a_version_cannot_write_are_left_out() -> None:
    saved = models.save(TF)
    assert list(saved) == ["whole", "unreadable", "silent", "drifting", "rounded"]
    assert {path: base64.b64decode(text) for path, text in saved["whole"].items()} == {
        "m.json": b"1.0",
        "variables/data": b"\0\xff" * 3,
    }


def laid(folder: Path) -> dict[str, str]:
    places = {}
    for number, (name, files) in enumerate(models.save(TF).items()):
        places[name] = str(number)
        for path, text in files.items():
            file = folder / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(base64.b64decode(text))
    return places


def test_loading_returns_why_it_failed(tmp_path: Path) -> None:
    found = models.load(TF, str(tmp_path), {**laid(tmp_path), "unwritable": "99"})
    assert found.pop("unwritable").startswith("FileNotFoundError: ")
    assert found == PROGRAMS["loaded"]


def measured(folder: Path, **given: object) -> TimingSample:
    """Run the probe in a process of its own with a framework that takes this long, and holds that much."""
    values = {"IMPORT": 0.0, "KERAS": 0.0, "TRACING": 0.0, "WORK_BYTES": 1, "GPU": {}, **given}
    folder.mkdir(exist_ok=True)
    constants = "".join(f"{name} = {value!r}\n" for name, value in values.items())
    (folder / "tensorflow.py").write_text(constants + PROGRAMS["framework"])
    done = subprocess.run(
        [sys.executable, str(UPGRADE), "timing", "{}"],
        capture_output=True,
        check=True,
        env={"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"},
    )
    return TimingSample(**json.loads(done.stdout))


NAMES = {
    *(f"start.{name}" for name in ("import", "first_op", "keras", "first_function", "total", "first_step")),
    *(f"work.{name}" for name in ("matmul", "convolution", "step")),
}


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> tuple[TimingSample, TimingSample]:
    """Measure a framework that takes no time, and one that is slow and holds memory, of a GPU too."""
    folder = tmp_path_factory.mktemp("measured")
    slow = {"IMPORT": 0.5, "KERAS": 0.4, "TRACING": 0.6, "WORK_BYTES": 200_000_000, "GPU": {"peak": 123_456_789}}
    return measured(folder / "plain"), measured(folder / "slow", **slow)


def test_each_phase_of_start_up_has_its_own_time(samples: tuple[TimingSample, TimingSample]) -> None:
    plain, slow = (sample.seconds for sample in samples)
    assert plain.keys() == slow.keys() == NAMES
    for name, least in (("start.import", 0.5), ("start.keras", 0.4), ("start.first_step", 0.6)):
        assert slow[name] >= least > plain[name], name
    assert slow["start.first_op"] < 0.4
    assert slow["start.first_function"] < 0.4
    phases = ("import", "first_op", "keras", "first_function")
    assert slow["start.total"] >= sum(slow[f"start.{name}"] for name in phases)
    assert slow["work.step"] < 0.01, "what tracing took is no step's time"


def test_peaks_of_memory_belong_to_their_phase(samples: tuple[TimingSample, TimingSample]) -> None:
    plain, working = (dict(sample.bytes) for sample in samples)
    assert working.pop("memory.gpu") == 123_456_789
    assert plain.keys() == {"memory.start", "memory.work"}
    assert working["memory.start"] - plain["memory.start"] < 50e6
    assert 180e6 < working["memory.work"] - working["memory.start"] < 260e6


def loop(calls: dict[str, Callable[[], object]], wanted: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    monkeypatch.setattr(timing, "SECONDS", 0.0)
    return timing.work(wanted, calls)


def test_sample_is_the_fastest_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    waits = iter([0.02] * 30 + [0.0] * 10 + [0.02] * 30)
    assert loop({"matmul": lambda: time.sleep(next(waits))}, {}, monkeypatch)["work.matmul"] < 0.02
    assert loop({"matmul": lambda: time.sleep(0.005)}, {}, monkeypatch)["work.matmul"] >= 0.005


def test_more_calls_give_longer_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def call() -> None:
        counted.append(1)
        time.sleep(0.002)

    found = loop({"matmul": call}, {"matmul": {"calls": 20}}, monkeypatch)
    assert len(counted) == 20 * timing.REPETITIONS
    assert found["work.matmul"] >= 0.002 * 20 / 10
