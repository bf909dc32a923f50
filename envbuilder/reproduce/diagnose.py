"""The cause of a report's complaint: candidates, sorted by cause, and the diagnosis that they lead to."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
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
from envbuilder.reproduce.messages.catalog import MessageMatch, is_title, marked
from envbuilder.reproduce.question import PLACES, Case, gpus_of, release_of
from envbuilder.reproduce.report.read import TAG
from envbuilder.reproduce.report.reported import Complaint, Reported
from envbuilder.reproduce.terms import Facts, filled
from envbuilder.versions import minor


def predict(case: Case) -> tuple[Finding, ...]:
    """List the possible causes, the most likely first: proved by lines, predicted by rules, suggested by pauses."""
    case = dataclasses.replace(case, messages=_related(case))
    shown = _proved(case)
    symptoms = all(row.known.layer == "symptom" for row in case.messages if row.known.code)
    proved = frozenset(row.code for row in shown)
    builds = causes.other_builds(case)
    forecasts = causes.by_toolkit(case) if builds else causes.forecast(case)
    told = "building" in case.reported.complaints or (any(map(is_cause, shown)) and not symptoms)
    opened = case.reported.origin == "conda" and marked("opens", case.messages)
    kernels = any(cause_of(row.code).area == "kernels" and explains(row.code, case) for row in forecasts)
    if opened or kernels or (case.reported.origin == "source" and told):
        builds = tuple(map(as_remark, builds))  # a line, or the GPU, says more about it
    if kernels and marked("memory", case.messages):
        shown, proved = tuple(row for row in shown if row.code is not Code.STALLS), proved - {Code.STALLS}
    elsewhere, tagged = tuple(_other_system(case, () if symptoms else shown)), tuple(_other_tag(case.reported))
    outranked = {cause_of(code).outranks for code in (() if symptoms else proved)}
    outranked |= {"libraries"} if any(map(is_cause, elsewhere)) else set()
    ruled = tuple(terms.with_command(row, case) for row in forecasts if cause_of(row.code).area not in outranked)
    names = () if case.reported.install == "conda" else DISTRIBUTIONS  # conda's tensorflow-gpu has no files
    held = {name: release_of(text) for name in names if (text := _installed(name, case.reported))}
    wanted = versions.line(case.reported.cuda or "0.0")  # of two, the one of the stated CUDA is kept
    built = {one: row.cuda for one in held if (row := case.catalog.release(held[one], one)) is not None}
    held = dict(sorted(held.items(), key=lambda one: built.get(one[0]) != wanted))
    predicted = tuple(
        row if row.code in proved or explains(row.code, case) else as_remark(row)
        for row in (*elsewhere, *side_by_side(held, case.catalog), *ruled)
    )
    explained = symptoms and any(map(is_cause, (*predicted, *builds)))
    kept = predicted if explained else (*predicted, *_besides(shown, predicted))
    barred = {Code.PACKAGE_CONFLICT: bool(tagged), Code.PYTHON_UNSUPPORTED: case.reported.origin == "jetson"}
    known = (*tagged, *(row for row in kept if not barred.get(row.code)), *builds)
    codes = frozenset(row.code for row in known if is_cause(row))
    return causes.by_cause((*known, *causes.slow_starts(case, codes)), proved)


def _installed(name: str, reported: Reported) -> str | None:
    labels = (row for row in reported.evidence if (row.field, row.source) == ("tensorflow", "form"))
    own = (row.value for row in labels if re.match(rf"\W*{name}\s*[:=]", row.text.replace("_", "-"), re.IGNORECASE))
    return reported.packages.get(name) or next(own, None)


def _related(case: Case) -> tuple[MessageMatch, ...]:
    """Keep the messages that explain the complaint; a program's own line says better what a sentence says too."""
    others = marked("other_vendor", case.messages)
    rows = list(causes.standing(case.messages, case))
    rest = {row.known.layer for row in rows if row.known.code is not None and row not in others}
    invisible = "invisible" in case.reported.complaints
    about_gpu = rest <= {"driver", "loader", "container", "symptom"} if rest else invisible
    if about_gpu and any(row in others for row in rows):
        return (*others[:1], *(row for row in rows if row.known.code is None))
    printed = {row.known.code for row in rows if row.exact and not row.known.prose} - {None}
    return tuple(row for row in rows if row not in others and not (row.known.prose and row.known.code in printed))


