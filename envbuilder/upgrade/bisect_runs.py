"""Run one version of a bisection: build its image close to the good end's, and run the command or check in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.resolve import resolve
from envbuilder.engine.port import ContainerSpec
from envbuilder.environment import Combination, Environment
from envbuilder.errors import BuildFailedError, UnsatisfiableError, UsageError
from envbuilder.upgrade.bisect import Axis, CommandResult, Unbuildable
from envbuilder.upgrade.build import ImageBuilder
from envbuilder.upgrade.options import UpgradeOptions
from envbuilder.verdict import CheckResult

_KEPT = 64_000
_OUTPUT = 1 << 30
"""Limits in bytes and lines for the output of a user's command; only its end is kept."""
_LIMIT_S = 1800.0
_TITLES = {"cuda": "CUDA", "cudnn": "cuDNN"}
_TIMED_OUT = 124
"""Exit code of a command that exceeded its time limit, as in timeout(1)."""


@dataclass(frozen=True)
class ImageRunner:
    """Builds the image of a candidate and runs the command in it, or, with a check, reads its validation.

    The good end's lock is reused, and other versions are locked close to it.
    """

    maker: ImageBuilder
    row: Combination
    options: UpgradeOptions
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __call__(self, candidate: str) -> CommandResult | Unbuildable:
        good, check = self.options.old, self.options.check
        end, wanted = (resolved(self.row, self.options.axis, each, self.maker.catalog) for each in (good, candidate))
        if isinstance(end, Unbuildable):
            return end
        if isinstance(wanted, Unbuildable):
            return wanted
        try:
            side = self.maker.lock_old(end)
            if candidate != good:
                side = self.maker.lock_new(wanted, side)
            built = self.maker.build(side)
        except (UnsatisfiableError, BuildFailedError) as error:
            return Unbuildable(error.message.splitlines()[0])
        if check is None:
            return self._run(built.record.image)
        verdict = self.maker.validate(side, built, self.options)
        return result_of_check(verdict.checks, check)

    def _run(self, image: str) -> CommandResult:
        stdout, stderr = bytearray(), bytearray()
        spec = ContainerSpec(
            image=image,
            command=self.options.command,
            env={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - inside the container
            files={f"suite/{name}": data for name, data in self.files.items()},
            gpus="none" if self.options.gpus == "auto" else self.options.gpus,
            time_limit=_LIMIT_S,
            output=_OUTPUT,
            lines=_OUTPUT,
        )
        ended = self.maker.engine.run(spec, lambda data: _keep(stdout, data), lambda data: _keep(stderr, data))
        return CommandResult(_TIMED_OUT if ended.timed_out else ended.exit_code, _last(stderr) or _last(stdout))


def _keep(kept: bytearray, data: bytes) -> None:
    kept.extend(data)
    del kept[:-_KEPT]


def _last(printed: bytearray) -> str:
    lines = [line for line in printed.decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def result_of_check(checks: Sequence[CheckResult], name: str) -> CommandResult | Unbuildable:
    """Convert a check's outcome: passed is 0, skipped decides nothing, anything else is a failure."""
    found = next((check for check in checks if check.name == name), None)
    if found is None:
        raise UsageError(f"the suite has no check {name!r}", hint="one of: " + ", ".join(c.name for c in checks))
    if found.outcome == "skipped":
        return Unbuildable(f"{name} was not run: {found.observed}")
    reason = "; ".join(sorted({finding.code for finding in found.findings})) or found.observed
    return CommandResult(0, "") if found.outcome == "passed" else CommandResult(1, f"{found.outcome}: {reason}")


def resolved(row: Combination, axis: Axis, version: str, catalog: Catalog) -> Environment | Unbuildable:
    """Resolve the combination with one version of the axis.

    A CUDA or cuDNN that does not fit is built as well: the search looks for the first such version. A version without
    wheels is not built, nor replaced.
    """
    wish = msgspec.structs.replace(row, **{axis: version})
    found = resolve(wish, catalog, as_reported=axis != "tensorflow")
    if not isinstance(found, Environment):
        return Unbuildable(found.sentence)
    if axis != "tensorflow" and not versions.is_prefix(version, getattr(found, axis) or ""):
        return Unbuildable(f"no wheels of {_TITLES[axis]} {version} are known for {found.package} {found.tensorflow}")
    return found


def candidates(axis: Axis, row: Combination, catalog: Catalog) -> tuple[str, ...]:
    """List the versions in the catalogue: final releases, CUDA lines, cuDNN lines with wheels."""
    match axis:
        case "tensorflow":
            rows = catalog.releases(row.package or "tensorflow")
            return tuple(release.version for release in rows if versions.is_final(release.version))
        case "cuda":
            return tuple(toolkit.version for toolkit in catalog.cuda)
        case "cudnn":
            release = catalog.release(row.tensorflow, row.package or "tensorflow")
            cuda = row.cuda or (release and release.cuda)
            line = f"nvidia-cudnn-cu{versions.major(cuda)}" if cuda else ""
            return tuple(dict.fromkeys(map(versions.minor, catalog.wheel_versions(line))))
