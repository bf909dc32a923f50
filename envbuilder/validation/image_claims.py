"""The expected contents of an image; its labels and documents, compared with its files and this host's records."""

import re
from collections.abc import Callable, Iterator, Mapping

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.engine.port import Image
from envbuilder.environment import WHOLE, Environment
from envbuilder.finding import Code, Finding
from envbuilder.image import lockfile, removed_files, system_lock
from envbuilder.image.names import ENVIRONMENT_LABEL
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.support import decoding
from envbuilder.validation.image_context import CheckOutput, ImageContext, escaped, found, listed, output
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.image_loader import InstalledFramework
from envbuilder.validation.suite_plan import Facts

LOCK_LABEL = "org.envbuilder.lock"
SYSTEM_LABEL, FORM_LABEL = "org.envbuilder.system", "org.envbuilder.form"
DOCUMENT, LOCK = "opt/envbuilder/environment.json", "opt/envbuilder/requirements.lock"
# Paths of the locks of system packages in an image.
_SYSTEM_LOCKS = {SYSTEM_LOCK: f"opt/envbuilder/{SYSTEM_LOCK}", CUDNN_LOCK: f"opt/envbuilder/{CUDNN_LOCK}"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")
# Facts that an environment has under the same name.
_SHARED = set(Facts.__struct_fields__) & set(Environment.__struct_fields__)


def document(files: ImageFiles) -> Environment | None:
    """Return the environment document in the image; None if it is missing, damaged, or its id is not a name."""
    try:
        declared = decoding.from_json(files.content(DOCUMENT) or b"", Environment)
    except decoding.DamagedError:
        return None
    return declared if _NAME.match(declared.id) else None


def carried_lock(files: ImageFiles, path: str = LOCK) -> str:
    """Return the text of a lock in the image; '' if it cannot be read."""
    parse: Callable[[str], object] = system_lock.parse if path.endswith(f"/{SYSTEM_LOCK}") else lockfile.parse
    try:
        text = decoding.text(files.content(path) or b"")
        parse(text)
    except ValueError:
        return ""
    return text


def carried_system_locks(files: ImageFiles) -> dict[str, str]:
    return {name: text for name, path in _SYSTEM_LOCKS.items() if (text := carried_lock(files, path))}


def is_labelled(labels: Mapping[str, str]) -> bool:
    return any(labels[name] for name in labels if name.startswith("org.envbuilder."))


def carried_list(files: ImageFiles, labels: Mapping[str, str], lock: str) -> str:
    """Return the list of removed files in the image, which is not verified; '' if its label or lock names another."""
    text = _joined_lists(files)
    label = labels.get(removed_files.LABEL, "") if is_labelled(labels) else lockfile.digest(text)
    return removed_files.named(label, lock, text)


def _joined_lists(files: ImageFiles) -> str:
    names = sorted(path for path in files.paths if path.startswith(removed_files.CARRIED))
    return "".join(decoding.lossy(files.content(name) or b"") for name in names)


def libraries_left_out(text: str) -> tuple[tuple[str, str], ...]:
    """Return the removed libraries in a list of removed files: distribution, and file or folder."""
    removed = removed_files.parse(text)
    gone = ((name, row) for (name, _), rows in removed.items() for row in rows if row.left is None)
    return tuple((name, row.path) for name, row in gone if row.reason in ("unimported", "unnamed"))


def claims(subject: ImageContext) -> CheckOutput:
    declared, labels = document(subject.files), subject.image.labels
    rows = list(_rows(subject, declared))
    wrong = [row for row in rows if row[1] != row[2] and (row[1] or row[2])]
    findings = list[Finding]()
    if declared is not None and not is_labelled(labels):
        findings.append(found("no_labels", id=declared.id))  # nor the rest of its configuration
        wrong = [row for row in wrong if row[2] and not row[0].startswith("label ")]
    for name, claimed, actual in wrong:
        row = "claim_of_nothing" if not actual else "claim" if claimed else "claim_missing"
        shown, right = escaped(str(claimed or "")), escaped(str(actual or ""))
        findings.append(found(row, name=name, claimed=shown, actual=right))
    if declared is None:
        state = "damaged" if subject.files.file(DOCUMENT) else "missing"
        findings.insert(0, found("no_document", path=DOCUMENT, state=state))
    if subject.facts.flavor == "cpu" and subject.python.framework.is_for_gpus:
        findings.append(found("claims_cpu"))
    return output(findings, f"{len(rows)} claims hold")


def _rows(subject: ImageContext, declared: Environment | None) -> Iterator[tuple[str, object, object]]:
    """Yield what labels, document and locks say: its name, the claimed value, and the right value."""
    labels, facts, system, framework = subject.image.labels, subject.facts, subject.system, subject.python.framework
    is_of_files = declared is not None and declared.tensorflow == framework.version  # else the document is wrong
    own_id = declared.id if declared is not None and subject.lock_is_carried and is_of_files else facts.environment
    yield f"label {ENVIRONMENT_LABEL}", labels.get(ENVIRONMENT_LABEL), own_id
    yield "lock in the image", _digest(subject.files, LOCK), facts.lock
    yield f"label {LOCK_LABEL}", labels.get(LOCK_LABEL), facts.lock
    own = (declared.variant or None) if declared is not None else None
    form = (facts.form if facts.form != WHOLE else None) if facts.form else own  # no image names `devel`
    yield f"label {FORM_LABEL}", labels.get(FORM_LABEL), form
    if declared is not None:
        right = {"id": own_id, "flavor": facts.flavor, "python": framework.python}
        right |= {"tensorflow": framework.version, "package": framework.package}
        yield from ((f"environment.json {name}", getattr(declared, name), one) for name, one in right.items())
        yield "environment.json form", own, form
    label, lists = labels.get(removed_files.LABEL), _joined_lists(subject.files)
    carried = lockfile.digest(lists) if lists or label == lockfile.digest("") else None
    yield "lists of removed files in the image", carried, label
    if subject.removed or facts.form == WHOLE:
        yield f"label {removed_files.LABEL}", label, lockfile.digest(subject.removed) if subject.removed else None
    yield f"label {SYSTEM_LABEL}", labels.get(SYSTEM_LABEL), system_lock.digest(system) if system else None
    needed = system_lock.needed(declared) if declared is not None else ()
    for name, path in _SYSTEM_LOCKS.items():
        held = _digest(subject.files, path)
        if not subject.lock_is_carried or name in system:
            yield f"{name} in the image", held, lockfile.digest(system[name]) if name in system else None
        elif held is not None or name in needed:
            yield f"{name} in the image", held and "none that can be read", "what its environment asks for"


def build_note(subject: ImageContext) -> Iterator[Finding]:
    framework = subject.python.framework
    objects, claimed = framework.gpu_objects, framework.build.get("is_cuda_build")
    if framework.package and claimed == ("False" if objects else "True"):
        what = f"hold code for GPUs: {listed(list(objects))}" if objects else "hold no code for GPUs"
        yield found("build_note", says="no CUDA" if objects else "CUDA", what=what)
    if subject.facts.flavor == "gpu" and claimed == "False" and not objects:  # it opens no library of CUDA
        yield found("cpu_build", name=f"TensorFlow {framework.version}".strip())


def _digest(files: ImageFiles, path: str) -> str | None:
    content = files.content(path)
    return lockfile.digest(decoding.lossy(content)) if content is not None else None


def of_environment(environment: Environment, lock: str, host: Environment | None) -> Facts:
    """Return an environment's facts. Only ``host``, this host's record of it, says that its base has no XLA tools."""
    shared = {name: getattr(environment, name) for name in _SHARED}
    shared["built_cuda"] = environment.built_cuda or environment.cuda
    shared["built_cudnn"] = environment.built_cudnn or environment.cudnn
    return Facts(
        **shared,
        form=environment.variant or WHOLE,
        locked=_pins(lock),
        environment=environment.id,
        lock=lockfile.digest(lock) if lock else "",
        without_tools=host is not None
        and bool(host.on_registry_base or host.packaged_cuda)
        and any(finding.code is Code.XLA_TOOLS_MISSING for finding in host.findings),
    )


def _pins(lock: str) -> tuple[tuple[str, str], ...]:
    return tuple((package.name, package.version) for package in lockfile.parse(lock))


def of_claimed(facts: Facts, files: ImageFiles, image: Image) -> Facts:
    """Return a foreign image's facts with the claims of its labels, which are checked even without the documents."""
    return msgspec.structs.replace(
        facts,
        environment=image.labels.get(ENVIRONMENT_LABEL, "")[:200] or "(no label)",
        lock=image.labels.get(LOCK_LABEL, "")[:200],
        locked=_pins(carried_lock(files)),
    )


def of_foreign(installed: InstalledFramework, catalog: Catalog, gpus: str = "") -> Facts:
    """Return facts by the build's own record, else by the catalogue's row of that release; without both no claim.

    ``gpus`` are those of an image's container ('' without one): a CUDA build that gets some is for GPUs.
    """
    rows = catalog.distributions(installed.version)
    exact = [row for row in rows if row.package == installed.package]
    row = next(iter(exact or [row for row in rows if row.gpu and installed.is_cuda_build]), None)
    cuda = _dotted(installed.build.get("cuda_version")) or (row.cuda if row else None)
    cudnn = (row.cudnn if row else None) or _dotted(installed.build.get("cudnn_version"))
    toolkit = catalog.toolkit(cuda)
    for_gpus = installed.is_for_gpus or (installed.is_cuda_build and gpus not in ("", "none"))
    return Facts(
        flavor="gpu" if for_gpus else "cpu",
        tensorflow=installed.version,
        python=installed.python,
        cuda=cuda,
        built_cuda=cuda,
        built_cudnn=cudnn,
        minimum_driver=toolkit.minimum_driver if toolkit and for_gpus else None,
        libraries=row.libraries if row and for_gpus else (),
        cubins=row.cubins if row else (),
        ptx=row.ptx if row else (),
        place="container" if gpus else "here",
    )


def _dotted(value: object) -> str | None:
    found = re.match(r"[0-9]+(\.[0-9]+)*", str(value or ""))
    return found[0] if found else None
