"""Check packages, the libraries that the loader finds, XLA's tools, and credentials, in an image or on this host."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.version import InvalidVersion, Version

from envbuilder.finding import Finding, Severity
from envbuilder.image import lockfile, system_lock
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.probes.suite import tensorflow_install, xlatools
from envbuilder.probes.suite.installed import normalise
from envbuilder.probes.suite.runtime_libraries import cudnn_conflict
from envbuilder.support import decoding, dpkg_status
from envbuilder.support.architectures import ARCHS
from envbuilder.validation.image_context import SHOWN, CheckOutput, ImageContext, found, instruction, listed, output
from envbuilder.validation.image_loader import LOADED, OF_PACKAGE, Unmet, distributions, python_of, site_of, unmet
from envbuilder.validation.installed_files import area_output, compared
from envbuilder.validation.layer_scan import INSTRUCTION, PATHS, VARIABLE, secrets_in
from envbuilder.versions import key_or_none, minor
from envbuilder.workspace import packaged_yaml

# Packages whose unmet requirements have a code of their own.
_UNMET = {"numpy": "unmet_numpy", "protobuf": "unmet_protobuf", "keras": "unmet_keras"}
_INSTALLERS = ("pip", "setuptools", "wheel")  # What they install is reported, not that they are there
_TAG = re.compile(r"cp3(\d{1,2})-(cp3\d+[a-z]*|abi3)-")
_OF_FAMILY = re.compile(r"\.so\.[0-9][0-9.]*\Z")
_FAMILIES = ("cudart", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cudnn", "nccl")
VERSIONED = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1")
# Findings of a check; variables, labels and instructions that are searched, and their bytes.
_MOST_SHOWN, _MOST_TEXTS, _MOST_TEXT = 40, 2000, 1 << 20
_WORD = re.compile(r"\A(?:ONBUILD )?[A-Z]+(?= )")  # of an instruction; RUN has none in the history of some engines
_SETS = ("ENV", "LABEL", "CMD", "ENTRYPOINT")
_LEAST_VALUE = 7  # Characters of a value; shorter ones occur in other words


def locked(subject: ImageContext) -> CheckOutput:
    wanted = {normalise(name): version for name, version in subject.facts.locked}
    left_out = {one.name for one in subject.added} - wanted.keys()
    packages = [(one.name, one.version) for one in subject.python.distributions() if one.name not in left_out]
    findings = _unlike(wanted, _joined(packages))
    gone = ((path, PATHS["metadata"].search(path)) for path in subject.files.gone if path.endswith("/METADATA"))
    removed = {normalise(match["folder"].partition("-")[0]): path for path, match in gone if match is not None}
    bare = {one.subject: removed[one.subject] for one in findings if one.found == "absent" and one.subject in removed}
    if len(bare) > SHOWN:
        findings = [one for one in findings if one.subject not in bare]
        origin = subject.origin(bare.values())
        findings.append(found("metadata_removed", count=len(bare), names=", ".join(bare), origin=origin))
    return output([*findings, *_unlocked(subject)], f"{len(wanted)} packages as locked", packages=len(set(packages)))


def _unlike(locked: Mapping[str, str], there: Mapping[str, str]) -> list[Finding]:
    rows = ((name, locked.get(name) or "nothing", there.get(name) or "absent") for name in sorted({**locked, **there}))
    return [found("unlike_lock", name=name, locked=own, there=other) for name, own, other in rows if own != other]


def _unlocked(subject: ImageContext) -> list[Finding]:
    status = subject.files.content(dpkg_status.PATH)
    there = dpkg_status.versions(decoding.lossy(status or b""))
    text = subject.system.get(SYSTEM_LOCK, "")
    wanted = {package.name: package.version for package in system_lock.parse(text)}
    asked = (one.partition("=") for one in system_lock.of_base(text))
    wanted |= {name: version or there.get(name, "") for name, _, version in asked}
    if wanted and status is None:
        return [found("no_dpkg_status", path=dpkg_status.PATH, lock=SYSTEM_LOCK)]
    of_base = subject.files.packages(subject.locked_above)
    of_base = of_base if "python3" in of_base else {}  # a base without Python gets it from the packages of its day
    wanted = {**of_base, **wanted}
    before = subject.files.packages(subject.own_layers) if subject.own_layers else there
    known = wanted.keys() | (before if of_base else ())  # others may be installed above an unlocked base
    findings = _unlike(wanted, {name: version for name, version in there.items() if name in known})
    if len(findings) > SHOWN:
        more = ", ".join(one.subject for one in findings[SHOWN:])[:200]
        findings[SHOWN:] = [found("more_unlike", count=len(findings) - SHOWN, names=more)]
    if CUDNN_LOCK in subject.system:
        pins = {package.name: package.version for package in lockfile.parse(subject.system[CUDNN_LOCK])}
        findings += _unlike(pins, _joined((one.name, one.version) for one, _ in subject.cudnn))
    return findings


def _joined(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    versions: dict[str, set[str]] = {}
    for name, version in pairs:
        versions.setdefault(name, set()).add(version)
    return {name: ", ".join(sorted(all_)) for name, all_ in versions.items()}


def consistent(subject: ImageContext) -> CheckOutput:
    every = subject.python.distributions()
    there, markers = {one.name: one.version for one in every}, _markers(subject)
    framework = next((there[name] for name in tensorflow_install.DISTRIBUTIONS if name in there), "")
    same = dict.fromkeys(tensorflow_install.DISTRIBUTIONS if framework else (), framework)
    there = {**same, **there}  # each of them brings the module that a requirement of another one means
    findings = []
    for one, text in ((package, text) for package in every for text in package.requires):
        name, problem = unmet_requirement(text, there, markers)
        if not subject.files.budget.spend(OF_PACKAGE if problem else 0):
            break
        if problem:
            row = _UNMET.get(name, "unmet")
            findings.append(found(row, one=one, requirement=text, problem=problem))
    findings += for_another_python(subject)
    searched = (*subject.python.sites, *subject.entries("PYTHONPATH"))
    unseen = [one for one in subject.added if one.site not in searched and one.name not in _INSTALLERS]
    for site in sorted({one.site for one in unseen if PATHS["site-of-other"].search(one.site)}):
        names = ", ".join(f"{one.name} {one.version}" for one in unseen if one.site == site)[:200]
        findings.append(found("of_other_python", names=names, site=site))
    frameworks = sorted({f"{one.name} {one.version}" for one in every if one.name in tensorflow_install.DISTRIBUTIONS})
    if frameworks[1:]:
        findings.insert(0, found("two_frameworks", subject.severity, names=" and ".join(frameworks)))
    return output(findings, f"{len(every)} packages fit together")


def unmet_requirement(text: str, there: Mapping[str, str], markers: Mapping[str, str]) -> tuple[str, str]:
    """Return the package of a requirement, and why it is not met; '' if it is, or if it cannot be read."""
    try:
        needed = Requirement(text)
        applies = needed.marker is None or needed.marker.evaluate({**markers, "extra": ""})
        name = normalise(needed.name)
        if not applies or (name in there and needed.specifier.contains(Version(there[name]), prereleases=True)):
            return name, ""
    except (InvalidRequirement, InvalidVersion, UndefinedComparison, UndefinedEnvironmentName):
        return "", ""
    return name, f"{name} {there[name]} is installed" if name in there else f"{name} is not installed"


def _markers(subject: ImageContext) -> dict[str, str]:
    version = subject.python.framework.release or subject.facts.python
    return {
        "python_version": minor(version) if key_or_none(version) else version,
        "python_full_version": version,
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": ARCHS.get(subject.image.architecture, subject.image.architecture),
    }


def no_stub(subject: ImageContext) -> CheckOutput:
    search = subject.search
    own = subject.python.own(search)
    ends = ((name, tensorflow_install.find(search, name, own)[0]) for name in LOADED)
    findings = [found("stub", name=name, place=path) for name, path in ends if path and search.is_stub(path)]
    for folder in search.library_path:
        names = search.names(folder) if posixpath.basename(posixpath.normpath(folder)) == "stubs" else []
        if any(one.startswith("libcuda.so") for one in names) and not any(folder in one.found for one in findings):
            findings.append(found("stub", name="libcuda.so", place=folder))
    return area_output(subject, "no-stub", findings, "no stub where the driver belongs")


def tools(subject: ImageContext) -> CheckOutput:
    env, facts, folder = subject.image.env, subject.facts, subject.python.framework.folder
    paths = subject.search.xla_tools(folder, facts.built_cuda, env)
    places = ", ".join(xlatools.roots(folder, facts.built_cuda, env.get("XLA_FLAGS", "")))
    severity = Severity.WARNING if facts.without_tools else Severity.ERROR
    findings = tuple(found("no_tool", severity, name=name, places=places) for name, path in paths.items() if not path)
    return CheckOutput(findings, f"ptxas {paths['ptxas']}, libdevice {paths['libdevice.10.bc']}")


def for_another_python(subject: ImageContext) -> Iterator[Finding]:
    """Find distributions that this Python cannot import, by their tags; the stable ABI fits all later versions."""
    for one in distributions(subject.files):
        _, _, minor_version = python_of(one.site).partition(".")
        built = [tag for text in one.tags if (tag := _TAG.match(text)) is not None]
        if not minor_version or not built or len(built) < len(one.tags):
            continue
        own = int(minor_version)
        if not any(int(tag[1]) <= own if tag[2] == "abi3" else int(tag[1]) == own for tag in built):
            tags = ", ".join(sorted(one.tags))[:100]
            yield found("another_python", subject.severity, one=one, python=f"3.{own}", tags=tags)


def only_one(subject: ImageContext) -> CheckOutput:
    """Find a second CUDA or cuDNN on the loader's path; an older cuDNN in front has a check of its own."""
    search = subject.search
    copies: dict[str, list[str]] = {f"lib{name}": [] for name in _FAMILIES}
    for folder in tensorflow_install.search_path(search, subject.python.own(search)):
        for name in search.names(folder):
            family, path = _OF_FAMILY.sub("", name), search.real(f"{folder}/{name}")
            if family != name and family in copies and path not in copies[family] and search.exists(path):
                copies[family].append(path)
    twice = {family: paths for family, paths in copies.items() if len(paths) > 1}
    if cudnn := twice.get("libcudnn"):
        built = {"built_cudnn": subject.facts.built_cudnn}
        if cudnn_conflict(cudnn[0], search.cudnn_version(cudnn[0]), built) is not None:
            del twice["libcudnn"]
    observed = "; ".join(f"{family} in {', '.join(paths)}" for family, paths in copies.items() if paths)
    texts = (f"{len(own)} copies of {name} on the loader's path; {own[0]} comes first" for name, own in twice.items())
    differ = any(len({search.size(path) for path in paths}) > 1 for paths in twice.values())
    severity, places = Severity.ERROR if differ else Severity.WARNING, "; ".join(map(", ".join, twice.values()))
    finding = found("two_cuda", severity, families=", ".join(twice), texts="; ".join(texts), copies=places)
    return CheckOutput((finding,) if twice else (), observed or "no CUDA libraries on the loader's path")


