"""A question bound to the catalogue: every row that its words name, and a choice for what they leave open."""

from __future__ import annotations

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, OperatingSystem, OtherSystem, TensorflowRelease
from envbuilder.compat import machine, missing, phrases, software
from envbuilder.compat.candidate import Candidate, candidate
from envbuilder.compat.question import Install, Question
from envbuilder.compat.requirement import exact_pin, parse
from envbuilder.environment import Flavor
from envbuilder.finding import Finding


class Binding(msgspec.Struct, frozen=True):
    """A candidate (None: the release itself is unknown), what the catalogue lacks, and the axes that were chosen.

    ``unknown`` also says where a release did not exist on the day asked about. ``opaque`` is true where an image that
    is not known may hold a TensorFlow and a CUDA of its own.
    """

    candidate: Candidate | None
    unknown: tuple[Finding, ...] = ()
    chosen: tuple[str, ...] = ()
    opaque: bool = False


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where it is installed: an image that brings CUDA or a system, and the Python."""

    image: BaseImage | None = None
    system: OperatingSystem | None = None
    other: OtherSystem | None = None
    python: str | None = None
    chosen: tuple[str, ...] = ()
    unknown: tuple[Finding, ...] = ()
    bare: bool = False
    unseen: bool = False
    opaque: bool = False


class _Libraries(msgspec.Struct, frozen=True):
    """The CUDA and cuDNN that an installation loads, and which of them nobody asked for."""

    cuda: str | None
    cudnn: str | None
    chosen: tuple[str, ...] = ()
    unknown: tuple[Finding, ...] = ()


def bind(question: Question, catalog: Catalog) -> Binding:
    """Find a question's rows; what has none comes back as an UNKNOWN finding, and is None in the candidate."""
    day = question.as_of
    rows = distributions(question.tensorflow, question.package, "gpu" if question.gpu else None, catalog, day)
    if not rows:
        return Binding(None, (missing.no_release(question.tensorflow, question.package, catalog),))
    release = rows[0]
    devices, unknown_gpus = missing.find_devices(question.gpus, question.capabilities, catalog)
    followed = machine.arch_of(devices, catalog) if question.arch is None else None
    arch = question.arch or followed or "x86_64"
    place = _place(question, release, arch, catalog)
    libraries = _libraries(question, release, place, catalog)
    found = candidate(
        release,
        catalog,
        arch=arch,
        gpu=question.gpu,
        python=place.python,
        system=place.system,
        avx=question.avx,
        packages=question.packages,
        install=question.install,
        image=place.image,
        cuda=libraries.cuda,
        cudnn=libraries.cudnn,
        driver=question.driver,
        other=place.other,
        unreleased=frozenset(row.bound for row in catalog.package_releases if day is not None and row.released > day),
        unseen=place.unseen,
        devices=devices,
        compat=True if place.image is not None else question.compat,
    )
    named = () if versions.numbers(question.tensorflow) == versions.numbers(release.version) else ("tensorflow",)
    other = () if question.package or release.package == "tensorflow" else ("package",)
    late = (missing.not_yet(release, day),) if day is not None and release.released > day else ()
    unknown = (*late, *place.unknown, *missing.without_row(found), *unknown_gpus, *libraries.unknown)
    chosen = (*named, *other, *place.chosen, *libraries.chosen, *(("arch",) if followed else ()))
    return Binding(found, unknown, chosen, opaque=place.opaque)


_WHEELS = {"cuda": "nvidia-cuda-runtime-cu", "cudnn": "nvidia-cudnn-cu"}
"""The wheels whose versions say which CUDA and cuDNN are loaded; the CUDA major that they are for follows."""


def with_pinned_wheels(question: Question, catalog: Catalog) -> Question:
    """Read pins of CUDA's own wheels beside TensorFlow as the CUDA and cuDNN that are loaded.

    Only those for the major that it was built with are; what is said of CUDA and cuDNN itself stays.
    """
    row = next(iter(distributions(question.tensorflow, question.package, "gpu", catalog)), None)
    if row is None or row.cuda is None:
        return question
    lines = {f"{wheel}{versions.major(row.cuda)}": name for name, wheel in _WHEELS.items()}
    for text in question.packages:
        name, version = exact_pin(text) or ("", "")
        field = lines.get(name)
        if field is not None and getattr(question, field) is None:
            rest = tuple(one for one in question.packages if one != text)
            question = msgspec.structs.replace(question, **{field: version}, packages=rest)
    return question


def distributions(
    version: str, package: str | None, flavor: Flavor | None, catalog: Catalog, day: str | None = None
) -> tuple[TensorflowRelease, ...]:
    """List the distributions of a version that may be installed, the best first; one that was named stands alone.

    A short version is the newest of that distribution, on that day where one is given.

    For a GPU it is the one with CUDA. A CPU image (flavor "cpu") takes tensorflow-cpu where it has a wheel for its
    Python: the same code without the CUDA kernels, less than half the size; else tensorflow, whose CUDA build falls
    back to the CPU. Where no GPU is meant to be used and nothing is built (None), the name means tensorflow.
    """
    if "+" in version:  # a local version is a build of somebody's own: the index takes none
        return ()
    plain = package is None and day is None
    known = catalog.version(version) if plain else catalog.version_then(version, package, day)
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


