"""Inspect a base image and store its facts for matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Engine
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
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: BaseFacts) -> Iterator[str]:
    yield found.image
    system = " ".join(text for text in (found.system, found.release) if text) or "unknown"
    libc = " ".join(text for text in (found.libc, found.libc_version) if text) or "unknown"
    yield f"  system   {system}, {libc}, {found.arch}, packages by {found.packages or 'an unknown manager'}"
    pythons = ", ".join(f"{one.version} ({one.path}{'' if one.venv else ', without venv'})" for one in found.pythons)
    yield f"  Python   {pythons or 'none'}"
    if found.libraries:
        cudnn = f", cuDNN {found.cudnn}" if found.cudnn else ", no cuDNN"
        yield f"  CUDA     {found.cuda or 'of unknown version'}{cudnn}"
        for one in found.libraries:
            yield f"           {one.soname} {one.version or '-'} {one.path}"
        yield f"  tools    ptxas and libdevice {'present' if found.tools else 'missing or incomplete'}"
    else:
        yield "  CUDA     none on the loader's path"
    if found.require_cuda:
        yield f"  requires {found.require_cuda}"
    for other in found.disagreements:
        catalog, image = other.catalog or "none", other.image or "none"
        yield f"  differs  {other.field}: the catalogue says {catalog}, the image {image}"
    yield f"  refused  {found.refused}" if found.refused else f"  a base: {{image: {found.image!r}}}"
