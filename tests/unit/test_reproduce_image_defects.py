"""Defects of published images: sourced, dated, named where a line shows them and nowhere else."""

from __future__ import annotations

import re
from datetime import date

import pytest

from envbuilder.catalog.store import load
from envbuilder.finding import Code, Severity
from envbuilder.reproduce.analysis import foresee
from envbuilder.reproduce.causes import ImageDefect, day_of, image_defect_rows
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.reproduce.messages.catalog import get, match
from envbuilder.reproduce.report.read import read

ROWS = image_defect_rows()
APT = (
    "W: GPG error: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64  InRelease: The "
    "following signatures couldn't be verified because the public key is not available: NO_PUBKEY A4B469963BF863CC"
)
NO_MODULE = "ModuleNotFoundError: No module named 'tensorflow'"
DLOPEN = "{} gpu_device.cc:2344] Cannot dlopen some GPU libraries. Please make sure the missing libraries are installed"
SKIPPING = "Skipping registering GPU devices..."


def answer(text: str) -> ReproduceDocument:
    """Answer a report."""
    return foresee(text, load()).document


def gone(image: str) -> str:
    """Write what Docker says of a tag that its registry lacks."""
    return f"docker: Error response from daemon: manifest for {image} not found: manifest unknown: manifest unknown."


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_rows_have_their_sources_and_days(row: ImageDefect) -> None:
    """Each fact has links with the day of what they say, none before it began, and messages that exist."""
    first, last = date.fromisoformat(row.since), date.fromisoformat(row.until or "2100-01-01")
    assert first <= last
    assert row.sources
    for source in row.sources:
        assert source.url.startswith(("https://github.com/", "https://gitlab.com/"))
        assert first <= date.fromisoformat(source.date) <= last
        assert source.says.endswith(".")
    assert row.fix.endswith(".")
    assert row.shows
    for signature in row.shows:
        assert get(signature).code is not None
    assert re.compile(row.images)


def test_names_are_once() -> None:
    """No name stands for two defects."""
    assert len({row.id for row in ROWS}) == len(ROWS) >= 7


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            f"docker run tensorflow/tensorflow:2.18.0-gpu\n{DLOPEN.format('W')}\n{SKIPPING}",
            "MISSING_LIBRARY",
            "cuDNN 8.9",
        ),
        (f"docker run tensorflow/tensorflow:2.2.0-gpu\n{APT}", "NOT_INSTALLABLE", "changed the key"),
        (gone("nvidia/cuda:11.0-base-ubuntu20.04"), "NOT_INSTALLABLE", "six months after"),
        (f"docker run nvidia/cuda nvidia-smi\n{gone('nvidia/cuda:latest')}", "NOT_INSTALLABLE", "tag latest"),
        (gone("gcr.io/tensorflow/tensorflow:latest-gpu"), "NOT_INSTALLABLE", "no longer at gcr.io"),
    ],
)
def test_a_line_that_shows_it_makes_it_the_cause(text: str, code: str, said: str) -> None:
    """The image's defect leads, with the line that shows it, its sources, and no rule's guess beside it."""
    document = answer(text)
    assert document.diagnosis.codes[0] == code
    assert document.diagnosis.confidence == "certain"
    assert said in document.diagnosis.cause
    assert document.diagnosis.line
    lead = document.predicted[0]
    assert lead.sources
    assert [row.code for row in document.predicted if row.severity is Severity.ERROR] == [lead.code]


@pytest.mark.parametrize(
    ("stamp", "named"),
    [
        ("2025-01-09 10:00:00.100000: W", Severity.ERROR),
        ("W0000 00:00:1736383795.205652  747392", Severity.ERROR),
        ("2023-01-09 10:00:00.100000: W", None),
        ("W", Severity.INFO),
    ],
)
def test_a_tag_that_moves_is_known_by_the_logs_day(stamp: str, named: Severity | None) -> None:
    """Of its time it is the cause, of another time nothing, and without a stamp a remark that says so."""
    document = answer(f"docker run tensorflow/tensorflow:latest-gpu\n{DLOPEN.format(stamp)}\n")
    found = [row for row in document.predicted if "libcudnn.so.9" in row.message]
    assert [row.severity for row in found] == ([named] if named else [])
    assert all(("is not known" in row.message) == (named is Severity.INFO) for row in found)


@pytest.mark.parametrize(
    "text",
    [
        f"docker run tensorflow/tensorflow:2.17.0-gpu\n{DLOPEN.format('W')}",
        "docker run tensorflow/tensorflow:2.18.0-gpu\nCould not load dynamic library 'libcublas.so.12'",
        f"docker run tensorflow/tensorflow:2.18.0-gpu\n{NO_MODULE}",
        gone("floydhub/dl-docker:gpu"),
        f"pip install tensorflow==2.18.0\n{DLOPEN.format('W')}",
        "docker run tensorflow/tensorflow:2.2.0-gpu\nIt is fine, how do I train?",
    ],
)
def test_other_images_and_other_lines_are_left_alone(text: str) -> None:
    """Another tag, another library, another message, or none: no defect of an image is named."""
    assert not [row for row in answer(text).predicted if "known defect" in row.message or "A defect of" in row.message]


def test_no_line_and_the_complaint_is_a_remark() -> None:
    """An image named by somebody who sees no GPU, without any log: said as a remark, and not as the cause."""
    document = answer("No GPU is detected.\ndocker run --gpus all tensorflow/tensorflow:2.18.0-gpu\n")
    found = [row for row in document.predicted if "A defect of" in row.message]
    assert [(row.code, row.severity) for row in found] == [(Code.MISSING_LIBRARY, Severity.INFO)]


def test_the_day_of_a_log() -> None:
    """Both kinds of stamps tell the day; a date in a version does not."""
    for text, day in (
        (DLOPEN.format("W0000 00:00:1736383795.205652  1"), "2025-01-09"),
        (DLOPEN.format("2021-06-17 20:18:13.799235: W"), "2021-06-17"),
        ("tensorflow 2.15.0-dev20230816", None),
    ):
        assert day_of(read(text), match(text)) == day
