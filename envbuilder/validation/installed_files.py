"""Compare every installed file with the RECORD of its distribution and of the locked wheel; check Python's home."""

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from envbuilder import versions
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, removed_files
from envbuilder.image.lockfile import Locked
from envbuilder.image.removed_files import Removed
from envbuilder.image.wheel_records import WheelRecord
from envbuilder.probes.slimming.remove_files import digest_of_rows, is_below, written
from envbuilder.probes.suite import tensorflow_install
from envbuilder.support import decoding
from envbuilder.validation.file_areas import Difference, Event, Reported, Reporter, report
from envbuilder.validation.image_claims import build_note, carried_list
from envbuilder.validation.image_context import CheckOutput, ImageContext, escaped, found, listed, output, some
from envbuilder.validation.image_loader import SYSTEM_SITE, InstalledPackage, distributions, prefix_of, site_of, unmet
from envbuilder.validation.layer_scan import PATHS

# Packages of other projects that TensorFlow loads whenever it is imported.
_LOADED = frozenset({"numpy", "keras", "protobuf", "h5py", "ml-dtypes"})
_OF_CONDA = (b"conda", b"conda\n")


@dataclass
class _Total:
    """The comparison of all distributions.

    ``carried`` is the image's own list of removed files, if this host has none for it. ``owned`` are the files that
    distributions account for: path → the layer that installed them, ``same`` those with their recorded digest.
    ``back`` are packages with files that the image leaves out: name → RECORD, and bytes of these files.
    ``unknown`` are packages of the lock by the reason why no wheel's RECORD is known; ``alone`` is what TensorFlow
    loads in a foreign image, by the reason why only the image itself describes it.
    """

    carried: str = ""
    findings: list[Finding] = field(default_factory=list)
    reported: tuple[Reported, ...] = ()
    owned: dict[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    same: set[str] = field(default_factory=set)
    unknown: dict[str, list[str]] = field(default_factory=dict)
    alone: dict[str, list[str]] = field(default_factory=dict)
    back: dict[str, tuple[str, int]] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=lambda: {"files": 0, "wheels": 0, "proved": 0})

    def add(
        self, subject: ImageContext, one: InstalledPackage, package: Locked | None, omitted: Sequence[Removed]
    ) -> None:
        record = f"{one.site}/{one.folder}/RECORD"
        if subject.proven and one.rows is not None and subject.unproven.isdisjoint((record, *one.rows)):
            self.owned.update(dict.fromkeys(one.rows, 0))
            self.counts["files"] += len(one.rows)
            return
        is_added = one in subject.added
        site = f"{one.site}/"
        removed = [site + row.path for row in omitted if row.left is None] if subject.is_later(record) else []
        if any(is_below(path, place) for place in removed for path in subject.files.paths):
            self.back[f"{one.name} {one.version}"] = (record, sum(row.size - (row.left or 0) for row in omitted))
            omitted = ()  # it is compared as a whole wheel
        wheel = _wheel(subject, one, package, is_whole=not omitted)
        has_wheel, own = wheel.content is not None, one.rows or {}
        brought, rewritten = one.of_wheel(wheel.content or b"")
        brought, gone = remaining_of(brought, omitted, one.site)
        paths = brought if has_wheel else own
        entry = subject.files.file(f"{one.site}/{one.folder}/METADATA")
        # What comes in several steps of a Dockerfile is compared with the package's own digests only.
        layer = len(subject.files.records) if is_added else entry.layer if entry is not None else 0
        is_known = package is not None or is_added or not subject.is_managed
        vouched = (path for path in paths if one.vouches_for(path, in_environment=is_known))
        brought_here = (path for path in vouched if not is_added or subject.is_added(path))
        for path in (*brought_here, *(f"{prefix_of(one.site)}/bin/{name}" for name in one.scripts)):
            self.owned[path] = max(layer, self.owned.get(path, 0))  # two may bring it
            if path not in subject.files.paths:  # it was moved, and a link leads to it
                self.owned[subject.files.resolve(path)] = layer
        events: list[tuple[Event, str]] = [("differs", path) for path in gone if subject.files.file(path) is not None]
        events += self._compared(subject, {**own, **brought}, rewritten)
        self.counts["wheels"] += has_wheel
        self.counts["proved"] += has_wheel and bool(wheel.proof)
        is_as_recorded = not {"differs", "missing"} & dict(events).keys()
        if subject.is_built_here and package is not None and has_wheel and is_as_recorded:
            subject.wheels.built(package, one.tags)
        why = "" if has_wheel else wheel.why
        if package is not None and (unvouched := _unvouched(subject, one, wheel, package)) is not None:
            self.findings.append(unvouched)
        elif why and not subject.is_managed and _is_of_framework(one):
            self.alone.setdefault(why, []).append(f"{one.name} {one.version}")
        elif why and package is not None and versions.same(package.version, one.version):
            self.unknown.setdefault(why, []).append(one.name)
        is_own = subject.is_managed and not is_added
        weight, place = Severity.ERROR if is_own else Severity.WARNING, f"/{one.site}/{one.folder}"
        below = f"{subject.files.resolve(one.editable)}/"
        lost = "" if any(path.startswith(below) for path in subject.files.paths) else ", which is not in the image"
        rows = (("no_record", one.rows is None), ("editable", one.editable))
        self.findings += (found(row, weight, one=one, place=place, lost=lost) for row, holds in rows if holds)
        self.differences += (Difference(event, path, one, is_own) for event, path in events)

    def _compared(
        self, subject: ImageContext, expected: Mapping[str, str], rewritten: frozenset[str]
    ) -> Iterator[tuple[Event, str]]:
        """Compare files with their recorded digests; an installer rewrites the first line of scripts."""
        for path, digest in expected.items():
            # NumPy's wheels of 1.26 and 2.0 record a digest of byte code; every installer that compiles replaces it.
            if path.endswith(".pyc") and (not digest or "/__pycache__/" in path):
                continue
            self.counts["files"] += 1
            entry = subject.files.file(path)
            if entry is None:
                yield "missing", path
            elif digest and not digest.startswith("sha256="):
                yield "unhashed", path
            elif digest and path not in rewritten and digest.rstrip("=") != written(entry.row.digest):
                yield "differs", path
            elif digest:
                self.same.add(path)


