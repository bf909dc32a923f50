"""What a report has working comes first, and a title comes last."""

from __future__ import annotations

import pytest

from envbuilder.catalog.store import load
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.reproduce.render import as_markdown, as_text
from envbuilder.reproduce.report.read import read

WINDOWS = """\
GPU not found after upgrading

tensorflow 2.10 works fine on my machine, but with tensorflow 2.11 no GPU is found.

OS: Windows 10
GPU: NVIDIA GeForce RTX 2070
"""
AMPERE = """\
TF 2.4 with CUDA 10.1 fails

- TensorFlow version: 2.4.0
- CUDA/cuDNN version: 10.1 / 7.6
- GPU model: RTX 3090
- OS: Ubuntu 20.04

On my other machine it worked with TF 1.14.

Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object file
"""


def answer(text: str) -> ReproduceDocument:
    return analyse(text, load()).document


def test_working_setup_of_the_report_is_proposed_first_with_its_line() -> None:
    document = answer(WINDOWS)
    near = document.nearest
    assert near is not None
    assert near.changes == ("tensorflow 2.11 → 2.10.1",)
    assert [(row.field, row.value, row.line) for row in near.worked] == [("tensorflow", "2.10", 3)]
    assert "the report says that it works: tensorflow 2.10 (line 3)" in as_text(document)
    assert "The report says that it works: tensorflow `2.10` (line 3)." in as_markdown(document)


def test_fix_without_working_setup_comes_from_the_search() -> None:
    near = answer(WINDOWS.replace("tensorflow 2.10 works fine on my machine, but with", "With")).nearest
    assert near is not None
    assert near.worked == ()
    assert "2.10" not in near.changes[0]


def test_working_setup_impossible_on_the_failing_host_is_not_proposed() -> None:
    near = answer(AMPERE).nearest
    assert near is not None
    assert near.worked == ()
    assert near.environment.tensorflow.startswith("2.")


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("It crashes with tensorflow 2.16.\nIt worked with tensorflow 2.15.", "tensorflow 2.16 → 2.15.1"),
        ("It crashes with tensorflow 2.16 and CUDA 12.3.\nIt worked with tensorflow 2.14.", None),
        ("It crashes with tensorflow 2.16.\nIt worked with tensorflow 2.16.", None),
        ("It crashes with tensorflow 2.16.\nIt worked with tensorflow 2.99.", None),
        ("It crashes with tensorflow 2.16.\nIt worked with tensorflow 2.14 and tensorflow 2.15.", None),
        ("It crashes with tensorflow 2.16.\nIt works on a GTX 1080.", None),
    ],
)
def test_working_setup_with_unknown_cause_is_proposed_only_unchanged(text: str, change: str | None) -> None:
    document = answer(text)
    assert document.diagnosis.confidence == "unsure"
    assert (document.nearest.changes if document.nearest else ()) == ((change,) if change else ())


@pytest.mark.parametrize(
    ("body", "cuda", "weight"),
    [
        ("### CUDA/cuDNN version\n\n11.2 / 8.1\n", "11.2", "stated"),
        ("I have installed CUDA 11.2 and get no GPU.\n", "11.2", "mentioned"),
        ("Successfully opened dynamic library libcudart.so.11.0\n", "11", "proved"),
    ],
)
def test_title_is_outranked_and_kept_as_contradiction(body: str, cuda: str, weight: str) -> None:
    document = answer(f"TensorFlow 2.5 and CUDA 10.1 trouble\n\n{body}")
    reported = document.reported
    assert reported.cuda == cuda
    row = next(row for row in reported.contradictions if row.field == "cuda")
    assert (row.kept.trust, row.dropped.value, row.dropped.title) == (weight, "10.1", True)
    assert {"10.1", cuda} <= {each.value for each in reported.evidence if each.field == "cuda"}
    assert f"over 10.1 (line {row.dropped.line}, the title)" in as_text(document)
    assert f"({weight} over mentioned in a title)" in as_markdown(document)


def test_version_only_in_the_title_is_used() -> None:
    assert read("CUDA 10.1 and TF 2.4\n\nNo GPU is found.\n").cuda == "10.1"
    assert read("I have CUDA 10.1 here\nand there CUDA 11.2 as well.\n\nNo GPU.\n").cuda == "10.1"


def test_ends_of_a_version_range_are_not_versions() -> None:
    reported = read("tensorflow1.10 fails\n\nI have tried tensorflow 1.8 to 1.11, all fail.\n")
    assert (reported.tensorflow, reported.contradictions) == ("1.10", ())
    assert read("I have tried tensorflow 1.8 to 1.11, all fail.\n").tensorflow is None


def test_update_with_messages_describes_the_failing_setup() -> None:
    update = "Update:\nI can confirm that cuda 11.0 works on ubuntu 20.04. {}\n\nptxas fatal : Value 'sm_86'\n"
    shown = read("TF 2.4 cuda 10.1 kernel image error\n\n" + update.format("There is only an error about:"))
    assert (shown.cuda, shown.os, shown.platform, shown.works) == ("11.0", "Ubuntu 20.04", "linux", ())
    assert [(row.kept.value, row.dropped.value) for row in shown.contradictions] == [("11.0", "10.1")]
    told = read("TF 2.4 cuda 10.1 kernel image error\n\n" + update.format("I am glad."))
    assert told.cuda == "10.1"
    assert {row.value for row in told.works} == {"11.0", "Ubuntu 20.04"}


@pytest.mark.parametrize("text", ["NIVIDIA-T4, 16GB", "Nvida:T4", "NVDIA T4", "nvidia-t4", "Nvidia: T4"])
def test_misspelt_gpu_maker_is_recognised(text: str) -> None:
    gpus = read(f"- TensorFlow version: 2.3.0\n- GPU model and memory: {text}\n").gpus
    assert len(gpus) == 1
    row = load().gpu(gpus[0])
    assert row is not None
    assert row.compute_capability == "7.5"
