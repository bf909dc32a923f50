"""Requirements of a deployment on a verdict, as typed values, and the reasons why a verdict does not meet them."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec

from envbuilder.errors import Reason, UsageError
from envbuilder.registry.reference import DIGEST
from envbuilder.support import decoding
from envbuilder.support.terminal_text import in_words
from envbuilder.verdict import LEVELS, GpuSeen, Level, Verdict, contradiction
from envbuilder.versions import DOTTED, is_prefix

CLOCK_SKEW = timedelta(minutes=5)  # how far a verdict's end may be in the future: clocks of hosts differ
DRIVER = re.compile(rf"(?!0[0-9]){DOTTED}")
_VERSION = re.compile(rf"(?!(?:[0-9.]*\.)?0[0-9]){DOTTED}(?:(?:a|b|rc|-rc|\.dev|\.post)[0-9]{{1,9}})?")
_ENVIRONMENT = re.compile(r"(tf[0-9][0-9A-Za-z.]*-py[0-9]+-[A-Za-z0-9_.-]+?)(?:-([0-9a-f]{12}))?")
_INSIDE = re.compile(rf"(?:cpu|cu({DOTTED})(?:-cudnn({DOTTED}))?)-(.+)")
_SYSTEM = re.compile(r"^debian-|(?<=^ubuntu)-|\..*|^python-.*")
"""The parts of a system's name that an id leaves out; an image of Python is called by the system below it."""
_NO_TAG = re.compile(r"[^A-Za-z0-9_.-]")
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .+_-]*")
_MEMORY = re.compile(r"([1-9][0-9]{0,3})gb")
_GPU_DETAIL = re.compile(
    rf"nvidia|geforce|tesla|quadro|rtx|gtx|gpu|laptop|sxm[0-9]?|pcie|nvl|hbm[0-9]e?|{_MEMORY.pattern}"
    r"|ada|blackwell|generation|server|workstation|edition|with|max|q|design"
)
"""Words of a GPU's name that do not decide its model: brand, generation, edition, form factor and memory."""
_LEAST_MEMORY, _MOST_MEMORY = 0.9, 1.01  # of what a product's name says: drivers report a few percent less, or 1 % more
_STATED_BY = {**{f"sxm{number}": ("sxm",) for number in range(2, 7)}, "hbm3": ("sxm", "sxm5")}
"""Words that a word of the driver's name implies: it calls an H100 SXM5 ``NVIDIA H100 80GB HBM3``."""

ModelOf = Callable[[str], str | None]  # returns the catalogue's name of the one GPU that a text means


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One reason against one statement (``statement`` is the digest that it is stored under; '' if there is none).

    ``next`` says what to do, with a command.
    """

    reason: Reason
    message: str
    statement: str = ""
    next: str = ""


Refusals = tuple[Refusal, ...]


@dataclass(frozen=True)
class GpuRequirement:
    """A GPU model by the catalogue's name; ``words`` are those that the driver's name of the GPU has to contain."""

    model: str
    model_of: ModelOf = field(repr=False, compare=False)
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.model, *(word.upper() for word in self.words if word not in _words(self.model))))

    def is_met_by(self, gpu: GpuSeen) -> bool:
        return self.may_be(gpu) and all(_states(gpu, word) for word in self.words)

    def may_be(self, gpu: GpuSeen) -> bool:
        return self.model == (self.model_of(gpu.name) or gpu.name)


class EnvironmentRequirement(msgspec.Struct, frozen=True):
    """An environment's id; ``image`` is the first 12 hexadecimal digits of an image's digest, or ''."""

    id: str
    image: str = ""

    def __str__(self) -> str:
        return f"{self.id}-{self.image}" if self.image else self.id


@dataclass(frozen=True)
class HostClass:
    """A GPU and a driver, of which ``535`` is a branch; any host without both."""

    gpu: GpuRequirement | None = None
    driver: str = ""

    def __str__(self) -> str:
        return f"{self.gpu}/{self.driver}" if self.gpu else "any host"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """The needs of a deployment: a level, a driver (``535`` is a branch), a GPU, an age in seconds.

    ``tensorflow`` is a version or its first parts; ``named`` are those in a tag, of an image whose verdict names its
    own. ``threshold`` keys have to sign, and to answer. ``on`` are host classes, each of which has to meet it.
    """

    level: Level = "cpu"
    driver: str | None = None
    gpu: GpuRequirement | None = None
    max_age_s: float = 90 * 86_400.0
    environment: EnvironmentRequirement | None = None
    tensorflow: str | None = None
    named: tuple[str, ...] = ()
    threshold: int = 1
    on: tuple[HostClass, ...] = ()


def read_driver(text: str) -> str:
    return fitting(DRIVER, text, "a driver", "a branch (535) or a release (535.104.05)")[0]


def read_version(text: str) -> str:
    return fitting(_VERSION, text, "a version", "as in 2.20 or 2.20.0")[0]


def read_environment(text: str) -> EnvironmentRequirement:
    found = fitting(_ENVIRONMENT, text, "an environment", "its id, or its id and an image: envbuilder plan lists ids")
    return EnvironmentRequirement(found[1], found[2] or "")


def read_gpu(text: str, model_of: ModelOf) -> GpuRequirement:
    """Read a GPU's name. Raises UsageError if it does not mean one GPU, or has a word without a meaning."""
    fitting(_GPU, text, "a GPU", "use the name that nvidia-smi prints")
    model = model_of(text)
    if model is None:
        raise UsageError(f"the catalogue has no one GPU called {text!r}", hint="envbuilder catalog list gpus")
    words = _words(text)
    naming = list(words)
    for word in words:
        rest = [one for one in naming if one != word]
        if model_of(" ".join(rest)) == model:
            if not _GPU_DETAIL.fullmatch(word):
                raise UsageError(f"{word!r} in {text!r} is not understood", hint="use the name that nvidia-smi prints")
            naming = rest
    return GpuRequirement(model, model_of, tuple(sorted(set(words) - {"nvidia", "gpu"})))


