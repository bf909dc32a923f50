"""Plan the reported environment, mismatch included, and write its Dockerfile."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from envbuilder import versions
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.question import Question
from envbuilder.compat.requirement import parse
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image.host_settings import WITH_HOST
from envbuilder.reproduce.causes import cause_of
from envbuilder.reproduce.document import Recipe
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.reproduce.question import Case, is_version, pins_of
from envbuilder.support.templates import text_template

_PIN = re.compile(r"[a-z0-9][a-z0-9.-]{0,63}==[0-9][A-Za-z0-9.+]{0,31}\Z", re.ASCII)


@dataclass(frozen=True)
class Rebuild:
    """A recipe, and the resolved environment below it (None for a published image or without a recipe)."""

    recipe: Recipe
    environment: Environment | None = None


def plan(case: Case, predicted: tuple[Finding, ...], here: str | None) -> Rebuild:
    question, image = case.question, case.reported.image
    why_not = _why_not(case, predicted)
    if question is None or why_not:
        return Rebuild(Recipe(kind="none", why_not=why_not))
    release = _release(case, question)
    host = _host(case, question, release, here)
    if image is not None and image.partition(":")[0] == PUBLISHED:
        return Rebuild(_on_published(image, (), host))
    untold = any(row.code is Code.LIBRARY_PATH and row.severity is Severity.ERROR for row in predicted)
    return _from_wheels(case, question, release, host, untold=untold) or _from_image(case, question, release, host)


def _why_not(case: Case, predicted: tuple[Finding, ...]) -> str:
    reported, question = case.reported, case.question
    if question is None:
        return "the report does not state its TensorFlow version"
    if reported.platform in {"windows", "macos"}:
        return f"it needs a {'Windows' if reported.platform == 'windows' else 'macOS'} host: containers here are Linux"
    if question.arch != "x86_64" or reported.arch in GRAMMAR.not_served:
        return f"it needs a host whose processor is {reported.arch}"
    if case.catalog.version(question.tensorflow) is None:
        return f"the catalogue has no row for TensorFlow {question.tensorflow}"
    blocking = [row for row in predicted if cause_of(row.code).no_wheel and row.severity is Severity.ERROR]
    return f"there is nothing to install: {blocking[0].message}" if blocking else ""


def _release(case: Case, question: Question) -> TensorflowRelease:
    rows = case.catalog.distributions(case.catalog.version(question.tensorflow) or question.tensorflow)
    name = question.package or case.reported.distribution or "tensorflow"
    exact = next((row for row in rows if row.package == name), None)
    gpu = next((row for row in rows if row.gpu), None)
    wants_gpu = question.gpu and question.package is None and exact is not None and not exact.gpu
    return (gpu if wants_gpu else exact or gpu) or rows[0]


def _from_wheels(
    case: Case, question: Question, release: TensorflowRelease, host: str, *, untold: bool
) -> Rebuild | None:
    """Start from an envbuilder environment and install the deviations on top; None if wheels cannot provide them."""
    told = case.reported.cuda
    bare = not question.gpu or question.install == "plain" or not release.gpu
    cuda = versions.minor(told) if told and versions.names_line(told) and not bare else None
    own = versions.minor(release.cuda) if release.cuda else None
    wanted = Combination(
        tensorflow=release.version,
        package=None if release.package == "tensorflow" and not bare else release.package,
        python=question.python,
        flavor="cpu" if bare else "gpu",
        cuda=None if cuda == own else cuda,
    )
    made = resolve(wanted, case.catalog, as_reported=True)
    if isinstance(made, Rejection) or (cuda and made.cuda and not versions.is_prefix(cuda, made.cuda)):
        return None
    deviations = _deviations(case, made)
    if deviations is None:
        return None
    untold = untold and bool(made.loader_folders)
    written = dockerfile(deviations, untold=untold) if deviations or untold else ""
    recipe = Recipe(kind="wheels", environment=made.id, base=made.os, host=host, untold=untold)
    return Rebuild(msgspec.structs.replace(recipe, deviations=deviations, dockerfile=written), made)


def _deviations(case: Case, made: Environment) -> tuple[str, ...] | None:
    """List the deviations as exact pins; None if the cuDNN is not on the package index."""
    reported, ours = case.reported, versions.pins(made.cuda_wheels)
    theirs = {name: version for name, version in reported.packages.items() if name in ours and is_version(version)}
    pins = [*pins_of(reported)]
    pins += [f"{name}=={version}" for name, version in theirs.items() if not versions.same(ours[name], version)]
    line = next((name for name in ours if name.startswith("nvidia-cudnn")), None)
    told = reported.cudnn if line not in reported.packages else None
    if line is not None and told and not versions.is_prefix(told, ours[line]):
        wheel = case.catalog.newest_wheel(line, (("==", told),))
        wheel = wheel or case.catalog.newest_wheel(line, (("==", f"{told}.*"),))
        if wheel is None:
            return None
        pins.append(f"{line}=={wheel}")
    return tuple(pin for pin in dict.fromkeys(pins) if _PIN.match(pin))


def _from_image(case: Case, question: Question, release: TensorflowRelease, host: str) -> Rebuild:
    told = {"CUDA": case.reported.cuda or release.cuda, "cuDNN": case.reported.cudnn or release.cudnn}
    rows = [row for row in case.catalog.images if _brings(row.cuda, told["CUDA"]) and _brings(row.cudnn, told["cuDNN"])]
    if not rows:
        what = " ".join(f"{name} {text}" for name, text in told.items() if text)
        return Rebuild(Recipe(kind="none", why_not=f"no wheels and no published image bring {what}"))
    best = max(rows, key=lambda row: (versions.same(row.python, question.python), row.os == question.os, row.name))
    return Rebuild(_on_published(best.name, pins_of(case.reported), host, release))


def _brings(has: str | None, wanted: str | None) -> bool:
    """Return True if an image's version matches the requested one: 8.1.1.33 matches 8.1 and 8."""
    return wanted is None or (has is not None and versions.is_prefix(versions.line(wanted), has))


