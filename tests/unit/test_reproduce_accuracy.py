"""Real threads: what is read, which cause is named, what misleads, and whether the nearest would have fixed it."""

import re
from collections.abc import Callable
from typing import Literal

import msgspec
import pytest
import threads
from packaging.specifiers import SpecifierSet

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.store import load
from envbuilder.compat.check import EnvironmentAnswer
from envbuilder.finding import Code, Severity
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.reproduce.report.reported import SCALARS, Reported

THREADS = threads.load()
_IMPLIED = frozenset({"platform", "arch", "build", "distribution"})
"""Follow from what else is said: right or wrong where the truth has them, and never invented."""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one thread; ``wrong`` and ``invented`` name fields, ``claimed`` what should not have been said."""

    name: str
    stated: int
    wrong: tuple[str, ...]
    invented: tuple[str, ...]
    cause: Literal["named", "silent", "wrong"]
    claimed: tuple[Code, ...]
    nearest: Literal["mends", "none", "wrong"]


def measure(thread: threads.Thread, catalog: Catalog) -> Measured:
    """Read a thread's report and compare every part of the answer with the truth."""
    document = analyse(thread.report, catalog).document
    stated, wrong, invented = _fields(thread, document.reported)
    lead, claims = said(document)
    right = {*thread.cause, *thread.also}
    claimed = tuple(code for code in claims if code not in right)
    return Measured(
        name=thread.name,
        stated=stated,
        wrong=wrong,
        invented=invented,
        cause=_cause(thread, lead),
        claimed=claimed,
        nearest=_nearest(thread, document),
    )


def said(document: ReproduceDocument) -> tuple[Code | None, tuple[Code, ...]]:
    """Return the cause that an answer leads with (None where it knows none), and everything that it claims is wrong."""
    told = [row for row in document.predicted if row.severity is not Severity.INFO and row.code is not Code.UNKNOWN]
    lead = document.diagnosis.codes[0] if document.diagnosis.codes else None
    errors = [row.code for row in told if row.severity is Severity.ERROR]
    return lead, tuple(dict.fromkeys([*([lead] if lead else []), *errors]))


def _cause(thread: threads.Thread, lead: Code | None) -> Literal["named", "silent", "wrong"]:
    if not thread.cause:
        return "named" if lead is None or lead in thread.also else "wrong"
    if lead is None:
        return "silent"
    return "named" if lead in thread.cause else "silent" if lead in thread.also else "wrong"


def _nearest(thread: threads.Thread, document: ReproduceDocument) -> Literal["mends", "none", "wrong"]:
    if document.nearest is None:
        return "none"
    return "mends" if any(_fits(way, document.nearest.environment) for way in thread.nearest) else "wrong"


def _fits(way: threads.Way, found: EnvironmentAnswer) -> bool:
    return (
        (way.tensorflow is None or SpecifierSet(way.tensorflow).contains(found.tensorflow, prereleases=True))
        and (way.python is None or found.python is None or SpecifierSet(way.python).contains(found.python))
        and (way.cuda is None or _begins(found.cuda, way.cuda))
        and (way.cudnn is None or _begins(found.cudnn, way.cudnn))
        and (way.install is None or found.install == way.install)
    )


def _begins(version: str | None, start: str) -> bool:
    return version is not None and f"{version}.".startswith(f"{start}.")


def _fields(thread: threads.Thread, reported: Reported) -> tuple[int, tuple[str, ...], tuple[str, ...]]:
    """Count what is stated, and name what was read wrongly or not at all, and what nobody stated."""
    stated = 0
    wrong: list[str] = []
    invented: list[str] = []
    for name in SCALARS:
        value = getattr(reported, name)
        if name not in thread.fields:
            if value is not None and name not in _IMPLIED:
                invented.append(f"{name} {value}")
            continue
        wanted = thread.fields[name]
        readings = wanted if isinstance(wanted, list) else [wanted]
        stated += None not in readings
        if not any(_same(name, reading, value) for reading in readings):
            (wrong if value is None or None not in readings else invented).append(f"{name} {value}")
    for name, version in thread.packages.items():
        stated += 1
        if reported.packages.get(name) != version:
            wrong.append(f"{name} {reported.packages.get(name)}")
    for kind, truth, read in (
        ("gpu", thread.gpus, reported.gpus),
        ("capability", thread.capabilities, reported.compute_capabilities),
    ):
        models = {_model(each) for each in truth if each is not None}
        found = {_model(each): each for each in read}
        stated += len(models) if None not in truth else 0
        wrong += [f"{kind} {model}" for model in sorted(models - found.keys()) if None not in truth]
        invented += [f"{kind} {found[model]}" for model in sorted(found.keys() - models) if kind == "gpu" or truth]
    return stated, tuple(wrong), tuple(invented)


def _same(name: str, wanted: str | None, found: str | None) -> bool:
    if wanted is None or found is None:
        return wanted is found
    if name == "os":
        return _words(wanted) <= _words(found) or _words(found) == _words(wanted) - {"linux"}
    return wanted == found


def _words(text: str) -> set[str]:
    """Split a system's name into words and numbers, whether or not a space stands between them."""
    words = set(re.findall(r"[a-z_!]+|[0-9]+(?:\.[0-9]+)*", text.lower().replace("os_", "os ")))
    return {{"win": "windows"}.get(word, word) for word in words} - {"lts", "and", "on", "release", "pro", "microsoft"}


def _model(name: str | None) -> str:
    """Write a GPU's model without its maker's other names."""
    return re.sub(r"nvidia|geforce|tesla|quadro|laptop gpu|[^a-z0-9]", "", (name or "").lower())


@pytest.fixture(scope="module")
def rows() -> list[Measured]:
    catalog = load()
    return [measure(thread, catalog) for thread in THREADS.values()]


def test_there_are_a_hundred_threads_of_many_places() -> None:
    assert len(THREADS) >= 100
    assert len({thread.url.rsplit("/", 2)[0] for thread in THREADS.values()}) >= 20
    assert all(thread.why.endswith(".") and thread.url.startswith("https://") for thread in THREADS.values())


def test_stated_fields_are_read_and_none_is_invented(rows: list[Measured]) -> None:
    stated = sum(row.stated for row in rows)
    wrong, invented = (
        [(row.name, text) for row in rows for text in getattr(row, kind)] for kind in ("wrong", "invented")
    )
    assert len(wrong) <= 0.03 * stated, wrong
    assert len(invented) <= 0.01 * stated, invented


@pytest.mark.parametrize(
    ("is_so", "least", "most"),
    [
        (lambda row: row.cause == "named", 85, 100),
        (lambda row: bool(row.claimed), 0, 2),
        (lambda row: row.nearest == "wrong", 0, 3),
        (lambda row: row.nearest == "mends", 14, 100),
    ],
    ids=["names the cause", "claims what is not so", "proposes what would not help", "proposes what would help"],
)
def test_share_of_threads_in_which_the_answer(
    rows: list[Measured], is_so: Callable[[Measured], bool], least: int, most: int
) -> None:
    found = [row.name for row in rows if is_so(row)]
    assert least <= 100 * len(found) / len(rows) <= most, found


def test_measure_can_fail() -> None:
    thread = THREADS["tensorflow-38482"]
    turned = msgspec.structs.replace(thread, fields={"tensorflow": "9.9.9"}, cause=[Code.GLIBC_TOO_OLD], nearest=[])
    row = measure(turned, load())
    assert row.wrong
    assert row.invented
    assert (row.cause, row.nearest) == ("wrong", "wrong") or row.claimed
