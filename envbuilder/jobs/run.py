"""The main job: lock, render, build and validate every selected environment; up-to-date steps are skipped."""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import msgspec

from envbuilder.choice import Choice
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.errors import BuildFailedError, EnvbuilderError, InputError, verdict_exit_code
from envbuilder.finding import Finding
from envbuilder.image.bases import Base, ensure_base
from envbuilder.image.build import BuildOptions, Built, ensure
from envbuilder.image.context import system_of
from envbuilder.jobs.choose import run_line
from envbuilder.pypi.client import PackageIndex
from envbuilder.support import decoding
from envbuilder.support.console import Console, step_line
from envbuilder.support.templates import rendered
from envbuilder.support.threads import in_parallel
from envbuilder.validation.suite_plan import Profile
from envbuilder.validation.suite_session import progress_of
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.verdict_store import validate_and_record
from envbuilder.verdict import Level, Word
from envbuilder.workspace import Workspace, cache_dir, read_stored


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one environment; ``error`` if there is no verdict. Sizes in bytes, times in seconds.

    ``image`` is its tag in the engine's store ('' if none was built), ``path`` its record or verdict.
    """

    environment: str
    verdict: Word | None = None
    level: Level | None = None
    built: Literal["built", "unchanged", "failed", "not reached"] = "not reached"
    validated: Literal["validated", "unchanged", "not reached"] = "not reached"
    size: int = 0
    build_s: float = 0.0
    reasons: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    error: str = ""
    exit_code: int = 0
    path: str = ""
    image: str = ""


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``run`` and ``build``; ``next`` is a command to continue with."""

    schema: str = "envbuilder/run/v1"
    matrix: str
    rows: tuple[RunRow, ...]
    rejected: int = 0
    excluded: int = 0
    next: str = ""


@dataclass(frozen=True)
class RunOptions:
    """Builds at a time, the suite's profile, the container's GPUs, the steps to repeat, and whether to validate.

    ``cache`` is a repository in a registry that keeps the steps of builds.
    """

    jobs: int = 1
    profile: Profile = "quick"
    gpus: str = "auto"
    fresh: bool = False
    no_cache: bool = False
    pull: bool = False
    cache: str | None = None
    validate: bool = True


