"""Compare the labels and documents of an image with its files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envbuilder.environment import WHOLE, Environment
from envbuilder.finding import Code, Finding
from envbuilder.image import lockfile, removed_files, system_lock
from envbuilder.probes.suite import tensorflow_install
from envbuilder.support import decoding
from envbuilder.validation import system_locks
from envbuilder.validation.file_records import InstalledPackage, distributions
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, listed
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.suite_plan import Facts

ENVIRONMENT_LABEL, LOCK_LABEL = "org.envbuilder.environment", "org.envbuilder.lock"
VERSION_LABEL = "org.opencontainers.image.version"
DOCUMENT, LOCK = "opt/envbuilder/environment.json", "opt/envbuilder/requirements.lock"
SYSTEM_LABEL = "org.envbuilder.system"
FORM_LABEL = "org.envbuilder.form"

FRAMEWORKS = tensorflow_install.DISTRIBUTIONS
_OF_LIBRARIES = ("unimported", "unnamed")
_FIX = "rebuild the image from its context"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
_CUDA = re.compile(r"(?:^|/)libcudart\.so(?:\.[\d.]+)?\Z")
_FRAMEWORK_OBJECT = re.compile(r"(?:site|dist)-packages/tensorflow(?:_core)?/.*\.so(?:\.\d+)*\Z")
_BUILD_INFO = re.compile(r"(?:site|dist)-packages/tensorflow(?:_core)?/python/platform/build_info\.py\Z")
_BUILD_FACT = re.compile(
    rb"(?:[\"'](?P<key>is_cuda_build|cuda_version|cudnn_version)[\"']\s*[:,]"
    rb"|^\s*(?P<name>is_cuda_build|cuda_version|cudnn_version)(?:_number)?\s*=)\s*[\"']?(?P<value>[\w.]+)",
    re.MULTILINE,
)
"""A fact of ``build_info.py``: an entry of a dict, or up to 2.2 a variable."""


def document(files: ImageFiles) -> Environment | None:
    """Return the environment document in the image; None if it is missing, damaged, or its id is not a name."""
    try:
        found = decoding.from_json(files.content(DOCUMENT) or b"", Environment)
    except decoding.DamagedError:
        return None
    return found if _NAME.match(found.id) else None


def contradicts_itself(declared: Environment) -> bool:
    """Return True if the flavour of a document differs from that in its id: then it is ignored."""
    return ("-cpu" in declared.id) != (declared.flavor == "cpu")


def carried_lock(files: ImageFiles) -> str:
    """Return the lock in the image; '' if there is no valid one."""
    try:
        text = decoding.text(files.content(LOCK) or b"")
        lockfile.parse(text)
    except ValueError:
        return ""
    return text


def carried_list(files: ImageFiles, label: str, lock: str) -> str:
    """Return the list of removed files in the image; '' if its label or its lock names another list."""
    try:
        return removed_files.named(label, lock, joined_lists(files))
    except ValueError:
        return ""


def joined_lists(files: ImageFiles) -> str:
    names = sorted(path for path in files.paths if path.startswith(removed_files.CARRIED))
    return "".join(decoding.text(files.content(name) or b"") for name in names)


def libraries_left_out(text: str) -> tuple[tuple[str, str], ...]:
    """Return the removed libraries in a list of removed files: distribution, and file or folder."""
    removed = removed_files.parse(text)
    gone = ((name, row) for (name, _), rows in removed.items() for row in rows if row.left is None)
    return tuple((name, row.path) for name, row in gone if row.reason in _OF_LIBRARIES)


def left_out_of(files: ImageFiles, labels: Mapping[str, str], lock: str) -> tuple[tuple[str, str], ...]:
    """Return the same from the list inside the image; the `files` check reports that it is unverified."""
    return libraries_left_out(carried_list(files, labels.get(removed_files.LABEL, ""), lock))


def brings_cuda(files: ImageFiles) -> bool:
    """Return True if TensorFlow's objects contain GPU code and the image contains a CUDA runtime."""
    return bool(_cuda_objects(files)) and any(_CUDA.search(path) for path in files.paths)


def claims(subject: ImageContext) -> CheckOutput:
    """Compare labels, the environment document and the lock with the host's records and the files."""
    labels, files, facts = subject.image.labels, subject.files, subject.facts
    declared = document(files)
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
    rows += (*_of_form(subject, declared), *_of_system(subject, declared))
    findings = []
    if declared is None:
        what = "is damaged" if files.file(DOCUMENT) else "is missing"
        findings.append(_claim("environment.json", f"/{DOCUMENT} {what}, and labels name an environment"))
    else:
        rows += [
            ("environment.json id", declared.id, facts.environment),
            (
                "environment.json flavor",
                declared.flavor,
                declared.flavor if contradicts_itself(declared) else facts.flavor,
            ),
            ("environment.json python", declared.python, python),
            ("environment.json tensorflow", declared.tensorflow, version),
            ("environment.json package", declared.package, package),
        ]
    findings += [
        _claim(name, f"{name} says {_shown(claimed)}, and it is {_shown(actual)}", actual, claimed)
        for name, claimed, actual in rows
        if claimed != actual and (claimed or actual)
    ]
    findings += _flavor(subject, declared)
    observed = "; ".join(one.message for one in findings) or f"{len(rows)} claims hold"
    return CheckOutput(tuple(findings), "every claim holds", observed)


