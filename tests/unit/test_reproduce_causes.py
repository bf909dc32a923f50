"""Causes of a report's complaint, known defects of published images, and what is asked for where a report is silent."""

from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.finding import Code
from envbuilder.reproduce.causes import table
from envbuilder.reproduce.diagnose import deciding_commands
from envbuilder.reproduce.messages.catalog import SIGNATURES, find
from envbuilder.reproduce.question import Case
from envbuilder.reproduce.report.context import complaints
from envbuilder.reproduce.report.read import read
from envbuilder.reproduce.report.reported import Complaint, Reported
from envbuilder.reproduce.transcript import clean

STOPPED = (
    'Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\n'
    '  File "/usr/lib/python3.9/site-packages/tensorflow/__init__.py", line 37, in <module>\n'
    "    from tensorflow.python.tools import module_util as _module_util\n"
    '  File "/usr/lib/python3.9/site-packages/{file}", line 9, in <module>\n    something()\n{last}\n'
)


@rows
def test_complaint_is_read_from_prose_only(text: str, kinds: list[str]) -> None:
    assert set(kinds) <= set(complaints(clean(text)))
    assert kinds or not complaints(clean(text))


@rows
def test_traceback_ending_in_another_package_names_that_package(file: str, last: str, signature: str | None) -> None:
    found = {row.signature: row for row in find(clean(STOPPED.format(file=file, last=last)))}
    traceback_matches = {name for name in found if name.startswith(("stopped_in", "two_versions"))}
    assert traceback_matches == ({signature} if signature else set())
    assert all(not found[name].exact for name in traceback_matches)


def test_traceback_without_tensorflow_frame_is_ignored() -> None:
    text = STOPPED.format(file="numpy/core/x.py", last="TypeError: y").replace("packages/tensorflow", "packages/pandas")
    assert not [row for row in find(clean(text)) if row.signature.startswith("stopped_in")]


@rows
def test_exception_of_the_program_itself_is_no_matter_of_versions(source: str, last: str, *, own: bool) -> None:
    text = f'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    {source}\n{last}\n'
    assert ("own_exception" in {row.signature for row in find(clean(text))}) is own


def commands_for(reported: Reported) -> tuple[str, ...]:
    return deciding_commands(Case(reported, (), load()))


def test_commands_for_windows_use_no_unix_tools() -> None:
    for kinds in ((), ("invisible",), ("installing",)):
        for row in commands_for(Reported(complaints=kinds, platform="windows")):
            assert not row.startswith("TF_")
            assert not {"grep", "tail"} & set(row.split())


@rows
def test_commands_that_decide_a_complaint_are_asked_for(
    kinds: tuple[Complaint, ...], commands: tuple[str, ...]
) -> None:
    asked = commands_for(Reported(complaints=kinds))
    assert all(part in command for part, command in zip(commands, asked, strict=True))


def test_output_that_the_report_has_is_not_asked_for() -> None:
    smi = "| NVIDIA-SMI 535.104.05   Driver Version: 535.104.05   CUDA Version: 12.2 |\n"
    packages = "".join(f"package-{number}==1.{number}\n" for number in range(10))
    assert not any("nvidia-smi" in row for row in commands_for(read(smi + "GPU not found")))
    assert not any("pip list" in row for row in commands_for(read(packages + "GPU not found")))
    assert any("pip list" in row for row in commands_for(read("tensorflow==2.15.1\nGPU not found")))


def test_every_message_has_its_row_in_the_table_of_causes() -> None:
    rows = table()
    assert {row.code for row in SIGNATURES if row.code is not None} <= rows.keys()
    assert all(row.explains for code, row in rows.items() if code is not Code.UNKNOWN)
    assert all(row.hides <= rows.keys() - {code} for code, row in rows.items())
