"""Reports that nobody wrote: mutated, spliced and random texts give no traceback and nothing that is not in them."""

import random
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from envbuilder.catalog.store import load
from envbuilder.reproduce.grammar import fits
from envbuilder.reproduce.messages.catalog import SIGNATURES, find
from envbuilder.reproduce.report.read import cleaned, read
from envbuilder.reproduce.report.reported import SCALARS, Reported

CATALOG = load()
CORPUS = Path(__file__).parents[1] / "corpus"
TEXTS = tuple(path.read_bytes().decode() for path in sorted(CORPUS.glob("*.txt")))
LINES = tuple(line for text in TEXTS for line in text.split("\n") if line)
SAMPLES = tuple(sample for signature in SIGNATURES for sample in signature.samples)
JUNK = (
    "\x00", "\r", "\x1b[31m", "\x1b]0;x\x07", "\u202e", "\u0130", "\uff0c", "\U0001f600", "`", "```", "<details>",
    "&lt;", "&#10;", "&#304;", "\ufeff", '"', "'", "|", "> ", "$(", "{", "==", "\t", "\u0664.\u0662", "\u00b2",
    '{"schema": "envbuilder/capture/v1"', "9" * 60, "1." * 40, "(e.g., ", "<!--", "-->", "\u2028", "\x85",
)  # fmt: skip
NEVER_SAID = {"platform", "install", "build", "distribution"}
"""Fields that a line may imply without their words (a .dll is Windows'): the rest must stand in the text."""


def spliced(source: random.Random) -> str:
    first, second = source.sample(TEXTS, 2)
    return first[: source.randrange(len(first))] + second[source.randrange(len(second)) :]


MADE: tuple[Callable[[random.Random], str], ...] = (
    lambda source: source.choice(TEXTS),
    lambda source: "\n".join(source.choices(LINES, k=source.randrange(1, 25))),
    lambda source: "\n".join(source.choices(SAMPLES, k=source.randrange(1, 12))),
    lambda source: "".join(
        chr(source.choice((source.randrange(32, 127), source.randrange(0x3000)))) for _ in range(200)
    ),
    lambda source: "".join(
        source.choice("0123456789.-/ ,:v\n") + source.choice(("tf", "cuda", "")) for _ in range(150)
    ),
    spliced,
)
EDITS: tuple[Callable[[random.Random, str, str], str], ...] = (
    lambda source, before, after: before + source.choice(JUNK) + after,
    lambda source, before, after: before + after[source.randrange(40) :],
    lambda source, before, after: before + str(source.randrange(100)) + after[1:],
    lambda _, before, __: before,
)


def mutated(source: random.Random) -> str:
    """Make a report out of parts of reports, with characters exchanged, cut and strewn in."""
    text = source.choice(MADE)(source)
    for _ in range(source.randrange(6)):
        at = source.randrange(len(text) + 1)
        text = source.choice(EDITS)(source, text[:at], text[at:])
    return text


def assert_nothing_is_invented(text: str, reported: Reported) -> None:
    """Every value satisfies its grammar, has evidence on a line of the text, and its numbers stand on that line."""
    count = text.count("\n") + 1
    for row in reported.evidence:
        assert 1 <= row.line <= count
        if row.field in NEVER_SAID or row.source in ("capture", "a series of GPUs", "versions that pip offers"):
            continue
        digits = re.sub(r"[^0-9]", "", row.text)
        for number in re.findall(r"[0-9]+", row.value):
            assert number in row.text or number.strip("0") in digits, (row, text)
    said = {(row.field, row.value) for row in reported.evidence}
    for name in SCALARS:
        value = getattr(reported, name)
        if value is not None:
            assert fits(name, value), (name, value)
            assert name == "platform" or (name, value) in said, (name, value)
    for group in ("packages", "built", "environment"):
        for name, value in getattr(reported, group).items():
            assert fits(f"{group}.{name}", value)
    assert all(fits("gpus", name) for name in reported.gpus)


@pytest.mark.parametrize(
    ("count", "seed"),
    [(1_500, 20_261_121), *(pytest.param(10_000, part, marks=pytest.mark.full) for part in range(2))],
)
def test_made_reports_are_read_and_nothing_is_invented(count: int, seed: int) -> None:
    source = random.Random(seed)  # noqa: S311 - repeatable, not secret
    for _ in range(count):
        text = mutated(source)
        assert_nothing_is_invented(text, read(text))
        lines = text.count("\n") + 1
        assert all(1 <= symptom.line <= lines for symptom in find(text))


REPEATED = (
    *JUNK, "a\n", "tensorflow 2.4 cuda 11.2 ", "- TensorFlow version: 2.4.1\n", "numpy==1.19.5\n", "numpy     1.19.5\n",
    "7 | RTX 3090 tf 2.4\n", ' "x",\n', '{"schema": "envbuilder/capture/v1", "a": ', "tensorflow version ",
    "|   0  GeForce RTX 308...  Off  | 00000000:01:00.0 Off |\n", SAMPLES[60] + "\n", "\n".join(SAMPLES) + "\n",
    "\n".join(random.Random(1).choices(LINES, k=6_000)),  # noqa: S311
)  # fmt: skip


@pytest.mark.parametrize("text", REPEATED, ids=range(len(REPEATED)))
def test_100_kb_is_no_work(text: str) -> None:
    large = (text * (100_000 // len(text) + 1))[:100_000]
    for _ in range(5):
        start = time.process_time()
        transcript = cleaned(large)
        read(large, transcript)
        find(transcript)
        taken = time.process_time() - start
        if taken < 0.5:
            return
    pytest.fail(f"{taken * 1e3:.0f} ms")
