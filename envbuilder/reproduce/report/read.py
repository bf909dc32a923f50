"""Read a report: run every recogniser over the cleaned text, refuse what no grammar allows, weigh what remains."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from envbuilder.reproduce.report import blocks, captured, form
from envbuilder.reproduce.report.complaints import complaints
from envbuilder.reproduce.report.gpu_names import platform_of
from envbuilder.reproduce.report.grammar import CONVERSIONS, fits
from envbuilder.reproduce.report.recognisers import TABLE, TAG, Recogniser
from envbuilder.reproduce.report.reported import RANK, Evidence, Reported, Trust
from envbuilder.reproduce.report.scope import clause, other_sides, present, side_of, title_line, without_addresses
from envbuilder.reproduce.report.timing import pauses
from envbuilder.reproduce.report.weigh import gpus, scalars, trimmed, without_former
from envbuilder.reproduce.transcript import Transcript, clean
from envbuilder.support import decoding

_MOST_HITS = 80
_MOST_EVIDENCE = 1_000
_MOST_WORKING = 40
_TEMPLATE = re.compile(
    r"\((?:e\.g\.|if compiling|if the issue|use command|or github|source or binary|as opposed)[^)\n]{0,120}\)"
    r"|<!--.{0,2000}?-->",
    re.IGNORECASE,
)
_BUS = re.compile(r"(?:pciBusID|pci bus id): ([0-9a-fA-F:.]{7,16})", re.ASCII)
_NUMBERED = re.compile(r"_[0-9]$")


def cleaned(text: str) -> Transcript:
    """Return a report without the words of its form; for `read`, and for the search for known messages."""
    return clean(_TEMPLATE.sub(" ", text) if "(" in text or "<!--" in text else text)


def read(text: str, transcript: Transcript | None = None) -> Reported:
    """Read what a report says about the environment it came from; nothing is guessed, and no text raises.

    ``transcript`` is what `cleaned` made of the text, where the caller has it.
    """
    transcript = transcript or cleaned(text)
    others = other_sides(transcript)
    said = (row for row in _statements(transcript, text) if fits(row.field, row.value))
    title, now = title_line(transcript), present(transcript)
    rows = [
        msgspec.structs.replace(
            row, works=(row.works or row.line in others) and row.line not in now, title=row.line == title
        )
        for row in said
    ]
    works = tuple(row for row in rows if row.works)[:_MOST_WORKING]
    statements = without_former(trimmed(row for row in rows if not row.works), works)
    chosen, contradictions = scalars(statements)
    names, gpu_evidence, gpu_contradictions = gpus(statements)
    values = {field: row.value for field, row in chosen.items()}
    if _only_bazel(chosen) and values.get("install") != "source":
        del values["origin"]
    if "platform" not in values and "os" in values:
        values["platform"] = platform_of(values["os"]) or "linux"
    groups = {group: _group(group, statements) for group in ("packages", "built", "environment")}
    capabilities = tuple(dict.fromkeys(row.value for row in statements if row.field == "compute_capabilities"))
    used = [row for row in statements if row.field != "gpus"] + list(gpu_evidence)
    evidence = tuple(sorted(used, key=lambda row: (row.line, row.field)))[:_MOST_EVIDENCE]
    return decoding.converted(
        {
            **values,
            **groups,
            "gpus": names,
            "compute_capabilities": capabilities,
            "evidence": evidence,
            "contradictions": contradictions + gpu_contradictions,
            "pauses": pauses(transcript),
            "works": works,
            "complaints": complaints(transcript),
        },
        Reported,
    )


def _only_bazel(chosen: dict[str, Evidence]) -> bool:
    """Tell whether nothing but an answer about Bazel makes it a build of one's own: many answer who built nothing."""
    return "origin" in chosen and chosen["origin"].source in {"form", "Bazel"}


def _statements(transcript: Transcript, text: str) -> Iterator[Evidence]:
    own = tuple(captured.statements(text))
    if own:
        yield from own
        return
    means_other: dict[tuple[tuple[str, ...], int], bool] = {}
    for row in TABLE:
        yield from _recognised(row, transcript, means_other)
    yield from form.statements(transcript)
    yield from form.settings(transcript)
    yield from blocks.packages(transcript)
    yield from blocks.version_files(transcript)
    yield from blocks.cudnn_packages(transcript)
    yield from blocks.mentions(transcript)


def _recognised(
    row: Recogniser, transcript: Transcript, means_other: dict[tuple[tuple[str, ...], int], bool]
) -> Iterator[Evidence]:
    """Try one recogniser where its needles are; what a line means instead is asked once for all rows that ask it."""
    if row.near is not None:
        hits = set(transcript.matching(row.near, _MOST_HITS))
    else:
        hits = {number for needle in row.needles for number in transcript.numbers(needle, _MOST_HITS)}
    for number in sorted(hits):
        line = transcript.line(number)[:1_500]
        if row.unless:
            key = (row.unless, number)
            if key not in means_other:
                lowered = line.lower()
                means_other[key] = any(text in lowered for text in row.unless)
            if means_other[key]:
                continue
        said = row.trust is Trust.MENTIONED and row.name != TAG
        for match in row.pattern.finditer(without_addresses(line) if said else line):
            side = side_of(line, match.start(), match.end()) if said else "fails"
            if side == "wanted":
                continue
            if row.apart and row.apart in clause(line, match.start(), match.end()).lower():
                continue
            found = _of(row, match, number, line, _bus(transcript, number) if row.name == "device in a log" else -1)
            yield from found if side == "fails" else (msgspec.structs.replace(each, works=True) for each in found)


def _around(line: str, match: re.Match[str]) -> str:
    """Return the line, or where it is long the part of it around what was recognised."""
    longest = 400
    start = 0 if match.end() <= longest else max(0, match.start() - 40)
    return line[start : start + longest].strip()


def _bus(transcript: Transcript, number: int) -> int:
    """Tell a log's devices apart by their place on the bus, which stands on the same line or on the next."""
    near = transcript.lines[number - 1 : number + 1]
    found = next((match for line in near if (match := _BUS.search(line[:1_500])) is not None), None)
    return int(re.sub(r"[:.]", "", found[1]), 16) if found else -1


def _of(row: Recogniser, match: re.Match[str], number: int, line: str, index: int) -> Iterator[Evidence]:
    """Turn a hit's groups into statements, converting where the text is not the value itself."""
    groups = {_NUMBERED.sub("", name): value for name, value in match.groupdict().items() if value}
    index = int(groups.pop("index", index))
    shown = _around(line, match)
    for group, text in groups.items():
        field, value_of = CONVERSIONS.get(group, (group, str))
        yield Evidence(
            field=field, value=value_of(text), line=number, text=shown, source=row.name,
            trust=row.trust, index=index,
        )  # fmt: skip
    for field, value in row.says.items():
        yield Evidence(field=field, value=value, line=number, text=shown, source=row.name, trust=row.trust)


def _group(group: str, statements: list[Evidence]) -> dict[str, str]:
    """Collect the members of a group, each from its most trusted statement."""
    best: dict[str, Evidence] = {}
    for row in statements:
        kind, _, name = row.field.partition(".")
        if kind == group and name and (name not in best or RANK[row.trust] > RANK[best[name].trust]):
            best[name] = row
    return {name: best[name].value for name in sorted(best)}


__all__ = ["Trust", "cleaned", "read"]