def _place(question: Question, release: TensorflowRelease, arch: str, catalog: Catalog) -> _Place:
    """Find the system and the Python: those asked for, those of the image, else the newest Python with a wheel."""
    name = question.base_image
    image = catalog.image(name) if name is not None else None
    plain = catalog.plain_image(name) if name is not None and image is None else None
    unseen = name is not None and image is None and plain is None
    asked = question.os or (image.os if image else None)
    system = catalog.system(asked) if asked else plain.system if plain else None
    other = catalog.other_system(asked) if asked and system is None else plain.other if plain else None
    unknown: tuple[Finding, ...] = (missing.no_image(name, catalog),) if unseen and name is not None else ()
    if question.os is not None and system is None and other is None:
        unknown = (*unknown, missing.no_system(question.os, catalog))
    brought = next((row.python for row in (image, plain, system) if row is not None and row.python), None)
    python = versions.minor(question.python) if question.python is not None else brought
    if python is None and not unseen:
        python = _newest_python(question, release, arch)
    return _Place(
        image=image,
        system=system,
        other=other,
        python=python,
        chosen=("python",) if question.python is None and python else (),
        unknown=unknown,
        bare=plain is not None,
        unseen=unseen,
        opaque=unseen and question.install in {None, "system"},
    )


def _newest_python(question: Question, release: TensorflowRelease, arch: str) -> str | None:
    pythons = next((row.pythons for row in release.wheels if row.arch == arch), release.pythons)
    usable = [text for text in pythons if question.install != "and-cuda" or not software.extra_fails(release, text)]
    return max(usable or pythons, key=versions.key, default=None)


def _libraries(question: Question, release: TensorflowRelease, place: _Place, catalog: Catalog) -> _Libraries:
    """Tell which CUDA and cuDNN are loaded: as given, as an unpinned extra resolves, of the image, or the build's."""
    image = place.image
    if not release.gpu or not question.gpu:
        return _Libraries(question.cuda, question.cudnn)
    if question.install == "and-cuda" and release.and_cuda:
        found = _extra(question, release, catalog)
    elif image is not None:
        found = _Libraries(image.cuda, image.cudnn, ("cuda", "cudnn"))
    elif place.unseen or (_brings_none(question.install, place) and not (question.cuda or question.cudnn)):
        found = _Libraries(None, None)
    else:
        found = _Libraries(release.cuda, release.cudnn, ("cuda", "cudnn"))
    cuda, cudnn = question.cuda or found.cuda, question.cudnn or found.cudnn
    given = {"cuda": question.cuda, "cudnn": question.cudnn}
    filled = {"cuda": cuda, "cudnn": cudnn}
    chosen = tuple(name for name in found.chosen if given[name] is None and filled[name] is not None)
    return _Libraries(cuda, cudnn, chosen, found.unknown)


def _brings_none(install: Install | None, place: _Place) -> bool:
    """Tell whether neither the installation nor the place brings CUDA; a system that is no image may hold it."""
    return install in {"plain", "and-cuda"} or (install == "system" and place.bare)


def _extra(question: Question, release: TensorflowRelease, catalog: Catalog) -> _Libraries:
    """Resolve the extra ``and-cuda`` as an installer does: an exact pin stays, a range takes the newest inside it."""
    both = ("cuda", "cudnn")
    if release.cuda is None:  # no claim: which lines the extra's wheels are of cannot be told
        return _Libraries(None, release.cudnn, both)
    bounds = {bound.name: bound for bound in map(parse, release.and_cuda)}
    major = versions.major(release.cuda)
    runtime = bounds.get(f"nvidia-cuda-runtime-cu{major}")
    pinned = runtime is None or any(operator == "==" for operator, _ in runtime.bounds)
    newest = None if pinned or runtime is None else catalog.newest_wheel(runtime.name, runtime.bounds, question.as_of)
    cuda = release.cuda if newest is None else versions.minor(newest)
    line = bounds.get(f"nvidia-cudnn-cu{major}")
    if line is None:
        return _Libraries(cuda, release.cudnn, both)
    exact = next((version for operator, version in line.bounds if operator == "=="), None)
    cudnn = exact or catalog.newest_wheel(line.name, line.bounds, question.as_of)
    if cudnn is None:
        when = f" on {question.as_of}" if question.as_of is not None else ""
        sentence = f"The catalogue does not know which {line.name} an index held{when}."
        fix = "Give --cudnn with the version that is installed."
        return _Libraries(cuda, None, both, (phrases.unknown(line.name, sentence, fix=fix),))
    return _Libraries(cuda, cudnn, both)
