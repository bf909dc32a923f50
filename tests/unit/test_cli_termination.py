"""How a command ends: closed or full streams, readers that have gone, signals, and the exit code of each document."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from factories import failed_verdict, inconclusive_verdict, upgrade, verdict
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from table_rows import beside, rows

from envbuilder import cli, errors
from envbuilder.cli import exit_codes
from envbuilder.cli.output import finish
from envbuilder.cli.schema_command import DOCUMENTS, schema_of
from envbuilder.errors import ExitCode, InfrastructureError, UsageError
from envbuilder.jobs.clean import CleanDocument, ImageGone
from envbuilder.jobs.run import RunDocument, RunRow
from envbuilder.publish.results import PublishDocument, PublishRow
from envbuilder.publish.verification import Demanded, Verification
from envbuilder.refresh.agreement import Comparison, VerifyDocument
from envbuilder.upgrade.bisect import BisectDocument, BisectParameters, Result
from envbuilder.verdict import Verdict

TEXTS = beside(__file__)

ENVBUILDER = f"{sys.executable} -m envbuilder"


def shell(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in a folder; ``E`` is envbuilder."""
    environment = {**os.environ, "E": ENVBUILDER}
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@rows
def test_every_end_has_its_code(line: str, code: int, said: str, tmp_path: Path) -> None:
    done = shell(line, tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not said or "next: " in done.stderr


def test_closed_streams_leave_files_alone(tmp_path: Path) -> None:
    """With standard error closed, nothing that is meant for it gets into a file of ours."""
    done = shell("$E check --tensorflow 2.20.0 2>&- --format json", tmp_path)
    assert json.loads(done.stdout)["schema"] == "envbuilder/check/v1"


def test_signal_that_nohup_ignores_stays_ignored() -> None:
    """A closed terminal means nothing to a command under nohup; a request to terminate goes on ending it."""
    code = TEXTS["sleeper"].format(cleanup=0)
    line = ["nohup", sys.executable, "-c", code]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("cleanup", [0, 60], ids=["clean", "cleaning up hangs"])
def test_signal_ends_it_in_time(number: signal.Signals, cleanup: int) -> None:
    code = TEXTS["sleeper"].format(cleanup=cleanup)
    # A job in the background ignores SIGINT, and one under nohup SIGHUP.
    unignored = "signal.signal(signal.SIGINT, signal.default_int_handler); signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    code = f"import signal; {unignored}\n{code}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        began = time.monotonic()
        process.send_signal(number)
        assert process.wait(timeout=30) == 130
        assert time.monotonic() - began < 10.0


@pytest.mark.parametrize("number", sorted(errno.errorcode))
def test_every_trouble_of_the_machine_has_a_next_step(number: int) -> None:
    ours = errors.of_system(OSError(number, os.strerror(number), "/some/path"))
    assert isinstance(ours, InfrastructureError)
    assert "/some/path" in ours.message
    assert os.strerror(number) in ours.message
    assert ours.hint
    users = errors.of_system(OSError(number, os.strerror(number), "/some/path"), "read /some/path", users=True)
    assert isinstance(users, UsageError)
    assert users.hint


def test_interruption_within_a_class_is_an_interruption(capsys: pytest.CaptureFixture[str]) -> None:
    """An interruption while a class is being made is Python's RuntimeError, and no bug: it ends with 130."""

    class Field:
        def __set_name__(self, owner: type, name: str) -> None:
            raise KeyboardInterrupt

    with pytest.raises((RuntimeError, KeyboardInterrupt)) as raised:  # as Python before 3.12 has it, and after
        type("Made", (), {"field": Field()})
    assert cli._report(raised.value) == ExitCode.INTERRUPTED
    said = capsys.readouterr().err
    assert "interrupted" in said
    assert "Traceback" not in said


CONTRACT = (70, 5, 7, 6, 2, 4, 3, 1, 8, 0)
"""The documented order, written down a second time."""

NEVER_PRINTED = {"envbuilder/image/v1", "envbuilder/capture/v1"}
"""Documents that are files, or are printed by a program of their own: no command ends by them."""


def run(*codes: int) -> RunDocument:
    return RunDocument(matrix="m", rows=tuple(RunRow(environment=f"e{code}", exit_code=code) for code in codes))


def published(*codes: int) -> PublishDocument:
    return PublishDocument(rows=tuple(PublishRow(environment="e", repository="r", exit_code=code) for code in codes))


@pytest.mark.parametrize("size", range(1, len(CONTRACT) + 1))
def test_every_combination_of_rows_ends_in_the_contracts_order(size: int) -> None:
    for codes in combinations(CONTRACT, size):
        for order in (codes, codes[::-1]):
            assert errors.most_severe(order) == codes[0]
            assert exit_codes.of(run(*order)) == exit_codes.of(published(*order)) == codes[0]


@given(st.lists(st.integers(0, 255)))
def test_code_that_is_not_zero_is_never_lost(codes: list[int]) -> None:
    found = errors.most_severe(codes)
    assert found in (codes or [0])
    assert (found == 0) is not any(codes)
    assert found == errors.most_severe(sorted(codes, reverse=True))
    assert exit_codes.of(run(*codes)) == found


def test_every_document_that_a_command_prints_has_its_code() -> None:
    printed = {schema_of(kind) for kind in DOCUMENTS} - NEVER_PRINTED
    assert set(exit_codes.EXIT_CODES) == printed


def test_no_two_errors_share_a_code_but_usage() -> None:
    every = errors.EnvbuilderError.__subclasses__()
    kinds = {kind.__name__: kind.exit_code for kind in every if kind.__module__ == errors.__name__}
    assert kinds == TEXTS["codes of errors"]


def bisection(result: Result | None) -> BisectDocument:
    row: Any = {"tensorflow": "2.19.1"}
    asked = msgspec.convert(
        {"axis": "tensorflow", "candidates": ["2.18.1", "2.20.0"], "row": row, "command": ["x"]}, BisectParameters
    )
    return BisectDocument(asked=asked, result=result)


def compared(outcome: str) -> VerifyDocument:
    return VerifyDocument(comparisons=(msgspec.convert({"row": "r", "field": "f", "outcome": outcome}, Comparison),))


FOUND = Result(last_good="2.18.1", first_bad="2.20.0")
GONE = ImageGone(reference="x", size=1)
KEPT = ImageGone(reference="y", size=1, kept="in use")
UNTOLD = Result(last_good="2.18.1", first_bad="2.20.0", between=("2.19.1",))


@pytest.mark.parametrize(
    ("document", "code"),
    [
        *((verdict(verdict=word), code) for word, code in (("PASSED", 0), ("FAILED", 1), ("INCONCLUSIVE", 8))),
        *((replace(upgrade(), decision=word), 0) for word in ("ADOPT", "ADOPT_WITH_NOTES")),
        *((replace(upgrade(), decision=word), code) for word, code in (("REJECT", 1), ("UNDECIDED", 8))),
        (bisection(FOUND), ExitCode.DONE),
        (bisection(UNTOLD), ExitCode.NO_CLAIM),
        (bisection(None), ExitCode.NO_CLAIM),
        (Verification(image="x", accepted=True, demanded=Demanded()), ExitCode.DONE),
        (Verification(image="x", accepted=False, demanded=Demanded()), ExitCode.PUBLISH_FAILED),
        (compared("agrees"), ExitCode.DONE),
        (compared("disagrees"), ExitCode.FAILED),
        (CleanDocument(dry_run=False, images=(GONE,)), ExitCode.DONE),
        (CleanDocument(dry_run=False, images=(GONE, KEPT)), ExitCode.INFRASTRUCTURE),
        (run(), ExitCode.DONE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, msgspec.Struct) else str(int(value)),
)
def test_exit_code_follows_from_the_document(document: exit_codes.Document, code: int) -> None:
    assert exit_codes.of(document) == code


@pytest.mark.parametrize(
    ("document", "allow", "code"),
    [
        (inconclusive_verdict(), ("inconclusive",), ExitCode.DONE),
        (inconclusive_verdict(), (), ExitCode.NO_CLAIM),
        (failed_verdict(), ("inconclusive",), ExitCode.FAILED),
    ],
)
def test_inconclusive_is_accepted_on_request_and_aloud(
    document: Verdict, allow: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(click.exceptions.Exit) as ended:
        finish(document, "json", str, allow=allow)
    printed = capsys.readouterr()
    assert (ended.value.exit_code, "accepted by --allow" in printed.err) == (code, code == ExitCode.DONE)
    assert document.verdict in printed.out
