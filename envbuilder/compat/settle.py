"""Turn a question into a candidate: find every row that its words name, and choose what they leave open."""

from __future__ import annotations

import difflib
import re

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, OperatingSystem, TensorflowRelease
from envbuilder.compat import phrases, software
from envbuilder.compat.question import Candidate, Device, Question
from envbuilder.compat.requirement import exact_pin, parse
from envbuilder.finding import Finding


class Settled(msgspec.Struct, frozen=True):
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


def settle(question: Question, catalog: Catalog) -> Settled:
    """Find a question's rows; what has none comes back as an UNKNOWN finding, and is None in the candidate."""
    release = find_release(question, catalog)
    if release is None:
        return Settled(None, (no_release(question, catalog),))
    image = None if question.base_image is None else catalog.image(question.base_image)
    system, python, chosen = _place(question, release, image, catalog)
    libraries = _libraries(question, release, image, catalog)
    devices, missing = find_devices(question, catalog)
    candidate = Candidate(
        release=release,
        arch=question.arch,
        gpu=question.gpu,
        python=python,
        system=system,
        glibc=image.glibc if image else system.glibc if system else None,
        glibc_of=image.name if image else system.name if system else "",
        avx=question.avx,
        packages=tuple(pin for text in question.packages if (pin := exact_pin(text)) is not None),
        install=question.install,
        image=image,
        cuda=libraries.cuda,
        cudnn=libraries.cudnn,
        toolkit=catalog.toolkit(libraries.cuda),
        built=catalog.toolkit(release.cuda),
        cudnn_row=catalog.cudnn_row(libraries.cudnn),
        driver=question.driver,
        branch=catalog.branch(question.driver),
        devices=devices,
        compat=True if image is not None else None,
    )
    named = () if versions.numbers(question.tensorflow) == versions.numbers(release.version) else ("tensorflow",)
    other = () if question.package or release.package == "tensorflow" else ("package",)
    unknown = (*_unknown(question, candidate, catalog), *missing, *libraries.unknown)
    return Settled(candidate, unknown, (*named, *other, *chosen, *libraries.chosen))


def find_release(question: Question, catalog: Catalog) -> TensorflowRelease | None:
    """Choose the distribution: the one asked for, else the one with CUDA where a GPU is meant to be used."""
    version = catalog.version(question.tensorflow)
    if version is None:
        return None
    if question.package is not None:
        return catalog.release(version, question.package)
    rows = catalog.distributions(version)
    return next((row for row in rows if row.gpu), rows[0]) if question.gpu else rows[0]


def no_release(question: Question, catalog: Catalog) -> Finding:
    """Say that a version is not in the catalogue, and which near ones are."""
    name = f"{question.package or 'tensorflow'} {question.tensorflow}"
    line = versions.minor(question.tensorflow)
    near = [text for text in catalog.versions if versions.minor(text) == line]
    if not near:
        near = difflib.get_close_matches(question.tensorflow, catalog.versions, n=3)
    hint = (
        f"; near it are {phrases.words(near)}"
        if near
        else f"; the newest is {catalog.versions[-1]}"
        if catalog.versions
        else ""
    )
    return phrases.unknown(name, f"The catalogue has no row for {name}{hint}.")


def find_devices(question: Question, catalog: Catalog) -> tuple[tuple[Device, ...], tuple[Finding, ...]]:
    """Find the GPUs by name; a compute capability needs no row."""
    rows = [(name, catalog.gpu(name)) for name in question.gpus]
    named = [Device(row.name, row.compute_capability, row) for _, row in rows if row is not None]
    bare = [Device(f"compute capability {text}", versions.minor(text)) for text in question.capabilities]
    missing = tuple(_no_gpu(name, catalog) for name, row in rows if row is None)
    return tuple(dict.fromkeys((*named, *bare))), missing


def _no_gpu(name: str, catalog: Catalog) -> Finding:
    known = {_core(row.name): row.name for row in reversed(catalog.gpus)}
    near = [known[text] for text in difflib.get_close_matches(_core(name), known, n=3, cutoff=0.6)]
    hint = f" Did you mean {phrases.words(near, 'or')}?" if near else ""
    return phrases.unknown(
        name,
        f"The catalogue has no GPU called {name}.{hint}",
        fix="Write the model as nvidia-smi prints it, or give its compute capability with --compute-capability.",
    )


def _core(name: str) -> str:
    """Leave the vendor's and the brands' words out, and spaces, so that the model's letters and digits decide."""
    return re.sub(r"nvidia|geforce|tesla|quadro|[^a-z0-9]", "", name.lower())


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
    bounds = {bound.name: bound for bound in map(parse, release.and_cuda)}
    major = versions.major(release.cuda or "0")
    runtime = bounds.get(f"nvidia-cuda-runtime-cu{major}")
    pinned = runtime is None or any(operator == "==" for operator, _ in runtime.bounds)
    newest = catalog.newest_toolkit(major)
    cuda = release.cuda if pinned or newest is None else newest.version
    line = bounds.get(f"nvidia-cudnn-cu{major}")
    if line is None:
        return _Libraries(cuda, release.cudnn, ("cuda", "cudnn"))
    exact = next((version for operator, version in line.bounds if operator == "=="), None)
    cudnn = exact or catalog.newest_wheel(line.name, line.bounds)
    unknown = (
        [] if cudnn else [phrases.unknown(line.name, f"The catalogue does not know which {line.name} an index holds.")]
    )
    seen = catalog.wheels_seen(line.name)
    if exact is None and question.as_of is not None and seen and question.as_of < seen:
        cudnn = None
        unknown = [
            phrases.unknown(
                line.name,
                f"The catalogue knows what the index held on {seen}, not on {question.as_of}.",
                fix="Give --cudnn with the version that was installed then.",
            )
        ]
    return _Libraries(cuda, cudnn, ("cuda", "cudnn"), tuple(unknown))


def _unknown(question: Question, candidate: Candidate, catalog: Catalog) -> tuple[Finding, ...]:
    """List what was named and has no row."""
    found: list[Finding] = []
    if question.base_image is not None and candidate.image is None:
        near = difflib.get_close_matches(question.base_image, [row.name for row in catalog.images], n=2)
        hint = f" Did you mean {phrases.words(near, 'or')}?" if near else ""
        found.append(phrases.unknown(question.base_image, f"The catalogue has no image {question.base_image}.{hint}"))
    if question.os is not None and candidate.system is None:
        known = phrases.words([row.name for row in catalog.systems])
        found.append(phrases.unknown(question.os, f"The catalogue has no system {question.os}; it knows {known}."))
    if not (question.gpu and candidate.release.gpu):
        return tuple(found)
    if candidate.cuda is not None and candidate.toolkit is None:
        found.append(phrases.unknown(f"CUDA {candidate.cuda}", f"The catalogue has no toolkit CUDA {candidate.cuda}."))
    told = candidate.cudnn is not None and len(versions.numbers(candidate.cudnn)) > 1
    if told and candidate.cudnn_row is None:
        found.append(phrases.unknown(f"cuDNN {candidate.cudnn}", f"The catalogue has no cuDNN {candidate.cudnn}."))
    if candidate.driver is not None and candidate.branch is None:
        branch = versions.major(candidate.driver)
        found.append(phrases.unknown(f"driver {candidate.driver}", f"The catalogue has no driver branch {branch}."))
    if candidate.release.cuda is None:
        name = phrases.name(candidate.release)
        found.append(phrases.unknown(name, f"The catalogue does not know which CUDA {name} was built with."))
    return tuple(found)
