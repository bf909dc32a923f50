"""Write a plan for people: what can be built, what cannot and why, and which kind of host runs what."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, islice, product

import msgspec

from envbuilder.compat.check_text import mark, nearest_line
from envbuilder.compat.fleet import HostKind
from envbuilder.environment import WHOLE, Combination
from envbuilder.finding import Code, Finding, Severity
from envbuilder.jobs.plan_document import NewestDocument, PlanDocument, PlannedCell, PlannedNewest, PlannedRejection
from envbuilder.support.console import table

WIDTH = 120
"""Columns that a line has at most; a longer grid of hosts is written under letters, a longer sentence is broken."""

FEW = 50
"""So many rejections or exclusions are written out; more are summed up by their cause."""

_SHOWN = 3
"""So many examples stand for the rest."""


def plan_text(document: PlanDocument, *, everything: bool = False) -> str:
    """Write environments, rejections with the nearest that works, exclusions, then the hosts.

    More than `FEW` rejections or exclusions are summed up by cause unless ``everything`` is asked for.
    """
    parts = [_environments(document)] if document.environments else ["no environment"]
    if any(row.findings for row in document.environments):
        parts.append("\n".join(_told(document, everything=everything)))
    if document.rejections:
        whole = everything or len(document.rejections) <= FEW
        parts.append("\n".join(_rejections(document) if whole else _rejections_by_cause(document)))
    if document.excluded:
        whole = everything or len(document.excluded) <= FEW
        parts.append("\n".join(_excluded(document) if whole else _excluded_by_reason(document)))
    if document.hosts:
        parts += [_grid(document), _newest(document)]
    return "\n\n".join(parts)


def newest_text(document: NewestDocument) -> str:
    """Write the newest TensorFlow for each kind of host, and what stands against the next newer one."""
    return _newest(document)


def _environments(document: PlanDocument) -> str:
    rows = [
        (row.id, row.package, row.python, row.cuda or "-", row.cudnn or "-", row.minimum_driver or "-", row.os)
        for row in document.environments
    ]
    return table(("environment", "package", "python", "cuda", "cudnn", "driver from", "system"), rows)


def _told(document: PlanDocument, *, everything: bool) -> Iterator[str]:
    """Write what holds of environments although they were accepted: each finding once, and of which it holds."""
    holds: dict[int, list[str]] = {}
    for row in document.environments:
        for place in row.findings:
            holds.setdefault(place, []).append(row.id)
    yield "to know:"
    for place, names in islice(holds.items(), None if everything else FEW):
        finding = document.findings[place]
        whose = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
        whose = "every environment" if len(names) == len(document.environments) > 1 else whose
        yield from _wrapped(f"{finding.severity.value} {finding.code.value} ({whose}): {finding.message}", "  ")
    if len(holds) > FEW and not everything:
        yield f"  and {len(holds) - FEW} more (--all lists them)"


def _rejections(document: PlanDocument) -> Iterator[str]:
    yield "rejected:"
    for row in document.rejections:
        yield f"  {row.id}: {_sentence(document, row)}"
        yield f"    {_nearest(row)}"


def _sentence(document: PlanDocument, row: PlannedRejection) -> str:
    return document.findings[row.findings[0]].message if row.findings else "It cannot be built."


def _nearest(row: PlannedRejection) -> str:
    if row.predicate is None:
        return "nearest that can be built here: none with these drivers and GPUs"
    return nearest_line(row.predicate, row.changes)


def _rejections_by_cause(document: PlanDocument) -> Iterator[str]:
    """Sum rejections up by the code of what stands first against each: how many, examples, what is nearest."""
    causes: dict[Code, list[PlannedRejection]] = {}
    for row in document.rejections:
        code = document.findings[row.findings[0]].code if row.findings else Code.NOT_INSTALLABLE
        causes.setdefault(code, []).append(row)
    yield f"rejected: {len(document.rejections)} combinations, by what stands first against each (--all lists them):"
    for code, rows in sorted(causes.items(), key=lambda pair: -len(pair[1])):
        yield from ["", f"  {code.value}: {len(rows)}"]
        sentences = Counter(row.findings[:1] for row in rows)
        for places, number in sentences.most_common(_SHOWN):
            first = next(row for row in rows if row.findings[:1] == places)
            yield from _wrapped(f"{number} x {first.id}: {_sentence(document, first)}", "    ")
        yield from _others(len(sentences) - _SHOWN, "reason", "    ")
        near = Counter(_nearest(row) for row in rows)
        yield from (f"    {text} ({number})" for text, number in near.most_common(_SHOWN))
        yield from _others(len(near) - _SHOWN, "nearest", "    ")


def _excluded(document: PlanDocument) -> Iterator[str]:
    yield "excluded:"
    forms: dict[tuple[Combination, str], list[str]] = {}
    for row in document.excluded:
        whole = msgspec.structs.replace(row.combination, form=WHOLE)
        forms.setdefault((whole, row.reason), []).append(row.combination.form)
    for (wish, reason), found in forms.items():
        told = f" form={found[0]}" if len(found) == 1 and found[0] != WHOLE else ""
        yield f"  {_wish(wish)}{told}: {reason}"


def _excluded_by_reason(document: PlanDocument) -> Iterator[str]:
    yield f"excluded: {len(document.excluded)} combinations, by reason (--all lists them):"
    for reason, number in Counter(row.reason for row in document.excluded).most_common():
        yield from _wrapped(f"{number} x {reason}", "  ")


def _wish(wish: Combination) -> str:
    fields = ("tensorflow", "package", "python", "os", "flavor", "cuda", "cudnn")
    return " ".join(f"{name}={value}" for name in fields if (value := getattr(wish, name)))


def _others(number: int, noun: str, indent: str) -> Iterator[str]:
    if number > 0:
        yield f"{indent}and {number} more, each with another {noun}"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_long_words=False
    )


_KEY = "yes: uses the GPU, slow: after compiling its kernels, cpu: on the CPU, ?: no claim"


def _grid(document: PlanDocument) -> str:
    """Write environments against kinds of hosts, then for each kind, once for each cause, why not."""
    marks = _marks(document)
    names = [_name(kind) for kind in document.kinds]
    grid = table(
        ("environment", *names),
        [(name, *(marks[one, kind.host] for kind in document.kinds)) for name, one in _rows(document, marks)],
    )
    if max(map(len, grid.splitlines())) > WIDTH:
        return _grid_by_letters(document, marks)
    why = [line for kind in document.kinds for line in _why_not("", [kind], document)]
    return "\n".join([grid, _KEY, *(["", "why not:", *why] if why else [])])


def _rows(document: PlanDocument, marks: dict[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    """Yield a name and an id for each row of a grid: forms of one environment share one where they have one answer."""
    ids = {row.id: None for row in document.environments}
    joined, also = set[str](), dict[str, str]()
    for row in document.environments:
        whole = row.other_forms[-1] if row.form else ""
        if whole in ids and all(marks[row.id, kind.host] == marks[whole, kind.host] for kind in document.kinds):
            joined.add(row.id)
            also[whole] = also.get(whole, "") + f"[{row.id.removeprefix(whole)}]"
    yield from ((one + also.get(one, ""), one) for one in ids if one not in joined)


def _marks(document: PlanDocument) -> dict[tuple[str, str], str]:
    plain = {row.id for row in document.environments if row.flavor == "cpu"}
    return {
        (cell.environment, cell.host): "cpu" if cell.environment in plain else mark(_findings(document, cell))
        for cell in document.cells
    }


def _findings(document: PlanDocument, cell: PlannedCell) -> tuple[Finding, ...]:
    return tuple(document.findings[place] for place in cell.findings)


def _grid_by_letters(document: PlanDocument, marks: dict[tuple[str, str], str]) -> str:
    """Write a grid whose columns are kinds that run the same environments, and below it which kinds these are."""
    ids = [row.id for row in document.environments]
    alike: dict[tuple[str, ...], list[HostKind]] = {}
    for kind in document.kinds:
        alike.setdefault(tuple(marks[one, kind.host] for one in ids), []).append(kind)
    columns = list(zip(_letters(), alike.items(), strict=False))
    rows, place = list(_rows(document, marks)), {one: at for at, one in enumerate(ids)}
    room = max(1, (WIDTH - max((len(name) for name, _ in rows), default=0)) // 6)
    blocks = [
        table(
            ("environment", *(letter for letter, _ in part)),
            [(name, *(column[place[one]] for _, (column, _) in part)) for name, one in rows],
        )
        for part in (columns[start : start + room] for start in range(0, len(columns), room))
    ]
    few = len(document.kinds) <= FEW
    legend = [line for letter, (_, kinds) in columns for line in _kinds(letter, kinds, whole=few)]
    why = [line for letter, (_, kinds) in columns for line in _why_not(f"{letter}, ", kinds, document)]
    return "\n".join(["\n\n".join(blocks), _KEY, "", "hosts:", *legend, *(["", "why not:", *why] if why else [])])


def _letters() -> Iterator[str]:
    for length in count(1):
        yield from map("".join, product("ABCDEFGHIJKLMNOPQRSTUVWXYZ", repeat=length))


def _kinds(title: str, kinds: list[HostKind], *, whole: bool) -> Iterator[str]:
    """Say which hosts a title stands for: how many, then each kind (``whole``) or some, by its first host."""
    hosts = sum(kind.count for kind in kinds)
    yield from _wrapped(f"{title}: {hosts} host{_s(hosts)} of {len(kinds)} kind{_s(len(kinds))}", "  ")
    for kind in kinds if whole else islice(kinds, _SHOWN):
        yield from _wrapped(f"{_name(kind)}: driver {kind.driver or '-'}, {_gpus(kind)}", "    ")
    if not whole and len(kinds) > _SHOWN:
        yield f"    and {len(kinds) - _SHOWN} more kinds"


def _gpus(kind: HostKind) -> str:
    return (", ".join(kind.gpus) or "no GPU") + (f" ({kind.arch})" if kind.arch else "")


def _s(number: int) -> str:
    return "" if number == 1 else "s"


def _name(kind: HostKind) -> str:
    return kind.host if kind.count == 1 else f"{kind.host} +{kind.count - 1}"


def _why_not(title: str, kinds: Iterable[HostKind], document: PlanDocument) -> Iterator[str]:
    """Give the first sentence for each cause on these kinds, and count the environments that share it."""
    names = {kind.host: _name(kind) for kind in kinds}
    causes: dict[Code, list[str]] = {}
    for cell in document.cells:
        if cell.host in names and (why := _why(document, cell)) is not None:
            causes.setdefault(why.code, []).append(f"{title}{names[cell.host]}: {why.message}")
    for said in causes.values():
        likewise = f" ({len(said) - 1} more likewise)" if len(said) > 1 else ""
        yield from _wrapped(f"{said[0]}{likewise}", "  ")


def _why(document: PlanDocument, cell: PlannedCell) -> Finding | None:
    if cell.compatible is True:
        return None
    found = _findings(document, cell)
    return next((one for one in found if one.severity is Severity.ERROR or one.code is Code.UNKNOWN), None)


def _newest(document: PlanDocument | NewestDocument) -> str:
    """Write a row for each kind, then what stands against a newer one, once for each sentence."""
    pairs = list(zip(document.kinds, document.newest, strict=True))
    rows = [
        (
            _name(kind),
            kind.driver or "-",
            _gpus(kind) if kind.gpus else "-",
            _release(row),
            _stack(row, document.findings),
        )
        for kind, row in pairs
    ]
    text = table(("host", "driver", "gpus", "newest", "with"), rows)
    if max(map(len, text.splitlines())) > WIDTH:
        text = "\n".join(_newest_by_answer(document))
    against: dict[str, list[str]] = {}
    for kind, row in pairs:
        if row.why_not_newer:
            sentence = f"{row.newer}: {row.why_not_newer}" if row.newer else row.why_not_newer
            against.setdefault(sentence, []).append(_name(kind))
    lines = [text, *(["", "what stands against a newer one:"] if against else [])]
    for sentence, names in against.items():
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        lines += _wrapped(f"{', '.join(names[:_SHOWN])}{more}: {sentence}", "  ")
    return "\n".join(lines)


def _newest_by_answer(document: PlanDocument | NewestDocument) -> Iterator[str]:
    answers: dict[str, list[HostKind]] = {}
    for kind, row in zip(document.kinds, document.newest, strict=True):
        stack = f" with {_stack(row, document.findings)}" if row.tensorflow else ""
        answers.setdefault(f"{_release(row)}{stack}", []).append(kind)
    yield "newest:"
    for answer, same in answers.items():
        yield from _kinds(answer, same, whole=len(document.kinds) <= FEW)


_NONE = {False: "none", None: "no claim"}
"""What stands where no release is named: none works, or the catalogue does not know."""


def _release(row: PlannedNewest) -> str:
    return f"{row.package} {row.tensorflow}" if row.tensorflow else _NONE[row.compatible]


def _stack(row: PlannedNewest, findings: tuple[Finding, ...]) -> str:
    told = [findings[place].requires for place in row.findings if findings[place].code is Code.LIBRARY_PATH]
    return ", ".join([f"CUDA {row.cuda}", f"cuDNN {row.cudnn}", *told]) if row.cuda else "-"