def files(subject: ImageContext) -> CheckOutput:
    """Compare all files of all distributions; by the image's own list of removed files it is undecided at best."""
    total, sites = compared(subject), {one.site for one in distributions(subject.files)}
    counts, unknown = total.counts, sum(map(len, total.unknown.values()))
    result = area_output(subject, "files", total.findings, "", **counts)
    findings = [*result.findings, *hiding_modules(subject, sites), *environments(subject, sites)]
    for why, names in sorted(total.unknown.items()):
        findings.append(found("wheels_unknown", names=some(names), why=why))
    alone = "; ".join(f"{', '.join(sorted(names)[:6])}: {why}" for why, names in sorted(total.alone.items()))
    undecided = found("alone", files=alone).message if alone else result.undecided
    if subject.is_managed and subject.files.is_complete and not (subject.files.system.layers or subject.of_base):
        findings.append(found("no_package_list"))
        undecided = findings[-1].message
    if total.carried:
        rows = removed_files.sums(removed_files.parse(total.carried).values())
        sums = ", ".join(f"{one.reason} {one.size / 1e6:.1f} MB" for one in rows)
        findings.append(found("own_list_only", subject=removed_files.REMOVED, sums=sums))
        undecided = findings[-1].message
    errors = "; ".join(one.message for one in findings if one.severity is Severity.ERROR)
    counted = (
        f"{counts['files']} files of {len(_brought(subject))} distributions as recorded, {counts['wheels']}"
        f" by their locked wheels ({counts['proved']} of these were hashed completely)"
        + (f"; unknown for {unknown}" if unknown else "")
    )
    follow = {**result.follow, "WORKDIR": frozenset({Code.USER_START})}
    return replace(result, findings=tuple(findings), observed=errors or counted, undecided=undecided, follow=follow)


def binaries(subject: ImageContext) -> CheckOutput:
    count = sum(entry.row.binary is not None for entry in subject.files.paths.values())
    return area_output(subject, "binaries", build_note(subject), f"{count} binaries", binaries=count)


