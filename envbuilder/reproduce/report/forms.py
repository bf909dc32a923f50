"""Fields of issue forms, package lists, and GPUs and systems in prose."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache

import msgspec

from envbuilder.reproduce.grammar import GRAMMAR, RELEASE, VERSION, gpus_in, pattern, phrase, system_in
from envbuilder.reproduce.report.context import setup_of, without_addresses
from envbuilder.reproduce.report.reported import ReportStatement, Trust
from envbuilder.reproduce.transcript import Transcript

_MOST_LINES = 3


def statements(transcript: Transcript) -> Iterator[ReportStatement]:
    for number in dict.fromkeys(transcript.matching(BEGINNING, 500)):
        line = transcript.line(number)
        match = LABEL.match(line)
        if match is None:
            continue
        target = field_of(match["label"])
        if target is None:
            continue
        value = match["value"]
        if value is not None:
            yield from _evidence(target, value, number, line)
        elif target == "install" and (inside := phrase("answer_in_question").search(match["label"])) is not None:
            yield from _evidence(target, inside[1], number, line)
        elif not match["label"].lower().startswith("installed version") and (
            phrase("heading").match(line)
            or line.rstrip().endswith(":")
            or (line.lstrip()[:1] in "-*" and len(match["label"]) > 1)
        ):  # a label with its value below, rather than a sentence that begins with the same words
            for following in _following(transcript, number):
                yield from _evidence(target, transcript.line(following), following, transcript.line(following))


def _following(transcript: Transcript, number: int) -> Iterator[int]:
    """Yield up to three lines of a value below its label, until a blank line, bullet or heading."""
    taken = 0
    for candidate in range(number + 1, min(number + 6, len(transcript.lines)) + 1):
        text = transcript.line(candidate).strip()
        blank = not text or text.startswith("```")
        if text.startswith(("#", "- ", "* ", "+-", "|", "<", "**")) or taken == _MOST_LINES or (blank and taken):
            return
        label = LABEL.match(text)
        if label is not None and label["value"] is not None and field_of(label["label"]) is not None:
            return  # the next label: this one has no value
        if not blank:
            taken += 1
            yield candidate


def _evidence(target: str, value: str, number: int, line: str) -> Iterator[ReportStatement]:
    other = ".cc:" in value or ("cud" in target and "rocm" in value.lower()) or phrase("of_the_driver").search(line)
    if other or line.strip() == "source" or phrase("no_answer").match(value):  # a form that nobody changed says source
        return
    reader = _READERS.get(target, _searched)
    for name, text, count in reader(target, without_addresses(value)[:300]):
        yield ReportStatement(name, text, number, line, "form", Trust.STATED, count=count)


_DECORATION = r"[\s|*_#\"'>+-]{0,12}"
LABEL = re.compile(
    rf"^{_DECORATION}(?P<label>[A-Za-z][A-Za-z0-9 /_.?'()-]{{1,70}}?)"
    r"[\s*_\"'|]{0,6}(?:(?:[:=]|\||(?<=\s)-(?=\s))[\s*_|]{0,40}(?P<value>\S.{0,300})?)?$",
    re.ASCII,
)
_EVERY = sorted({*GRAMMAR.labelled_packages, *(text for row in GRAMMAR.labels for text in (*row.begins, *row.exact))})
BEGINNING = re.compile(rf"(?m)^[ \t|*_#\"'>+-]{{0,12}}(?:{'|'.join(map(re.escape, _EVERY))})", re.ASCII)
"""Possible beginnings of a label (lower case): a fast search before the exact one."""


@lru_cache(maxsize=4_096)
def field_of(label: str) -> str | None:
    words = " ".join(label.lower().replace("*", "").replace("_version", " version").split()).strip(" .?'")
    if words.startswith("cuda") and "cudnn" in words:
        return "cuda and cudnn"
    for row in GRAMMAR.labels:
        if words in row.exact or words.startswith(row.begins):
            return row.field
    return next((f"packages.{name}" for name in GRAMMAR.labelled_packages if words in {name, f"{name} version"}), None)


_SOURCES = {"conda": "conda", "pip": "pip", "docker": "docker", "source": "source", "container": "docker"}
_ASIDE = re.compile(r"\([^)]{0,120}\)")

Found = Iterator[tuple[str, str, int]]
"""Yield fields, values and counts."""


def _searched(target: str, value: str) -> Found:
    """Read a field by the first of its expressions (`answers` of the grammar) that matches."""
    text = _ASIDE.sub(" ", value) if "cud" in target else value
    found = next((hit for one in GRAMMAR.answers[target.partition(".")[0]] if (hit := pattern(one).search(text))), None)
    named = found.groupdict() or {target: found[1]} if found is not None else {}
    yield from ((field, each, 1) for field, each in named.items())


def _gpus(_: str, value: str) -> Found:
    for _match, name, count in gpus_in(value[:200], "field"):
        yield "gpus", name, count


_KERNELS = {"linux": "linux", "windows": "windows", "darwin": "macos"}


def _os(_: str, value: str) -> Found:
    kernel = _KERNELS.get(value.strip(" \"',").lower())
    if kernel is not None or "linux" in value.lower():
        yield "platform", kernel or "linux", 1
    system = system_in(" ".join(re.sub(r"[('\",)]+", " ", value).split()) if value.startswith("(") else value)
    if system is not None:
        yield "os", system, 1


def _install(_: str, value: str) -> Found:
    lowered = value.lower()
    positions = {word: lowered.find(word) for word in _SOURCES if word in lowered}
    if positions and not (lowered.startswith("binar") and list(positions) == ["source"]):
        yield "install", _SOURCES[min(positions, key=lambda word: (word == "source", positions[word]))], 1
    yield from _searched("tensorflow", value) if "tensorflow" in lowered or phrase("release_alone").match(value) else ()


_READERS: dict[str, Callable[[str, str], Found]] = {"gpus": _gpus, "os": _os, "install": _install}

_COLUMNS = re.compile(
    rf"^\s{{0,8}}([A-Za-z0-9][A-Za-z0-9._-]{{0,63}})\s{{1,60}}({VERSION})(?:\s{{1,60}}[A-Za-z0-9_.*/:-]{{1,80}}){{0,2}}\s{{0,8}}$",
    re.ASCII,
)
_DISTRIBUTIONS = {name: kind for kind, names in GRAMMAR.distributions.items() for name in names}
_KNOWN = re.compile("|".join(GRAMMAR.known_packages), re.IGNORECASE)


def columns(transcript: Transcript) -> Iterator[ReportStatement]:
    listing, rows = False, 0
    for number in transcript.matching(_ROW, 1_500):
        line = transcript.line(number)
        if line.strip().lower().startswith(("package ", "# name ", "name  ")):
            listing, rows = True, number
            continue
        row = _COLUMNS.match(line)
        if row is None:
            continue
        listing = listing and number <= rows + 3
        rows = number
        if listing or _KNOWN.match(row[1]):
            wide = listing or "  " in line.strip()
            if wide or (len(line.split()) == 2 and not row[1].lower().startswith("cud")):  # noqa: PLR2004 - a name and a version
                yield from package(row[1], row[2], number, line, Trust.LISTED if wide else Trust.MENTIONED)


_ROW = re.compile(r"(?m)^ {0,8}(?:# )?[a-z0-9][a-z0-9._-]{0,63} {1,60}(?:[0-9]|version)[^\n]{0,140}$", re.ASCII)


def package(name: str, version: str, number: int, line: str, trust: Trust) -> Iterator[ReportStatement]:
    canonical = re.sub(r"[-_.]+", "-", name).lower()
    yield ReportStatement(f"packages.{canonical}", version, number, line, "package", trust)
    build = _DISTRIBUTIONS.get(canonical)
    if build is not None and re.fullmatch(RELEASE, version, re.ASCII):
        for field, value in (("tensorflow", version), ("distribution", canonical), ("build", build)):
            yield ReportStatement(field, value, number, line, "package", trust)


def mentions(transcript: Transcript) -> Iterator[ReportStatement]:
    for number, line in _sentences(transcript, "gpu", 60):
        for match, name, count in gpus_in(without_addresses(line[:1_000])):
            side = setup_of(line, match.start(), match.end())
            if side != "wanted":
                said = ReportStatement("gpus", name, number, line, "prose", Trust.MENTIONED, count=count)
                former = phrase("former").search(line, 0, match.start()) is not None
                yield msgspec.structs.replace(said, works=True) if former or side == "works" else said
    for number, line in _sentences(transcript, "system", 40):
        found = system_in(without_addresses(line), mentioned=True) or ""
        side = setup_of(line, at := line.lower().find(found.lower()[:6]), at + len(found))
        if found and side != "wanted":
            system = ReportStatement("os", found, number, line, "prose", Trust.MENTIONED)
            yield msgspec.structs.replace(system, works=True) if side == "works" else system


def _sentences(transcript: Transcript, kind: str, most: int) -> Iterator[tuple[int, str]]:
    for number in sorted({n for word in GRAMMAR.mentions[kind] for n in transcript.numbers(word, most)}):
        line = transcript.line(number)
        if line[:2] == "# " or not any(mark in line.lower() for mark in GRAMMAR.mentions[f"not_{kind}"]):
            yield number, line
