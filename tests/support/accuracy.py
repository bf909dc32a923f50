"""Hold `reproduce --dry-run` against the truth of real threads: fields, cause, misleading words, the nearest."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Literal

import msgspec
import threads
from packaging.specifiers import SpecifierSet

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.store import load
from envbuilder.finding import Code, Severity
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.reproduce.report.reported import SCALARS, Reported

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
    found = document.nearest.environment
    ways = (
        _fits(way, found.tensorflow, found.python, found.cuda, found.cudnn, found.install) for way in thread.nearest
    )
    return "mends" if any(ways) else "wrong"


def _fits(
    way: threads.Way, tensorflow: str, python: str | None, cuda: str | None, cudnn: str | None, install: str | None
) -> bool:
    return (
        (way.tensorflow is None or SpecifierSet(way.tensorflow).contains(tensorflow, prereleases=True))
        and (way.python is None or python is None or SpecifierSet(way.python).contains(python))
        and (way.cuda is None or _begins(cuda, way.cuda))
        and (way.cudnn is None or _begins(cudnn, way.cudnn))
        and (way.install is None or install == way.install)
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


def share(part: int, whole: int) -> float:
    """Return a part of a whole in percent."""
    return 100 * part / whole if whole else 0.0


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a corpus, in percent of what each is about: fields of stated fields, the others of threads."""

    threads: int
    fields_right: float
    fields_invented: float
    cause_named: float
    misleading: float
    nearest_wrong: float
    nearest_mends: float


def totals(rows: list[Measured]) -> Totals:
    """Sum up."""
    stated = sum(row.stated for row in rows)
    return Totals(
        threads=len(rows),
        fields_right=100 - share(sum(len(row.wrong) for row in rows), stated),
        fields_invented=share(sum(len(row.invented) for row in rows), stated),
        cause_named=share(sum(row.cause == "named" for row in rows), len(rows)),
        misleading=share(sum(bool(row.claimed) for row in rows), len(rows)),
        nearest_wrong=share(sum(row.nearest == "wrong" for row in rows), len(rows)),
        nearest_mends=share(sum(row.nearest == "mends" for row in rows), len(rows)),
    )


def table(rows: list[Measured]) -> Iterator[str]:
    """Write one line a thread, with what went wrong."""
    for row in rows:
        read = f"fields {row.stated - len(row.wrong)}/{row.stated}"
        details = [
            *(f"wrong: {text}" for text in row.wrong),
            *(f"invented: {text}" for text in row.invented),
            *(f"claimed: {code}" for code in row.claimed),
        ]
        yield f"{row.name:28} {read:14} cause {row.cause:7} nearest {row.nearest:6} {'; '.join(details)}".rstrip()


def main(arguments: list[str]) -> int:
    """Print the figures, and with ``-v`` every thread that is not all right."""
    catalog = load()
    rows = [measure(thread, catalog) for thread in threads.load().values()]
    if "-v" in arguments:
        bad = [
            row
            for row in rows
            if row.wrong or row.invented or row.cause != "named" or row.claimed or row.nearest == "wrong"
        ]
        sys.stdout.write("".join(f"{line}\n" for line in table(rows if "--all" in arguments else bad)))
    figures = totals(rows)
    for name, value in msgspec.structs.asdict(figures).items():
        sys.stdout.write(f"{name.replace('_', ' '):16} {value:6.1f}{'' if name == 'threads' else ' %'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