def complete(subject: ImageContext) -> CheckOutput:
    search, python = subject.search, subject.python
    paths, own = python.objects(search), python.own(search)
    read = {path: search.read(path) for path in paths}
    named = {path: (one and one.soname) or posixpath.basename(path) for path, one in read.items()}
    needed = {name for one in read.values() if one is not None for name in one.needed}
    missing: dict[str, list[Unmet]] = {}
    for root in (path for path, name in named.items() if name not in needed):
        for name, user, tried in unmet(search, root, tensorflow_install.loaded_before(search, root, own)):
            missing.setdefault(name, []).append((root, user, tried))
    brought = set(named.values())
    findings = [_missing(subject, name, places, brought=name in brought) for name, places in sorted(missing.items())]
    return output(findings, f"all needs of {len(paths)} objects are found", objects=len(paths))


def _missing(subject: ImageContext, name: str, places: Sequence[Unmet], *, brought: bool) -> Finding:
    """Describe a need that is not found: an error for objects that Python or TensorFlow always opens.

    Modules of Python's own library alone have a severity of their own: some images leave out what few of them need.

    A library that another package brings under that name counts as found once that package has loaded it: extension
    modules and the CUDA wheels are made so. That is not enough for a need of a core object.
    """
    users = sorted({user for _, user, _ in places})
    is_core = any(re.search(r"\.(?:cpython-|abi3\.)[^/]*\Z|/tensorflow", root) for root, _, _ in places)
    roots = {root.strip("/") for root, _, _ in places}
    core = Severity.INFO if not subject.is_managed and all(map(PATHS["own-modules"].search, roots)) else Severity.ERROR
    severity = core if is_core and not brought else Severity.WARNING
    owners = sorted(one.name for one in distributions(subject.files) if not roots.isdisjoint(one.rows or ()))
    package = packaged_yaml("validation/debian_libraries.yaml", dict[str, str]).get(name, "")
    row = "missing_of_debian" if package and subject.files.packages(len(subject.files.records)) else "missing_library"
    user = posixpath.basename(users[0]) + (f" of {', '.join(owners[:SHOWN])}" if owners else "")
    by, tried = ", ".join(users[:4]), ", ".join(places[0][2][:12])
    return found(row, severity, name=name, user=user, users=by, tried=tried, package=package)


