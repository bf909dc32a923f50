"""Check what an image says of itself, in labels and documents, against what its files are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envbuilder.environment import WHOLE, Environment
from envbuilder.finding import Code, Finding
from envbuilder.image import lockfile, omissions, system_lock
from envbuilder.support import decoding
from envbuilder.validation import system_locks
from envbuilder.validation.file_records import Distribution, distributions
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, listed
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.suite_plan import Facts

ENVIRONMENT_LABEL, LOCK_LABEL = "org.envbuilder.environment", "org.envbuilder.lock"
VERSION_LABEL = "org.opencontainers.image.version"
DOCUMENT, LOCK = "opt/envbuilder/environment.json", "opt/envbuilder/requirements.lock"
SYSTEM_LABEL = "org.envbuilder.system"
FORM_LABEL, LIST = "org.envbuilder.form", f"opt/envbuilder/{omissions.OMISSIONS}"

FRAMEWORKS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu")
_OF_LIBRARIES = ("unimported", "unnamed")
_FIX = "build the image anew from its context"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_CUDA = re.compile(r"(?:^|/)libcudart\.so(?:\.[\d.]+)?\Z")
_FRAMEWORK_OBJECT = re.compile(r"(?:site|dist)-packages/tensorflow(?:_core)?/.*\.so(?:\.\d+)*\Z")
_BUILD_INFO = re.compile(r"(?:site|dist)-packages/tensorflow(?:_core)?/python/platform/build_info\.py\Z")
_SAYS_CUDA = re.compile(
    rb"[\"']is_cuda_build[\"']\s*[:,]\s*(True|False)|^\s*is_cuda_build\s*=\s*(True|False)", re.MULTILINE
)


def document(files: ImageFiles) -> Environment | None:
    """Read the environment document that an image carries; None where it is absent, damaged, or its id no name."""
    try:
        found = decoding.from_json(files.content(DOCUMENT) or b"", Environment)
    except decoding.DamagedError:
        return None
    return found if _NAME.match(found.id) else None


def contradicts_itself(told: Environment) -> bool:
    """Tell whether a document's flavour is not what its own id says: it decides nothing then."""
    return ("-cpu" in told.id) != (told.flavor == "cpu")


def carried_lock(files: ImageFiles) -> str:
    """Read the lock that an image carries; '' where it carries none that is one."""
    try:
        text = decoding.text(files.content(LOCK) or b"")
        lockfile.parse(text)
    except ValueError:
        return ""
    return text


def carried_list(files: ImageFiles, label: str, lock: str) -> str:
    """Read the list of what an image leaves out that it carries; '' where its label, or its lock, speaks of another."""
    try:
        return omissions.named(label, lock, decoding.text(files.content(LIST) or b""))
    except ValueError:
        return ""


def libraries_left_out(text: str) -> tuple[tuple[str, str], ...]:
    """List what a list of omissions says of libraries: distribution, and file, or a folder of which everything goes."""
    told = omissions.parse(text) if text else omissions.Omissions()
    gone = ((one.name, row) for one in told.distributions for row in one.left_out)
    return tuple((name, row.path) for name, row in gone if row.reason in _OF_LIBRARIES)


def left_out_of(files: ImageFiles, labels: Mapping[str, str], lock: str) -> tuple[tuple[str, str], ...]:
    """List the same by the list that an image carries: it passes by that nowhere, and `files` says so."""
    return libraries_left_out(carried_list(files, labels.get(omissions.LABEL, ""), lock))


def brings_cuda(files: ImageFiles) -> bool:
    """Tell whether TensorFlow's objects hold code for GPUs and a CUDA run time is in the image: GPUs are meant."""
    return bool(_cuda_objects(files)) and any(_CUDA.search(path) for path in files.paths)


def claims(subject: ImageContext) -> CheckOutput:
    """Compare labels, the environment document and the lock with what the host knows and what the files are."""
    labels, files, facts = subject.image.labels, subject.files, subject.facts
    told = document(files)
    framework = _framework(distributions(files))
    lock = files.content(LOCK)
    digest = lockfile.digest(decoding.lossy(lock)) if lock is not None else None
    package, version, python = framework
    rows: list[tuple[str, object, object]] = [
        (f"label {ENVIRONMENT_LABEL}", labels.get(ENVIRONMENT_LABEL), facts.environment),
        (f"label {VERSION_LABEL}", labels.get(VERSION_LABEL), version),
        ("lock in the image", digest, facts.lock),
        (f"label {LOCK_LABEL}", labels.get(LOCK_LABEL), facts.lock),
    ]
    rows += (*_of_form(subject, told), *_of_system(subject, told))
    findings = []
    if told is None:
        what = "is none" if files.file(DOCUMENT) else "is not there"
        findings.append(_claim("environment.json", f"/{DOCUMENT} {what}, and labels name an environment"))
    else:
        rows += [
            ("environment.json id", told.id, facts.environment),
            ("environment.json flavor", told.flavor, told.flavor if contradicts_itself(told) else facts.flavor),
            ("environment.json python", told.python, python),
            ("environment.json tensorflow", told.tensorflow, version),
            ("environment.json package", told.package, package),
        ]
    findings += [
        _claim(name, f"{name} says {_shown(claimed)}, and it is {_shown(actual)}", actual, claimed)
        for name, claimed, actual in rows
        if claimed != actual and (claimed or actual)
    ]
    findings += _flavor(subject, told)
    observed = "; ".join(one.message for one in findings) or f"{len(rows)} claims hold"
    return CheckOutput(tuple(findings), "every claim holds", observed)


