"""Bind a question to the catalogue: the row of every name, and a choice for every open field."""

import re

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import OperatingSystem, TensorflowRelease
from envbuilder.compat import unknown
from envbuilder.compat.candidate import Candidate, with_rows
from envbuilder.compat.findings import finding, name_of
from envbuilder.compat.question import Question
from envbuilder.compat.requirement import exact_pin, exact_pins, parse
from envbuilder.compat.rules.packages import extra_fails
from envbuilder.environment import Flavor
from envbuilder.finding import Code, Finding


class Binding(msgspec.Struct, frozen=True):
    """A candidate (None: the release is unknown), findings about missing rows, and the chosen fields.

    ``unknown`` includes a release that did not exist on the day of the question. ``opaque`` is True if an unknown image
    may have its own TensorFlow and CUDA.
    """

    candidate: Candidate | None
    unknown: tuple[Finding, ...] = ()
    chosen: tuple[str, ...] = ()
    opaque: bool = False


def bind(question: Question, catalog: Catalog) -> Binding:
    """Find the rows of a question. A name without one is an UNKNOWN finding, and None in the candidate."""
    day, os = question.as_of, question.os
    if os in unknown.ELSEWHERE:
        question = msgspec.structs.replace(question, os=None)
    rows = distributions(question.tensorflow, question.package, "gpu" if question.gpu else None, catalog, day)
    if not rows:
        return Binding(None, (unknown.no_release(question.tensorflow, question.package, catalog),))
    release = rows[0]
    devices, unknown_gpus = unknown.find_devices(question.gpus, question.capabilities, catalog)
    required = unknown.required_arch(devices, catalog) if question.arch is None else None
    base, no_base = _base(question, release, question.arch or required or "x86_64", catalog)
    cuda, cudnn, no_wheel = _libraries(question, base, catalog)
    opaque = base.unseen and question.install in {None, "system"} and not _NAMED_CUDA.match(question.base_image or "")
    late_caps = (row.bound for row in catalog.package_releases if day is not None and row.released > day)
    given = msgspec.structs.replace(base, cuda=cuda, cudnn=cudnn, devices=devices, unreleased=frozenset(late_caps))
    found = with_rows(given, catalog)
    late: tuple[Finding, ...] = ()
    if day is not None and release.released > day:
        named = {"name": name_of(release), "released": release.released, "day": day}
        late = (finding(Code.NOT_INSTALLABLE, "not_yet", (release,), **named),)
    held = dict.fromkeys((*question.beside, release.package), release.version)
    wrong = (
        *(unknown.elsewhere(os, name_of(release), release.version, os or "") if question.gpu else ()),
        *unknown.side_by_side(held, catalog, ordered=True),
    )
    chosen = {
        "tensorflow": versions.bounds(question.tensorflow) is not None
        or versions.numbers(question.tensorflow) != versions.numbers(release.version),
        "package": not question.package and release.package != "tensorflow",
        **{name: not getattr(question, name) and getattr(given, name) for name in ("python", "cuda", "cudnn")},
        "arch": required is not None,
    }
    return Binding(
        found,
        (*late, *wrong, *no_base, *unknown.without_row(found), *unknown_gpus, *no_wheel),
        tuple(name for name, is_chosen in chosen.items() if is_chosen),
        opaque=opaque,
    )


_WHEELS = {"cuda": "nvidia-cuda-runtime-cu", "cudnn": "nvidia-cudnn-cu"}
"""The wheels whose versions are those of the loaded CUDA and cuDNN; their names end in the CUDA major."""


