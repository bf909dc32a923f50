"""The closest compatible environment for a report: the reporter's working setup, the rules' choice, other ways."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.binding import distributions
from envbuilder.compat.check import check, findings_of
from envbuilder.compat.check_text import change_text, new_text
from envbuilder.compat.fleet import FleetHost, choose_for, environment_for
from envbuilder.compat.install import install, matrix_text, pip_install
from envbuilder.compat.nearest import Installable, Near, nearest, nearest_with_driver
from envbuilder.compat.question import Question
from envbuilder.compat.unknown import FIRST_WITHOUT_WINDOWS_GPU
from envbuilder.environment import Change, Combination, Environment
from envbuilder.finding import Code
from envbuilder.image.names import reference
from envbuilder.reproduce.causes import cause_of, codes_without_kernels
from envbuilder.reproduce.diagnose import ReportDiagnosis
from envbuilder.reproduce.document import Nearest
from envbuilder.reproduce.grammar import GRAMMAR, OldRelease, old_by_files, old_release
from envbuilder.reproduce.messages.catalog import marked
from envbuilder.reproduce.question import PLACES, Case, driver_of, gpus_of, release_of
from envbuilder.reproduce.rebuild import PUBLISHED, requirement, word
from envbuilder.reproduce.report.reported import Reported
from envbuilder.reproduce.terms import apart, bounds, cudnn_for, image_tag, is_installed, new_environment, span_of


@dataclass(frozen=True)
class _Search:
    case: Case
    lead: Code | None
    question: Question
    works: Installable

    def nearest(self, **changes: str | tuple[str, ...] | None) -> Near[Question] | None:
        return nearest(msgspec.structs.replace(self.question, **changes), self.works)

    def unchanged(self, change: Change, **changes: str) -> Near[Question] | None:
        found = self.nearest(**changes)
        return found._replace(changes=(change,)) if found is not None and not found.changes else None


class _Fix(NamedTuple):
    """What is proposed: the question, its differences, and the environment (None: envbuilder cannot build it)."""

    near: Question
    changes: tuple[Change, ...]
    wanted: Combination
    environment: Environment | None


def closest_environment(case: Case, diagnosis: ReportDiagnosis) -> tuple[Nearest, Environment | None] | None:
    """Find the closest compatible environment for a report; None if no known one would fix it.

    GPU and system stay, and the driver if any versions work with it. The failing environment is never proposed, nor one
    with a warning about the GPU. The environment is None if envbuilder cannot build it.
    """
    there = diagnosis.codes[:1] == (Code.MISSING_LIBRARY,) and is_installed(case)
    if case.place in {"java", "net"} or (there and case.holds("only_its_folder_is_missing")):
        return None  # Python's packages play no part, or what is missing is a folder on the loader's path
    proposed = ((fix, install_commands(case, fix)) for fix in filter(None, _fixes(case, diagnosis)))
    found = next((one for one in proposed if one[1] or one[0].changes[0].field == "driver"), None)
    if found is None:
        return None
    (near, changes, wanted, environment), commands = found
    unusable = any(text.startswith(_UNUSABLE.get(case.form, ())) for text in commands)
    if unusable or case.holds("without_python"):
        return None
    diff = ((f"- {change.field} {change.old}", f"+ {change.field} {new_text(change)}") for change in changes)
    nearest = Nearest(
        environment=check(near, case.catalog).environment,
        changes=tuple(map(change_text, changes)),
        predicate="unhindered",
        id=environment.id if environment is not None else "",
        image=reference(environment.id) if environment is not None else "",
        diff=tuple(itertools.chain.from_iterable(diff)),
        commands=commands,
        matrix=matrix_text("nearest", wanted, environment, description=_WHY) if environment is not None else "",
    )
    return nearest, environment


def _fixes(case: Case, diagnosis: ReportDiagnosis) -> Iterator[_Fix | None]:
    lead = next(iter(diagnosis.codes), None)
    if lead is Code.NOT_A_GPU_BUILD and case.holds("windows&python>=3.7,<3.11&cuda>=11,<12"):
        yield choose_here(case, (f"<{FIRST_WITHOUT_WINDOWS_GPU}",), native=True)
    yield (changed := _changed(case, diagnosis))
    own = case.release is not None and lead is not None
    own = own and (lead is Code.DRIVER_TOO_OLD or cause_of(lead).area == "libraries")
    if changed is not None or own or (case.asks_for_versions and case.reported.cuda):  # also if no command does it
        yield _stated(case)
    yield _chosen(case, diagnosis)
    yield _documented(case, diagnosis)
    question = case.holds("!container") and GRAMMAR.open_question(case.reported.complaints)
    asked = case.asks_for_versions or question is GRAMMAR.open_questions["invisible"]
    remarks = findings_of(case.question, case.catalog) if case.question is not None and case.release else ()
    differs = case.holds("!wrong") and any(cause_of(row.code).area == "libraries" for row in remarks)
    if lead is Code.NOT_A_GPU_BUILD or (diagnosis.confidence == "unsure" and (asked or differs)):
        yield _stated(case)


def _changed(case: Case, diagnosis: ReportDiagnosis) -> _Fix | None:
    question, catalog, lead = case.question, case.catalog, next(iter(diagnosis.codes), None)
    elsewhere = lead is not None and diagnosis.place != "versions" and not cause_of(lead).fixed_by
    other = case.reported.origin is not None or Code.OTHER_BUILD in diagnosis.codes
    if question is None or elsewhere or other or case.holds("runs_on_a_mac&!a gpu"):
        return None  # versions fix nothing, or are unknown: wheels for macOS are not in the catalogue
    if lead is Code.PYTHON_UNSUPPORTED:
        question = msgspec.structs.replace(question, os=None)  # the system's own Python is not the only one
    without = codes_without_kernels(wait=case.holds("tensorflow<2.0") and not cause_of(lead).no_kernels)
    search = _Search(case, lead, _answerable(question, catalog), Installable(catalog, without=without))
    chosen = next((way for way in _ways(search) if _removes_cause(way, search)), None)
    if chosen is None:
        return None
    near, changes, _ = chosen
    stated = release_of(case.reported.tensorflow or "")
    if stated != question.tensorflow and all(change.field != "tensorflow" for change in changes):
        changes = (Change("tensorflow", stated, near.tensorflow), *changes)  # a nightly, taken for its minor line
    found = msgspec.structs.replace(check(near, catalog).environment, os=None)  # an image has its own system
    wanted, environment = environment_for(found, question, catalog)
    return _Fix(near, changes, wanted, environment)


def _chosen(case: Case, diagnosis: ReportDiagnosis) -> _Fix | None:
    """Choose an environment for the reporter's host: the releases that the log names come first, then any."""
    kernels = bool(diagnosis.codes) and cause_of(diagnosis.codes[0]).area == "kernels"
    windows, by_log = case.reported.platform == "windows", span_of(case)
    span, early = "" if kernels else by_log, by_log != "" and not versions.at_least(by_log.rpartition("=")[2], "2.1")
    if not _is_choice(case, diagnosis, span) or (kernels and early):
        return None
    opens = kernels or not diagnosis.codes or (span != "" and not versions.at_least(span.rpartition("=")[2], "2.12"))
    native, bound = windows and opens, f"<{FIRST_WITHOUT_WINDOWS_GPU}" * (windows and opens)
    bound = "<2" if case.holds("code_of_tensorflow_1") else bound
    specs = (",".join(filter(None, (span, bound))),) if bound else (*filter(None, (span,)), *_any_of(case))
    return choose_here(case, specs, span, native=native)