def versions(subject: ImageContext) -> CheckOutput:
    search = subject.search
    wanted: set[str] = set()
    lacking: dict[str, dict[str, str]] = {}
    for path in subject.python.objects(search):
        read = search.read(path)
        for library, names in read.versions.items() if read is not None else ():
            where = search.find(library, read)[0] if library in VERSIONED else None
            there = search.read(where) if where is not None else None
            if where is None or there is None or not there.dynamic:
                continue  # absent or damaged: other checks report it
            wanted.update(names)
            for name in {*names}.difference(there.defines):
                lacking.setdefault(where, {}).setdefault(name, posixpath.basename(path))
    ordered = sorted(wanted, key=lambda one: [*map(int, re.findall("[0-9]+", one))])
    newest = {one.rpartition("_")[0]: one for one in ordered}
    findings = []
    for where, users in sorted(lacking.items()):
        is_other = subject.files.system.layers and not subject.is_of_system(subject.files.resolve(where))
        names, row = [one for one in ordered if one in users][::-1], "glibc_of_others" if is_other else "glibc_too_old"
        name, library = ", ".join(names[:SHOWN]), posixpath.basename(where)
        findings.append(found(row, where=where, name=name, user=users[names[0]], library=library))
    needed, libc = ", ".join(sorted(newest.values())) or "no versioned symbols", search.glibc()
    observed = f"GLIBC_{libc}" if libc else "no C library that can be read"
    return CheckOutput(tuple(findings), f"{observed}, and the packages need {needed}")