def area_output(
    subject: ImageContext, check: Reporter, findings: Iterable[Finding], observed: str, **counts: int
) -> CheckOutput:
    rows = [one for one in compared(subject).reported if one.area.check == check]
    deciding = [one.finding for one in rows if one.area.decides and one.finding.severity is Severity.WARNING]
    return replace(
        output((*findings, *(one.finding for one in rows)), observed, **counts),
        blamed=frozenset(posixpath.basename(path) for one in rows if one.area.is_cause for path in one.paths),
        follow={one.finding.subject: one.area.follow for one in rows if one.area.follow},
        undecided="; ".join(one.message for one in deciding),
    )


@lru_cache(maxsize=1)
def compared(subject: ImageContext) -> _Total:
    there, total = _brought(subject), _Total()
    if subject.is_managed and not subject.removed:
        total.carried = carried_list(subject.files, subject.image.labels, subject.lock)
    # No lock names what TensorFlow loads in a foreign image: the index may have such wheels. Conda's builds have the
    # names and versions of wheels, and other files.
    loaded = (one for one in there if _is_of_framework(one) or one.name in _LOADED)
    of_pip = (one for one in loaded if subject.files.content(f"{one.site}/{one.folder}/INSTALLER") not in _OF_CONDA)
    published = (subject.wheels.published(one.name, one.version, one.tags) for one in of_pip)
    named = lockfile.parse(subject.lock) if subject.is_managed else filter(None, published)
    locked = {package.name: package for package in named}
    omitted = removed_files.parse(subject.removed or total.carried)
    for one in there:
        package = locked.get(one.name) if one not in subject.added else None  # it may be that of another environment
        total.add(subject, one, package, omitted.get((one.name, one.version), ()))
    for one, package in subject.cudnn:
        total.add(subject, one, package, ())
    if not subject.is_managed:
        if not any(map(_is_of_framework, there)):
            total.alone["it has no metadata of a package"] = ["TensorFlow"]
        unowned = [path for path in _loaded(subject) if not (path in total.owned or path in subject.files.system.same)]
        if unowned:
            total.alone["no package recorded their digests"] = [listed(unowned)]
    if total.back:
        records, sizes = zip(*total.back.values(), strict=True)
        where, size = subject.origin(records), sum(sizes) / 1e6
        total.findings.append(found("came_back", names=some(list(total.back)), size=size, origin=where))
    total.reported = report(subject, total.owned, total.differences)
    return total


def _brought(subject: ImageContext) -> tuple[InstalledPackage, ...]:
    """Return the distributions that dpkg did not install: it strips libraries, and records its own digests."""
    every = (one for one in distributions(subject.files) if one.folder.endswith(".dist-info"))
    return tuple(one for one in every if not subject.is_of_system(f"{one.site}/{one.folder}/METADATA"))


def _loaded(subject: ImageContext) -> Iterator[str]:
    """Yield TensorFlow's own code and the libraries of CUDA that it finds, where they are."""
    files, search, python = subject.files, subject.search, subject.python
    below = tuple(f"{site}/{name}/" for site in python.sites for name in ("tensorflow", "tensorflow-plugins"))
    own = (path for path in files.paths if path.startswith(below) and files.file(path))
    yield from (path for path in own if path.endswith(".py") or PATHS["object"].search(path))
    for folder in tensorflow_install.search_path(search, python.own(search)):
        libraries = filter(PATHS["of-tensorflow"].match, search.names(folder))
        yield from (files.resolve(f"{folder}/{name}") for name in libraries if files.file(f"{folder}/{name}"))


def _is_of_framework(one: InstalledPackage) -> bool:
    return one.name in tensorflow_install.DISTRIBUTIONS or one.name.startswith("nvidia-")


def _wheel(subject: ImageContext, one: InstalledPackage, package: Locked | None, *, is_whole: bool) -> WheelRecord:
    """Return the RECORD of the locked wheel; without an index the installed one, if it is whole and equals its pin."""
    if package is None and not subject.is_managed:
        return WheelRecord(why="no index that was queried has such a wheel")
    if package is None or not versions.same(package.version, one.version):
        return WheelRecord(why="it is not in the lock in this version")
    wheel = subject.wheels.of(package, one.tags)
    if wheel.content is not None or not is_whole:
        return wheel
    record = subject.files.content(f"{one.site}/{one.folder}/RECORD") or b""
    return subject.wheels.as_pinned(package, one.tags, record) or wheel


