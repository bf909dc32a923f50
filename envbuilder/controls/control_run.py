"""Run the negative controls: build each broken image for real, validate it, and demand exactly its one code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files as package_files
from pathlib import Path
from typing import assert_never

import msgspec

from envbuilder.catalog import store
from envbuilder.choice import choose
from envbuilder.console import Console, describe
from envbuilder.controls.control import Base, Control, FromWheel
from envbuilder.controls.control_verdict import answer
from envbuilder.controls.recipe import LOCK, broken_lock, dockerfile
from envbuilder.engine.port import BuildRequest, Engine, Step
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.finding import Code
from envbuilder.image.build import build, build_logged
from envbuilder.image.context import ensure_lock, system_of, write_context
from envbuilder.image.hostfiles import host_files
from envbuilder.pypi.package_index import PackageIndex
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles
from envbuilder.validation.checks.specification import Profile
from envbuilder.validation.record import record
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Word
from envbuilder.workspace import Workspace, folder_contents, write_atomically

MATRIX = "negative-controls"
REPOSITORY = "envbuilder/control"
"""Broken images are tagged ``envbuilder/control:<name>``."""
LABEL = "org.envbuilder.control"
"""Carries the control's name."""

_NUMPY_1 = "2.15.1"


class ControlRow(msgspec.Struct, frozen=True, kw_only=True):
    """How one control fared: what it must lead to, what it led to, and why that is not right ('' where it is)."""

    control: str
    environment: str
    broken: str
    expected: Code | None
    found: tuple[Code, ...]
    red: tuple[str, ...]
    verdict: Word
    simulated: bool
    right: bool
    wrong: str = ""
    build_s: float = 0.0
    validate_s: float = 0.0


class ControlsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What the controls showed."""

    schema: str = "envbuilder/controls/v1"
    rows: tuple[ControlRow, ...]

    @property
    def exit_code(self) -> int:
        """0 where every control came out as it must, 1 otherwise."""
        return 0 if all(row.right for row in self.rows) else 1


@dataclass(frozen=True)
class Good:
    """A good environment: its image in the engine's store, and its lock."""

    environment: Environment
    lock: str
    reference: str


@dataclass
class Controller:
    """Builds good environments once and breaks them as asked; ``index`` gives single files of wheels."""

    workspace: Workspace
    engine: Engine
    index: PackageIndex
    console: Console
    profile: Profile = "quick"
    _good: dict[Base, Good] = field(default_factory=dict)

    def run(self, controls: tuple[Control, ...]) -> ControlsDocument:
        """Run every control. Raises BuildFailedError or InfrastructureError: those say nothing about the suite."""
        with self.console.live():
            self.engine.sweep()
            rows = []
            for control in controls:
                with self.console.task(control.name) as task:
                    task.update("building")
                    row = self._row(control, self.good(control.base))
                rows.append(row)
                self.console.say(f"{control.name}: {row.wrong or 'as it must'}")
        return ControlsDocument(rows=tuple(rows))

    def good(self, base: Base) -> Good:
        """Return the good environment that controls of this kind break, built where it is not yet."""
        if base not in self._good:
            choice = choose(MATRIX, (), self.workspace, store.load())
            environment = environment_of(base, choice.environments)
            lock = ensure_lock(environment, choice.catalog, self.workspace)
            write_context(environment, lock, self.workspace)
            with self.console.task(environment.id) as task:
                built = build(
                    environment,
                    system_of(environment, choice.catalog),
                    self.workspace,
                    self.engine,
                    on_step=lambda step: task.update(describe(step)) if step.kind != "log" else None,
                )
            self._good[base] = Good(environment, lock, built.record.reference)
        return self._good[base]

    def _row(self, control: Control, good: Good) -> ControlRow:
        started = time.monotonic()
        reference = self._break(control, good) if control.steps else good.reference
        built = time.monotonic()
        request = ValidationRequest(
            image=reference,
            environment=good.environment,
            profile=self.profile,
            lock=broken_lock(control, good.lock),
            extra=control.extra,
            simulate=compiler.simulation(profiles.parse(control.simulate, store.load())) if control.simulate else None,
        )
        verdict = validate(self.engine, request)
        record(self._folder(control), verdict)
        judged = answer(control, verdict)
        return ControlRow(
            control=control.name,
            environment=good.environment.id,
            broken=control.broken,
            expected=control.code,
            found=judged.codes,
            red=judged.red,
            verdict=verdict.verdict,
            simulated=verdict.simulated,
            right=not judged.wrong,
            wrong=judged.wrong,
            build_s=round(built - started, 1),
            validate_s=round(time.monotonic() - built, 1),
        )

    def _break(self, control: Control, good: Good) -> str:
        context = self._folder(control) / "context"
        wanted = self._context(control, good)
        for name in folder_contents(context).keys() - wanted.keys() if context.is_dir() else ():
            (context / name).unlink()
        for name, content in wanted.items():
            write_atomically(context / name, content)
        request = BuildRequest(
            context=context,
            tag=f"{REPOSITORY}:{control.name}",
            extra=host_files(),
            build_args={"BASE": good.reference},
            labels={LABEL: control.name},
        )
        build_logged(request, self.engine, self._folder(control) / "build.log", _ignore)
        return request.tag

    def _context(self, control: Control, good: Good) -> Mapping[str, bytes]:
        lock = broken_lock(control, good.lock)
        files = {"Dockerfile": dockerfile(control, good.environment.python, lock).encode()}
        if control.locked:
            files[LOCK] = lock.encode()
        for wheel in control.wheels:
            files[wheel.source] = from_wheel(self.index, wheel)
        if control.stub:
            files["libcuda.so"] = compiler.stub()
        for item in (package_files("envbuilder.controls") / "defects").iterdir():
            if item.name in files["Dockerfile"].decode():
                files[item.name] = item.read_bytes()
        return files

    def _folder(self, control: Control) -> Path:
        return self.workspace.out / "controls" / control.name


def _ignore(_: Step) -> None:
    """Follow nothing: a broken image's build is seconds."""


def environment_of(base: Base, environments: tuple[Environment, ...]) -> Environment:
    """Find the good environment that a control breaks. Raises UnsatisfiableError where the matrix has none."""
    for environment in environments:
        match base:
            case "numpy-1":
                fits = environment.flavor == "cpu" and environment.tensorflow == _NUMPY_1
            case "cpu" | "gpu":
                fits = environment.flavor == base and environment.tensorflow != _NUMPY_1
            case _:
                assert_never(base)
        if fits:
            return environment
    raise UnsatisfiableError(f"matrix {MATRIX} has no environment for the {base} controls", hint="see its include list")


def from_wheel(index: PackageIndex, wanted: FromWheel) -> bytes:
    """Read one file out of the Linux x86-64 wheel of a version. Raises InfrastructureError where there is none."""
    start = f"{wanted.project.replace('-', '_')}-{wanted.version}-"
    for file in index.files(wanted.project):
        if file.filename.startswith(start) and file.filename.endswith("x86_64.whl"):
            content = index.member(file, wanted.member)
            if content is not None:
                return content
    raise InfrastructureError(
        f"the package index has no {wanted.project} {wanted.version} with {wanted.member}",
        hint="envbuilder doctor shows which index is used",
    )


def table_rows(document: ControlsDocument) -> tuple[tuple[str, ...], ...]:
    """Return the table that ends a run of the controls."""
    return tuple(
        (
            row.control,
            row.expected or "nothing red",
            ", ".join(row.found) or "nothing red",
            row.verdict,
            f"{row.build_s + row.validate_s:.0f} s",
            row.wrong or "as it must",
        )
        for row in document.rows
    )
