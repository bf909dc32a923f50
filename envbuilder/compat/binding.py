"""A question bound to the catalogue: every row that its words name, and a choice for what they leave open."""

from __future__ import annotations

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, OperatingSystem, TensorflowRelease
from envbuilder.compat import missing, phrases, software
from envbuilder.compat.candidate import Candidate, candidate
from envbuilder.compat.question import Question
from envbuilder.compat.requirement import parse
from envbuilder.environment import Flavor
from envbuilder.finding import Finding


class Binding(msgspec.Struct, frozen=True):
    """A candidate (None: the release itself is unknown), what the catalogue lacks, and the axes that were chosen."""

    candidate: Candidate | None
    unknown: tuple[Finding, ...] = ()
    chosen: tuple[str, ...] = ()


class _Libraries(msgspec.Struct, frozen=True):
    """The CUDA and cuDNN that an installation loads, and which of them nobody asked for."""

    cuda: str | None
    cudnn: str | None
    chosen: tuple[str, ...] = ()
    unknown: tuple[Finding, ...] = ()


def bind(question: Question, catalog: Catalog) -> Binding:
    """Find a question's rows; what has none comes back as an UNKNOWN finding, and is None in the candidate."""
    rows = distributions(question.tensorflow, question.package, "gpu" if question.gpu else None, catalog)
    if not rows:
        return Binding(None, (missing.no_release(question.tensorflow, question.package, catalog),))
    release = rows[0]
    image = None if question.base_image is None else catalog.image(question.base_image)
    system, python, chosen = _place(question, release, image, catalog)
    libraries = _libraries(question, release, image, catalog)
    devices, unknown_gpus = missing.find_devices(question.gpus, question.capabilities, catalog)
    found = candidate(
        release,
        catalog,
        arch=question.arch,
        gpu=question.gpu,
        python=python,
        system=system,
        avx=question.avx,
        packages=question.packages,
        install=question.install,
        image=image,
        cuda=libraries.cuda,
        cudnn=libraries.cudnn,
        driver=question.driver,
        devices=devices,
        compat=True if image is not None else question.compat,
    )
    named = () if versions.numbers(question.tensorflow) == versions.numbers(release.version) else ("tensorflow",)
    other = () if question.package or release.package == "tensorflow" else ("package",)
    places = _unknown_places(question, found, catalog)
    unknown = (*places, *missing.without_row(found), *unknown_gpus, *libraries.unknown)
    return Binding(found, unknown, (*named, *other, *chosen, *libraries.chosen))


def distributions(
    version: str, package: str | None, flavor: Flavor | None, catalog: Catalog
) -> tuple[TensorflowRelease, ...]:
    """List the distributions of a version that may be installed, the best first; one that was named stands alone.

    For a GPU it is the one with CUDA. A CPU image (flavor "cpu") takes tensorflow-cpu where it has a wheel for its
    Python: the same code without the CUDA kernels, less than half the size; else tensorflow, whose CUDA build falls
    back to the CPU. Where no GPU is meant to be used and nothing is built (None), the name means tensorflow.
    """
    known = catalog.version(version)
    if known is None:
        return ()
    if package is not None:
        row = catalog.release(known, package)
        return () if row is None else (row,)
    rows = catalog.distributions(known)
    if flavor == "gpu":
        return tuple(sorted(rows, key=lambda row: not row.gpu))[:1]
    if flavor is None:
        return rows[:1]
    usable = tuple(row for row in rows if row.installable and row.package != "tensorflow-gpu")
    return tuple(sorted(usable, key=lambda row: row.package != "tensorflow-cpu")) or rows[:1]


def _place(
    question: Question, release: TensorflowRelease, image: BaseImage | None, catalog: Catalog
) -> tuple[OperatingSystem | None, str | None, tuple[str, ...]]:
    """Find the system and the Python: those asked for, those of the image, else the newest Python with a wheel."""
    name = question.os or (image.os if image else None)
    system = catalog.system(name) if name else None
    if question.python is not None:
        return system, versions.minor(question.python), ()
    brought = (image.python if image else None) or (system.python if system else None)
    if brought is not None:
        return system, brought, ("python",)
    pythons = next((row.pythons for row in release.wheels if row.arch == question.arch), release.pythons)
    usable = [text for text in pythons if question.install != "and-cuda" or not software.extra_fails(release, text)]
    best = max(usable or pythons, key=versions.key, default=None)
    return system, best, ("python",) if best else ()


def _libraries(question: Question, release: TensorflowRelease, image: BaseImage | None, catalog: Catalog) -> _Libraries:
    """Tell which CUDA and cuDNN are loaded: as given, as an unpinned extra resolves, of the image, or the build's."""
    if not release.gpu or not question.gpu:
        return _Libraries(question.cuda, question.cudnn)
    if question.install == "and-cuda" and release.and_cuda:
        found = _extra(question, release, catalog)
    elif image is not None:
        found = _Libraries(image.cuda, image.cudnn, ("cuda", "cudnn"))
    elif question.install in {"plain", "and-cuda"} and not (question.cuda or question.cudnn):
        found = _Libraries(None, None)
    else:
        found = _Libraries(release.cuda, release.cudnn, ("cuda", "cudnn"))
    cuda, cudnn = question.cuda or found.cuda, question.cudnn or found.cudnn
    given = {"cuda": question.cuda, "cudnn": question.cudnn}
    filled = {"cuda": cuda, "cudnn": cudnn}
    chosen = tuple(name for name in found.chosen if given[name] is None and filled[name] is not None)
    return _Libraries(cuda, cudnn, chosen, found.unknown)


def _extra(question: Question, release: TensorflowRelease, catalog: Catalog) -> _Libraries:
    """Resolve the extra ``and-cuda`` as an installer does: an exact pin stays, a range takes the newest inside it."""
    both = ("cuda", "cudnn")
    if release.cuda is None:  # no claim: which lines the extra's wheels are of cannot be told
        return _Libraries(None, release.cudnn, both)
    bounds = {bound.name: bound for bound in map(parse, release.and_cuda)}
    major = versions.major(release.cuda)
    runtime = bounds.get(f"nvidia-cuda-runtime-cu{major}")
    pinned = runtime is None or any(operator == "==" for operator, _ in runtime.bounds)
    newest = catalog.newest_toolkit(major)
    cuda = release.cuda if pinned or newest is None else newest.version
    line = bounds.get(f"nvidia-cudnn-cu{major}")
    if line is None:
        return _Libraries(cuda, release.cudnn, both)
    exact = next((version for operator, version in line.bounds if operator == "=="), None)
    cudnn = exact or catalog.newest_wheel(line.name, line.bounds)
    seen = catalog.wheels_seen(line.name)
    if exact is None and question.as_of is not None and seen and question.as_of < seen:
        return _Libraries(cuda, None, both, (_held_later(line.name, seen, question.as_of),))
    if cudnn is None:
        sentence = f"The catalogue does not know which {line.name} an index holds."
        return _Libraries(cuda, None, both, (phrases.unknown(line.name, sentence),))
    return _Libraries(cuda, cudnn, both)


def _held_later(wheel: str, seen: str, day: str) -> Finding:
    return phrases.unknown(
        wheel,
        f"The catalogue knows what the index held on {seen}, not on {day}.",
        fix="Give --cudnn with the version that was installed then.",
    )


def _unknown_places(question: Question, found: Candidate, catalog: Catalog) -> tuple[Finding, ...]:
    image, system = question.base_image, question.os
    return (
        *((missing.no_image(image, catalog),) if image is not None and found.image is None else ()),
        *((missing.no_system(system, catalog),) if system is not None and found.system is None else ()),
    )