def _proved(case: Case) -> tuple[Finding, ...]:
    wrong = [row for row in case.messages if row.known.code is not None and row.known.severity is not Severity.INFO]
    causes = [row for row in wrong if "follows" not in row.known.marks and row.known.layer != "symptom"]
    errors = {row.known.code for row in causes if row.known.severity is Severity.ERROR}
    hidden = {code for error in errors for code in cause_of(error).hides}
    kept = [row for row in (causes if errors else wrong) if row.known.code not in hidden]
    named = [row for row in kept if row.known.layer != "symptom"] or kept
    libraries = [row for row in named if row.known.code is Code.MISSING_LIBRARY and "library" in row.values]
    missing = terms.missing_libraries(libraries, case) if libraries else None
    facts = terms.terms(case)
    shown = [row for row in named if missing is None or row not in libraries]
    last = {row.signature: row for row in shown if row.known.layer == "cudnn"}  # a later one is of another attempt
    made = {
        (row.known.code, row.values.get("library", row.signature)): _shown(last.get(row.signature, row), facts)
        for row in reversed(shown)
    }
    return (*((missing,) if missing is not None else ()), *reversed(made.values()))


def _shown(row: MessageMatch, facts: Facts) -> Finding:
    known, facts = row.known, terms.with_values(row, facts)
    assert known.code is not None  # noqa: S101 - `_proved` looked
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
    if tag is None or reported.python is None or {"installing", "import"}.isdisjoint(reported.complaints):
        return
    running = minor(reported.python)
    others = (row.value for row in reported.evidence if row.field == "python" and row.source != TAG)
    if tag.value not in {running, *others}:
        named = {"line": tag.line, "tag": tag.value, "text": tag.text[:200], "python": reported.python}
        yield finding(Code.PYTHON_UNSUPPORTED, "other_tag", minor=running, **named)


def _other_system(case: Case, shown: tuple[Finding, ...]) -> Iterator[Finding]:
    reported = case.reported
    if case.native or reported.origin == "tfjs" or any(row.known.code is Code.OTHER_BUILD for row in case.messages):
        return
    name, os = f"TensorFlow {reported.tensorflow or ''}".rstrip(), reported.os or ""
    if (case.gpu or (not shown and "invisible" in reported.complaints)) and reported.distribution != "tensorflow-cpu":
        newest = case.catalog.final_versions[-1] if case.holds("invisible&after_windows") else ""
        version = release_of(reported.tensorflow) if reported.tensorflow else newest
        yield from elsewhere(reported.platform, name, version if versions.key_or_none(version) else "", os)
    elif reported.arch in GRAMMAR.not_served and reported.platform != "macos":
        yield finding(Code.UNKNOWN, "processor", arch=reported.arch)