def parse_host_classes(text: str, model_of: ModelOf) -> tuple[HostClass, ...]:
    """Read ``H100/570, A100/550``, each class once. Raises UsageError for another form and for an unknown GPU."""
    found: dict[HostClass, None] = {}
    for part in text.split(","):
        gpu, slash, driver = (one.strip() for one in part.rpartition("/"))
        if not slash:
            hint = "a GPU and a driver's branch or release: H100/570"
            raise UsageError(f"{part.strip()!r} is not a host class", hint=hint)
        found[HostClass(read_gpu(gpu, model_of), read_driver(driver))] = None
    return tuple(found)


def fitting(pattern: re.Pattern[str], text: str, what: str, hint: str) -> re.Match[str]:
    """Match a complete text. Raises UsageError that quotes it."""
    found = pattern.fullmatch(text)
    if found is None:
        raise UsageError(f"{text!r} is not {what}", hint=hint)
    return found


def _words(name: str) -> tuple[str, ...]:
    """Split a GPU's name: ``A100-SXM4-80 GiB`` is ``a100``, ``sxm4``, ``80gb``."""
    text = re.sub(r"\b([0-9]+)\s*gi?b\b", r"\1gb", name.casefold().replace("pci-e", "pcie"))
    return tuple(re.findall(r"[^\s_-]+", text))


def _states(gpu: GpuSeen, word: str) -> bool:
    """Return True if a GPU's name has a word, perhaps in two parts (``2080 Ti``), or it has that much memory."""
    words = _words(gpu.name)
    joined = {one + other for one, other in pairwise(words) if one != "nvidia"}
    if word in {*words, *joined} or any(word in _STATED_BY.get(one, ()) for one in words):
        return True
    memory = _MEMORY.fullmatch(word)
    if memory is None or any(map(_MEMORY.fullmatch, words)):
        return False
    return _LEAST_MEMORY <= gpu.memory / (int(memory[1]) << 30) <= _MOST_MEMORY


def names_another(version: str, named: Iterable[str]) -> bool:
    return not all(is_prefix(one, version) for one in named)


