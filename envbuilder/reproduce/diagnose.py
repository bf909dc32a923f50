"""The cause of a report's complaint: candidates, sorted by cause, and the diagnosis that they lead to."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import DISTRIBUTIONS
from envbuilder.compat.check import findings_of
from envbuilder.compat.findings import finding, listed
from envbuilder.compat.unknown import elsewhere, side_by_side
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce import causes, terms
from envbuilder.reproduce.causes import FixTarget, as_remark, cause_of, explains, is_cause
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.messages.catalog import Layer, LogMessage, MessageMatch, get, is_title, marked
from envbuilder.reproduce.question import Case, is_since, release_of
from envbuilder.reproduce.report.read import TAG
from envbuilder.reproduce.report.reported import Complaint, Reported, Trust
from envbuilder.reproduce.terms import Facts, filled, filled_or_none
from envbuilder.versions import minor

_INFERRED = "no CUDA"
"""What a rule found that only the absence of other statements suggests."""

_AT_IMPORT: set[Complaint] = {"installing", "import"}


def predict(case: Case) -> tuple[Finding, ...]:
    """List the possible causes, the most likely first: proved by lines, predicted by rules, suggested by pauses."""
    case = dataclasses.replace(case, messages=_related(case))
    shown = _proved(case)
    symptoms = all(get(row.signature).layer == "symptom" for row in case.messages if get(row.signature).code)
    proved = frozenset(row.code for row in shown)
    builds = causes.other_builds(case)
    forecasts = causes.by_toolkit(case) if builds else causes.forecast(case)
    unbuilt = "building" in case.reported.complaints and not case.holds("imported")
    named = case.reported.origin == "conda" and bool(marked("opens", case.messages))
    if named or (case.reported.origin == "source" and (unbuilt or (any(map(is_cause, shown)) and not symptoms))):
        builds = tuple(map(as_remark, builds))  # a line says more about it
    if any(cause_of(row.code).area == "kernels" and explains(row.code, case.reported) for row in forecasts):
        memory = {row.code for row in shown if row.code is Code.STALLS} if marked("memory", case.messages) else set()
        shown = tuple(row for row in shown if row.code not in memory)
        proved -= memory
    elsewhere, tagged = tuple(_other_system(case, () if symptoms else shown)), tuple(_other_tag(case.reported))
    outranked = {cause_of(code).outranks for code in (() if symptoms else proved)}
    outranked |= {"libraries"} if any(map(is_cause, elsewhere)) else set()
    ruled = tuple(terms.with_command(row, case) for row in forecasts if cause_of(row.code).area not in outranked)
    held = {name: release_of(text) for name in DISTRIBUTIONS if (text := _installed(name, case.reported))}
    predicted = tuple(
        row if row.code in proved or explains(row.code, case.reported) else as_remark(row)
        for row in (*elsewhere, *side_by_side(held, case.catalog), *ruled)
    )
    kept = (*predicted, *_besides(shown, predicted))
    if symptoms and any(map(is_cause, predicted)):
        kept = predicted
    if symptoms and builds:
        kept = ()  # the other build explains it
    if tagged:
        kept = tuple(row for row in kept if row.code is not Code.PACKAGE_CONFLICT)
    kept = tuple(row for row in kept if case.reported.origin != "jetson" or not cause_of(row.code).no_wheel)
    known = (*tagged, *kept, *builds)
    codes = frozenset(row.code for row in known if is_cause(row))
    return causes.by_cause((*known, *causes.slow_starts(case, codes)), proved)


def _installed(name: str, reported: Reported) -> str | None:
    labels = (row for row in reported.evidence if (row.field, row.source) == ("tensorflow", "form"))
    own = (row.value for row in labels if re.match(rf"\W*{name}\s*[:=]", row.text.replace("_", "-"), re.IGNORECASE))
    return reported.packages.get(name) or next(own, None)


_TOWARDS_A_GPU: set[Layer] = {"driver", "loader", "container", "symptom"}


def _related(case: Case) -> tuple[MessageMatch, ...]:
    """Keep the messages that explain the complaint; a program's own line says better what a sentence says too."""
    others = marked("other_vendor", case.messages)
    rows = list(causes.standing(case.messages, case))
    rest = {get(row.signature).layer for row in rows if get(row.signature).code is not None and row not in others}
    about_gpu = rest <= _TOWARDS_A_GPU if rest else "invisible" in case.reported.complaints
    if about_gpu and any(row in others for row in rows):
        return (*others[:1], *(row for row in rows if get(row.signature).code is None))
    printed = {get(row.signature).code for row in rows if row.exact and not get(row.signature).prose} - {None}
    return tuple(
        row
        for row in rows
        if row not in others and not (get(row.signature).prose and get(row.signature).code in printed)
    )