Confidence = Literal["certain", "likely", "unsure"]
"""``certain`` if a log line proves it, ``likely`` if it follows from stated versions, ``unsure`` by words alone."""
_WARNED = re.compile(r": [EW] |^[EW](?:0000| tensorflow/)")


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
    facts = {**terms.terms(case), **_fitting(case)}
    noise = (row.known for row in case.messages if row.known.layer == "noise")
    harmless = tuple(dict.fromkeys(filled(known.cause, facts) for known in noise))
    told = [row for row in predicted if is_cause(row)]
    lead = told[0] if told else None
    decisive = _decisive(lead, _related(case)) if lead else None
    program = next((row for row in [*causes.standing(case.messages, case)][::-1] if row.known.layer == "code"), None)
    if program is not None and decisive is None and not (lead is not None and program.known.prose):
        return _of_message(program, terms.with_values(program, facts), {"harmless": harmless})
    area = cause_of(lead.code if lead is not None else None).area
    explained = next(iter(marked("not_found", case.messages)), None) if area in {"libraries", "build"} else None
    shown_by = decisive or explained  # a missing library
    line, quote = (shown_by.line, shown_by.text.removeprefix("# ")) if shown_by else (0, "")
    shown = decisive.known if decisive else None
    symptom = shown is not None and shown.layer == "symptom"
    alone = shown is not None and not symptom and not shown.prose and "suggests" not in shown.marks
    inferred = lead is None or lead.found == "no CUDA"  # a rule takes the absence of other statements for it
    proved = decisive is not None and decisive.exact and alone and not inferred
    weak = shown.prose and lead.message.startswith("Line ") if shown and lead else area in {"build", "time"}
    about: tuple[Complaint, ...] | None = ("import",) if area == "packages" else ("invisible",) if symptom else None
    if lead is not None and cause_of(lead.code).no_wheel:
        built = case.reported.origin == "source" or "building" in case.reported.complaints
        about = ("building",) if built else ("installing",)
    ask = () if proved else deciding_commands(case, about)
    common: dict[str, Any] = {"line": line, "quote": quote, "harmless": harmless, "ask": ask}
    if lead is None and (answer := _answering(case)) is not None:
        return _of_message(answer, terms.with_values(answer, facts), common)
    if lead is None or symptom:
        question, apart = GRAMMAR.open_question(about or case.reported.complaints), _told_apart(case, facts)
        cause, fix = apart or filled(question.missing, facts), filled(question.fix, facts)
        sure: Confidence = "likely" if case.holds("unserved&invisible&capability<3.5") and not apart else "unsure"
        return ReportDiagnosis(cause=cause, confidence=sure, place="unknown", fix=fix, **common)
    lead = msgspec.structs.replace(lead, message=_better("says", lead, facts), fix=_better("fixes", lead, facts))
    if (after := _after(lead, case, told)) is not None:
        own = _better("fixes", after, facts)
        host = cause_of(after.code).area == "host"
        pair = f"{after.fix} With that driver: {lead.fix or told[0].fix}" if host else own
        pair = f"{lead.fix} Then: {own}" if lead.code is Code.PACKAGE_CONFLICT else pair
        lead = msgspec.structs.replace(lead, message=f"{lead.message} With it: {after.message}", fix=pair)
    return ReportDiagnosis(
        cause=lead.message.removeprefix(f"Line {line} shows it. "),
        confidence="certain" if proved else "unsure" if weak else "likely",
        place="installation" if shown and shown.layer == "system" else cause_of(lead.code).fix,
        codes=tuple(dict.fromkeys(row.code for row in told)),
        fix=lead.fix,
        **common,
    )


def _better(kind: Literal["says", "fixes"], row: Finding, facts: Facts) -> str:
    own = row.message if kind == "says" else terms.fitting(row.fix, facts["case"])
    with suppress(KeyError):
        return filled(getattr(cause_of(row.code), kind), {**facts, "own": own}) or own
    return own


def _of_message(row: MessageMatch, facts: Facts, common: dict[str, Any]) -> ReportDiagnosis:
    known, fix = row.known, filled(row.known.fix, facts)
    weak = "suggests" in known.marks or (known.prose and row.exact and "asks" not in known.marks)
    if fix == "Nothing to fix.":
        fix = GRAMMAR.ask["harmless"] if known.layer == "noise" else ""
    outside, program = known.marks & {"outside", "owns"} == {"outside"}, known.layer == "code"
    sure: Confidence = "certain" if program and row.exact else "likely"
    return ReportDiagnosis(
        cause=GRAMMAR.openings.get(f"{known.layer}{' by words' * weak}", "") + filled(known.cause, facts),
        confidence="unsure" if weak else sure,
        place="build" if "outside" in known.marks else "program" if program else "unknown",
        fix=fix,
        **{**common, **({} if outside else {"line": row.line, "quote": row.text.removeprefix("# ")})},
    )


def _answering(case: Case) -> MessageMatch | None:
    """Return the message that answers a report without a cause; a harmless one comes first, an exception last."""
    asked, rows = set(case.reported.complaints), case.messages
    known = [row for row in rows if row.signature == "gpu_created"]
    known += sorted(marked("outside", rows), key=lambda row: -len(row.values))
    alone = not asked and all(row.known.layer in {"noise", "fact"} for row in rows)
    asked_for = alone or (case.asks_for_versions and "gpus" in case.facts)
    known += [row for row in marked("answers", rows) if is_title(row) or (asked_for and "asks" in row.known.marks)]
    errors = [row for row in rows if row.line not in {one.line for one in rows if one.known.layer == "noise"}]
    errors = errors if "building" in asked else errors[::-1]  # the first error of a build, the last one of a program
    known += [row for name in ("last_exception", "unknown_error") for row in errors if row.signature == name]
    fits = (row for row in causes.standing(known, case) if asked <= (row.known.explains or asked))
    # A harmless message is in question if the title quotes it, or if it is the only warning.
    noise = [row for row in rows if row.known.layer == "noise"]
    warned = (row for row in noise if alone and _WARNED.search(row.text) is not None)
    return next(itertools.chain(filter(is_title, noise), warned, fits), None)


