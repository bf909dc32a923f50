"""Ways out where no stated version has to change: a package's right bounds, or CUDA wheels for what is not found."""

from __future__ import annotations

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.nearest import Near, nearest
from envbuilder.compat.question import Question
from envbuilder.compat.works import Works
from envbuilder.environment import Change
from envbuilder.finding import Code

_PACKAGE = {Code.PROTOBUF_ABI: "protobuf", Code.NUMPY_ABI: "numpy", Code.KERAS_MISMATCH: "keras"}
_NOT_FOUND = frozenset({Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH})
_UPPER = frozenset({"<", "<=", "==", "~="})


def other_way(lead: Code, question: Question, works: Works[Question], catalog: Catalog) -> Near[Question] | None:
    """Return the way, or None where there is none that is known to mend this cause."""
    if lead in _PACKAGE:
        return _bounded(_PACKAGE[lead], question, works, catalog)
    if lead in _NOT_FOUND and question.gpu and question.install == "system":
        return _with_wheels(question, works)
    if lead is Code.CPU_FEATURE_MISSING:
        return _without_need(question, works, catalog)
    if lead is Code.PYTHON_UNSUPPORTED and question.python is None:
        return _with_python(question, works, catalog)
    return None


def _bounded(name: str, question: Question, works: Works[Question], catalog: Catalog) -> Near[Question] | None:
    """Give a package the bounds that the release needs, where all else may stay as it is."""
    version = catalog.version(question.tensorflow)
    rows = catalog.distributions(version) if version else ()
    release = next((row for row in rows if question.package in {None, row.package}), None)
    bounds = _bounds(name, release) if release is not None else None
    held = versions.pins(question.packages)
    others = tuple(text for text, package in zip(question.packages, held, strict=True) if package != name)
    found = nearest(msgspec.structs.replace(question, packages=others), works)
    if bounds is None or found is None or found.changes:
        return None
    change = Change(name, held.get(name, "as installed"), bounds.removeprefix(name))
    wish = msgspec.structs.replace(found.wish, packages=(*found.wish.packages, bounds))
    return found._replace(wish=wish, changes=(change,))


def _bounds(name: str, release: TensorflowRelease) -> str | None:
    """Return the bounds with an upper end, a cap before what the wheel says itself; None where neither has one."""
    for text in (*release.caps, *release.requires):
        try:
            row = Requirement(text)
        except InvalidRequirement:
            continue
        if row.name == name and row.marker is None and any(part.operator in _UPPER for part in row.specifier):
            return f"{name}{row.specifier}"
    return None


def _with_wheels(question: Question, works: Works[Question]) -> Near[Question] | None:
    """Take CUDA from wheels, where nothing else has to change for it but a pre-release to its release."""
    plain = msgspec.structs.replace(question, install="plain", cuda=None, cudnn=None)
    found = nearest(plain, works)
    if found is None or "install" not in {change.field for change in found.changes}:
        return None
    others = tuple(change for change in found.changes if change.field != "install")
    if not all(finishes(change) for change in others):
        return None
    return found._replace(changes=(*others, Change("install", "CUDA of the system", None)))


def _without_need(question: Question, works: Works[Question], catalog: Catalog) -> Near[Question] | None:
    """Leave a release whose wheels alone ask for more of the processor than those around it."""
    rows = catalog.processor_needs_of(question.tensorflow)
    after = next((row.after for row in rows if row.after is not None and catalog.version(row.after)), None)
    if after is None:
        return None
    found = nearest(msgspec.structs.replace(question, tensorflow=after), works)
    if found is None or found.changes:
        return None
    return found._replace(changes=(Change("tensorflow", question.tensorflow, after),))


def finishes(change: Change) -> bool:
    """Tell whether a change only leads from a pre-release to its release: the same kernels, the same libraries."""
    both = change.field == "tensorflow" and change.new is not None
    return both and versions.numbers(change.old) == versions.numbers(str(change.new))


def _with_python(question: Question, works: Works[Question], catalog: Catalog) -> Near[Question] | None:
    """Name the newest Python that the release has wheels for, where an installer found none for the one that runs."""
    version = catalog.version(question.tensorflow)
    release = next(iter(catalog.distributions(version)), None) if version else None
    if release is None or not release.pythons:
        return None
    python = release.pythons[-1]
    found = nearest(msgspec.structs.replace(question, python=python), works)
    if found is None or found.changes:
        return None
    return found._replace(changes=(Change("python", "as installed", python),))