def secrets(subject: ImageContext) -> CheckOutput:
    left = list(_left(subject, hidden=False))
    public = {path for path in compared(subject).same if site_of(path)} if left else ()  # published examples
    own = (one for path, one in left if PATHS["compiled"].sub(r"\1.py", path) not in public)  # as public as its source
    root = [found("root_by_default")] if subject.user == 0 else []
    findings = [*own, *_configured(subject), *root][:_MOST_SHOWN]
    return area_output(subject, "secrets", findings, "none found")


def layers(subject: ImageContext) -> CheckOutput:
    findings = [one for _, one in _left(subject, hidden=True)][:_MOST_SHOWN]
    number, count = len(subject.files.records), sum(len(record.rows) for record in subject.files.records)
    return output(findings, f"none in {count} files of {number} layers", layers=number, files=count)


def _left(subject: ImageContext, *, hidden: bool) -> Iterator[tuple[str, Finding]]:
    for number, record in enumerate(subject.files.records):
        if number < subject.proven:
            continue
        where = f" (layer {number + 1} of the image; a later one hides it)" if hidden else ""
        for path, what in record.secrets:
            entry, severity = subject.files.paths.get(path), Severity.WARNING if site_of(path) else None
            if hidden is (entry is None or entry.layer != number):
                shown = listed([path])
                yield path, found("secret_in_file", severity, path=path, what=what, shown=shown, where=where)


def _configured(subject: ImageContext) -> Iterator[Finding]:
    image = subject.image
    texts = [("the variable ", name[:100], VARIABLE, f"{name}={value}") for name, value in sorted(image.env.items())]
    texts += [("the label ", name[:100], VARIABLE, f"{name}={value}") for name, value in sorted(image.labels.items())]
    texts += [("", "the entry point", INSTRUCTION, " ".join(image.entrypoint))]
    texts += [("", "the command", INSTRUCTION, " ".join(image.command))]
    count, size = len(texts) + len(image.history), sum(map(len, (*image.history, *(text for *_, text in texts))))
    if count > _MOST_TEXTS or size > _MOST_TEXT:
        yield found("too_much_text", count=count, size=size)
        return
    for kind, name, place, text in texts:
        for what in secrets_in(place, text.encode("utf-8", "replace")):
            yield found("secret_in_value", kind=kind, name=name, what=what)
    onbuild = image.settings.get("on_build")
    waiting = onbuild if isinstance(onbuild, tuple) else ()
    values = (*image.env.values(), *image.labels.values(), *image.command, *image.entrypoint)
    now = [value for value in values if len(value) >= _LEAST_VALUE]
    later = (f"ONBUILD {one}" for one in waiting if not any(one in text for text in image.history))
    for number, text in enumerate((*reversed(image.history), *later), 1):
        word = next(iter(_WORD.findall(instruction(text))), "RUN")
        replaced = ", which a later one replaced" if word in _SETS else ""
        for value in now if replaced else ():
            text = text.replace(value, "")  # noqa: PLW2901 - what still holds is reported above
        for what in secrets_in(INSTRUCTION, text.encode("utf-8", "replace")):
            yield found("secret_in_step", number=number, word=word, what=what, replaced=replaced)
