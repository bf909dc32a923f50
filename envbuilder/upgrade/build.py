"""Build and validate the images of both TensorFlow versions."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.image import lockfile, system_lock
from envbuilder.image.bases import Base, ensure_base
from envbuilder.image.build import BuildOptions, Built, ensure
from envbuilder.image.context import system_of
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import after
from envbuilder.matrix import Budgets
from envbuilder.pypi.client import open_index
from envbuilder.support.console import Console
from envbuilder.upgrade.document import ComparedImage, LockIs, SizedLayer
from envbuilder.upgrade.pairs import UpgradeOptions
from envbuilder.validation.suite_session import progress_of
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.verdict_store import validate_and_record
from envbuilder.verdict import ImageRef, Verdict
from envbuilder.workspace import Workspace, cache_dir, write_atomically


@dataclass(frozen=True)
class LockedImage:
    environment: Environment
    lock: str
    lock_is: LockIs


@dataclass(frozen=True)
class ImageBuilder:
    """Builds the images of an upgrade.

    An image with an up-to-date committed context is built from ``images/``; others are built in a separate workspace
    below ``out/upgrades``, so that ``images/`` does not change.
    """

    workspace: Workspace
    engine: Engine
    console: Console
    catalog: Catalog
    wheels: Path | None = None

    def lock_old(self, environment: Environment) -> LockedImage:
        kept = lockfile.of_context(self.workspace.for_upgrades.context(environment.id))
        return self.committed_image(environment) or self._store_lock(environment, kept or self._lock(environment))

    def committed_image(self, environment: Environment) -> LockedImage | None:
        """Return an image that the matrix offers, with its committed lock; None without one."""
        committed = lockfile.of_context(self.workspace.context(environment.id))
        return None if committed is None else LockedImage(environment, committed, "committed")

    def base(self, environment: Environment) -> Base:
        """Build or load an image's base. Raises BaseUnavailableError if it is not available here."""
        system = system_of(environment, self.catalog)
        with self.console.task(environment.id) as task:
            return ensure_base(self.engine, system, cache_dir() / "bases", task.update)

    def lock_new(self, environment: Environment, old: LockedImage) -> LockedImage:
        """Lock the new image with only the required differences to the old lock.

        If that equals the committed lock, the committed context is used; otherwise the id names the old image.
        """
        text = self._lock(environment, old.lock)
        offered = self.committed_image(environment)
        if offered is not None and lockfile.parse(offered.lock) == lockfile.parse(text):
            return offered
        named = msgspec.structs.replace(environment, id=after(environment.id, old.environment.tensorflow))
        written = self._store_lock(named, text, "proposed")
        before, context = (self._place(one).context(one.environment.id) for one in (old, written))
        system_lock.carry_over(before, context, named)
        return written

    def _lock(self, environment: Environment, keep: str = "") -> str:
        glibc = system_of(environment, self.catalog).glibc
        with self.console.task(environment.id) as task:
            task.update("locking")
            return lockfile.resolve(environment, glibc, keep=keep, wheels=self.wheels)

    def _store_lock(self, environment: Environment, text: str, lock_is: LockIs = "made") -> LockedImage:
        """Store a lock immediately: later steps may fail, and the next search starts from the same lock."""
        write_atomically(self.workspace.for_upgrades.context(environment.id) / LOCK, text.encode())
        return LockedImage(environment, text, lock_is)

    def build(self, locked: LockedImage) -> Built:
        with self.console.task(locked.environment.id) as task:
            options = BuildOptions(lock=locked.lock, as_stored=locked.lock_is == "committed", wheels=self.wheels)
            return ensure(locked.environment, self.catalog, self._place(locked), self.engine, task.follow, options)

    def validate(self, locked: LockedImage, built: Built, options: UpgradeOptions) -> Verdict:
        request = ValidationRequest(
            budgets=options.matrix.budgets if options.matrix else Budgets(), gpus=options.gpus, index=open_index()
        ).of(built)
        with self.console.task(locked.environment.id) as task:
            verdict, _ = validate_and_record(request, self.engine, self._place(locked), on_progress=progress_of(task))
        return verdict

    def _place(self, locked: LockedImage) -> Workspace:
        return self.workspace if locked.lock_is == "committed" else self.workspace.for_upgrades


def describe(environment: Environment, catalog: Catalog) -> ComparedImage:
    release = catalog.release(environment.tensorflow, environment.package)
    sets = release.wheels if release else ()
    return ComparedImage(
        tensorflow=environment.tensorflow,
        environment=environment,
        pythons=next((wheels.pythons for wheels in sets if wheels.arch == environment.arch), ()),
        released=release.released if release else "",
    )


@dataclass(frozen=True)
class ValidatedImage:
    locked: LockedImage
    built: Built
    verdict: Verdict

    @property
    def environment(self) -> Environment:
        return self.built.environment

    @property
    def image(self) -> str:
        return self.built.record.image

    def gpus(self, wanted: str) -> str:
        """Return the GPUs of its containers: automatically, all that its validation saw."""
        if wanted != "auto":
            return wanted
        seen = self.verdict.host.gpus and not self.verdict.unreal
        return "all" if seen and self.environment.flavor == "gpu" else "none"

    def described(self, catalog: Catalog) -> ComparedImage:
        record = self.built.record
        return msgspec.structs.replace(
            describe(self.environment, catalog),
            image=ImageRef(id=record.image, size=record.size, reference=record.reference, base=record.base),
            layers=tuple(SizedLayer(created_by=layer.created_by, size=layer.size) for layer in record.layers),
            lock=lockfile.digest(self.built.lock),
            verdict=self.verdict.verdict,
            level=self.verdict.level,
            reasons=reasons(self.verdict),
            lock_is=self.locked.lock_is,
        )


def reasons(verdict: Verdict) -> tuple[str, ...]:
    """Return a verdict's reasons, failures first; checks that did not run because of them are one line.

    The first reasons of a verdict belong to its failed required checks in order; further reasons follow.
    """
    missing = [check for check in verdict.checks if check.level in verdict.requires and check.outcome != "passed"]
    if len(missing) > len(verdict.reasons) or verdict.verdict != "FAILED":
        return verdict.reasons
    paired = tuple(zip(missing, verdict.reasons, strict=False))
    failed = [reason for check, reason in paired if check.outcome != "skipped"]
    skipped = [check.name for check, _ in paired if check.outcome == "skipped"]
    more = f" and {len(skipped[6:])} more" if skipped[6:] else ""
    rest = (f"not run because of these: {', '.join(skipped[:6])}{more}",) if skipped else ()
    return (*failed, *verdict.reasons[len(missing) :], *rest)
