"""What ``envbuilder validate`` was asked for: find the image, validate it, and write the verdict as a table."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import assert_never, cast

from envbuilder.catalog import store
from envbuilder.choice import choose_all
from envbuilder.console import Console, table
from envbuilder.engine.docker import connect
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image.build import ImageRecord
from envbuilder.matrix import Budgets
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles
from envbuilder.validation.checks.specification import Profile
from envbuilder.validation.record import lock_text, said, validate_and_record
from envbuilder.validation.validate import ValidationRequest, validate, validate_here
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace, read_document


@dataclass(frozen=True)
class Words:
    """The command's words, as given."""

    target: str | None
    here: bool
    python: str | None
    matrix: str | None
    profile: str
    gpus: str
    simulate: str | None
    fresh: bool


def answer(words: Words, workspace: Workspace, console: Console) -> Verdict:
    """Validate what the words name. Raises UsageError where they do not fit together or name nothing."""
    profile = cast("Profile", words.profile)
    if words.here:
        if words.target or words.simulate:
            raise UsageError("--here takes no image and no simulated driver", hint="leave one of them out")
        with console.live(), console.task("here") as task:
            return validate_here(
                python=words.python or sys.executable,
                profile=profile,
                on_progress=lambda progress: task.update(said(progress)),
            )
    if words.target is None:
        raise UsageError("nothing to validate", hint="name an environment or an image, or say --here")
    return _in_container(words, words.target, profile, workspace, console)


def _in_container(words: Words, target: str, profile: Profile, workspace: Workspace, console: Console) -> Verdict:
    engine = connect()
    simulated = compiler.simulation(profiles.parse(words.simulate, store.load())) if words.simulate else None
    known = _environment(words, target, engine, workspace)
    with console.live(), console.task(target) as task:
        if known is None:
            request = ValidationRequest(image=target, profile=profile, gpus=words.gpus, simulate=simulated)
            return validate(engine, request, on_progress=lambda progress: task.update(said(progress)))
        environment, record, budgets = known
        request = ValidationRequest(
            image=record.image,
            environment=environment,
            profile=profile,
            budgets=budgets,
            gpus=words.gpus,
            base=f"{record.base} {record.base_id}",
            simulate=simulated,
        )
        if simulated is not None:  # what a simulated driver leads to never takes the place of a real verdict
            request = replace(request, lock=lock_text(workspace, environment))
            return validate(engine, request, on_progress=lambda progress: task.update(said(progress)))
        verdict, _ = validate_and_record(request, engine, workspace, on_progress=task.update, fresh=words.fresh)
        return verdict


def _environment(
    words: Words, target: str, engine: Engine, workspace: Workspace
) -> tuple[Environment, ImageRecord, Budgets] | None:
    """Find a built environment by its id; None where the word names an image instead."""
    record = read_document(workspace.results(target) / "image.json", ImageRecord) if "/" not in target else None
    if record is None:
        if engine.image(target) is None:
            raise UsageError(
                f"{target}: neither a built environment nor an image in the engine's store",
                hint="envbuilder build, or docker pull",
            )
        return None
    for choice in choose_all((words.matrix,) if words.matrix else (), (), workspace.root, store.load()):
        for environment in choice.environments:
            if environment.id == target:
                return environment, record, choice.matrix.budgets
    raise UsageError(f"{target}: built, but in no matrix that was looked at", hint="name its matrix with --matrix")


def exit_code(verdict: Verdict) -> int:
    """Return the exit code of the contract: 0 PASSED, 1 FAILED, 8 INCONCLUSIVE."""
    match verdict.verdict:
        case "PASSED":
            return 0
        case "FAILED":
            return 1
        case "INCONCLUSIVE":
            return 8
        case _:
            assert_never(verdict.verdict)


_SHOWN = 100


def as_text(verdict: Verdict) -> str:
    """Write a verdict for people: every check, the reasons, the findings with their fixes, the word and the level."""
    rows = [
        (check.tier, check.name, check.outcome, f"{check.duration_s:.2f} s", " ".join(check.observed.split())[:_SHOWN])
        for check in verdict.checks
    ]
    lines = [table(("tier", "check", "outcome", "time", "observed"), rows), ""]
    for phase in verdict.timeline:
        samples = sorted(phase.cold_s or phase.warm_s)
        lines.append(f"  {phase.phase:<34}{samples[len(samples) // 2]:10.4f} s")
    lines += [""] * bool(verdict.timeline)
    for finding in verdict.findings:
        lines.append(f"{finding.severity}: {finding.code} {finding.message}")
        lines += [f"  fix: {finding.fix}"] if finding.fix else []
    lines += [f"reason: {reason}" for reason in verdict.reasons]
    simulated = ", simulated" if verdict.simulated else ""
    lines.append(f"{verdict.image.reference}: {verdict.verdict} (level {verdict.level}{simulated})")
    return "\n".join(lines)