@dataclass(frozen=True)
class Runner:
    """Builds every selected environment, and validates it unless the options say otherwise.

    ``index`` tells the files of the locked wheels; the validation compares the image with them.
    """

    choice: Choice
    workspace: Workspace
    engine: Engine
    console: Console
    options: RunOptions
    index: PackageIndex | None = None

    def run(self) -> RunDocument:
        """Build all images before the first validation, which measures times.

        A failure of one environment is reported in its row; the others continue. An interrupt leaves no container, and
        the next run skips finished steps.
        """
        environments, plan = self.choice.environments, self.choice.plan
        row = self.validate if self.options.validate else self.row
        with self.console.live(tuple(environment.id for environment in environments)):
            self.engine.sweep()  # containers of interrupted runs
            bases = self.prepare_bases()
            # An interrupt does not wait for the threads, and closed connections end the builds.
            built = dict(in_parallel(partial(self.build, bases=bases), environments, self.options.jobs))
            rows = tuple(row(environment, built[environment.id]) for environment in environments)
        return RunDocument(
            matrix=self.choice.matrix.name,
            rows=rows,
            rejected=len(plan.rejections),
            excluded=len(plan.excluded),
            next=next_command(rows, environments),
        )

    def prepare_bases(self) -> dict[str, Base]:
        """Prepare each base once, before parallel builds need it; return them by the names of their systems."""
        bases = {}
        systems = {e.os: system_of(e, self.choice.catalog) for e in self.choice.environments}
        for name, system in systems.items():
            with self.console.task(f"base {name}") as task:
                renew, cache = self.options.pull, cache_dir() / "bases"
                bases[system.name] = ensure_base(self.engine, system, cache, task.update, renew=renew)
        return bases

    def build(self, environment: Environment, bases: dict[str, Base]) -> tuple[str, Built | EnvbuilderError]:
        """Lock, render and build; return an error, because it concerns only this environment."""
        no_cache, cache, catalog = self.options.no_cache, self.options.cache, self.choice.catalog
        options = BuildOptions(no_cache=no_cache, index=self.index, cache=cache, bases=bases)
        try:
            with self.console.task(environment.id) as task:
                built = ensure(environment, catalog, self.workspace, self.engine, task.follow, options)
        except EnvbuilderError as error:
            self.console.finished(environment.id, "ERROR", error=str(error), place=self.place(environment, error))
            return environment.id, error
        if not self.options.validate:
            self.console.finished(environment.id, "built" if built.fresh else "unchanged", built.record.size)
        return environment.id, built

    def place(self, environment: Environment, error: EnvbuilderError | None = None) -> tuple[str, int]:
        """Return the file and line of an error: the user's, or the environment's Dockerfile; '' without one."""
        for problem in error.problems if isinstance(error, InputError) else ():
            return problem.path, problem.line
        path = self.workspace.context(environment.id) / "Dockerfile"
        step, data = error.step if isinstance(error, BuildFailedError) else "", read_stored(path)
        return (str(path), step_line(step, decoding.lossy(data))) if data is not None else ("", 0)

    def validate(self, environment: Environment, built: Built | EnvbuilderError) -> RunRow:
        row = self.row(environment, built)
        if isinstance(built, EnvbuilderError):
            return row
        request = ValidationRequest(
            profile=self.options.profile,
            budgets=self.choice.matrix.budgets,
            gpus=self.options.gpus,
            index=self.index,
            fresh=self.options.fresh,
        ).of(built)
        try:
            with self.console.task(environment.id) as task:
                verdict, fresh = validate_and_record(
                    request, self.engine, self.workspace, on_progress=progress_of(task)
                )
        except EnvbuilderError as error:
            self.console.finished(environment.id, "ERROR", row.size, str(error), self.place(environment, error))
            return msgspec.structs.replace(_failed(environment, error), built=row.built)
        self.console.finished(environment.id, verdict.verdict, row.size, place=self.place(environment))
        found = {name: getattr(verdict, name) for name in ("verdict", "level", "reasons", "findings")}
        path = self.workspace.verdict(environment.id).relative_to(self.workspace.root)
        validated, code = "validated" if fresh else "unchanged", verdict_exit_code(verdict.verdict)
        return msgspec.structs.replace(row, **found, validated=validated, exit_code=code, path=str(path))

    def row(self, environment: Environment, built: Built | EnvbuilderError) -> RunRow:
        if isinstance(built, EnvbuilderError):
            return _failed(environment, built)
        return RunRow(
            environment=environment.id,
            image=built.record.reference,
            built="built" if built.fresh else "unchanged",
            size=built.record.size,
            build_s=built.record.seconds if built.fresh else 0.0,
            path=str(self.workspace.image_record(environment.id).relative_to(self.workspace.root)),
        )


def run_text(document: RunDocument) -> str:
    return rendered("jobs/run", document=document)


def next_command(rows: tuple[RunRow, ...], environments: tuple[Environment, ...]) -> str:
    """Return the command to explain the first failure, or to run the first image."""
    failed = next((row.findings[0].code.value for row in rows if row.verdict == "FAILED" and row.findings), None)
    built = next(((one, row.image) for one, row in zip(environments, rows, strict=True) if row.image), None)
    return f"envbuilder explain {failed}" if failed else run_line(*built) if built is not None else ""


def _failed(environment: Environment, error: EnvbuilderError) -> RunRow:
    return RunRow(
        environment=environment.id,
        built="failed" if isinstance(error, BuildFailedError) else "not reached",
        error=error.message,
        exit_code=error.exit_code,
    )
