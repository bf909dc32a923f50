"""Gather what a report shows: verdicts old and new, plans, layers and packages of images, controls and upgrades."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from envbuilder.catalog.model import Catalog
from envbuilder.choice import choose
from envbuilder.engine.port import Layer
from envbuilder.environment import Environment, Rejection
from envbuilder.errors import InfrastructureError
from envbuilder.image import lockfile
from envbuilder.image.build import ImageRecord
from envbuilder.matrix import Excluded
from envbuilder.support import decoding
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.validation.verdict_store import History, read_verdict
from envbuilder.verdict import ImageState, Verdict
from envbuilder.workspace import Workspace, digest, read_document, read_stored

_Record = TypeVar("_Record")
STRANGE = "altered, or of another version"


@dataclass(frozen=True)
class Material:
    """What there is to show: verdicts by environment, oldest first; layers and names by image; packages by lock.

    ``unreadable`` names records that cannot be shown, and why. ``standings`` are those of a registry's images,
    ``answered`` each FAILED there that a statement answers.
    """

    verdicts: dict[str, tuple[Verdict, ...]]
    environments: tuple[Environment, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    layers: dict[str, tuple[Layer, ...]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    packages: dict[str, dict[str, str]] = field(default_factory=dict)
    controls: dict[str, Verdict] = field(default_factory=dict)
    upgrades: tuple[UpgradeDocument, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    standings: tuple[ImageState, ...] = ()
    answered: tuple[Verdict, ...] = ()


def collect(
    workspace: Workspace,
    matrices: Sequence[str],
    store: Path | None,
    since: datetime | None,
    catalog: Catalog,
    fetched: Iterable[Verdict] = (),
) -> Material:
    """Gather everything in a workspace and its history, to which other verdicts are added first: nothing is lost."""
    history, damaged = History(store or workspace.history), dict[Path, str]()
    current = readable(workspace.verdicts(), read_verdict, damaged)
    controls = readable(workspace.control_verdicts(), read_verdict, damaged)
    upgrades = readable(workspace.upgrades(), partial(read_document, kind=UpgradeDocument), damaged)
    records = readable(workspace.image_records(), partial(read_document, kind=ImageRecord), damaged).values()
    found = [(str(path), one) for path, one in current.items()] + [(name_of(one), one) for one in fetched]
    unreadable = [*((str(path), why) for path, why in damaged.items()), *_add(history, found)]
    verdicts, strange = history.read(since)
    unreadable += [(f"{history.path / name}.json", STRANGE) for name in strange]
    plans = [choose(name, (), workspace, catalog).plan for name in matrices]
    environments = {one.id: one for plan in plans for one in plan.environments}
    return Material(
        verdicts=_by_environment(verdicts),
        environments=tuple(environments.values()),
        rejections=tuple(rejection for plan in plans for rejection in plan.rejections),
        excluded=tuple(excluded for plan in plans for excluded in plan.excluded),
        layers={record.image: record.layers for record in records},
        names={record.image: record.reference for record in records},
        packages=_packages(workspace, verdicts),
        controls={path.parent.name: verdict for path, verdict in controls.items()},
        upgrades=tuple(upgrades.values()),
        unreadable=tuple(unreadable),
    )


def _add(history: History, found: Iterable[tuple[str, Verdict]]) -> Iterator[tuple[str, str]]:
    """Add verdicts; yield those that cannot be stored, with the reason."""
    for name, verdict in found:
        try:
            history.add((verdict,))
        except decoding.DamagedError as error:
            yield name, str(error)


def name_of(verdict: Verdict) -> str:
    if verdict.environment is not None:
        return verdict.environment.id
    return verdict.image.reference or verdict.image.id or "unnamed"


def readable(
    paths: Iterable[Path], read: Callable[[Path], _Record | None], damaged: dict[Path, str]
) -> dict[Path, _Record]:
    """Read records; add those that cannot be read to ``damaged``, with the reason."""
    found = dict[Path, _Record]()
    for path in paths:
        try:
            record = read(path)
        except InfrastructureError as error:
            damaged[path] = error.message
            continue
        if record is None:
            damaged[path] = STRANGE
        else:
            found[path] = record
    return found


def _by_environment(verdicts: tuple[Verdict, ...]) -> dict[str, tuple[Verdict, ...]]:
    """Group verdicts; one run may be stored twice, by two versions of envbuilder that write other fields."""
    grouped: dict[str, dict[tuple[str, str], Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(name_of(verdict), {})[verdict.finished, verdict.image.id] = verdict
    return {name: tuple(group.values()) for name, group in sorted(grouped.items())}


def _packages(workspace: Workspace, verdicts: tuple[Verdict, ...]) -> dict[str, dict[str, str]]:
    """Return the packages of the verdicts' locks, as far as ``images/`` still has them."""
    wanted = {verdict.lock for verdict in verdicts}
    locks = {digest(data): data for path in workspace.images.glob(f"*/{lockfile.LOCK}") if (data := read_stored(path))}
    return {
        name: {one.name: one.version for one in lockfile.parse(decoding.lossy(data))}
        for name, data in locks.items()
        if name in wanted
    }