def _on_published(image: str, pins: tuple[str, ...], host: str, release: TensorflowRelease | None = None) -> Recipe:
    pins = tuple(pin for pin in pins if _PIN.match(pin))
    tensorflow = "" if release is None else f"{release.package}=={release.version}"
    caps = () if release is None else (cap for cap in release.caps if parse(cap).name not in versions.pins(pins))
    written = dockerfile((*pins, *caps), image, tensorflow)
    return Recipe(kind="image", base=image, deviations=pins, host=host, dockerfile=written)


def _host(case: Case, question: Question, release: TensorflowRelease, here: str | None) -> str:
    """Describe the simulated host (the reporter's driver and GPUs); '' if this host is sufficient."""
    if not question.gpu or not release.gpu:
        return ""
    if here is not None and (question.driver is None or versions.key(here) == versions.key(question.driver)):
        return ""
    toolkit = case.catalog.toolkit(release.cuda)
    driver = question.driver or (toolkit.driver if toolkit else None)
    if driver is None or case.catalog.branch(driver) is None or not versions.names_line(driver):
        return ""
    rows = [row for row in map(case.catalog.gpu, question.gpus) if row is not None]
    names = [row.name for row in rows] or ["Tesla T4"]  # every TensorFlow since 1.15 has kernels for it
    count = min(len(case.reported.gpus), 8) if len(names) == 1 else 1
    words = [f"driver={driver}", *(f"gpu={name}" for name in names), *([f"gpus={count}"] if count > 1 else [])]
    return ",".join(words)


_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}\Z", re.ASCII)
REQUIREMENT = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}(?:(?:[=<>~!]=|<|>)[0-9][A-Za-z0-9.+*]{0,31},?){1,16}\Z", re.ASCII)

PUBLISHED = "tensorflow/tensorflow"


def word(text: str) -> str:
    """Return a single plain word. Raises ValueError for anything else."""
    if not _WORD.match(text):
        raise ValueError(f"not fit for a Dockerfile: {text!r}")
    return text


def requirement(text: str) -> str:
    """Quote a requirement for a shell. Raises ValueError for anything except a name and versions."""
    if not REQUIREMENT.match(text):
        raise ValueError(f"not a requirement: {text!r}")
    return f"'{text}'"


def dockerfile(requirements: Iterable[str], base: str = "", tensorflow: str = "", *, untold: bool = False) -> str:
    """Write the Dockerfile that installs requirements on ``base``, or on an envbuilder image (its argument ``BASE``).

    ``tensorflow`` is what the base lacks. ``untold`` removes the loader configuration for CUDA wheels.
    """
    wanted = " ".join(map(requirement, filter(None, (tensorflow, *requirements))))
    template = text_template("reproduce/Dockerfile.j2")
    base = word(base) if base or tensorflow else ""
    return template.render(requirements=wanted, base=base, tensorflow=tensorflow, untold=untold, with_host=WITH_HOST)
