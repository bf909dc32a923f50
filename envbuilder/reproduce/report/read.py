"""Read the fields of a report and choose between contradicting values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache

import msgspec

from envbuilder.reproduce.grammar import converted, expression, fits, pattern, phrase, platform_of
from envbuilder.reproduce.report import context, forms, reported
from envbuilder.reproduce.report.reported import RANK, SCALARS, ConflictingStatements, Reported, ReportStatement, Trust
from envbuilder.reproduce.transcript import Transcript, clean, excerpt
from envbuilder.support import decoding
from envbuilder.versions import is_prefix, names_line, numbers
from envbuilder.workspace import packaged_yaml


class Recogniser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    trust: Trust
    pattern: str
    needles: tuple[str, ...] = ()
    near: str = ""
    says: dict[str, str] = {}
    unless: tuple[str, ...] = ()
    apart: str = ""
    below: int = 0
    most: int = 80
    any_case: bool = False


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    skipped: dict[str, tuple[str, ...]]
    rows: tuple[Recogniser, ...]


TAG = "tag of a wheel"  # the recogniser for a wheel's Python version; the running version outranks it


@cache
def table() -> tuple[Recogniser, ...]:
    """Read the rows, with the words of `skipped` in place of its names."""
    file = packaged_yaml("reproduce/report/recognisers.yaml", _File)
    rows = []
    for row in file.rows:
        words = tuple(word for name in row.unless for word in file.skipped.get(name, (name,)))
        rows.append(msgspec.structs.replace(row, pattern=expression(row.pattern), unless=words))
    return tuple(rows)


_MOST_EVIDENCE = 1_000
_MOST_WORKING = 40
_FORM_LINES = re.compile(rf"(?m)^[^\w\n]{{0,8}}(?:{phrase('template').pattern})", re.IGNORECASE)
_BUS = re.compile(r"(?:pciBusID|pci bus id): ([0-9a-fA-F:.]{7,16})", re.ASCII)
_NUMBERED = re.compile(r"_[0-9]$")


def cleaned(text: str) -> Transcript:
    """Return the cleaned text without the words of its issue form."""
    own = phrase("hints").sub(lambda words: f" {words[0].count(chr(10)) * chr(10)}", text)
    return clean(_FORM_LINES.sub(lambda lines: "\n" * lines[0].count("\n"), own))


def read(text: str, transcript: Transcript | None = None) -> Reported:
    """Read the environment that a report describes. Nothing is guessed, and no text raises.

    ``transcript`` is the result of `cleaned`, if the caller has it.
    """
    transcript = transcript or cleaned(text)
    others = context.other_setup_lines(transcript)
    title, said, rows = context.title_line(transcript), _statements(transcript, text), list[ReportStatement]()
    for row in (row for row in said if fits(row.field, row.value)):
        where = {"works": row.works or row.line in others, "title": row.line == title}
        rows.append(msgspec.structs.replace(row, text=row.text.strip()[:1_000], **where))
    works = tuple(row for row in rows if row.works)[:_MOST_WORKING]
    statements = without_former(trimmed(row for row in rows if not row.works), works)
    chosen, contradictions = scalars(statements)
    names, gpu_contradictions = gpus(statements)
    values = {field: row.value for field, row in chosen.items()}
    own = values.get("origin") == "source" and chosen["origin"].trust is not Trust.LISTED
    asked = own and ("install" in values or chosen["origin"].source in {"form", "Bazel"})
    if asked and values.get("install") != "source":
        del values["origin"]  # many people answer the question about Bazel without building, or tried both
    if "os" in values and ("platform" not in chosen or "only Windows" in chosen["platform"].source):
        values["platform"] = platform_of(values["os"])
    groups = {group: _group(group, statements) for group in ("packages", "built", "environment")}
    capabilities = tuple(dict.fromkeys(row.value for row in statements if row.field == "compute_capabilities"))
    evidence = tuple(sorted(statements, key=lambda row: (row.line, row.field)))[:_MOST_EVIDENCE]
    lists = {"gpus": names, "compute_capabilities": capabilities, "evidence": evidence, "works": works}
    said_of = {"pauses": context.pauses(transcript), "complaints": context.complaints(transcript)}
    against = contradictions + gpu_contradictions
    return decoding.converted({**values, **groups, **lists, **said_of, "contradictions": against}, Reported)


def _statements(transcript: Transcript, text: str) -> Iterator[ReportStatement]:
    own = tuple(reported.captured_statements(text))
    if own:
        yield from own
        return
    for row in table():
        yield from _recognised(row, transcript)
    yield from forms.statements(transcript)
    yield from forms.columns(transcript)
    yield from forms.mentions(transcript)


def _recognised(row: Recogniser, transcript: Transcript) -> Iterator[ReportStatement]:
    if row.near:
        hits = set(transcript.matching(pattern(row.near), row.most))
    else:
        hits = {number for needle in row.needles for number in transcript.numbers(needle, row.most)}
    for number in sorted(hits):
        line = "\n".join(text[:1_500] for text in transcript.lines[number - 1 : number + row.below])
        lowered = line.lower() if row.unless else ""
        if any(text in lowered for text in row.unless):
            continue
        said = row.trust is Trust.MENTIONED and row.name != TAG
        text = context.without_addresses(line) if said else line
        for match in pattern(row.pattern, any_case=row.any_case).finditer(text):
            side = context.setup_of(line, match.start(), match.end(), said=said)
            if side == "wanted":
                continue
            if row.apart and row.apart in context.clause(line, match.start(), match.end()).lower():
                continue
            found = _of(row, match, number, line, _bus(transcript, number) if row.name == "device in a log" else -1)
            yield from found if side == "fails" else (msgspec.structs.replace(each, works=True) for each in found)


def _bus(transcript: Transcript, number: int) -> int:
    """Distinguish the devices of a log by their bus address, on the same line or the next."""
    near = transcript.lines[number - 1 : number + 1]
    found = next((match for line in near if (match := _BUS.search(line[:1_500])) is not None), None)
    return int(re.sub(r"[:.]", "", found[1]), 16) if found else -1


def _of(row: Recogniser, match: re.Match[str], number: int, line: str, index: int) -> Iterator[ReportStatement]:
    groups = {_NUMBERED.sub("", name): value for name, value in match.groupdict().items() if value is not None}
    index = int(groups.pop("index", index))
    first, last = (line.count("\n", 0, match.span(match.lastindex or 0)[end]) for end in (0, 1))
    shown = " ".join(line.split("\n")[first : last + 1]) if row.below else excerpt(line, match)
    number += first
    said = ReportStatement(field="", value="", line=number, text=shown, source=row.name, trust=row.trust)
    if "package" in groups:
        yield from forms.package(groups["package"], groups["version"], number, shown, row.trust)
        return
    if "variable" in groups:
        groups = {f"environment.{groups['variable']}": groups["setting"].strip()}
    for group, text in groups.items():
        field, value = converted(group, text)
        yield msgspec.structs.replace(said, field=field, value=value, index=index)
    yield from (msgspec.structs.replace(said, field=field, value=value) for field, value in row.says.items())


def _group(group: str, statements: list[ReportStatement]) -> dict[str, str]:
    own = [row for row in reversed(statements) if row.field.startswith(f"{group}.")]
    best = {row.field.partition(".")[2]: row.value for row in sorted(own, key=lambda row: RANK[row.trust])}
    return {name: best[name] for name in sorted(best)}


_REFUSED = "not a supported wheel"  # pip says it of a wheel for another Python than the running one

_VERSIONS = {"tensorflow", "python", "cuda", "cudnn", "driver", "driver_cuda"}
_MODEL = re.compile(r"nvidia|geforce|tesla|quadro|graphics|[^a-z0-9]")
_MOST_GPUS = 16


def scalars(said: Sequence[ReportStatement]) -> tuple[dict[str, ReportStatement], tuple[ConflictingStatements, ...]]:
    """Choose the statement of every scalar field: by trust (a title last), then by order, then by precision."""
    chosen: dict[str, ReportStatement] = {}
    against: list[ConflictingStatements] = []
    for field in (*SCALARS, "origin"):
        own = [row for row in said if row.field == field and not (row.source == TAG and _REFUSED in row.text)]
        if not own:
            continue
        best = min(own, key=lambda row: (-RANK[row.trust], row.title, row.source == TAG, row.line))
        if field in _VERSIONS and not (field == "driver" and names_line(best.value)):
            exact = len(numbers(best.value))
            finer = [row for row in own if _same_line(best.value, row.value) and len(numbers(row.value)) > exact]
            best = min(finer, key=lambda row: (-RANK[row.trust], -len(numbers(row.value)), row.line), default=best)
        chosen[field] = best
        others = {row.value: row for row in reversed(own) if not _agree(field, best.value, row.value)}
        dropped = sorted(others.values(), key=lambda row: (-RANK[row.trust], row.line))[:8]
        against += [ConflictingStatements(field=field, kept=best, dropped=row) for row in dropped]
    return chosen, tuple(against)


def _same_line(short: str, full: str) -> bool:
    own, other = (re.sub(r"^[0-9.]+", "", text).strip("-._").lower() for text in (short, full))
    with suppress(ValueError):
        return own in {"", other} and is_prefix(short, full)
    return False


def _agree(field: str, one: str, other: str) -> bool:
    if field in _VERSIONS:
        return one == other or _same_line(one, other) or _same_line(other, one)
    if field in {"os", "image"}:
        first, second = (set(re.findall(r"[a-z]+|[0-9]+", text.lower())) for text in (one, other))
        within = first <= second or second <= first
        return within or "wsl" in first | second or platform_of(one) != platform_of(other)
    return one == other or field in {"install", "build", "distribution", "origin"}


def gpus(statements: Iterable[ReportStatement]) -> tuple[tuple[str, ...], tuple[ConflictingStatements, ...]]:
    """Merge GPU statements: those of a driver or program, else of a form, else of prose; others complete cut names."""
    own = sorted((s for s in statements if s.field == "gpus"), key=lambda s: (-RANK[s.trust], s.line))
    tiers = [[s for s in own if RANK[s.trust] in ranks] for ranks in ({4, 5}, {2, 3}, {1})]
    base = next((tier for tier in tiers if tier), [])
    others, models, names = [s for s in own if s not in base], list[list[ReportStatement]](), list[str]()
    for statement in sorted(base, key=lambda s: s.value.endswith(_CUT)):
        same = next((rows for rows in models if _is_same(rows[0].value, statement.value)), None)
        if same is None:
            models.append(same := [])
        same.append(statement)
    for rows in models:
        name, cut = rows[0].value, rows[0].value.endswith(_CUT)
        full = next((s.value for s in others if cut and _plain(s.value).startswith(_plain(name))), name)
        listed = Counter(source for source, _ in {(row.source, row.index) for row in rows})
        names += [full] * max(*(row.count for row in rows), *listed.values())
    strange = [s for s in others if RANK[s.trust] > 1 and not any(_is_same(name, s.value) for name in names)]
    against = (ConflictingStatements(field="gpus", kept=base[0], dropped=other) for other in strange[:4])
    return tuple(names[:_MOST_GPUS]), tuple(against)


def without_former(statements: list[ReportStatement], works: Sequence[ReportStatement]) -> list[ReportStatement]:
    former = [row.value for row in works if row.field == "gpus"]

    def replaced(row: ReportStatement) -> bool:
        said = row.field == "gpus" and row.trust is Trust.MENTIONED
        return said and any(_is_same(known, row.value) for known in former)

    others = any(row.field == "gpus" and not replaced(row) for row in statements)
    return [row for row in statements if not replaced(row)] if others else statements


_CUT = "..."


def _plain(name: str) -> str:
    return _MODEL.sub("", name.lower())


def _is_same(one: str, other: str) -> bool:
    """Return True for one model with more or fewer words: 3090 and RTX 3090, A100 and A100-SXM4-80GB."""
    short, long = sorted((_plain(one), _plain(other)), key=len)
    cut = one.endswith(_CUT) or other.endswith(_CUT)
    more = long.startswith(short) and (cut or _FORM_FACTOR.match(long, len(short)) is not None)
    return long.endswith(short) or more


_FORM_FACTOR = re.compile(r"(?:pcie|sxm|nvl|[0-9]{2,3}gb|laptopgpu|mobile|withmaxq)")


def trimmed(statements: Iterable[ReportStatement]) -> list[ReportStatement]:
    """Drop statements of a weaker recogniser if a stronger one read the same field on the line."""
    rows = list(statements)
    best = {(row.field, row.line): RANK[row.trust] for row in sorted(rows, key=lambda row: RANK[row.trust])}
    kept = dict[tuple[str, str, int, int], ReportStatement]()
    for row in rows:
        if RANK[row.trust] == best[row.field, row.line]:
            kept.setdefault((row.field, row.value, row.line, row.index), row)
    return sorted(kept.values(), key=lambda row: row.line)
