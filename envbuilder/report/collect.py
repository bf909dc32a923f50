"""Gather what a report shows: verdicts old and new, plans, layers of images, controls and upgrades."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.environment import Environment, Rejection
from envbuilder.image.build import ImageRecord, LayerSize
from envbuilder.matrix import Excluded
from envbuilder.report.formats.titles import name_of
from envbuilder.upgrade.upgrade_document import UpgradeDocument
from envbuilder.validation.history import FILE, History
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace, read_document

CONTROLS, UPGRADES = "controls", "upgrades"
"""Folders of ``out/`` that hold no environments' results."""


@dataclass(frozen=True)
class Material:
    """What there is to show. ``verdicts`` are by environment, each oldest first; ``layers`` by image id.

    ``unreadable`` counts verdicts of other versions, which the history keeps and the page cannot show.
    """

    verdicts: dict[str, tuple[Verdict, ...]]
    environments: tuple[Environment, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    layers: dict[str, tuple[LayerSize, ...]] = field(default_factory=dict)
    controls: dict[str, Verdict] = field(default_factory=dict)
    upgrades: tuple[UpgradeDocument, ...] = ()
    unreadable: int = 0


def collect(workspace: Workspace, matrices: Sequence[str], store: Path | None, since: datetime | None) -> Material:
    """Gather everything in a workspace and its history.

    Verdicts in ``out/`` that the history does not hold yet are added to it first: nothing that was shown is lost.
    """
    history = History(store or workspace.out / FILE)
    current = current_verdicts(workspace)
    if current:
        history.add(current)
    plans = [choose(name, (), workspace, load()).plan for name in matrices]
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


def current_verdicts(workspace: Workspace) -> tuple[Verdict, ...]:
    """Read the newest verdict of every environment in ``out/``."""
    paths = sorted(workspace.out.glob("*/verdict.json"))
    return _read(tuple(path for path in paths if path.parent.name not in (CONTROLS, UPGRADES)))


def _read(paths: tuple[Path, ...]) -> tuple[Verdict, ...]:
    found = (read_document(path, Verdict) for path in paths)
    return tuple(verdict for verdict in found if verdict is not None)


def _by_environment(verdicts: tuple[Verdict, ...]) -> dict[str, tuple[Verdict, ...]]:
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(name_of(verdict), []).append(verdict)
    return {name: tuple(group) for name, group in sorted(grouped.items())}


def _layers(workspace: Workspace) -> dict[str, tuple[LayerSize, ...]]:
    records = (read_document(path, ImageRecord) for path in sorted(workspace.out.glob("*/image.json")))
    return {record.image: record.layers for record in records if record is not None}


def _controls(workspace: Workspace) -> dict[str, Verdict]:
    paths = sorted((workspace.out / CONTROLS).glob("*/verdict.json"))
    found = ((path.parent.name, read_document(path, Verdict)) for path in paths)
    return {name: verdict for name, verdict in found if verdict is not None}


def _upgrades(workspace: Workspace) -> tuple[UpgradeDocument, ...]:
    paths = sorted((workspace.out / UPGRADES).glob("*/upgrade.json"))
    found = (read_document(path, UpgradeDocument) for path in paths)
    return tuple(document for document in found if document is not None)