def _any_of(case: Case) -> tuple[str, str]:
    own_cuda = (row.version for row in case.catalog.releases() if row.and_cuda and row.finds_cuda == "wheels")
    return f"<={[version for version in own_cuda if versions.is_final(version)][-1]}", ""


def choose_here(case: Case, specs: Sequence[str] = ("",), span: str = "", *, native: bool = False) -> _Fix | None:
    """Choose as `envbuilder choose` does, for the driver, the GPUs and, if possible, the Python of a report.

    ``specs`` are ranges of releases in their order; ``native`` is Windows, which has no CUDA wheels.
    """
    reported, catalog, stays = case.reported, case.catalog, case.holds("python<3")  # its code needs that Python
    driver, gpus = driver_of(reported, catalog), known_gpus(case)
    host = FleetHost(name="report", driver=driver if catalog.branch(driver) else None, gpus=gpus, arch="x86_64")
    wanted = Combination(tensorflow="", flavor="gpu", variant="runtime")
    for spec, own in itertools.product(dict.fromkeys(specs), dict.fromkeys((case.python, None)[: 1 if stays else 2])):
        wanted = msgspec.structs.replace(wanted, tensorflow=spec, python=own)
        made = choose_for(wanted, host, catalog).environment
        built = catalog.release(made.tensorflow, made.package) if made is not None else None
        if made is None or built is None:
            continue
        fields = {name: getattr(made, name) for name in ("tensorflow", "package", "python")}
        fields |= {name: versions.line(getattr(built if native else made, name)) for name in ("cuda", "cudnn")}
        fields |= {"cudnn": cudnn_for(built)} if native else {}  # what the command brings
        python = case.python if native and case.python in built.pythons else made.python  # no image decides it
        fields |= {"python": python, "install": "system" if native else None, "driver": host.driver, "gpus": gpus}
        near = Question(**fields, compat=False, capabilities=() if gpus else reported.compute_capabilities)
        answer = check(near, catalog)
        if answer.compatible is True and not {row.code for row in answer.findings} & codes_without_kernels():
            break
    else:
        return None
    ends = dict.fromkeys(span[2:].removesuffix(".99").split(",<="))
    by_log = f"{' to '.join(ends)} by the log" if span else "(not stated)"
    stated = release_of(reported.tensorflow or "")
    named = stated != "" and versions.is_prefix(stated, made.tensorflow)
    first = () if named else (Change("tensorflow", reported.tensorflow or by_log, made.tensorflow),)
    brought = {name: versions.line(getattr(near, name)) for name in ("cuda", "cudnn") if native}
    floors = {"cuda": "11.2", "cudnn": "0"}  # from CUDA 11.2 on the files of a major keep their names
    pairs = ((getattr(reported, name), getattr(built, name) or "0", floors[name]) for name in brought)
    fit = (versions.same_major(a, b) and versions.at_least(a, b) and versions.at_least(b, low) for a, b, low in pairs)
    brought = {} if all(fit) and case.holds("!windows_cudnn_part") else brought  # 8.1 needs no zlibwapi.dll
    brought |= {"python": python} if case.python else {}
    changes = (*first, *_changes(brought, reported))
    same_line = case.release is not None and versions.minor(case.release.version) == versions.minor(made.tensorflow)
    if same_line and not native:
        way = None if made.cuda_wheels else "CUDA of conda-forge" if case.place == "conda" else _IMAGE.new
        old = "CUDA of the system" if case.question and case.question.install == "system" else _IMAGE.old
        changes = (*changes, Change("install", old, way))
    if not changes or native:
        return _Fix(near, changes, wanted, None) if changes else None
    return _Fix(near, _with_system(Near(near, changes, "unhindered"), case).changes, wanted, made)


