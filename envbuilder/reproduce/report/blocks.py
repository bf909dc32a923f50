"""Statements across lines: package lists, version files, GPUs and systems in prose."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from envbuilder.reproduce.grammar import (
    GRAMMAR,
    RELEASE,
    VERSION,
    gpus_in,
    phrase,
    system_in,
)
from envbuilder.reproduce.report.context import setup_of, without_addresses
from envbuilder.reproduce.report.reported import ReportStatement, Trust, statement
from envbuilder.reproduce.transcript import Transcript

_FROZEN = re.compile(
    rf"^\s{{0,8}}([A-Za-z0-9][A-Za-z0-9._-]{{0,63}})(?:\[[a-z0-9,_-]{{1,40}}\])?==({VERSION})\s{{0,8}}(?:[;#\\\"',]|$)",
    re.ASCII,
)
_COLUMNS = re.compile(
    rf"^\s{{0,8}}([A-Za-z0-9][A-Za-z0-9._-]{{0,63}})\s{{1,60}}({VERSION})(?:\s{{1,60}}[A-Za-z0-9_.*/:-]{{1,80}}){{0,2}}\s{{0,8}}$",
    re.ASCII,
)
_ORDERED = re.compile(
    rf"(?<![\w./-])([A-Za-z][A-Za-z0-9._-]{{0,63}})(?:\[[a-z0-9,_-]{{1,40}}\])?==({VERSION})(?!\w|\.\w)", re.ASCII
)
_REQUIRES = re.compile(r"\b[0-9][\w.+]{0,20} requires [\w-]{2,40}[=<>!~]|^Requires:", re.ASCII)
"""Requirements in package metadata; they do not prove that the package is installed."""

_SATISFIED = re.compile(
    rf"already satisfied: ([A-Za-z0-9][A-Za-z0-9._-]{{0,63}})[^\n]{{0,120}} in [^\n]{{1,300}}\(({VERSION})\)\s{{0,4}}$",
    re.ASCII,
)
_SHOWN = re.compile(rf"^\s{{0,4}}Version: ({VERSION})\s{{0,4}}$", re.ASCII)

_DISTRIBUTIONS = {name: kind for kind, names in GRAMMAR.distributions.items() for name in names}
_KNOWN = re.compile("|".join(GRAMMAR.known_packages), re.IGNORECASE)
_HEADERS = ("package ", "# name ", "name  ")


def packages(transcript: Transcript) -> Iterator[ReportStatement]:
    """Yield the packages of pip and conda lists, requirement files and install commands."""
    for number in transcript.numbers("==", 600):
        line = transcript.line(number)
        row = _FROZEN.match(line)
        if row is not None:
            yield from _package(row[1], row[2], number, line, Trust.LISTED)
        elif _REQUIRES.search(line) is None:
            for match in _ORDERED.finditer(line[:600]):
                yield from _package(match[1], match[2], number, line, Trust.ORDERED)
    for number in transcript.numbers("already satisfied:", 200):
        row = _SATISFIED.search(transcript.line(number)[:1_000])
        if row is not None:
            yield from _package(row[1], row[2], number, transcript.line(number), Trust.LISTED)
    yield from _columns(transcript)


def _columns(transcript: Transcript) -> Iterator[ReportStatement]:
    """Read the rows of a package list: all below its header, elsewhere only the relevant packages."""
    listing, rows = False, 0
    most = 1_500
    for number in transcript.matching(_ROW, most):
        line = transcript.line(number)
        lowered = line.strip().lower()
        if lowered.startswith(_HEADERS):
            listing, rows = True, number
            continue
        row = _COLUMNS.match(line)
        if row is None:
            continue
        listing = listing and number <= rows + 3
        rows = number
        if listing or _KNOWN.match(row[1]):
            wide = listing or "  " in line.strip()
            pair = 2
            if wide or (len(line.split()) == pair and not row[1].lower().startswith("cud")):
                yield from _package(row[1], row[2], number, line, Trust.LISTED if wide else Trust.MENTIONED)


_ROW = re.compile(r"(?m)^ {0,8}(?:# )?[a-z0-9][a-z0-9._-]{0,63} {1,60}(?:[0-9]|version)[^\n]{0,140}$", re.ASCII)


def _package(name: str, version: str, number: int, line: str, trust: Trust) -> Iterator[ReportStatement]:
    canonical = re.sub(r"[-_.]+", "-", name).lower()
    yield statement(f"packages.{canonical}", version, number, line, "package", trust)
    if canonical not in _DISTRIBUTIONS:
        return
    build = _DISTRIBUTIONS[canonical]
    if re.fullmatch(RELEASE, version, re.ASCII):
        yield statement("tensorflow", version, number, line, "package", trust)
        yield statement("distribution", canonical, number, line, "package", trust)
        if build != "any":
            yield statement("build", build, number, line, "package", trust)


def shown(transcript: Transcript) -> Iterator[ReportStatement]:
    """Read ``pip show``."""
    for needle in ("name: tensorflow", "name: tf-nightly", "name: tf_nightly"):
        for number in transcript.numbers(needle, 20):
            name = transcript.line(number).strip().lower().removeprefix("name: ").replace("_", "-")
            version = _SHOWN.match(transcript.line(number + 1)) if number < len(transcript.lines) else None
            if name in _DISTRIBUTIONS and version is not None:
                yield from _package(name, version[1], number + 1, transcript.line(number + 1), Trust.LISTED)


ON_MACOS = re.compile(r"\bon (?:an? )?(?:mac ?os|os ?x|mac(?:book)?)\b", re.IGNORECASE | re.ASCII)


def mentions(transcript: Transcript) -> Iterator[ReportStatement]:
    """Yield GPUs and operating systems named in sentences."""
    for number, line in _sentences(transcript, "gpu", 60):
        for match, name, count in gpus_in(without_addresses(line[:1_000])):
            if setup_of(line, match.start(), match.end()) == "fails":
                said = statement("gpus", name, number, line, "prose", Trust.MENTIONED, count=count)
                former = phrase("former").search(line, 0, match.start()) is not None
                yield msgspec.structs.replace(said, works=True) if former else said
    for number, line in _sentences(transcript, "system", 40):
        if any(mark in line.lower() for mark in GRAMMAR.mentions["examples"]):
            continue
        found = system_in(without_addresses(line), mentioned=True)
        at = line.lower().find(found.lower()[:6]) if found is not None else 0
        side = setup_of(line, at, at + len(found)) if found is not None else "fails"
        if found is not None and side != "wanted":
            system = statement("os", found, number, line, "prose", Trust.MENTIONED)
            yield msgspec.structs.replace(system, works=True) if side == "works" else system
        elif found is None and ON_MACOS.search(line):
            yield statement("platform", "macos", number, line, "prose", Trust.MENTIONED)


def _sentences(transcript: Transcript, kind: str, most: int) -> Iterator[tuple[int, str]]:
    """Yield the lines with a word of a kind that no program printed."""
    for number in sorted({n for word in GRAMMAR.mentions[kind] for n in transcript.numbers(word, most)}):
        line = transcript.line(number)
        if not any(mark in line.lower() for mark in GRAMMAR.mentions["not_prose"]):
            yield number, line