def _unvouched(subject: ImageContext, one: InstalledPackage, wheel: WheelRecord, package: Locked) -> Finding | None:
    """Report that only the image's own RECORD or lock describes the files; this host's own lock alone is trusted."""
    is_of_lock = subject.lock_is_carried and (wheel.refuted == "lock" or not package.hashes)
    if wheel.refuted != "image" and not is_of_lock:
        return None
    how = wheel.why if package.hashes else "it has no hash, and every lock of envbuilder has one"
    what = "RECORD" if wheel.refuted == "image" else "lock"
    return found("unvouched", one=one, what=what, how=how, hashes=", ".join(package.hashes[:2]))


def remaining_of(brought: Mapping[str, str], omitted: Sequence[Removed], site: str) -> tuple[dict[str, str], list[str]]:
    """Return a wheel's remaining files (path → digest) and the removed paths; a row that differs excuses nothing."""
    start, left, gone = len(site) + 1, dict(brought), list[str]()
    for row in (one for one in omitted if one.left is None):
        below = [path for path in brought if is_below(path, f"{site}/{row.path}") and not path.endswith(".pyc")]
        if len(below) == row.files and digest_of_rows((path[start:], brought[path]) for path in below) == row.digest:
            gone += below
            for path in below:
                left.pop(path, None)
    for cut in (one for one in omitted if one.left is not None):
        path = f"{site}/{cut.path}"
        left |= {path: cut.becomes} if left.get(path) == cut.digest else {}
    return left, gone