def _documented(case: Case, diagnosis: ReportDiagnosis) -> _Fix | None:
    """Propose the tested build of a release before the catalogue, if that may remove the cause."""
    codes = diagnosis.codes if diagnosis.codes[:1] == (Code.PACKAGE_CONFLICT,) else diagnosis.codes[:1]
    libraries = codes == (Code.NOT_INSTALLABLE,) or any(cause_of(code).area == "libraries" for code in codes)
    found = _stated(case) if case.old is not None and libraries else None
    return found if found is not None and found.changes[0].field != "install" else None


def _of_table(case: Case, row: OldRelease) -> _Fix | None:
    """Propose a tested build before the catalogue; a published image brings its CUDA where nothing else differs."""
    reported, windows = case.reported, case.reported.platform == "windows"
    driver = None if windows else reported.driver
    oldest = "3.5" if row.cuda == "9.0" else "3.0"  # tensorflow/tensorflow#17445
    served = versions.at_least(row.capability, own := case.capability or oldest) and versions.at_least(own, oldest)
    if not served or not versions.at_least(driver or "999", row.driver) or known_gpus(case) != gpus_of(reported):
        return None
    version = row.wheel(case.version) if case.version else row.newest
    python = "2.7" if not windows and versions.is_prefix("2", reported.python or "3") else row.python
    near = Question(tensorflow=version, cuda=row.cuda, cudnn=row.cudnn, package="tensorflow-gpu", python=python)
    near = msgspec.structs.replace(near, driver=driver, gpus=known_gpus(case), install="system")
    changes = _changes({"tensorflow": version, "cuda": row.cuda, "cudnn": row.cudnn}, reported)
    changes = changes or (_IMAGE,) * (not windows)
    return _Fix(near, changes, Combination(tensorflow=version), None) if changes else None