def _of_system(subject: ImageContext, declared: Environment | None) -> Iterator[tuple[str, object, object]]:
    """Yield the claims about the system's locks, each with the right value."""
    system = subject.system
    digest = system_lock.digest(system) if system else None
    yield f"label {SYSTEM_LABEL}", subject.image.labels.get(SYSTEM_LABEL), digest
    needed = system_lock.needed(declared) if declared is not None else ()
    for name, path in system_locks.CARRIED.items():
        content = subject.files.content(path)
        held = lockfile.digest(decoding.lossy(content)) if content is not None else None
        if not subject.system_is_carried or name in system:
            yield f"{name} in the image", held, lockfile.digest(system[name]) if name in system else None
        elif content is not None or name in needed:
            yield f"{name} in the image", held and "none that can be read", "what its environment asks for"


def _of_form(subject: ImageContext, declared: Environment | None) -> Iterator[tuple[str, object, object]]:
    """Yield the claims about the variant and the removed files, each with the right value."""
    labels = subject.image.labels
    label, lists = labels.get(removed_files.LABEL), joined_lists(subject.files)
    carried = lockfile.digest(lists) if lists or label == lockfile.digest("") else None
    own = (declared.variant or None) if declared is not None else None
    form = _form_to_be(subject.facts) if subject.facts.form else own
    yield f"label {FORM_LABEL}", labels.get(FORM_LABEL), form
    if declared is not None:
        yield "environment.json form", own, form
    yield "lists of removed files in the image", carried, label
    if subject.removed:
        yield f"label {removed_files.LABEL}", label, lockfile.digest(subject.removed)
    elif subject.facts.form == WHOLE:
        yield f"label {removed_files.LABEL}", label, None


def _form_to_be(facts: Facts) -> str | None:
    """Return the form that the host knows an image to have; None for ``devel``, which no image names."""
    return facts.form if facts.form != WHOLE else None


def _flavor(subject: ImageContext, declared: Environment | None) -> Iterator[Finding]:
    """Find a flavour that differs from the id or the files: a GPU image that claims to be a CPU image."""
    if declared is not None and contradicts_itself(declared):
        yield _claim("flavor", f"environment.json says {declared.flavor}, and its id {declared.id} does not")
    elif subject.facts.flavor == "cpu" and brings_cuda(subject.files):
        yield _claim("flavor", "it claims to be a CPU image, and contains a CUDA build and a CUDA runtime")


def _framework(there: tuple[InstalledPackage, ...]) -> tuple[str | None, str | None, str | None]:
    """Return the distribution of TensorFlow, its version and its Python, from the files."""
    for name in FRAMEWORKS:
        for one in there:
            if one.name == name:
                python = re.search(r"/python(\d+\.\d+)/", f"/{one.site}/")
                return one.name, one.version, python[1] if python else None
    return None, None, None


def _cuda_objects(files: ImageFiles) -> list[str]:
    return [
        path
        for path, entry in files.paths.items()
        if entry.row.binary is not None and entry.row.binary.has_cuda_code and _FRAMEWORK_OBJECT.search(path)
    ]


def build_record(files: ImageFiles) -> dict[str, str]:
    """Return CUDA and its versions from the build's own record; empty if it does not say."""
    records = (_BUILD_FACT.finditer(content) for path, content in files.kept() if _BUILD_INFO.search(path))
    facts = (
        {decoding.lossy(one["key"] or one["name"]): decoding.lossy(one["value"]) for one in record}
        for record in records
    )
    return next(filter(None, facts), {})


def says_cuda(files: ImageFiles) -> bool | None:
    """Return whether the build's own record names CUDA; None if it does not say."""
    return {"True": True, "False": False}.get(build_record(files).get("is_cuda_build", ""))


def build_note(subject: ImageContext) -> Iterator[Finding]:
    """Find a contradiction between TensorFlow's build record and its shared objects about CUDA."""
    objects, claims_cuda = _cuda_objects(subject.files), says_cuda(subject.files)
    if claims_cuda is not None and claims_cuda != bool(objects) and _framework(distributions(subject.files))[0]:
        what = f"hold code for GPUs: {listed(objects)}" if objects else "hold no code for GPUs"
        yield _claim(
            "build_info.py", f"build_info.py says {'CUDA' if claims_cuda else 'no CUDA'}, and the shared objects {what}"
        )


def without_cuda(subject: ImageContext) -> Iterator[Finding]:
    """Find a CPU build of TensorFlow in a GPU environment: it opens no library of CUDA."""
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
