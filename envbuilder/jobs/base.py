"""Inspect a base image and store its facts for matrices."""

from __future__ import annotations

from collections.abc import Callable

from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Engine
from envbuilder.jobs.answers import rendered
from envbuilder.validation.base_inspection import inspect_base
from envbuilder.workspace import Workspace, write_document


def inspect(
    engine: Engine, reference: str, workspace: Workspace, catalog: Catalog, report: Callable[..., None]
) -> BaseFacts:
    """Inspect an image and store its facts under its digest, for matrices that name it as a base.

    The facts of an unusable image are stored too, so that a matrix can say why. Raises InfrastructureError if the image
    is not available.
    """
    found = inspect_base(engine, reference, catalog, report)
    write_document(workspace.base(found.digest), found)
    return found


def as_text(found: BaseFacts) -> str:
    return rendered("base", found=found)