def _stated(case: Case) -> _Fix | None:
    """Propose the stated release with a CUDA of its own, else releases of the stated CUDA, else of the GPU."""
    reported, release = case.reported, case.release
    foreign = reported.origin not in {None, "conda"} or case.holds("not_proposed")
    if foreign or not case.gpu or marked("ran", case.messages):
        return None
    if case.old is not None and versions.at_least(case.old.capability, case.capability or "0"):
        return _of_table(case, case.old)
    native = reported.platform == "windows"
    if release is not None:
        specs = [f"=={release.version}", f"=={versions.minor(release.version)}.*"]
        specs = specs[::-1] if "finds_a_part" in case.facts else specs
        return choose_here(case, specs, native=native and _serves_windows(release.version))
    line = versions.line(reported.cuda or "0.0")
    built = [row for row in case.catalog.releases() if row.gpu]
    rows = [row.version for row in built if row.cuda == line]
    early = not rows and case.holds("early")
    rows = rows or [row.version for row in built if case.holds("cuda>=11") and versions.same_major(row.cuda, line)]
    of_1 = case.old is not None or case.holds("code_of_tensorflow_1")  # no TensorFlow 2 for its code
    if case.old is None and (case.version or early or any(row.known.code for row in case.messages)):
        return None  # another time's, or another maker's
    others = [] if case.asks_for_versions else ["<2"] if of_1 else [*_any_of(case)]
    native = native and (of_1 or (bool(rows) and _serves_windows(rows[0])))
    last = ",<2" if of_1 else f",<{FIRST_WITHOUT_WINDOWS_GPU}" if native else f",{_any_of(case)[0]}"
    specs = [f">={rows[0]},<={rows[-1]}{last}", *others] if rows else others
    return choose_here(case, specs, native=native)


def _changes(new: dict[str, str], reported: Reported) -> tuple[Change, ...]:
    """List what differs from the report; a shorter version means any of its line."""
    rows = ((name, getattr(reported, name), text) for name, text in new.items())
    apart = (row for row in rows if not row[1] or row[1][: len(row[2])] != row[2][: len(row[1])])
    return tuple(Change(name, old or _UNSTATED[name], text) for name, old, text in apart)


def known_gpus(case: Case) -> tuple[str, ...]:
    return tuple(name for name in gpus_of(case.reported) if case.catalog.gpu(name) is not None)


def _is_choice(case: Case, diagnosis: ReportDiagnosis, span: str) -> bool:
    """Return True if another environment helps: libraries or kernels are the cause, or versions are asked for."""
    reported, question, gpus = case.reported, case.question, known_gpus(case) or case.reported.compute_capabilities
    before = any(old_by_files([row.values.get("library", "")]) for row in case.messages)
    before |= not span and case.holds("early") if question is None else _before_all(question, case.catalog)
    if before or case.holds("not_chosen"):
        return False  # any proposal would be years newer, or of another maker
    if not diagnosis.codes:
        return bool(gpus) and case.asks_for_versions
    area = cause_of(diagnosis.codes[0]).area
    if area == "libraries" and (marked("ran", case.messages) or (reported.platform == "windows" and not span)):
        return False  # what is installed is nearly right
    if area == "kernels" and question is not None and check(question, case.catalog).compatible is True:
        return False
    mixed = diagnosis.codes[0] is Code.TWO_CUDA_STACKS  # its files say nothing about the release
    return area in {"libraries", "kernels", "build"} and bool(gpus or (span and not mixed))