def with_pinned_wheels(question: Question, catalog: Catalog) -> Question:
    """Read pins of CUDA's own wheels as the CUDA and cuDNN that are loaded.

    Only wheels for the CUDA major of the build are loaded. A CUDA or cuDNN in the question itself stays.
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


_PUBLISHED = re.compile(r"tensorflow/(?:tensorflow|serving):(?P<release>[12]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)(?P<rest>.*)")


def with_tag(question: Question, catalog: Catalog) -> Question:
    """Read the tag of a published image with TensorFlow as the release and the CUDA that it has.

    The images were made with cuDNN 8, also those of releases that open cuDNN 9: nothing is claimed of the latter.
    """
    found = _PUBLISHED.fullmatch((question.base_image or "").removeprefix("docker.io/"))
    version = catalog.version(found["release"]) if found is not None else None
    if found is None or version is None or question.tensorflow not in {"", version, found["release"]}:
        return question
    if any(row.cudnn is not None and versions.at_least(row.cudnn, "9") for row in catalog.distributions(version)):
        return question
    gpu = "gpu" in found["rest"]
    package = question.package or (None if gpu else "tensorflow-cpu")
    return msgspec.structs.replace(question, tensorflow=version, package=package, base_image=None)


def distributions(
    version: str, package: str | None, flavor: Flavor | None, catalog: Catalog, day: str | None = None
) -> tuple[TensorflowRelease, ...]:
    """List the distributions of a version that may be installed, the best first; only the given one, if any.

    A short version is the newest of that distribution (on that day). For a GPU it is the one with CUDA. A CPU image
    (flavor "cpu") takes tensorflow-cpu if it has a wheel for its Python: the same code without the CUDA kernels, less
    than half the size; else tensorflow, whose CUDA build falls back to the CPU. If no GPU is to be used and nothing is
    built (None), the name means tensorflow.
    """
    if "+" in version:  # a local version is a private build: the index takes none
        return ()
    known = catalog.version(version, package, day)
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


def _base(
    question: Question, release: TensorflowRelease, arch: str, catalog: Catalog
) -> tuple[Candidate, tuple[Finding, ...]]:
    name, install = question.base_image, question.install
    image = catalog.image(name) if name is not None else None
    plain = catalog.plain_image(name) if name is not None and image is None else None
    unseen = name is not None and image is None and plain is None
    asked = question.os or (image.os if image else None)
    system = (catalog.system(asked) or _of_images(asked, catalog)) if asked else plain.system if plain else None
    other = catalog.other_system(asked) if asked and system is None else plain.other if plain else None
    lacking: tuple[Finding, ...] = (unknown.no_image(name, catalog),) if unseen and name is not None else ()
    if question.os is not None and system is None and other is None:
        lacking = (*lacking, unknown.no_system(question.os, catalog))
    brought = next((row.python for row in (image, plain, system) if row is not None and row.python), None)
    python = versions.minor(question.python) if question.python is not None else brought
    if python is None and not unseen:
        pythons = next((row.pythons for row in release.wheels if row.arch == arch), release.pythons)
        usable = [text for text in pythons if question.install != "and-cuda" or not extra_fails(release, text)]
        python = max(usable or pythons, key=versions.key, default=None)
    given = Candidate(
        release=release,
        arch=arch,
        gpu=question.gpu,
        python=python,
        system=system,
        avx=question.avx,
        packages=exact_pins(question.packages),
        install=install,
        image=image,
        driver=question.driver,
        other=other,
        unseen=unseen,
        compat=True if image is not None else question.compat,
    )
    return given, lacking


def _of_images(name: str, catalog: Catalog) -> OperatingSystem | None:
    """Return a system that only published images with CUDA have, such as ubuntu-16.04."""
    row = next((row for row in catalog.images if row.os == name and row.python is not None), None)
    if row is None or row.python is None:
        return None
    return msgspec.structs.replace(catalog.systems[0], name=name, short=name, python=row.python, glibc=row.glibc)


_Libraries = tuple[str | None, str | None, tuple[Finding, ...]]
"""The CUDA and cuDNN that an installation loads, and what is not known about them."""


def _libraries(question: Question, base: Candidate, catalog: Catalog) -> _Libraries:
    """Return the CUDA and cuDNN that are loaded: the given ones, the extra's, the image's, or the build's."""
    image, release, install = base.image, base.release, question.install
    if not release.gpu or not question.gpu:
        return question.cuda, question.cudnn, ()
    bare = question.base_image is not None and image is None and not base.unseen
    without_cuda = install in {"plain", "and-cuda"} or (install == "system" and bare)  # an own system may have it
    found: _Libraries = (release.cuda, release.cudnn, ())
    if install == "and-cuda" and release.and_cuda:
        found = _extra(question, release, catalog)
    elif image is not None:
        found = (image.cuda, image.cudnn, ())
    elif base.unseen:
        named = _NAMED_CUDA.match(question.base_image or "")
        found = (named["cuda"] if named is not None else None, None, ())
    elif without_cuda and not (question.cuda or question.cudnn):
        found = (None, None, ())
    return question.cuda or found[0], question.cudnn or found[1], found[2]


_NAMED_CUDA = re.compile(r"(?:docker\.io/)?nvidia/cuda:(?P<cuda>[0-9]{1,2}\.[0-9]{1,2})")
"""An image of the catalogue's publisher without a row: its tag names its CUDA."""


def _extra(question: Question, release: TensorflowRelease, catalog: Catalog) -> _Libraries:
    """Resolve the extra ``and-cuda`` as an installer does: an exact pin stays, a range takes the newest inside it."""
    if release.cuda is None:  # no claim about the lines of the extra's wheels
        return None, release.cudnn, ()
    bounds = {bound.name: bound for bound in map(parse, release.and_cuda)}
    major = versions.major(release.cuda)
    runtime = bounds.get(f"nvidia-cuda-runtime-cu{major}")
    pinned = runtime is None or any(operator == "==" for operator, _ in runtime.bounds)
    newest = None if pinned or runtime is None else catalog.newest_wheel(runtime.name, runtime.bounds, question.as_of)
    cuda = release.cuda if newest is None else versions.minor(newest)
    line = bounds.get(f"nvidia-cudnn-cu{major}")
    if line is None:
        return cuda, release.cudnn, ()
    exact = next((version for operator, version in line.bounds if operator == "=="), None)
    cudnn = exact or catalog.newest_wheel(line.name, line.bounds, question.as_of)
    if cudnn is None:
        variant = "wheel" if question.as_of is None else "wheel_then"
        lacking = finding(Code.UNKNOWN, variant, wheel=line.name, day=question.as_of)
        return cuda, None, (lacking,)
    return cuda, cudnn, ()