def comparisons(verdict: Verdict, wanted: Requirement, now: datetime) -> Iterator[tuple[str, Reason, str]]:
    """Compare each field of a requirement: yield its name, the reason and a message where the verdict does not fit."""
    has, host = verdict.environment, verdict.host
    gpus, driver = ", ".join(gpu.name for gpu in host.gpus) or "no GPU", host.driver or "none"
    because = f": {'; '.join(verdict.reasons)}" if verdict.reasons else ""
    name, version = (has.id, has.tensorflow) if has else ("no environment of envbuilder", "unknown")
    if wanted.environment is not None and wanted.environment.id != name:
        yield "environment", Reason.OTHER_ENVIRONMENT, f"this is {name}; {wanted.environment} is required"
    if wanted.tensorflow is not None and not is_prefix(wanted.tensorflow, version):
        yield "tensorflow", Reason.OTHER_ENVIRONMENT, f"its TensorFlow is {version}; {wanted.tensorflow} is required"
    if has and names_another(version, wanted.named):
        yield "tag", Reason.OTHER_ENVIRONMENT, f"its TensorFlow is {version}; its tag says {' and '.join(wanted.named)}"
    if verdict.unreal:
        yield "unreal", Reason.SIMULATED, "the verdict was simulated: its driver or GPU was not real"
    if verdict.verdict == "FAILED":
        yield "failed", Reason.FAILED, f"the verdict is FAILED{because} ({host.driver or 'no driver'}, {gpus})"
    if verdict.verdict == "INCONCLUSIVE":
        yield "inconclusive", Reason.INCONCLUSIVE, f"the verdict is INCONCLUSIVE{because}"
    if why := inconsistent(verdict):
        yield "inconsistent", Reason.INCONSISTENT, f"the verdict contradicts itself: {why}"
    age = (now - moment(verdict.finished)).total_seconds()
    if age < -CLOCK_SKEW.total_seconds():
        yield "age", Reason.EXPIRED, f"validated {in_words(-age, 1)} in the future: a clock is wrong"
    if age > wanted.max_age_s:
        allowed = f"at most {in_words(wanted.max_age_s, 1)} is accepted"
        yield "age", Reason.EXPIRED, f"validated {in_words(age, 1)} ago; {allowed}"
    if rank(verdict.level) < rank(wanted.level):
        yield "level", Reason.LEVEL_TOO_LOW, f"validated up to {verdict.level}; {wanted.level} is required"
    if wanted.driver is not None and not (DRIVER.fullmatch(driver) and is_prefix(wanted.driver, driver)):
        yield "driver", Reason.OTHER_DRIVER, f"validated on driver {driver}; {wanted.driver} is required"
    computed = any if verdict.level == "multi-gpu" else all  # at the gpu level one GPU computes, whichever it is
    if wanted.gpu is not None and not (host.gpus and computed(map(wanted.gpu.is_met_by, host.gpus))):
        yield "gpu", Reason.OTHER_GPU, f"validated on {gpus}; {wanted.gpu} is required"


def inconsistent(verdict: Verdict) -> str:
    """Return how a real PASSED verdict contradicts itself; '' if it does not. envbuilder makes no such verdict."""
    if verdict.verdict != "PASSED" or verdict.simulated:
        return ""
    if len(verdict.host.gpus) < {"gpu": 1, "multi-gpu": 2}.get(verdict.level, 0):
        return f"it is of level {verdict.level} and its host had {len(verdict.host.gpus)} GPUs"
    if unclear := [text for text in (verdict.suite, verdict.lock) if not DIGEST.match(text)]:
        return f"its suite or lock is {unclear[0][:80]!r}, which is not a digest"
    if moment(verdict.started) - moment(verdict.finished) > CLOCK_SKEW:
        return f"it ended ({verdict.finished}) before it began ({verdict.started})"
    return _misnamed(verdict) or contradiction(verdict)


def _misnamed(verdict: Verdict) -> str:
    """Return how an environment's id contradicts its fields; '' if it does not."""
    if (has := verdict.environment) is None:
        return ""
    start = _NO_TAG.sub("-", f"tf{has.tensorflow}-py{has.python.replace('.', '')}-")
    if has.id.startswith(start) and (named := _INSIDE.fullmatch(has.id[len(start) :])):
        pairs = ((named[1], has.cuda), (named[2], has.cudnn))
        versions = all(is_prefix(name, version) if name and version else name is version for name, version in pairs)
        system = named[3].startswith(_NO_TAG.sub("-", _SYSTEM.sub("", has.os)))
        arch = has.arch == "x86_64" or has.arch in named[3].split("-")
        framework = f"{has.package}=={has.tensorflow}" in has.requirements
        own = named[3].endswith(f"-{has.variant}" if has.variant else ("-runtime", "-notebook")) == bool(has.variant)
        if all((has.flavor == ("gpu" if named[1] else "cpu"), versions, system, arch, framework, own)):
            return ""
    return f"the id {has.id} does not fit its TensorFlow, Python, CUDA, cuDNN, system and machine"


def rank(level: Level) -> int:
    """Return how high a level is, from 0 for ``none``."""
    return 0 if level == "none" else 1 + LEVELS.index(level)


def moment(text: str) -> datetime:
    """Read an ISO 8601 time. Raises DamagedError for any other text, and for a time without a zone."""
    with decoding.damaged("not a time"):
        time = datetime.fromisoformat(text if text.isprintable() else "")
        if time.tzinfo is None:
            raise decoding.DamagedError(f"{text!r} names no time zone")
        return time.astimezone(UTC)


def age_s(verdict: Verdict, now: datetime) -> float:
    """Return the age of a verdict in seconds; 0 for one from a clock that is ahead."""
    return max(0.0, round((now - moment(verdict.finished)).total_seconds(), 1))