def _ways(search: _Search) -> Iterator[Near[Question]]:
    windows = search.case.reported.platform == "windows"
    question, lead = search.question, search.lead
    if lead is None or (not cause_of(lead).no_kernels and _before_all(question, search.works.catalog)):
        return
    wsl = windows and not _serves_windows(question.tensorflow)
    found = search.nearest(cuda=None, cudnn=None, install=None) if wsl else search.nearest()  # WSL2 has its own CUDA
    found = found or nearest_with_driver(search.question, search.works)
    if found is not None and lead is not Code.CPU_FEATURE_MISSING:  # each release needs AVX
        yield _with_system(found, search.case)
    other = None if windows else other_fix(lead, search)
    if other is not None:
        yield _with_system(other, search.case)


def _serves_windows(version: str) -> bool:
    return not versions.at_least(version, FIRST_WITHOUT_WINDOWS_GPU)


def _with_system(near: Near[Question], case: Case) -> Near[Question]:
    reported = case.reported
    old = reported.os or reported.platform
    new = {"macos": "Linux", "windows": "Linux (WSL2)"}.get(reported.platform or "")
    native = reported.platform == "windows" and _serves_windows(near.combination.tensorflow)
    if old is None or new is None or native or not near.combination.gpu:
        return near
    return near._replace(changes=(Change("system", old, new), *near.changes))


def _answerable(question: Question, catalog: Catalog) -> Question:
    """Drop versions without a catalogue row, and the forward-compatibility package, which no image contains."""
    rows = ((name, catalog.gpu(name)) for name in question.gpus)
    gpus = tuple(name for name, row in rows if row is not None and not row.variants)
    known: dict[str, Callable[[str], object]] = {
        "driver": catalog.branch, "os": catalog.system, "cuda": catalog.toolkit,
        "cudnn": lambda text: not versions.names_line(text) or catalog.cudnn_row(text),
    }  # fmt: skip
    texts = ((name, getattr(question, name), find) for name, find in known.items())
    held = {name: text if text is not None and find(text) else None for name, text, find in texts}
    return msgspec.structs.replace(question, gpus=gpus, compat=False, **held)


def _before_all(question: Question, catalog: Catalog) -> bool:
    known = versions.key_or_none(question.tensorflow)
    return known is None or known < versions.key(catalog.final_versions[0])


def _removes_cause(near: Near[Question], search: _Search) -> bool:
    cause, fields = cause_of(search.lead), {change.field for change in near.changes}
    named, leaps = fields & {*cause.fixed_by, *cause.packages}, search.question.tensorflow[0] != near[0].tensorflow[0]
    if not fields or ((cause.fixed_by or cause.area == "packages") and not named) or (leaps and not cause.no_kernels):
        return False
    return not cause.needs_driver or search.question.driver is not None


def other_fix(lead: Code, search: _Search) -> Near[Question] | None:
    cause, question, catalog = cause_of(lead), search.question, search.works.catalog
    built = next((text for row in search.case.messages if "." in (text := row.values.get("compiled", ""))), "")
    if lead is Code.CUDNN_MISMATCH and built:
        change = Change("cudnn", search.case.reported.cudnn or "as installed", versions.line(built))
        return search.unchanged(change, cudnn=versions.line(built))
    if cause.packages:
        return _bounded(cause.packages[0], search)
    if lead is Code.CPU_FEATURE_MISSING:
        rows = catalog.processor_needs_of(question.tensorflow)
        after = next((row.after for row in rows if row.after is not None and catalog.version(row.after)), None)
        change = Change("tensorflow", question.tensorflow, after)
        return search.unchanged(change, tensorflow=after) if after is not None else None
    if lead is Code.PYTHON_UNSUPPORTED and question.python is None:
        # The newest Python with wheels, if an installer found none for the running one
        release = next(iter(distributions(question.tensorflow, None, None, catalog)), None)
        python = release.pythons[-1] if release is not None and release.pythons else None
        return search.unchanged(Change("python", "as installed", python), python=python) if python else None
    return None


def _bounded(name: str, search: _Search) -> Near[Question] | None:
    """Add the missing upper bound of a package that the release needs, if everything else may stay."""
    question, held = search.question, versions.pins(search.question.packages)
    release = next(iter(distributions(question.tensorflow, question.package, None, search.works.catalog)), None)
    wanted = bounds(name, release) if release is not None else None
    fits = wanted and name in held and versions.admits(versions.bounds(wanted.removeprefix(name)) or (), held[name])
    others = tuple(text for text, package in zip(question.packages, held, strict=True) if package != name)
    found = search.nearest(packages=others)
    if wanted is None or fits or found is None or found.changes:
        return None
    change = Change(name, held.get(name, "as installed"), wanted.removeprefix(name))
    bounded = msgspec.structs.replace(found.combination, packages=(*found.combination.packages, wanted))
    return found._replace(combination=bounded, changes=(change,))


