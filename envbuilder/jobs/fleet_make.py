"""Build and publish on hosts of a fleet: each image once, by whichever host is free, from the files that are here."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice, choose
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.jobs.fleet_document import FleetDocument
from envbuilder.jobs.fleet_task import Task
from envbuilder.matrix import Matrix
from envbuilder.support import decoding
from envbuilder.workspace import Workspace, digest, folder_contents, write_atomically


class MakeOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One image that a host is asked to build, validate and publish: `envbuilder fleet make` reads it.

    ``matrix`` is the whole matrix; ``files`` is the build context, by path, where one is committed: its lock is then
    the one that is built, and no host resolves anew.
    """

    schema: str = "envbuilder/make-order/v1"
    repository: str
    environment: str
    matrix: Matrix
    files: dict[str, bytes] = {}
    profile: str = "quick"
    gpus: str = "auto"


def make_tasks(
    document: FleetDocument, choice: Choice, workspace: Workspace, *, profile: str, gpus: str
) -> Iterable[Task]:
    """Make a task of each environment that some host could run and that the repository lacks."""
    lacking = dict.fromkeys(row.environment for row in document.rows if row.state == "unpublished")
    by_name = {environment.id: environment for environment in choice.environments}
    for name in lacking:
        context = workspace.context(name)
        order = MakeOrder(
            repository=document.repository,
            environment=name,
            matrix=choice.matrix,
            files=folder_contents(context) if context.is_dir() else {},
            profile=profile,
            gpus=gpus,
        )
        yield _task(order, by_name[name])


def _task(order: MakeOrder, environment: Environment) -> Task:
    content = msgspec.json.encode(order, order="deterministic")
    made = hashlib.sha256(content).hexdigest()[:16]
    return Task(f"envbuilder-make-{made}", ("fleet", "make", "-"), content, "", "", environment.arch)


def order_of(task: Task) -> MakeOrder:
    """Read the order of a task that builds."""
    order: MakeOrder = decoding.from_json(task.order, MakeOrder)
    return order


def lay_out(order: MakeOrder, root: Path, catalog: Catalog) -> tuple[Choice, Workspace]:
    """Lay an order's matrix and context out in a folder of its own below ``root``, and choose its environment.

    Raises UsageError for a path that leads out of the context.
    """
    whole = digest(msgspec.json.encode(order, order="deterministic")).removeprefix("sha256:")[:16]
    workspace = Workspace(root / "made" / whole)
    path = workspace.root / "matrix.yaml"
    write_atomically(path, msgspec.yaml.encode(order.matrix))
    for name, content in order.files.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts:
            raise UsageError(f"{name!r} leads out of the build context", hint="`envbuilder fleet run` writes orders")
        write_atomically(workspace.context(order.environment) / place, content)
    return choose(str(path), (order.environment,), workspace, catalog), workspace
