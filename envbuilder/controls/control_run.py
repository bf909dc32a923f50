"""Run the negative controls: build each broken image for real, validate it, and demand exactly its one code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files as package_files
from typing import assert_never

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.controls.control import Base, Control, Copy, FromWheel
from envbuilder.controls.control_verdict import answer
from envbuilder.controls.recipe import broken_lock, broken_system, defect_probes, dockerfile
from envbuilder.engine.port import BuildRequest, Engine, Step
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.finding import Code
from envbuilder.image.build import Built, build_logged
from envbuilder.image.ensure import ensure
from envbuilder.image.hostfiles import host_files
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import CONTROL_LABEL, CONTROLS
from envbuilder.pypi.package_index import PackageIndex
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles
from envbuilder.support.console import Console, steps
from envbuilder.validation.checks import Profile
from envbuilder.validation.record import record
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Word
from envbuilder.workspace import Workspace, folder_contents, packaged, packaged_in, write_atomically, writing

MATRIX = "negative-controls"
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


@dataclass
class Controller:
    """Builds good environments once and breaks them as asked; ``index`` gives single files of wheels."""

    workspace: Workspace
    engine: Engine
    index: PackageIndex
    catalog: Catalog
    console: Console
    profile: Profile = "quick"
    _good: dict[Base, Built] = field(default_factory=dict)

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

    def good(self, base: Base) -> Built:
        """Return the good environment that controls of this kind break, built where it is not yet."""
        if base not in self._good:
            choice = choose(MATRIX, (), self.workspace, self.catalog)
            environment = environment_of(base, choice.environments)
            with self.console.task(environment.id) as task:
                self._good[base] = ensure(environment, choice.catalog, self.workspace, self.engine, steps(task))
        return self._good[base]

    def _row(self, control: Control, good: Built) -> ControlRow:
        started = time.monotonic()
        reference = self._break(control, good) if control.steps else good.record.reference
        built = time.monotonic()
        request = ValidationRequest(
            image=reference,
            environment=good.environment,
            profile="full" if "full" in (control.profile, self.profile) else "quick",
            lock=broken_lock(control, good.lock),
            omissions=good.omissions,
            system=broken_system(control, good.system),
            base_id=good.record.base_id,
            extra=control.extra,
            probes=defect_probes(control),
            index=self.index,
            simulate=compiler.simulation(profiles.parse(control.simulate, self.catalog)) if control.simulate else None,
        )
        budgets = msgspec.structs.replace(request.budgets, **dict(control.budgets))
        verdict = validate(self.engine, replace(request, budgets=budgets))
        record(self.workspace.control(control.name), verdict)
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

    def _break(self, control: Control, good: Built) -> str:
        folder = self.workspace.control(control.name)
        context = folder / "context"
        wanted = self._context(control, good)
        for name in folder_contents(context).keys() - wanted.keys() if context.is_dir() else ():
            with writing(context / name):
                (context / name).unlink(missing_ok=True)
        for name, content in wanted.items():
            write_atomically(context / name, content)
        request = BuildRequest(
            context=context,
            tag=f"{CONTROLS}:{control.name}",
            extra=host_files(),
            build_args={"BASE": good.record.reference},
            labels={CONTROL_LABEL: control.name},
        )
        build_logged(request, self.engine, folder / "build.log", _ignore)
        return request.tag

    def _context(self, control: Control, good: Built) -> Mapping[str, bytes]:
        lock, system = broken_lock(control, good.lock), broken_system(control, good.system)
        files = {"Dockerfile": dockerfile(control, good.environment.python, lock, system).encode()}
        if control.changes_lock:
            files[LOCK] = lock.encode()
        if control.changes_system:
            files |= {name: text.encode() for name, text in system.items()}
        for wheel in control.wheels:
            files[wheel.source] = from_wheel(self.index, wheel)
        if control.stub:
            files["libcuda.so"] = compiler.stub()
        copied = {step.source for step in control.steps if isinstance(step, Copy)}
        for item in packaged_in(package_files("envbuilder.controls") / "defects"):
            if item.name in copied:
                files[item.name] = packaged(item)
        return files


def _ignore(_: Step) -> None:
    """Follow nothing: a broken image's build is seconds."""


def environment_of(base: Base, environments: tuple[Environment, ...]) -> Environment:
    """Find the good environment that a control breaks. Raises UnsatisfiableError where the matrix has none."""
    for environment in environments:
        match base:
            case "numpy-1":
                fits = environment.flavor == "cpu" and environment.tensorflow == _NUMPY_1
            case "told-gpu":
                fits = bool(environment.loader_folders)
            case "system-gpu":
                fits = environment.packaged_cuda is not None
            case "cpu" | "gpu":
                told = environment.loader_folders or environment.packaged_cuda
                own = environment.tensorflow != _NUMPY_1 and not told
                fits = environment.flavor == base and own
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
            found = next((member for member in index.members(file) if member.name == wanted.member), None)
            if found is not None:
                return b"".join(index.stream(file, found))  # parts of cuDNN are larger than what is kept in a cache
    raise InfrastructureError(
        f"the package index has no {wanted.project} {wanted.version} with {wanted.member}",
        hint="envbuilder doctor shows which index is used",
    )
