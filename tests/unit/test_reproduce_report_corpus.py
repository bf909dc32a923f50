"""Reports in every shape that people post: what each says is read, on the right line, and nothing else."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from envbuilder.catalog.store import load
from envbuilder.reproduce import grammar
from envbuilder.reproduce.grammar import GRAMMAR, expression, fits
from envbuilder.reproduce.messages.catalog import find
from envbuilder.reproduce.report.read import Recogniser, read, table
from envbuilder.reproduce.report.reported import SCALARS

CORPUS = Path(__file__).parents[1] / "corpus"
REPORTS = sorted(CORPUS.glob("*.txt"))
GROUPS = ("packages", "built", "environment")


def expected(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.with_suffix(".yaml").read_text())
    return document


def text_of(path: Path) -> str:
    """Read a report byte for byte: carriage returns belong to it."""
    return path.read_bytes().decode()


def test_corpus_has_over_forty_different_reports() -> None:
    shapes = [expected(path)["shape"] for path in REPORTS]
    assert len(REPORTS) >= 40
    assert len(set(shapes)) == len(shapes)


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_corpus_report_is_read_and_unstated_fields_are_empty(path: Path) -> None:
    wanted, text = expected(path), text_of(path)
    reported = read(text)
    assert {name: value for name in SCALARS if (value := getattr(reported, name)) is not None} == wanted["fields"]
    assert list(reported.gpus) == wanted.get("gpus", [])
    assert list(reported.compute_capabilities) == wanted.get("compute_capabilities", [])
    for group in GROUPS:
        assert getattr(reported, group) == wanted.get(group, {}), group
    for name, number in wanted["lines"].items():
        rows = [row for row in reported.evidence if (row.field, row.value) == (name, getattr(reported, name))]
        assert rows[0].line == number, name
    assert all(1 <= row.line <= text.count("\n") + 1 for row in reported.evidence)
    against = sorted({f"{row.field}: {row.kept.value} over {row.dropped.value}" for row in reported.contradictions})
    assert against == wanted.get("contradictions", [])
    assert [[row.line, row.seconds] for row in reported.pauses] == wanted.get("pauses", [])
    assert [f"{row.line} {row.signature}" for row in find(text)] == wanted.get("symptoms", [])


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_quoted_or_windows_report_reads_the_same(path: Path) -> None:
    text = text_of(path)
    plain = read(text)
    if "```" not in text and "capture" not in path.stem:
        quoted = read("\n".join(f"> {line}" for line in text.split("\n")))
        assert {name: getattr(quoted, name) for name in SCALARS} == {name: getattr(plain, name) for name in SCALARS}
    windows = read(text.replace("\n", "\r\n"))
    assert {name: getattr(windows, name) for name in SCALARS} == {name: getattr(plain, name) for name in SCALARS}


def test_stronger_source_wins_and_weaker_ones_are_kept() -> None:
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


@pytest.mark.parametrize("row", table(), ids=lambda row: row.name)
def test_recogniser_states_fields_that_fit_the_grammar(row: Recogniser) -> None:
    groups = re.compile(row.pattern, re.ASCII).groupindex
    named = {re.sub("_[0-9]$", "", group) for group in groups} - {"index"}
    allowed = GRAMMAR.fields.keys() | {"built", "package", "version", "variable", "setting"}
    assert {GRAMMAR.conversions.get(name, (name,))[0].partition(".")[0] for name in named} <= allowed
    assert all(fits(field, value) for field, value in row.says.items())
    assert named or row.says
    assert bool(row.needles) != bool(row.near)
    assert all(needle == needle.lower() for needle in (*row.needles, *row.unless))


def test_grammar_has_no_unused_part() -> None:
    folder = Path(grammar.__file__).parent
    text = "".join(path.read_text() for path in folder.rglob("*.*") if path.suffix in {".py", ".yaml"})
    assert not [name for name in GRAMMAR.parts if f"%{name}%" not in text]
    with pytest.raises(KeyError):
        expression("%NO_SUCH_PART%")


@pytest.mark.parametrize("text", ["NIVIDIA-T4, 16GB", "Nvida:T4", "NVDIA T4", "nvidia-t4", "Nvidia: T4"])
def test_misspelt_gpu_maker_is_recognised(text: str) -> None:
    gpus = read(f"- TensorFlow version: 2.3.0\n- GPU model and memory: {text}\n").gpus
    assert len(gpus) == 1
    assert load().gpu(gpus[0]).compute_capability == "7.5"


def test_every_gpu_of_the_catalogue_is_read_from_a_form() -> None:
    for gpu in (one for one in load().gpus if not one.arch):  # Jetson is known by its system
        names = read(f"- TensorFlow version: 2.3.0\n- GPU model and memory: NVIDIA {gpu.name}\n").gpus
        assert [load().gpu(name).compute_capability for name in names] == [gpu.compute_capability], gpu.name
