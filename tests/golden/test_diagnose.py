"""Captures of really broken environments, with a simulated driver: the first fault, its command, and the next fault.

Each file of `diagnose/` is what capture.py printed there, without most packages and lines that decide nothing.
`diagnose.yaml` has the answers. `works-on-h200` is of a real GPU, where nothing is broken.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner
from suite_messages import answer_to
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.cli import root
from envbuilder.compat.fleet import FleetHost, choose_for
from envbuilder.environment import Combination
from envbuilder.jobs.startup import timed
from envbuilder.reproduce.faults import DiagnoseDocument, as_text, diagnose_captured
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.report.reported import parse
from envbuilder.support import subprocesses

FOLDER = Path(__file__).parent / "diagnose"
CATALOG = load()
FAULTS: dict[str, list[tuple[str, str]]] = yaml.safe_load(FOLDER.with_suffix(".yaml").read_text())


def diagnosed(
    name: str, changes: dict[str, Any] | None = None, *, python: str = "", image: str | None = None
) -> DiagnoseDocument:
    text = json.dumps({**json.loads((FOLDER / f"{name}.json").read_text()), **(changes or {})}, indent=1)
    document = parse(text)
    assert document is not None
    return diagnose_captured(text, document, CATALOG, python=python, image=image)


def test_every_capture_has_its_answer() -> None:
    assert set(FAULTS) == {path.stem for path in FOLDER.glob("*.json")}


@pytest.mark.parametrize("name", FAULTS)
def test_first_fault_and_the_next_are_named(name: str) -> None:
    found = diagnosed(name)
    assert [str(row.code) for row in found.faults] == [code for code, _ in FAULTS[name]]
    for fault, (_, command) in zip(found.faults, FAULTS[name], strict=True):
        assert fault.command.startswith(command)
        assert bool(fault.command) == bool(command)
    assert found.compatible is (not FAULTS[name])
    assert as_text(found).count("\nthen (") == len(FAULTS[name][1:])


def test_processor_without_avx_comes_before_the_driver() -> None:
    found = diagnosed("no-driver", {"avx": False, "imports": False, "devices": [], "log": ["Illegal instruction"]})
    assert [str(row.code) for row in found.faults] == ["CPU_FEATURE_MISSING", "GPU_NOT_VISIBLE"]


def test_python_without_tensorflow_gets_the_newest_that_works() -> None:
    found = diagnosed("no-driver", {"tensorflow": None, "distribution": None, "imports": False, "packages": {}})
    wanted = Combination(tensorflow="", python="3.11", flavor="gpu", variant="runtime")
    newest = choose_for(wanted, FleetHost(name="host"), CATALOG).environment
    assert found.faults[0].command.startswith(f"pip install tensorflow=={newest.tensorflow} ")


def test_computing_gpu_has_no_fault() -> None:
    found = diagnosed("cudnn-removed", {"computes": True, "devices": ["CPU", "GPU"]})
    assert (found.compatible, found.faults, found.works[-1]) == (True, (), "a GPU computes")


def test_unknown_cause_is_no_claim() -> None:
    found = diagnosed("library-path", {"environment": {"LD_LIBRARY_PATH": "/opt/sim/simulated"}})
    assert (found.compatible, found.faults) == (None, ())
    assert "named symbol not found" in as_text(found)


@rows
def test_commands_are_for_the_place_of_tensorflow(name: str, image: str | None, command: str) -> None:
    assert diagnosed(name, python="" if image else "/opt/tf/bin/python", image=image).faults[0].command == command


def test_without_pip_uv_installs() -> None:
    changes = {"packages": {"tensorflow-cpu": "2.20.0"}}
    found = diagnosed("tensorflow-cpu", changes, python="/opt/my tf/python")
    assert found.faults[0].command == (
        "uv pip uninstall --python '/opt/my tf/python' tensorflow-cpu && "
        "uv pip install --python '/opt/my tf/python' 'tensorflow[and-cuda]==2.20.0'"
    )


def test_command_reads_a_capture_of_another_host() -> None:
    done = CliRunner().invoke(root, ["diagnose", "--captured", str(FOLDER / "numpy-2.json"), "--format", "json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["faults"][0]["code"] == "NUMPY_ABI"


ODD: tuple[object, ...] = ("`id`", "3.11'; id #", "", "9" * 400, None, ["$(id)"], 7)


@pytest.mark.parametrize(
    ("name", "odd"), [*(("cuda-files-removed", odd) for odd in ODD), *(("numpy-2", odd) for odd in ODD[:2])], ids=repr
)
def test_odd_value_never_ends_in_an_error_or_in_a_command(name: str, odd: object) -> None:
    whole = json.loads((FOLDER / f"{name}.json").read_text())
    changes: list[dict[str, object]] = [{field: odd} for field in set(whole) - {"schema"}]
    changes += [{field: dict.fromkeys(whole[field], odd)} for field in ("packages", "environment")]
    for each in changes:
        found = diagnosed(name, each)
        assert as_text(found)
        for fault in found.faults:
            assert not any(text in fault.command for text in ("`id`", "$(id)", "; id")), each


def test_startup_names_the_slowest_phase_and_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = {"code": "SLOW_PHASE", "severity": "warning", "subject": "first use", "message": "PTX.", "fix": "Keep it"}
    phases = {"import": {"cold_s": [3.0], "warm_s": [2.0]}, "first use": {"cold_s": [180.0], "warm_s": [0.5]}}
    fault = {**slow, "code": "MISSING_LIBRARY", "severity": "error"}
    result = {"name": "start-up", "outcome": "failed", "phases": phases, "findings": [slow, fault]}

    def follow(_: object, feed: Callable[[bytes], None], *, stdin: bytes, **_more: object) -> int:
        feed(answer_to(stdin, {"event": "begin", "name": "start-up"}, {"event": "result", "result": result}))
        return 0

    monkeypatch.setattr(subprocesses, "follow", follow)
    timeline, found = timed("python")
    assert [(row.phase, row.cold_s, row.warm_s) for row in timeline] == [
        ("import", (3.0,), (2.0,)),
        ("first use", (180.0,), (0.5,)),
    ]
    assert [row.fix for row in found] == [f"Keep it: `{GRAMMAR.startup_commands['first use']}`"]
    assert "180.00" in as_text(msgspec.structs.replace(diagnosed("no-driver"), startup=timeline, slow=found))