_IMAGE = Change("install", "as installed", "a published image")
_UNSTATED = {"tensorflow": "(not stated)", "cuda": "as installed", "cudnn": "as installed"}
_WHY = "The closest compatible environment for a report."
_UNUSABLE = {" in notebook": ("docker", "uv", "wheels="), " in r": ("docker", "wsl")}  # one Python, or no R
_BROUGHT = {"tensorflow", "package", "install", "cuda", "cudnn"}  # each change takes more than a package


def install_commands(case: Case, fix: _Fix) -> tuple[str, ...]:
    """Write the commands from the reported environment to the closest one; each word satisfies a grammar.

    Without CUDA wheels CUDA comes from NVIDIA's installer or from a published image.
    """
    near, changes, _, environment = fix
    start = PLACES[case.place].start or PLACES["docker"].start
    reported, catalog, old = case.reported, case.catalog, old_release(near.tensorflow)
    if old is not None and reported.platform == "windows":
        fresh = [new_environment(old.python, case.place, windows=True)] * (case.python != near.python)
        return (*fresh, f"pip install 'tensorflow-gpu=={word(near.tensorflow)}'")
    if old is not None or changes[-1].new == _IMAGE.new:
        own = old.image_tag(near.tensorflow, near.python) if old is not None else image_tag(near.tensorflow)
        return (start.format(image=word(f"{PUBLISHED}:{own}")),)
    question = case.question or msgspec.structs.replace(near, tensorflow="", python=case.python, cuda=None)
    environment = environment if environment is None or environment.cuda_wheels or not near.gpu else None
    release = distributions(near.tensorflow, near.package, "gpu" if near.gpu else None, catalog)[0]  # it works
    native = reported.platform == "windows" and _serves_windows(release.version)
    in_wsl = reported.platform == "windows" and not native and near.gpu
    lines = GRAMMAR.ask["wsl"].splitlines() if in_wsl else []
    if near.python and (in_wsl or near.python != question.python):
        lines.append(new_environment(word(near.python), "pip" if in_wsl else case.place, windows=native))
    packages = tuple(text for text in near.packages if text not in question.packages and requirement(text))
    kept = {name for name in _BROUGHT if getattr(near, name) == getattr(question, name)}
    if kept == _BROUGHT and not lines and changes[-1].field != "install":
        lines += pip_install(map(shlex.quote, packages)) if packages else ()
    elif environment is not None and not native:
        lines += install(environment, catalog, near.driver, near.gpus, packages)
    elif lines or not {"tensorflow", "package"} <= kept:
        named = {text.partition("=")[0] for text in packages}
        caps = (cap for cap in release.caps if cap.partition("<")[0] not in named)
        lines += pip_install(map(shlex.quote, (f"{release.package}=={release.version}", *packages, *caps)))
    held = near.cuda is not None and (near.cuda, near.cudnn) == (question.cuda, question.cudnn)
    by_conda = case.place == "conda" and (native or (environment is None and not held))
    if (by_conda or native) and near.gpu and release.cuda is not None and not held:
        way = GRAMMAR.ask["toolkit_of_conda" if by_conda else "toolkit_on_windows"]
        lines += way.format(cuda=release.cuda, cudnn=cudnn_for(release)).splitlines()
    fields, tag = {change.field for change in changes}, GRAMMAR.published_tags.get(versions.minor(release.version))
    other = near.cuda != question.cuda or (near.cuda is None and near.tensorflow != question.tensorflow)
    if environment is None and near.gpu and other and not by_conda and not native and tag is not None:
        lines.append(start.format(image=word(f"{PUBLISHED}:{tag}")))
    if not lines and fields & {"cuda", "cudnn"} and case.place in {"pip", "conda"} and release.cuda is not None:
        lines.append(apart(release, case, cuda="cuda" in fields, cudnn="cudnn" in fields))
    return tuple(lines)