def _proved(case: Case) -> tuple[Finding, ...]:
    rows = [(row, get(row.signature)) for row in case.messages]
    wrong = [(row, known) for row, known in rows if known.code is not None and known.severity is not Severity.INFO]
    causes = [(row, known) for row, known in wrong if "follows" not in known.marks and known.layer != "symptom"]
    errors = {known.code for _, known in causes if known.severity is Severity.ERROR}
    hidden = {code for error in errors for code in cause_of(error).hides}
    kept = [(row, known) for row, known in (causes if errors else wrong) if known.code not in hidden]
    named = [(row, known) for row, known in kept if known.layer != "symptom"] or kept
    libraries = [row for row, known in named if known.code is Code.MISSING_LIBRARY and "library" in row.values]
    missing = terms.missing_libraries(libraries, case) if libraries else None
    facts = terms.terms(case)
    shown = [(row, known) for row, known in named if missing is None or row not in libraries]
    last = {row.signature: row for row, known in shown if known.layer == "cudnn"}  # a later one is of another attempt
    made = {
        (known.code, row.values.get("library", known.id)): _shown(last.get(row.signature, row), known, facts)
        for row, known in reversed(shown)
    }
    return (*((missing,) if missing is not None else ()), *reversed(made.values()))


def _shown(row: MessageMatch, known: LogMessage, facts: Facts) -> Finding:
    assert known.code is not None  # noqa: S101 - `_proved` looked
    facts = terms.with_values(row, facts)
    return Finding(
        code=known.code,
        severity=known.severity,
        subject=next(iter(row.values.values()), "") or known.id.replace("_", " "),
        message=f"Line {row.line} shows it. {filled(known.cause, facts)}",
        found=row.text[:200],
        fix=filled(known.fix, facts),
        sources=known.sources,
    )


