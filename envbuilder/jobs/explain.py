"""Explain a finding code or an environment of a matrix."""

import difflib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import local_matrices, read_known
from envbuilder.compat.check_text import finding_lines
from envbuilder.compat.plan import plan
from envbuilder.environment import Environment, Rejection
from envbuilder.errors import Reason, UsageError
from envbuilder.finding import Code, code_texts
from envbuilder.support.tables import folded
from envbuilder.support.templates import rendered, shipped
from envbuilder.workspace import packaged_yaml


class Explanation(msgspec.Struct, frozen=True):
    """A finding code or a reason of `verify`, its meaning, causes and fix, and the sources of these statements."""

    code: str
    means: str
    cause: str
    fix: str
    sources: tuple[str, ...]


class ExplainDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a finding code means, or why a matrix has or rejects an environment; the others are null.

    ``reasons`` are the environment's choices, a sentence each; ``sources`` those of its facts.
    """

    schema: Literal["envbuilder/explain/v1"] = "envbuilder/explain/v1"
    explanation: Explanation | None = None
    matrix: str | None = None
    environment: Environment | None = None
    rejection: Rejection | None = None
    reasons: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()


NAMES = (*(code.value for code in Code), *(reason.value for reason in Reason))


def explain(name: str, matrix: str | None, root: Path, catalog: Catalog) -> ExplainDocument:
    """Explain a code or an environment's id; raises UsageError with near misses for a name that is neither."""
    if name.upper() in Code.__members__:
        code = Code[name.upper()]
        text = code_texts()[code]
        return ExplainDocument(explanation=Explanation(code, text.means, text.cause, text.fix, text.sources))
    if name.upper() in Reason.__members__:
        from envbuilder.publish.verification import reason_texts, shown  # noqa: PLC0415 - `choose` imports this module

        reason = Reason[name.upper()]
        advice = reason_texts()[reason]
        fix = shown(advice.next)
        return ExplainDocument(explanation=Explanation(reason, advice.means, "", fix, ()))
    known = [*NAMES]
    ships = sorted(shipped("matrices").glob("*.yaml"), key=lambda path: (path.stem != "tensorflow", path.stem))
    names = (matrix,) if matrix is not None else (*local_matrices(root), *map(str, ships))
    for parsed, known_here in (read_known(one, root, catalog) for one in names):
        resolved = plan(parsed, known_here)
        rows: dict[str, Environment | Rejection] = {row.id: row for row in resolved.environments}
        rows |= {row.id: row for row in resolved.rejections}
        match rows.get(name):
            case Environment() as environment:
                return _environment(parsed.name, environment, known_here)
            case Rejection() as rejection:
                return ExplainDocument(matrix=parsed.name, rejection=rejection, reasons=(rejection.sentence,))
        known += [row for row in rows if row not in known]
    near = difflib.get_close_matches(name, known, n=3) or difflib.get_close_matches(name.upper(), known, n=3)
    hint = (
        f"near misses: {', '.join(near)}" if near else "give a finding code such as PTX_JIT, or an id that `plan` shows"
    )
    raise UsageError(f"{name!r} is neither a finding code nor an environment", hint=hint)


def _environment(matrix: str, environment: Environment, catalog: Catalog) -> ExplainDocument:
    release = catalog.release(environment.tensorflow, environment.package)
    system = catalog.system(environment.os)
    toolkit = catalog.toolkit(environment.cuda)
    rows = [row for row in (release, system, toolkit) if row is not None]
    return ExplainDocument(
        matrix=matrix,
        environment=environment,
        reasons=tuple(reasons(environment, "from the matrix")),
        sources=tuple(dict.fromkeys(source for row in rows for source in row.source)),
    )


WHY, WITH_CUDA = packaged_yaml("jobs/choices.yaml", dict[str, dict[str, str]]).values()
"""Reasons of the resolver's choice by axis, and those on a system that brings CUDA."""


def reasons(row: Environment, given: str) -> Iterator[str]:
    """Yield a sentence for each choice, in order; ``given`` is the reason of the others."""
    for axis, why in (WHY | WITH_CUDA if row.flavor == "gpu" and not row.cuda_wheels else WHY).items():
        value = getattr(row, axis)
        if value is not None:
            yield f"{axis} {value}: {f'chosen: {why}' if axis in row.chosen else given}"
    if row.minimum_driver is not None:
        floor = f"driver {row.minimum_driver} or newer"
        yield f"{floor}: the minimum of CUDA {row.cuda}, including minor-version compatibility"
    if row.constraints:
        yield f"bounds {', '.join(row.constraints)}: needed to load, but missing in its own metadata"


def as_text(document: ExplainDocument) -> str:
    row, wrapped = document.environment or document.rejection, partial(folded, most=100)
    return rendered("jobs/explain", wrapped, document=document, row=row, lines=finding_lines)