def environments(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Find a ``pyvenv.cfg`` that sends an interpreter to another library, and libraries that an interpreter lacks."""
    for prefix in sorted(set(map(prefix_of, sites))):
        programs = (f"{prefix}/bin/python", f"{prefix}/bin/python3")
        python = next((path for path in programs if subject.files.file(path) is not None), None)
        if python is None:
            continue
        # A system's Python searches dist-packages, and below /usr/local, without a pyvenv.cfg.
        is_noted = prefix != "usr/local" and any(
            re.fullmatch(rf"{re.escape(prefix)}/[^/]+/[^/]+/site-packages", one) for one in sites
        )
        yield from _wrong_home(subject, prefix, python, is_noted=is_noted)
        for name, _, tried in unmet(subject.search, f"/{subject.files.resolve(python)}"):
            yield found("interpreter_needs", name=name, tried=", ".join(tried[:6]))


def _wrong_home(subject: ImageContext, prefix: str, python: str, *, is_noted: bool) -> Iterator[Finding]:
    """Find a wrong or changed home of a Python; ``is_noted``: its folder needs a ``pyvenv.cfg``."""
    files, note = subject.files, f"{prefix}/pyvenv.cfg"
    real = posixpath.dirname(files.resolve(python))
    entries = [(files.paths.get(path), path in files.hidden) for path in (note, python, files.resolve(python))]
    if not any(entry.layer >= subject.of_base if entry is not None else was_there for entry, was_there in entries):
        return
    if (real == f"{prefix}/bin" or not is_noted) and files.file(note) is None:
        return  # not an environment: its library is at its default place
    pairs = (line.partition("=") for line in re.split(r"[\r\n]", decoding.lossy(files.content(note) or b"")))
    values = (value.strip() for key, equals, value in pairs if equals and key.strip().lower() == "home")
    named = list(dict.fromkeys(filter(None, values)))  # of several, versions of Python use different ones
    home = files.resolve(named[0]) if len(named) == 1 else ""
    copied = real == f"{prefix}/bin" and any(name.startswith("python3") for name in subject.search.names(home))
    shown = listed([note])
    if files.file(note) is None:
        yield found("no_home", subject.severity, note=shown, real=listed([real]), prefix=prefix)
    elif len(named) != 1 or (home != real and not copied):
        sent = ", ".join(map(escaped, named)) or "no folder"
        yield found("other_home", subject.severity, note=shown, sent=sent, real=listed([real]), prefix=prefix)
    elif files.is_changed(note) and SYSTEM_SITE.search(files.content(note) or b""):
        yield found("opened_home", subject.severity, note=shown, prefix=prefix)


def hiding_modules(subject: ImageContext, sites: set[str]) -> Iterator[Finding]:
    """Find modules that hide installed ones: in PYTHONPATH, in the folder of work or script, or next to the lock's."""
    files, told = subject.files, subject.entries("PYTHONPATH")
    if archives := [path for path in told if files.file(path) is not None]:
        yield found("archives_in_path", subject.severity, paths=listed(archives))
    workdir, (program, named) = subject.image.workdir.strip("/"), subject.started
    asked = [*(("PYTHONPATH", folder) for folder in told), ("WORKDIR", workdir)]
    if PATHS["interpreter"].search(f"/bin/{program}") and "script" in named and not {"isolated", "safe"} & {*named}:
        folder = posixpath.normpath(posixpath.dirname(posixpath.join("/", workdir, named["script"]))).strip("/")
        asked += [("the folder of the script", folder)] if folder != workdir else []
    own, names = set(subject.python.sites) or sites, None
    for what, folder in asked:
        real = files.resolve(folder)
        modules = _modules(subject, real) if folder and real not in own else {}
        if not modules:
            continue
        packages, others = names = names or _installed(subject, sites)
        meant = packages | others | ({"sitecustomize", "usercustomize"} if what == "PYTHONPATH" else set())  # at start
        hiding = {name: folder + path.removeprefix(real) for name, path in modules.items() if name in meant}
        # A foreign image may do so on purpose, with a folder into which packages were installed.
        how = subject.severity if real in sites else Severity.ERROR
        how = how if what == "PYTHONPATH" or packages & hiding.keys() else Severity.WARNING  # the start decides
        if hiding:
            yield found("hides_modules", how, what=what, paths=listed(list(hiding.values())))
    if hidden := _hidden_modules(subject):
        yield found("hidden_modules", subject.severity, paths=listed(hidden))


def _installed(subject: ImageContext, sites: set[str]) -> tuple[set[str], set[str]]:
    """Return the names that Python imports from packages, and those from additions and from its own library."""
    tops: tuple[set[str], set[str]] = set(), set()
    for path in subject.files.paths:
        if (site := site_of(path)) in sites:
            top, *rest = re.split("[/.]", path[len(site) + 1 :], maxsplit=2)
            is_namespace = rest and f"{site}/{top}/__init__.py" not in subject.files.paths
            tops[subject.is_added(path)].update({top, f"{top}/{rest[0]}"} if is_namespace else {top})
        elif (found := PATHS["stdlib"].match(path)) is not None:
            tops[1].add(re.split("[/.]", path[found.end() :], maxsplit=1)[0])
    return tops


def _modules(subject: ImageContext, folder: str) -> dict[str, str]:
    """Return what Python would import from a folder: the name of a module, and its path there."""
    files, start = subject.files, len(folder) + 1
    paths = [path for path in files.paths if path.startswith(folder + "/")]
    stems = {posixpath.join(*one)[start:]: path for path in paths for one in module_of(path)}
    tops = {"", *(name.partition("/")[0] for name in stems)} - {name for name in stems if name}  # "" and namespaces
    linked = {posixpath.basename(path): path for path in paths if posixpath.dirname(path) == folder}
    linked = {one: path for one, path in linked.items() if f"{files.resolve(path)}/__init__.py" in files.paths}
    return {name: path for name, path in stems.items() if posixpath.dirname(name) in tops} | linked


def _hidden_modules(subject: ImageContext) -> list[str]:
    """Return what additions bring for a module of a lower layer in the same folder: Python may import it instead."""
    paths = subject.files.paths.items() if subject.added else ()
    below = {one for path, entry in paths if entry.layer < subject.own_layers for one in module_of(path)}
    added = (path for path, _ in paths if subject.is_added(path) and site_of(path))
    return [path for path in added if not below.isdisjoint(module_of(path))]


def module_of(path: str) -> list[tuple[str, str]]:
    """Return the folder and the name of the module that a file is; a package is its ``__init__``."""
    folder, _, leaf = path.rpartition("/")
    name, _, end = leaf.partition(".")
    if folder.endswith("__pycache__") or not f".{end}".endswith((".py", ".pyc", ".so")):
        return []
    return [posixpath.split(folder) if name == "__init__" else (folder, name)]
