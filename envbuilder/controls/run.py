"""Run the negative controls: build each broken image, validate it, and compare the findings with its one code."""

import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files as package_files
from itertools import chain, groupby

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.controls.control import Base, Control, ControlStep, FromWheel
from envbuilder.engine.port import BuildRequest, Engine
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.finding import Code, Severity
from envbuilder.image import lockfile, system_lock
from envbuilder.image.build import Built, build_logged, ensure
from envbuilder.image.host_settings import host_files
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import CONTROL_LABEL, CONTROLS
from envbuilder.pypi.client import PackageIndex
from envbuilder.simulated import compiler
from envbuilder.simulated import profile as profiles
from envbuilder.support.console import Console
from envbuilder.support.tables import table
from envbuilder.validation.image_files import read_layers
from envbuilder.validation.suite_plan import Profile
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.validation.verdict_store import record
from envbuilder.verdict import CheckResult, Verdict, Word
from envbuilder.workspace import Workspace, packaged

MATRIX = "negative-controls"

STUB = "libcuda.so"
"""The compiled link-time stub of the driver, in the build context."""

_NUMPY_1 = "2.15.1"
_DEFECTS = package_files("envbuilder.controls") / "defects"


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


def as_text(document: ControlsDocument) -> str:
    rows = [
        (
            row.control,
            row.expected or "no failures",
            ", ".join(row.found) or "no failures",
            ", ".join(row.red),
            row.verdict,
            f"{row.build_s + row.validate_s:.0f} s",
            row.wrong or "ok",
        )
        for row in document.rows
    ]
    return table(("control", "must find", "found", "failed checks", "verdict", "time", ""), rows)


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
                good = self.good(base)
                # Another command may move the name of the environment's image meanwhile.
                own = f"{CONTROLS}:{good.record.tag_part}"
                self.engine.tag(good.record.image, own)
                broken = [(control, *self._break(control, good, own)) for control in group]
                with self.console.task(f"layers of {len(broken)} images"):
                    # One archive of all: an engine needs 14 s for that of each.
                    images = (self.engine.image(reference) for _, reference, _ in broken)
                    read_layers(self.engine, tuple(image for image in images if image))
                for control, reference, build_s in broken:
                    with self.console.task(control.name):
                        rows.append(self._row(control, good, reference, build_s))
                    self.console.say(f"{control.name}: {rows[-1].wrong or 'ok'}")
        return ControlsDocument(rows=tuple(rows))

    def good(self, base: Base) -> Built:
        if base not in self._good:
            choice = choose(MATRIX, (), self.workspace, self.catalog)
            environment = environment_of(base, choice.environments)
            with self.console.task(environment.id) as task:
                self._good[base] = ensure(environment, choice.catalog, self.workspace, self.engine, task.follow)
        return self._good[base]

    def _row(self, control: Control, good: Built, reference: str, build_s: float) -> ControlRow:
        started = time.monotonic()
        probes = {f"{check.probe.partition(':')[0]}.py" for check in control.extra}
        locks = broken_locks(control, {LOCK: good.lock, **good.system})
        request = ValidationRequest(
            image=reference,
            environment=good.environment,
            profile="full" if "full" in (control.profile, self.profile) else "quick",
            lock=locks.pop(LOCK),
            removed=good.removed,
            system=locks,
            base_id=good.record.base_id,
            extra=control.extra,
            probes={name: packaged(_DEFECTS / name) for name in probes},
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
            build_s=build_s,
            validate_s=round(time.monotonic() - started, 1),
        )

    def _break(self, control: Control, good: Built, base: str) -> tuple[str, float]:
        if not control.steps:
            return base, 0.0
        started = time.monotonic()
        locks = {LOCK: good.lock, **good.system}
        files = {name: text.encode() for name, text in broken_locks(control, locks).items()}
        files |= {step.file: self._content(step) for step in control.steps if step.file}
        files["Dockerfile"] = dockerfile(control, good.environment.python, locks).encode()
        request = BuildRequest(
            context=files,
            tag=f"{CONTROLS}:{control.name}",
            extra=host_files(),
            build_args={"BASE": base},
            labels={CONTROL_LABEL: control.name},
        )
        log = self.workspace.control(control.name) / "build.log"
        with self.console.task(control.name) as task:
            task.update("building")
            build_logged(request, self.engine, log, lambda _: None)  # it takes seconds
        return request.tag, round(time.monotonic() - started, 1)

    def _content(self, step: ControlStep) -> bytes:
        if step.wheel:
            return from_wheel(self.index, step.wheel)
        return compiler.stub() if step.file == STUB else packaged(_DEFECTS / step.file)


