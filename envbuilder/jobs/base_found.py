"""Look into a base, keep what is found beside the matrices, and show it to a person."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Engine
from envbuilder.validation.base_inspection import inspect_base
from envbuilder.workspace import Workspace, write_document


def look_into(
    engine: Engine, reference: str, workspace: Workspace, catalog: Catalog, report: Callable[[str], None]
) -> BaseFacts:
    """Look into an image and keep what is found under its digest, for matrices that name it as a base.

    What cannot be built on is kept as well: then a matrix says why. Raises InfrastructureError where it cannot be had.
    """
    found = inspect_base(engine, reference, catalog, report)
    write_document(workspace.base(found.digest), found)
    return found


def as_text(found: BaseFacts) -> str:
    """Say what an image holds, a line a subject, and what speaks against it."""
    return "".join(f"{line}\n" for line in _lines(found))


def _lines(found: BaseFacts) -> Iterator[str]:
    yield found.image
    system = " ".join(text for text in (found.system, found.release) if text) or "unknown"
    libc = " ".join(text for text in (found.libc, found.libc_version) if text) or "unknown"
    yield f"  system   {system}, {libc}, {found.arch}, packages by {found.packages or 'nothing that is known'}"
    pythons = ", ".join(f"{one.version} ({one.path}{'' if one.venv else ', without venv'})" for one in found.pythons)
    yield f"  Python   {pythons or 'none'}"
    if found.libraries:
        cudnn = f", cuDNN {found.cudnn}" if found.cudnn else ", no cuDNN"
        yield f"  CUDA     {found.cuda or 'of no version that can be read'}{cudnn}"
        for one in found.libraries:
            yield f"           {one.soname} {one.version or '-'} {one.path}"
        yield f"  tools    ptxas and libdevice {'there' if found.tools else 'not there, or not whole'}"
    else:
        yield "  CUDA     none on the loader's path"
    if found.require_cuda:
        yield f"  requires {found.require_cuda}"
    for other in found.disagreements:
        said, there = other.catalog or "none", other.image or "none"
        yield f"  differs  {other.field}: the catalogue says {said}, the image {there}"
    yield f"  refused  {found.refused}" if found.refused else f"  a base: {{image: {found.image!r}}}"