def _besides(shown: tuple[Finding, ...], predicted: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Keep the findings of lines for which no rule has one: a rule's finding has the versions."""
    errors = (row.code for row in predicted if row.severity is Severity.ERROR)
    libraries = any(cause_of(code).area == "libraries" for code in errors)
    covered = {row.code for row in predicted} | ({Code.MISSING_LIBRARY} if libraries else set())
    return tuple(row for row in shown if row.code not in covered)


def _other_tag(reported: Reported) -> Iterator[Finding]:
    tag = next((row for row in reported.evidence if row.source == TAG), None)
    if tag is None or reported.python is None or _AT_IMPORT.isdisjoint(reported.complaints):
        return
    running = minor(reported.python)
    others = (row.value for row in reported.evidence if row.field == "python" and row.source != TAG)
    if tag.value not in {running, *others}:
        named = {"line": tag.line, "tag": tag.value, "text": tag.text[:200], "python": reported.python}
        yield finding(Code.PYTHON_UNSUPPORTED, "other_tag", minor=running, **named)


def _other_system(case: Case, shown: tuple[Finding, ...]) -> Iterator[Finding]:
    reported = case.reported
    if any(get(row.signature).code is Code.OTHER_BUILD for row in case.messages):
        return
    name, os = f"TensorFlow {reported.tensorflow or ''}".rstrip(), reported.os or ""
    if (case.gpu or (not shown and reported.complaints)) and reported.distribution != "tensorflow-cpu":
        after = "invisible" in reported.complaints and any(map(case.holds, GRAMMAR.after_windows))
        newest = case.catalog.final_versions[-1] if after else ""
        version = release_of(reported.tensorflow) if reported.tensorflow else newest
        yield from elsewhere(reported.platform, name, version if versions.key_or_none(version) else "", os)
    elif reported.arch in causes.NOT_SERVED and reported.platform != "macos":
        yield finding(Code.UNKNOWN, "processor", arch=reported.arch)


Confidence = Literal["certain", "likely", "unsure"]
"""``certain`` if a log line proves it, ``likely`` if it follows from stated versions, or ``unsure``."""


class ReportDiagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The cause in one sentence, and its confidence.

    ``codes`` are the findings behind it, the leading one first; empty if ``unsure``. ``line`` and ``quote`` are the
    deciding line of the report (0 and '' if there is none). ``place`` is what has to change, ``fix`` one sentence.
    ``harmless`` explains lines that look like errors. ``ask`` lists commands whose output would decide.
    """

    cause: str
    confidence: Confidence
    place: FixTarget
    codes: tuple[Code, ...] = ()
    line: int = 0
    quote: str = ""
    fix: str = ""
    harmless: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()


def diagnose(case: Case, predicted: tuple[Finding, ...]) -> ReportDiagnosis:
    facts, messages = terms.terms(case), [(row, get(row.signature)) for row in case.messages]
    harmless = tuple(dict.fromkeys(filled(known.cause, facts) for _, known in messages if known.layer == "noise"))
    told = [row for row in predicted if is_cause(row)]
    lead = told[0] if told else None
    decisive = _decisive(lead, _related(case)) if lead else None
    program = next((row for row, known in reversed(messages) if known.layer == "code"), None)
    if program is not None and decisive is None and not (lead is not None and get(program.signature).prose):
        return _of_message(program, terms.with_values(program, facts), {"harmless": harmless})
    shown_by = decisive
    if lead is not None and cause_of(lead.code).area in {"libraries", "build"}:  # it explains the missing library
        shown_by = decisive or next(iter(marked("not_found", case.messages)), None)
    line, quote = (shown_by.line, shown_by.text.removeprefix("# ")) if shown_by else (0, "")
    shown = get(decisive.signature) if decisive else None
    if lead is None and "gpu" in facts and case.asks_for_versions:
        cause = f"The question is which versions go together for {facts['gpu']}; the closest environment works on it."
        return ReportDiagnosis(cause=cause, confidence="likely", place="versions", harmless=harmless)
    symptom = shown is not None and shown.layer == "symptom"
    alone = shown is not None and not symptom and not shown.prose and "suggests" not in shown.marks
    proved = decisive is not None and decisive.exact and alone and lead is not None and lead.found != _INFERRED
    packages = lead is not None and cause_of(lead.code).area == "packages"
    about: tuple[Complaint, ...] | None = ("import",) if packages else ("invisible",) if symptom else None
    if lead is not None and cause_of(lead.code).no_wheel:
        about = (
            ("building",)
            if case.reported.origin == "source" or "building" in case.reported.complaints
            else ("installing",)
        )
    ask = () if proved else deciding_commands(case.reported, case.place, about, case.facts)
    common: dict[str, Any] = {"line": line, "quote": quote, "harmless": harmless, "ask": ask}
    answer_row = _answering(case) if lead is None else None
    if answer_row is not None:
        return _of_message(answer_row, terms.with_values(answer_row, facts), common)
    if lead is None or symptom:
        no_reason = "TensorFlow finds no GPU, and the report does not contain the reason."
        cause = no_reason if lead is not None else GRAMMAR.open_question(case.reported.complaints).missing
        cause = _told_apart(case) or cause + _fitting(case)
        return ReportDiagnosis(cause=cause, confidence="unsure", place="unknown", **common)
    lead = msgspec.structs.replace(lead, message=_better("says", lead, facts), fix=_better("fixes", lead, facts))
    after = _after(lead, case, told)
    if after is not None:
        own = _better("fixes", after, facts)
        pair = f"{after.fix} With that driver: {lead.fix}" if cause_of(after.code).area == "host" else own
        pair = f"{lead.fix} Then: {own}" if lead.code is Code.PACKAGE_CONFLICT else pair
        lead = msgspec.structs.replace(lead, message=f"{lead.message} With it: {after.message}", fix=pair)
    return ReportDiagnosis(
        cause=lead.message.removeprefix(f"Line {line} shows it. "),
        confidence="certain" if proved else "likely",
        place="installation" if shown and shown.layer == "system" else cause_of(lead.code).fix,
        codes=tuple(dict.fromkeys(row.code for row in told)),
        fix=lead.fix,
        **common,
    )


def _better(kind: Literal["says", "fixes"], row: Finding, facts: Facts) -> str:
    own = row.message if kind == "says" else row.fix
    return next((text for each in getattr(cause_of(row.code), kind) if (text := filled_or_none(each, facts))), own)


def _of_message(row: MessageMatch, facts: Facts, common: dict[str, Any]) -> ReportDiagnosis:
    known, own = get(row.signature), filled(get(row.signature).fix, facts)
    outside, program = "outside" in known.marks, known.layer == "code"
    sure: Confidence = "certain" if program and row.exact and not known.prose else "likely"
    return ReportDiagnosis(
        cause=GRAMMAR.openings.get(known.layer, "") + filled(known.cause, facts),
        confidence="unsure" if "suggests" in known.marks else sure,
        place="build" if outside else "program" if program else "unknown",
        fix=own if own != _NOTHING else GRAMMAR.ask["harmless"] if known.layer == "noise" else "",
        **{**common, **({} if outside else {"line": row.line, "quote": row.text.removeprefix("# ")})},
    )


def _answering(case: Case) -> MessageMatch | None:
    """Return the message that answers a report without a cause; a harmless one comes first, an exception last."""
    asked, rows = set(case.reported.complaints), case.messages
    known = [*(row for row in rows if row.signature == "gpu_created"), *marked("outside", rows)]
    known += filter(is_title, marked("answers", rows))
    known += [row for row in reversed(rows) if row.signature == "last_exception"]
    fits = (row for row in causes.standing(known, case) if asked <= (get(row.signature).explains or asked))
    return _complained_noise(case) or next(fits, None)


def _fitting(case: Case) -> str:
    reported, release = case.reported, case.release
    question = case.question if release is not None and reported.cuda and not reported.origin else None
    if question is None or question.cuda is None or any(map(is_cause, findings_of(question, case.catalog))):
        return ""
    cudnn = f", cuDNN {reported.cudnn}" if reported.cudnn else ""
    return f" The stated versions (TensorFlow {reported.tensorflow}, CUDA {reported.cuda}{cudnn}) go together."


_COMPARED = ("tensorflow", "python", "cuda", "cudnn", "driver")


def _told_apart(case: Case) -> str:
    """Say which single version the report changes between what works and what fails; '' if it does not say."""
    reported = case.reported
    others = {name: [row.value for row in reported.works if row.field == name] for name in _COMPARED}
    apart = [(name, values) for name, values in others.items() if values and getattr(reported, name)]
    name, values = apart[0] if len(apart) == 1 and reported.complaints else ("", [])
    failing = getattr(reported, name) if name else ""
    if not name or failing in values:
        return ""
    working = listed(list(dict.fromkeys(values)))
    names = f"{GRAMMAR.titles[name]} {working} works and {failing} does not"
    return (
        f"By the report {names}: that is the difference, and no line says why. Stay with what works until it is known."
    )


_NOTHING = "Nothing to fix."
_WARNED = re.compile(r": [EW] |^[EW](?:0000| tensorflow/)")


def _complained_noise(case: Case) -> MessageMatch | None:
    """Return the harmless message that a report is about: that of its title, or its only warning."""
    noise = [row for row in case.messages if get(row.signature).layer == "noise"]
    warned = [row for row in noise if _WARNED.search(row.text) is not None]
    alone = not case.reported.complaints and all(get(row.signature).layer in {"noise", "fact"} for row in case.messages)
    return next(filter(is_title, noise), next(iter(warned), None) if alone else None)


def _after(lead: Finding, case: Case, told: list[Finding]) -> Finding | None:
    if lead.code is Code.PACKAGE_CONFLICT and not lead.message.startswith("Line "):
        by_rule = (row for row in told if not row.message.startswith("Line "))
        return next((row for row in by_rule if cause_of(row.code).area == "libraries"), None)
    if cause_of(lead.code).area != "libraries" or case.question is None or case.reported.platform == "windows":
        return None
    given = msgspec.structs.replace(case.question, cuda=None, cudnn=None, install=None, packages=(), compat=False)
    found = findings_of(given, case.catalog)
    stops = (row for row in found if row.severity is Severity.ERROR and cause_of(row.code).area in {"host", "kernels"})
    return next(stops, None)


def _decisive(lead: Finding, messages: tuple[MessageMatch, ...]) -> MessageMatch | None:
    same = sorted((row for row in messages if get(row.signature).code is lead.code), key=is_title)
    quoted = (row for row in same if lead.found and row.text.startswith(lead.found))
    return next(quoted, None) or next(iter(same), None)


_SHORT_LIST = 8
"""A longer list of packages is complete enough to need no other."""


def deciding_commands(
    reported: Reported,
    place: str = "pip",
    complaints: tuple[Complaint, ...] | None = None,
    facts: frozenset[str] = frozenset(),
) -> tuple[str, ...]:
    windows = "_on_windows" if reported.platform == "windows" else ""
    sources = [row.source for row in reported.evidence if row.trust is Trust.LISTED]
    known = {"packages"} if sources.count("package") > _SHORT_LIST else set[str]()
    known |= {name for name, told in GRAMMAR.not_asked.items() if not facts.isdisjoint(told)}
    if any(source.startswith("nvidia-smi") for source in sources):
        known.add("driver")
    if reported.python is not None and reported.os is not None:
        known.add("python")
    if reported.tensorflow is not None:
        first = not is_since("2.0", reported)
    else:
        first = reported.cuda is not None and not versions.at_least(reported.cuda, "10.1")
    wanted = GRAMMAR.open_question((reported.origin or "", *(complaints or reported.complaints))).ask
    asked = {name: GRAMMAR.ask.get(f"{name}{windows}", GRAMMAR.ask[name]) for name in wanted if name not in known}
    if (first or "before_catalogue" in facts) and "trace" in asked:
        asked["trace"] = GRAMMAR.ask["trace_1"]
    if "driver" in asked:  # only it depends on where TensorFlow runs
        asked["driver"] = terms.in_place(place, reported.image, asked["driver"])
    return (*((GRAMMAR.ask["cluster"],) if place == "kubernetes" else ()), *asked.values())
