"""Known messages: each is recognised by its own signature, on the right line, quickly, in any wrapping."""

import re
import time

import pytest

from envbuilder.catalog.store import load
from envbuilder.finding import Severity
from envbuilder.reproduce.causes import table
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.messages.catalog import SIGNATURES, LogMessage, _occurrences, find
from envbuilder.reproduce.question import Case
from envbuilder.reproduce.report.reported import Reported
from envbuilder.reproduce.terms import filled, terms
from envbuilder.reproduce.transcript import clean

IDS = [signature.id for signature in SIGNATURES]


def test_messages_are_at_least_a_hundred_with_unique_ids() -> None:
    assert len(SIGNATURES) >= 100
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("signature", SIGNATURES, ids=IDS)
def test_samples_match_their_message_in_any_wrapping(signature: LogMessage) -> None:
    for sample in signature.samples:
        for text in (sample, f"> {sample}", f"\x1b[31m{sample}\x1b[0m"):
            assert signature.id in {symptom.signature for symptom in find(text)}, text


@pytest.mark.parametrize("signature", SIGNATURES, ids=IDS)
def test_messages_have_cause_fix_and_versions(signature: LogMessage) -> None:
    nothing = terms(Case(Reported(), (), load()))
    for text in (signature.cause, signature.fix):
        assert filled(text, nothing).endswith(".")
        assert "{" not in filled(text, nothing)
    assert signature.versions
    quiet = signature.layer in {"noise", "fact"}
    assert quiet == (signature.severity is Severity.INFO)
    if quiet:
        assert signature.code is None


def test_fixes_name_releases_of_the_index_alone() -> None:
    computed = {"{wheel}", "{extra}", "{newest}", "{newest_here}", "{runtime_release}", "VERSION"}
    wheels = {*load().versions, *(wheel for row in GRAMMAR.before_catalogue for wheel in row.wheels), *computed}
    causes = [text for row in table().values() for text in (*row.says, *row.fixes)]
    fixes = [text for row in SIGNATURES for text in ((row.fix,) if isinstance(row.fix, str) else row.fix)]
    pins = re.compile(r"tensorflow(?:-gpu|-cpu)?(?:\[and-cuda\])?==([0-9][0-9a-z.]*[0-9a-z]|{\w+}|VERSION)(?![\w.])")
    named = {pin[1] for text in (*causes, *fixes) for pin in pins.finditer(text)}
    assert "2.10.1" in named
    assert named <= wheels


def test_repeated_message_is_one_match() -> None:
    line = "Could not load dynamic library 'libcud{0}.so.8'; dlerror: libcud{0}.so.8: cannot open shared object file\n"
    assert len(find(line.format("nn") * 1000)) == 1
    assert len(find(line.format("nn") + line.format("art"))) == 2


def test_similar_messages_have_different_matches() -> None:
    cases = {
        "Could not load dynamic library 'libnvinfer.so.7'; dlerror: libnvinfer.so.7: cannot open": "tensorrt_absent",
        "Could not load dynamic library 'libcuda.so.1'; dlerror: libcuda.so.1: cannot open": "libcuda_not_loaded",
        "Could not load dynamic library 'libcufft.so.11'; dlerror: libxy.so.12: cannot open": "dependency_not_loaded",
        "failed to allocate 2.00GiB with freed_by_count=0": None,
    }
    for line, expected in cases.items():
        assert [symptom.signature for symptom in find(line)] == ([expected] if expected else [])


@pytest.mark.parametrize("signature", SIGNATURES, ids=IDS)
def test_no_catastrophic_backtracking(signature: LogMessage) -> None:
    start = time.process_time()
    for literal in signature.literals:
        for filler in ("a", "0", ".", " ", "'", "_a", literal + " "):
            _occurrences(clean(literal + filler * (4_000 // len(filler))), signature)
    assert (time.process_time() - start) / (7 * max(1, len(signature.literals))) < 0.05