def _of_system(subject: ImageContext, told: Environment | None) -> Iterator[tuple[str, object, object]]:
    """Yield what is said of the system's locks: this host's are to be in the image, else what that itself asks for."""
    system = subject.system
    digest = system_lock.digest(system) if system else None
    yield f"label {SYSTEM_LABEL}", subject.image.labels.get(SYSTEM_LABEL), digest
    needed = system_lock.needed(told) if told is not None else ()
    for name, path in system_locks.CARRIED.items():
        content = subject.files.content(path)
        held = lockfile.digest(decoding.lossy(content)) if content is not None else None
        if not subject.system_is_carried or name in system:
            yield f"{name} in the image", held, lockfile.digest(system[name]) if name in system else None
        elif content is not None or name in needed:
            yield f"{name} in the image", held and "none that can be read", "what its environment asks for"


def _of_form(subject: ImageContext, told: Environment | None) -> Iterator[tuple[str, object, object]]:
    """Yield what is said of an image's form, and of what it leaves out: each claim, and what it is to be."""
    labels, content = subject.image.labels, subject.files.content(LIST)
    label = labels.get(omissions.LABEL)
    carried = lockfile.digest(decoding.lossy(content)) if content is not None else None
    own = (told.form or None) if told is not None else None
    form = _form_to_be(subject.facts) if subject.facts.form else own
    yield f"label {FORM_LABEL}", labels.get(FORM_LABEL), form
    if told is not None:
        yield "environment.json form", own, form
    yield "list of omissions in the image", carried, label
    if subject.omissions:
        yield f"label {omissions.LABEL}", label, lockfile.digest(subject.omissions)
    elif subject.facts.form == WHOLE:
        yield f"label {omissions.LABEL}", label, None


def _form_to_be(facts: Facts) -> str | None:
    """Return the form that the host knows an image to have; None for ``devel``, which no image names."""
    return facts.form if facts.form != WHOLE else None


def _flavor(subject: ImageContext, told: Environment | None) -> Iterator[Finding]:
    """Say where a flavour is not what the id, or the files, say: a GPU image that calls itself a CPU one."""
    if told is not None and contradicts_itself(told):
        yield _claim("flavor", f"environment.json says {told.flavor}, and its id {told.id} does not")
    elif subject.facts.flavor == "cpu" and brings_cuda(subject.files):
        yield _claim("flavor", "it calls itself a CPU image, and brings a CUDA build and a CUDA run time")


def _framework(there: tuple[Distribution, ...]) -> tuple[str | None, str | None, str | None]:
    """Name the distribution that brings TensorFlow, its version and its Python, as the files tell."""
    for name in FRAMEWORKS:
        for one in there:
            if one.name == name:
                python = re.search(r"/python(\d+\.\d+)/", f"/{one.site}/")
                return one.name, one.version, python[1] if python else None
    return None, None, None


def _cuda_objects(files: ImageFiles) -> list[str]:
    return [
        path
        for path, seen in files.paths.items()
        if seen.row.binary is not None and seen.row.binary.has_cuda_code and _FRAMEWORK_OBJECT.search(path)
    ]


def says_cuda(files: ImageFiles) -> bool | None:
    """Tell what the build's own note says of CUDA; None where it says nothing."""
    for path, content in files.kept():
        if _BUILD_INFO.search(path) and (found := _SAYS_CUDA.search(content)):
            return b"True" in found.groups()
    return None


def build_note(subject: ImageContext) -> Iterator[Finding]:
    """Say where TensorFlow's note of its build and its shared objects disagree about CUDA."""
    objects, said = _cuda_objects(subject.files), says_cuda(subject.files)
    if said is not None and said != bool(objects) and _framework(distributions(subject.files))[0]:
        what = f"hold code for GPUs: {listed(objects)}" if objects else "hold no code for GPUs"
        yield _claim(
            "build_info.py", f"build_info.py says {'CUDA' if said else 'no CUDA'}, and the shared objects {what}"
        )


def without_cuda(subject: ImageContext) -> Iterator[Finding]:
    """Say that TensorFlow is a build without CUDA where one with CUDA is meant: it looks for no library of CUDA."""
    found = _framework(distributions(subject.files))[1]
    if subject.facts.flavor == "gpu" and says_cuda(subject.files) is False and not _cuda_objects(subject.files):
        text = "a GPU environment, and a build without CUDA: it will run on the CPU"
        fix = "install the build with CUDA: tensorflow, not tensorflow-cpu"
        name = f"TensorFlow {found}" if found else "TensorFlow"
        yield error(Code.NOT_A_GPU_BUILD, name, text, requires="a CUDA build", found="a CPU build", fix=fix)


def _claim(name: str, text: str, actual: object = "", claimed: object = "") -> Finding:
    return error(
        Code.IMAGE_CLAIM, name, text, requires=_shown(actual) if actual else "", found=_shown(claimed), fix=_FIX
    )


def _shown(value: object) -> str:
    return decoding.lossy(str(value).encode("unicode_escape"))[:120]
