"""Gather what a report shows: verdicts old and new, plans, layers of images, controls and upgrades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.engine.port import Layer
from envbuilder.environment import Environment, Rejection
from envbuilder.image.build import ImageRecord
from envbuilder.matrix import Excluded
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.validation.verdict_store import History, read_verdict
from envbuilder.verdict import ImageStanding, Verdict
from envbuilder.workspace import Workspace, read_document


@dataclass(frozen=True)
class Material:
    """What there is to show. ``verdicts`` are by environment, each oldest first; ``layers`` by image id.

    ``unreadable`` counts verdicts of other versions, which the history keeps and the page cannot show.
    ``standings`` is how images of a registry stand on kinds of host, where that was asked.
    """

    verdicts: dict[str, tuple[Verdict, ...]]
    environments: tuple[Environment, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    layers: dict[str, tuple[Layer, ...]] = field(default_factory=dict)
    controls: dict[str, Verdict] = field(default_factory=dict)
    upgrades: tuple[UpgradeDocument, ...] = ()
    unreadable: int = 0
    standings: tuple[ImageStanding, ...] = ()


def collect(
    workspace: Workspace, matrices: Sequence[str], store: Path | None, since: datetime | None, catalog: Catalog
) -> Material:
    """Gather everything in a workspace and its history.

    Verdicts in ``out/`` that the history does not hold yet are added to it first: nothing that was shown is lost.
    """
    history = History(store or workspace.history)
    current = current_verdicts(workspace)
    if current:
        history.add(current)
    plans = [choose(name, (), workspace, catalog).plan for name in matrices]
    environments = {one.id: one for plan in plans for one in plan.environments}
    kept = history.since(since)
    return Material(
        verdicts=_by_environment(kept),
        environments=tuple(environments.values()),
        rejections=tuple(rejection for plan in plans for rejection in plan.rejections),
        excluded=tuple(excluded for plan in plans for excluded in plan.excluded),
        layers=_layers(workspace),
        controls=_controls(workspace),
        upgrades=_upgrades(workspace),
        unreadable=history.count(since) - len(kept),
    )


def name_of(verdict: Verdict) -> str:
    """Return the environment's id; for a foreign image its reference or id."""
    if verdict.environment is not None:
        return verdict.environment.id
    return verdict.image.reference or verdict.image.id or "unnamed"


def current_verdicts(workspace: Workspace) -> tuple[Verdict, ...]:
    """Read the newest verdict of every environment in ``out/``."""
    return _read(workspace.verdicts())


def _read(paths: tuple[Path, ...]) -> tuple[Verdict, ...]:
    found = (read_verdict(path) for path in paths)
    return tuple(verdict for verdict in found if verdict is not None)


def _by_environment(verdicts: tuple[Verdict, ...]) -> dict[str, tuple[Verdict, ...]]:
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(name_of(verdict), []).append(verdict)
    return {name: tuple(group) for name, group in sorted(grouped.items())}


def _layers(workspace: Workspace) -> dict[str, tuple[Layer, ...]]:
    records = (read_document(path, ImageRecord) for path in workspace.image_records())
    return {record.image: record.layers for record in records if record is not None}


def _controls(workspace: Workspace) -> dict[str, Verdict]:
    found = ((path.parent.name, read_verdict(path)) for path in workspace.control_verdicts())
    return {name: verdict for name, verdict in found if verdict is not None}


def _upgrades(workspace: Workspace) -> tuple[UpgradeDocument, ...]:
    found = (read_document(path, UpgradeDocument) for path in workspace.upgrades())
    return tuple(document for document in found if document is not None)
