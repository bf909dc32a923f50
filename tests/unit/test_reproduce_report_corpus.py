"""Reports in every shape that people post: what each says is read, on the right line, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuilder.reproduce.messages.catalog import match
from envbuilder.reproduce.report.read import read
from envbuilder.reproduce.report.reported import SCALARS

CORPUS = Path(__file__).parents[1] / "corpus"
REPORTS = sorted(CORPUS.glob("*.txt"))
GROUPS = ("packages", "built", "environment")


def expected(path: Path) -> dict[str, Any]:
    """Read what stands beside a report: its fields, their lines, contradictions, pauses and symptoms."""
    document: dict[str, Any] = yaml.safe_load(path.with_suffix(".yaml").read_text())
    return document


def text_of(path: Path) -> str:
    """Read a report byte for byte: carriage returns belong to it."""
    return path.read_bytes().decode()


def test_the_corpus_is_large_and_its_shapes_differ() -> None:
    """There are more than forty reports, and no two claim the same shape."""
    shapes = [expected(path)["shape"] for path in REPORTS]
    assert len(REPORTS) >= 40
    assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_every_stated_field_and_no_other(path: Path) -> None:
    """Every field has the value that the report states; a field that it does not state is null or empty."""
    wanted, reported = expected(path), read(text_of(path))
    assert {name: value for name in SCALARS if (value := getattr(reported, name)) is not None} == wanted["fields"]
    assert list(reported.gpus) == wanted.get("gpus", [])
    assert list(reported.compute_capabilities) == wanted.get("compute_capabilities", [])
    for group in GROUPS:
        assert getattr(reported, group) == wanted.get(group, {}), group


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_fields_keep_their_lines(path: Path) -> None:
    """Every chosen value has evidence, and the evidence's line is the one that states it."""
    text = text_of(path)
    wanted, reported = expected(path), read(text)
    lines = text.count("\n") + 1
    for name, number in wanted["lines"].items():
        rows = [row for row in reported.evidence if (row.field, row.value) == (name, getattr(reported, name))]
        assert rows[0].line == number, name
    assert all(1 <= row.line <= lines for row in reported.evidence)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_contradictions_pauses_and_symptoms(path: Path) -> None:
    """What contradicts is shown with the winner, what paused with its length, what was printed with its signature."""
    wanted, text = expected(path), text_of(path)
    reported = read(text)
    against = sorted({f"{row.field}: {row.kept.value} over {row.dropped.value}" for row in reported.contradictions})
    assert against == wanted.get("contradictions", [])
    assert [[row.line, row.seconds] for row in reported.pauses] == wanted.get("pauses", [])
    assert [f"{row.line} {row.signature}" for row in match(text)] == wanted.get("symptoms", [])


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_wrapping_changes_nothing(path: Path) -> None:
    """A report quoted in a mail or copied from Windows says the same."""
    text = text_of(path)
    plain = read(text)
    if "```" not in text and "capture" not in path.stem:
        quoted = read("\n".join(f"> {line}" for line in text.split("\n")))
        assert {name: getattr(quoted, name) for name in SCALARS} == {name: getattr(plain, name) for name in SCALARS}
    windows = read(text.replace("\n", "\r\n"))
    assert {name: getattr(windows, name) for name in SCALARS} == {name: getattr(plain, name) for name in SCALARS}


def test_driver_ceiling_is_not_the_toolkit() -> None:
    """nvidia-smi's CUDA version is what the driver serves, in each of three spellings; the toolkit stays unknown."""
    for header in (
        "| NVIDIA-SMI 535.54.03    Driver Version: 535.54.03    CUDA Version: 12.2     |",
        "| NVIDIA-SMI 610.43.02    KMD Version: 610.43.02       CUDA UMD Version: 12.2 |",
        "Driver Version                            : 535.54.03\nCUDA Version                              : 12.2",
    ):
        reported = read(header)
        assert (reported.cuda, reported.driver_cuda) == (None, "12.2"), header


def test_trust_decides_and_both_are_kept() -> None:
    """A log outweighs a listing, a listing a command, a command a form, a form a sentence; every loser is shown."""
    statements = {
        "proved": "dso_loader.cc:49] Successfully opened dynamic library libcudart.so.10.1",
        "listed": "Cuda compilation tools, release 10.2, V10.2.89",
        "ordered": "conda install cudatoolkit=10.0",
        "stated": "- CUDA/cuDNN version: 9.2",
        "mentioned": "it was built for cuda 9.0",
    }
    values = ["10.1", "10.2", "10.0", "9.2", "9.0"]
    for first in range(len(values)):
        reported = read("\n".join(reversed(list(statements.values())[first:])))
        assert reported.cuda == values[first]
        assert {row.dropped.value for row in reported.contradictions} == set(values[first + 1 :])


def test_more_exact_words_are_no_contradiction() -> None:
    """8.1, 8.1.0 and a loaded libcudnn.so.8 agree; the most exact is kept."""
    text = "cudnn 8.1\n- cuDNN version: 8.1.0\nSuccessfully opened dynamic library libcudnn.so.8\n"
    reported = read(text)
    assert (reported.cudnn, reported.contradictions) == ("8.1.0", ())


def test_works_elsewhere_is_not_this_environment() -> None:
    """A version that is said to work is not the reporter's."""
    assert read("TF 2.15.1 works fine here.").tensorflow is None