def _fitting(case: Case) -> Facts:
    """Name the stated versions if they go together."""
    reported, question = case.reported, case.question
    known = question is not None and question.cuda is not None and bool(case.release or case.old)
    other = reported.origin or reported.arch in GRAMMAR.not_served or reported.build == "cpu"
    if not known or other or any(map(is_cause, causes.forecast(case))):
        return {}
    others = [f"cuDNN {reported.cudnn}"] * bool(reported.cudnn) + [*gpus_of(reported)[:1]]
    return {"fitting": ", ".join((f"TensorFlow {reported.tensorflow}", f"CUDA {reported.cuda}", *others))}


def _told_apart(case: Case, facts: Facts) -> str:
    """Compare what works with what fails if the report changes one version between them; '' if it does not say."""
    reported = case.reported
    compared = ("tensorflow", "python", "cuda", "cudnn", "driver")
    others = {name: list(dict.fromkeys(row.value for row in reported.works if row.field == name)) for name in compared}
    apart = [(name, values) for name, values in others.items() if values and getattr(reported, name)]
    name, values = apart[0] if len(apart) == 1 and reported.complaints else ("", [])
    if not name or any(versions.is_prefix(*sorted((v, failing := getattr(reported, name)), key=len)) for v in values):
        return ""
    values = [one for one in values if not any(versions.is_prefix(one, full) for full in values if full != one)]
    named = {"name": GRAMMAR.titles[name], "working": listed(values), "failing": failing}
    other = dataclasses.replace(case, reported=msgspec.structs.replace(reported, tensorflow=values[0]))
    theirs = (other.release or other.old) if name == "tensorflow" and "invisible" in reported.complaints else None
    if theirs is not None and theirs.cuda is not None:
        named |= {"their_cuda": theirs.cuda, **({"one_cuda": ""} if theirs.cuda == facts.get("cuda") else {})}
    return filled(GRAMMAR.told_apart, {**facts, **named})


def _after(lead: Finding, case: Case, told: list[Finding]) -> Finding | None:
    if lead.code is Code.PACKAGE_CONFLICT and not lead.message.startswith("Line "):
        kept = case.version is None or f"=={case.version}" in lead.fix
        by_rule = (row for row in told if kept and not row.message.startswith("Line "))
        return next((row for row in by_rule if cause_of(row.code).area == "libraries"), None)
    if cause_of(lead.code).area != "libraries" or case.question is None or case.reported.platform == "windows":
        return None
    given = msgspec.structs.replace(case.question, cuda=None, cudnn=None, install=None, packages=(), compat=False)
    found = findings_of(given, case.catalog)
    hosts = (row for row in found if row.severity is Severity.ERROR and cause_of(row.code).area in {"host", "kernels"})
    return next(hosts, None) or next((row for row in found if row.code is Code.GPU_UNSUPPORTED_BY_CUDA), None)


def _decisive(lead: Finding, messages: tuple[MessageMatch, ...]) -> MessageMatch | None:
    same = sorted((row for row in messages if row.known.code is lead.code), key=is_title)
    quoted = (row for row in same if lead.found and row.text.startswith(lead.found))
    return next(quoted, None) or next(iter(same), None)


def deciding_commands(case: Case, complaints: tuple[Complaint, ...] | None = None) -> tuple[str, ...]:
    reported, place = case.reported, case.place
    old, form = "" if case.holds("tensorflow>=2.3") else "_1", case.form.replace(" ", "_") or "_"
    ends = (old + form, form, f"{old}_on_{reported.platform}", old, f"_on_{reported.platform}", "")
    known = {name for name, conditions in GRAMMAR.not_asked.items() if any(map(case.holds, conditions))}
    wanted = GRAMMAR.open_question((reported.origin or "", *(complaints or reported.complaints))).ask
    texts = {name: [GRAMMAR.ask.get(f"{name}{end}", "") for end in ends] for name in wanted if name not in known}
    asked = {name: next(filter(None, forms)) for name, forms in texts.items()}
    if "driver" in asked:  # only it depends on where TensorFlow runs
        run = PLACES[place].run.replace("{image}", reported.image or "IMAGE")
        asked["driver"] = f"{run} {asked['driver']}".lstrip()
    return (*((GRAMMAR.ask["cluster"],) if place == "kubernetes" and "cluster" not in known else ()), *asked.values())
