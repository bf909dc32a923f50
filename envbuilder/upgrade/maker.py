"""Take one side of an upgrade from its environment to a validated image, the new side as close to the old as can be."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.console import Console, describe
from envbuilder.engine.port import Engine
from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.image.build import Built, build
from envbuilder.image.context import LOCK, system_of, write_context
from envbuilder.image.lock import lock
from envbuilder.upgrade.upgrade_document import LayerSeen, Side
from envbuilder.upgrade.upgrade_request import UpgradeRequest
from envbuilder.validation.record import validate_and_record
from envbuilder.validation.validate import ValidationRequest
from envbuilder.verdict import ImageRef, Verdict
from envbuilder.workspace import Workspace, write_atomically

AFTER = "-after-"
"""Joins an environment's id to the release whose lock its own was kept close to."""


@dataclass(frozen=True)
class Maker:
    """Makes the images of an upgrade.

    A side whose committed context already is what it should be is taken from ``images/``; the others are made in a
    workspace of their own below ``out/upgrades``, so that nothing in ``images/`` changes.
    """

    workspace: Workspace
    engine: Engine
    console: Console
    catalog: Catalog
    wheels: Path | None = None

    @property
    def aside(self) -> Workspace:
        """The workspace for what is made for upgrades alone."""
        return Workspace(self.workspace.out / "upgrades" / "work")

    def locked_old(self, environment: Environment) -> tuple[Environment, str, Workspace]:
        """Return the old side with the lock that is committed for it, or one made now."""
        committed = self.workspace.context(environment.id) / LOCK
        if committed.is_file():
            return environment, committed.read_text(), self.workspace
        kept = self.aside.context(environment.id) / LOCK
        text = kept.read_text() if kept.is_file() else self._lock(environment, "")
        return self._written(environment, text)

    def locked_new(self, environment: Environment, old: Environment, keep: str) -> tuple[Environment, str, Workspace]:
        """Lock the new side so that it differs from the old lock in what it must alone.

        Where that is the lock that is committed for it, the committed context is used; else it gets an id that says
        what it was made after.
        """
        text = self._lock(environment, keep)
        committed = self.workspace.context(environment.id) / LOCK
        if committed.is_file() and lockfile.parse(committed.read_text()) == lockfile.parse(text):
            return environment, committed.read_text(), self.workspace
        named = msgspec.structs.replace(environment, id=f"{environment.id}{AFTER}{old.tensorflow}")
        return self._written(named, text)

    def _lock(self, environment: Environment, keep: str) -> str:
        with self.console.task(environment.id) as task:
            task.update("locking")
            return lock(environment, system_of(environment, self.catalog).glibc, keep=keep, wheels=self.wheels)

    def _written(self, environment: Environment, text: str) -> tuple[Environment, str, Workspace]:
        write_atomically(self.aside.context(environment.id) / LOCK, text.encode())
        write_context(environment, text, self.aside)
        return environment, text, self.aside

    def built(self, environment: Environment, workspace: Workspace) -> Built:
        """Build a side's image, unless it stands."""
        with self.console.task(environment.id) as task:
            return build(
                environment,
                system_of(environment, self.catalog),
                workspace,
                self.engine,
                on_step=lambda step: task.update(describe(step)) if step.kind != "log" else None,
                wheels=self.wheels,
            )

    def judged(
        self, environment: Environment, built: Built, lock_text: str, workspace: Workspace, request: UpgradeRequest
    ) -> Verdict:
        """Validate a side's image, unless its verdict stands."""
        with self.console.task(environment.id) as task:
            verdict, _ = validate_and_record(
                ValidationRequest(
                    image=built.record.image,
                    environment=environment,
                    profile="full" if request.profile == "full" else "quick",
                    budgets=request.budgets,
                    gpus=request.gpus,
                    base=f"{built.record.base} {built.record.base_id}",
                    lock=lock_text,
                ),
                self.engine,
                workspace,
                on_progress=task.update,
            )
        return verdict


def described(environment: Environment, built: Built, lock_text: str, verdict: Verdict, catalog: Catalog) -> Side:
    """Describe a side for the document."""
    release = catalog.release(environment.tensorflow, environment.package)
    sets = release.wheels if release else ()
    return Side(
        tensorflow=environment.tensorflow,
        environment=environment,
        image=ImageRef(
            id=built.record.image, size=built.record.size, reference=built.record.reference, base=built.record.base
        ),
        layers=tuple(LayerSeen(created_by=layer.created_by, size=layer.size) for layer in built.record.layers),
        lock=lockfile.digest(lock_text),
        verdict=verdict.verdict,
        level=verdict.level,
        reasons=verdict.reasons,
        pythons=next((wheels.pythons for wheels in sets if wheels.arch == environment.arch), ()),
        released=release.released if release else "",
    )