def dockerfile(control: Control, python: str, locks: Mapping[str, str]) -> str:
    """Write the Dockerfile that breaks the image ``BASE``; ``python`` is its minor version (``3.11``).

    The image gets those of its ``locks`` that the control changes, and the labels that name them.
    """
    site = f"/opt/venv/lib/python{python}/site-packages"
    lines = [f"# Negative control: {control.broken}.", "ARG BASE", "FROM ${BASE}", "USER root"]
    lines += [step.instruction.replace("{site}", site) for step in control.steps]
    broken = broken_locks(control, locks)
    changed = [name for name in sorted(broken) if broken[name] != locks[name]]
    lines += [f"COPY {name} /opt/envbuilder/{name}" for name in changed]
    lock = broken.pop(LOCK)
    if LOCK in changed:
        lines.append(f'LABEL org.envbuilder.lock="{lockfile.digest(lock)}"')
    if broken.keys() & set(changed):
        lines.append(f'LABEL org.envbuilder.system="{system_lock.digest(broken)}"')
    return "\n".join([*lines, "USER envbuilder", ""])


def broken_locks(control: Control, locks: Mapping[str, str]) -> dict[str, str]:
    """Return an image's locks, by file name, with the control's change; a changed package has no hash.

    A pin replaces that of its package in any lock; otherwise the environment's lock gets it.
    """
    pins = {pin.partition("==")[0]: pin for pin in control.lock}
    broken = {name: _without({*control.unlock, *pins}, text) for name, text in locks.items()}
    for package, pin in pins.items():
        holder = next((name for name, text in locks.items() if _without({package}, text) != text), LOCK)
        broken[holder] += f"{pin}\n"
    return broken


def _without(packages: set[str], lock: str) -> str:
    """Remove wheels, which are several lines each, and packages of the system."""
    names = "|".join(map(re.escape, packages))
    return re.sub(rf"^(?:(?:{names})==.*(?:\n[ \t].*)*|[0-9a-f]+  (?:{names})_.*)\n", "", lock, flags=re.MULTILINE)


_RED = ("failed", "error", "timeout")


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a control: the codes, the failed checks, and what is wrong ('' if it is as expected)."""

    codes: tuple[Code, ...]
    red: tuple[str, ...]
    wrong: str = ""


def evaluate(control: Control, verdict: Verdict) -> Evaluation:
    red = tuple(check for check in verdict.checks if check.outcome in _RED)
    codes = _codes(red, Severity.ERROR)
    if control.warned and not red:  # a package without a known wheel is expected if the control locks packages
        expected = {Code.UNKNOWN} if control.lock and control.code is not Code.UNKNOWN else set()
        codes = tuple(code for code in _codes(verdict.checks, Severity.WARNING) if code not in expected)
    wrong = next(chain(_unexplained(verdict, red), _unexpected(control, verdict, red, codes)), "")
    return Evaluation(codes=codes, red=tuple(check.name for check in red), wrong=wrong)


def _codes(checks: Iterable[CheckResult], severity: Severity) -> tuple[Code, ...]:
    found = (finding.code for check in checks for finding in check.findings if finding.severity is severity)
    return tuple(dict.fromkeys(found))


def _unexplained(verdict: Verdict, red: tuple[CheckResult, ...]) -> Iterator[str]:
    """Name checks that failed without a finding above info, and checks that passed with an error.

    A consequence of another check's error is an explanation: it is a warning.
    """
    silent = [check.name for check in red if all(finding.severity is Severity.INFO for finding in check.findings)]
    if silent:
        yield f"failed without a finding: {', '.join(silent)}"
    passed = [check.name for check in verdict.checks if check not in red and _codes((check,), Severity.ERROR)]
    if passed:
        yield f"an error in a check that did not fail: {', '.join(passed)}"


def _unexpected(
    control: Control, verdict: Verdict, red: tuple[CheckResult, ...], codes: tuple[Code, ...]
) -> Iterator[str]:
    code, word, found = control.code, verdict.verdict, ", ".join(codes)
    others = [one for one in codes if one != code]
    gave = {check.name for check in verdict.checks if any(finding.code == code for finding in check.findings)}
    if control.warned and red:
        failed = ", ".join(check.name for check in red)
        yield f"{code} must be a warning, and {'became an error' if code in codes else f'{failed} failed'}"
    elif code is None and (codes or word == "FAILED"):
        yield f"a good environment failed: {found}"
    elif code and code not in codes:
        yield f"{code} was not found; the verdict is {word}{f' with {found}' if found else ''}"
    elif silent := [name for name in control.checks if name not in gave]:
        yield f"{code} was not found by {', '.join(silent)}"
    elif code and others:
        yield f"next to {code} also {', '.join(others)}"
    elif code and (word == "FAILED") is control.warned:
        yield f"{code} was found and the verdict is {word}"
    if control.simulate and not verdict.simulated:
        yield "the verdict does not say that the driver was simulated"


def environment_of(base: Base, environments: tuple[Environment, ...]) -> Environment:
    """Return the good environment that a control breaks. Raises UnsatisfiableError if the matrix has none."""
    found = next((environment for environment in environments if _base_of(environment) == base), None)
    if found is None:
        raise UnsatisfiableError(f"matrix {MATRIX} has no environment for {base} controls", hint="see its include list")
    return found


def _base_of(environment: Environment) -> Base:
    if environment.packaged_cuda:
        return "system-gpu"
    if environment.loader_folders:
        return "told-gpu"
    return "numpy-1" if environment.tensorflow == _NUMPY_1 else environment.flavor


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
