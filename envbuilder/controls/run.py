"""Run the negative controls: build each broken image, validate it, and compare the findings with its one code."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files as package_files
from itertools import groupby
from typing import assert_never

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.controls.control import Base, Control, FromWheel
from envbuilder.controls.evaluate import evaluate
from envbuilder.controls.recipe import broken_lock, broken_system, defect_probes, dockerfile
from envbuilder.engine.port import BuildRequest, Engine, Image, Step
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.finding import Code
from envbuilder.image.build import Built, build_logged, ensure
from envbuilder.image.host_settings import host_files
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import CONTROL_LABEL, CONTROLS
from envbuilder.pypi.client import PackageIndex
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles
from envbuilder.support.console import Console, steps
from envbuilder.validation.checks import Profile
from envbuilder.validation.image_files import read_layers
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.validation.verdict_store import record
from envbuilder.verdict import Word
from envbuilder.workspace import Workspace, folder_contents, packaged, remove, write_atomically

MATRIX = "negative-controls"

STUB = "libcuda.so"
"""The compiled link-time stub of the driver, in the build context."""

_NUMPY_1 = "2.15.1"


class ControlRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one control: the expected and the found codes, and what is wrong ('' if nothing is)."""

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
    """The results of all controls that ran."""

    schema: str = "envbuilder/controls/v1"
    rows: tuple[ControlRow, ...]


@dataclass(frozen=True)
class _Broken:
    control: Control
    reference: str
    image: Image
    build_s: float


@dataclass
class Controller:
    """Builds each good environment once and adds the defects; ``index`` provides single files of wheels."""

    workspace: Workspace
    engine: Engine
    index: PackageIndex
    catalog: Catalog
    console: Console
    profile: Profile = "quick"
    _good: dict[Base, Built] = field(default_factory=dict)

    def run(self, controls: tuple[Control, ...]) -> ControlsDocument:
        """Run every control. BuildFailedError and InfrastructureError say nothing about the suite."""
        rows: list[ControlRow] = []
        with self.console.live():
            self.engine.sweep()
            for base, group in groupby(controls, key=lambda control: control.base):
                good, broken = self.good(base), [self._break(control, self.good(base)) for control in group]
                with self.console.task(f"layers of {len(broken)} images"):
                    # One archive of all: an engine needs 14 s for that of each.
                    read_layers(self.engine, tuple(one.image for one in broken))
                for one in broken:
                    with self.console.task(one.control.name):
                        rows.append(self._row(one, good))
                    self.console.say(f"{one.control.name}: {rows[-1].wrong or 'ok'}")
        return ControlsDocument(rows=tuple(rows))

    def good(self, base: Base) -> Built:
        """Return a good environment; it is built if it is not there yet."""
        if base not in self._good:
            choice = choose(MATRIX, (), self.workspace, self.catalog)
            environment = environment_of(base, choice.environments)
            with self.console.task(environment.id) as task:
                self._good[base] = ensure(environment, choice.catalog, self.workspace, self.engine, steps(task))
        return self._good[base]

    def _row(self, broken: _Broken, good: Built) -> ControlRow:
        started, control = time.monotonic(), broken.control
        request = ValidationRequest(
            image=broken.reference,
            environment=good.environment,
            profile="full" if "full" in (control.profile, self.profile) else "quick",
            lock=broken_lock(control, good.lock),
            removed=good.removed,
            system=broken_system(control, good.system),
            base_id=good.record.base_id,
            extra=control.extra,
            probes=defect_probes(control),
            index=self.index,
            simulate=compiler.simulation(profiles.parse(control.simulate, self.catalog)) if control.simulate else None,
        )
        budgets = msgspec.structs.replace(request.budgets, **control.budgets)
        verdict = validate(self.engine, replace(request, budgets=budgets))
        record(self.workspace.control(control.name), verdict)
        result = evaluate(control, verdict)
        return ControlRow(
            control=control.name,
            environment=good.environment.id,
            broken=control.broken,
            expected=control.code,
            found=result.codes,
            red=result.red,
            verdict=verdict.verdict,
            simulated=verdict.simulated,
            right=not result.wrong,
            wrong=result.wrong,
            build_s=broken.build_s,
            validate_s=round(time.monotonic() - started, 1),
        )

    def _break(self, control: Control, good: Built) -> _Broken:
        started, reference = time.monotonic(), good.record.reference
        if control.steps:
            with self.console.task(control.name) as task:
                task.update("building")
                reference = self._build(control, good)
        image = self.engine.image(reference)
        if image is None:
            raise InfrastructureError(f"{reference}: no such image", hint="run the same command again")
        return _Broken(control, reference, image, round(time.monotonic() - started, 1))

    def _build(self, control: Control, good: Built) -> str:
        folder = self.workspace.control(control.name)
        context = folder / "context"
        wanted = self._context(control, good)
        for name in folder_contents(context).keys() - wanted.keys() if context.is_dir() else ():
            remove(context / name)
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
        files |= {step.source: from_wheel(self.index, step) for step in control.steps if isinstance(step, FromWheel)}
        defects = package_files("envbuilder.controls") / "defects"
        for name in control.sources:
            files[name] = compiler.stub() if name == STUB else packaged(defects / name)
        return files


def _ignore(_: Step) -> None:
    """Show no progress: the build of a broken image takes seconds."""


def environment_of(base: Base, environments: tuple[Environment, ...]) -> Environment:
    """Return the good environment that a control breaks. Raises UnsatisfiableError if the matrix has none."""
    for environment in environments:
        match base:
            case "numpy-1":
                fits = environment.flavor == "cpu" and environment.tensorflow == _NUMPY_1
            case "told-gpu":
                fits = bool(environment.loader_folders)
            case "system-gpu":
                fits = environment.packaged_cuda is not None
            case "cpu" | "gpu":
                special = environment.loader_folders or environment.packaged_cuda or environment.tensorflow == _NUMPY_1
                fits = environment.flavor == base and not special
            case _:
                assert_never(base)
        if fits:
            return environment
    raise UnsatisfiableError(f"matrix {MATRIX} has no environment for the {base} controls", hint="see its include list")


def from_wheel(index: PackageIndex, wanted: FromWheel) -> bytes:
    """Read one file of the Linux x86-64 wheel of a version. Raises InfrastructureError if there is none."""
    start = f"{wanted.project.replace('-', '_')}-{wanted.version}-"
    for file in index.files(wanted.project):
        if file.filename.startswith(start) and file.filename.endswith("x86_64.whl"):
            found = next((member for member in index.members(file) if member.filename == wanted.member), None)
            if found is not None:
                return b"".join(index.stream(file, found))  # parts of cuDNN are larger than what is kept in a cache
    raise InfrastructureError(
        f"the package index has no {wanted.project} {wanted.version} with {wanted.member}",
        hint="envbuilder doctor shows which index is used",
    )
