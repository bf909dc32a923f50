"""Requirements of a deployment on a verdict, as typed values, and the reasons why a verdict does not meet them."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

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
_OWN = re.compile(r"(?:[-_.](?!(?:runtime|notebook|cuda|nvidia|tensorflow|tf|cpu|gpu|with)(?:[-_.]|\Z))[A-Za-z]+)+")
"""Words of your own after an id in a tag: letters only, and none that other ids have there."""
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .+_()-]*")
_MEMORY = re.compile(r"([1-9][0-9]{0,3})gb")
_BRANDS = ("geforce", "tesla", "quadro", "grid")
"""Words that add nothing to a name: ``Tesla T4`` is ``NVIDIA T4``."""
_LEAST_MEMORY, _MOST_MEMORY = 0.9, 1.01  # of what a product's name says: drivers report a few percent less, or 1 % more
_STATED_BY = {**{f"sxm{number}": ("sxm",) for number in range(2, 7)}, "hbm3": ("sxm", "sxm5")}
_STATED_BY |= {f"{name}{form}": (name,) for name in ("k20", "k40") for form in "cmst"}
"""Words that a word of the driver's name implies: it calls an H100 SXM5 ``NVIDIA H100 80GB HBM3``, a K40 ``K40m``."""

NamesOf = Callable[[str], tuple[str, ...]]
"""Returns the model of the one GPU that a text means, then the names of its products in nvidia-smi; () for no one."""


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
    """A GPU model by the catalogue's name; ``words`` are those that the driver's name of the GPU has to contain.

    The name adds no word to that of another of the ``products``: ``Quadro RTX 5000`` is not its Max-Q design.
    No product is called ``H100`` only, so this is each of its form factors.
    """

    model: str
    names_of: NamesOf = field(repr=False, compare=False)
    words: tuple[str, ...] = ()
    products: tuple[str, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return " ".join((self.model, *(word.upper() for word in self.words if _added(self.model, (word,), 0) is None)))

    def is_met_by(self, gpu: GpuSeen) -> bool:
        added, others = _added(gpu.name, self.words, gpu.memory), (_added(one, self.words) for one in self.products)
        return self.may_be(gpu) and added is not None and not any(one is not None and one < added for one in others)

    def may_be(self, gpu: GpuSeen) -> bool:
        return (self.names_of(gpu.name) or (gpu.name,))[0] == self.model


class EnvironmentRequirement(msgspec.Struct, frozen=True):
    """An environment's id; ``image`` is the first 12 hexadecimal digits of an image's digest, or ''.

    In a tag, words of your own may follow the id: ``…-bookworm-prod``, but ``…-bookworm-runtime`` is another id.
    """

    id: str
    image: str = ""
    in_tag: bool = False

    def is_met_by(self, name: str) -> bool:
        own = self.in_tag and self.id.startswith(name) and _OWN.fullmatch(self.id[len(name) :])
        return self.id == name or bool(own)

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


def read_environment(text: str, *, in_tag: bool = False) -> EnvironmentRequirement:
    found = fitting(_ENVIRONMENT, text, "an environment", "its id, or its id and an image: envbuilder plan lists ids")
    return EnvironmentRequirement(found[1], found[2] or "", in_tag)


def read_gpu(text: str, names_of: NamesOf) -> GpuRequirement:
    """Read a GPU's name. Raises UsageError if it does not mean one GPU, or has a word without a meaning."""
    text = fitting(_GPU, text, "a GPU", "use the name that nvidia-smi prints")[0]
    names = names_of(text)
    if not names:
        raise UsageError(f"the catalogue has no one GPU called {text!r}", hint="envbuilder catalog list gpus")
    words = tuple(dict.fromkeys(_words(text)))
    for word in (one for one in words if not _MEMORY.fullmatch(one)):
        decides = names_of(" ".join(one for one in words if one != word))[:1] != names[:1]
        if not decides and all(_added(name, (word,)) is None for name in names):
            raise UsageError(f"{word!r} in {text!r} is not understood", hint="use the name that nvidia-smi prints")
    return GpuRequirement(names[0], names_of, words, names[1:])


def parse_host_classes(text: str, names_of: NamesOf) -> tuple[HostClass, ...]:
    """Read ``H100/570, A100/550``, each class once. Raises UsageError for another form and for an unknown GPU."""
    found: dict[HostClass, None] = {}
    for part in text.split(","):
        gpu, slash, driver = (one.strip() for one in part.rpartition("/"))
        if not slash:
            hint = "a GPU and a driver's branch or release: H100/570"
            raise UsageError(f"{part.strip()!r} is not a host class", hint=hint)
        found[HostClass(read_gpu(gpu, names_of), read_driver(driver))] = None
    return tuple(found)


def fitting(pattern: re.Pattern[str], text: str, what: str, hint: str) -> re.Match[str]:
    """Match a complete text without blanks around it. Raises UsageError that quotes it."""
    found = pattern.fullmatch(text.strip())
    if found is None:
        raise UsageError(f"{text!r} is not {what}", hint=hint)
    return found


def _words(name: str) -> tuple[str, ...]:
    """Split a GPU's name: ``NVIDIA A100-SXM4-80 GiB`` is ``a100``, ``sxm4``, ``80gb``."""
    text = re.sub(r"\b([0-9]+)\s*gi?b\b", r"\1gb", name.casefold().replace("pci-e", "pcie"))
    return tuple(word for word in re.findall(r"[^\s_()-]+", text) if word not in ("nvidia", "gpu"))


def _added(name: str, wanted: Iterable[str], memory: int | None = None) -> frozenset[str] | None:
    """Return the words of a GPU's name that are not wanted; None if it does not state all that are.

    It states up to four words in one too (``2080Ti``). If it does not state a size, that of the ``memory`` counts.
    """
    words = _words(name)
    spans = (words[start : start + length] for length in range(1, 5) for start in range(len(words)))
    stated = {"".join(span): frozenset(span) for span in spans}
    stated |= {other: frozenset((word,)) for word in words for other in _STATED_BY.get(word, ())}
    is_sized = any(map(_MEMORY.fullmatch, words))
    for word in (one for one in wanted if one not in stated):
        size = _MEMORY.fullmatch(word)
        share = memory / (int(size[1]) << 30) if size and memory is not None else 1
        if size is None or not _LEAST_MEMORY <= share <= _MOST_MEMORY or (is_sized and memory is not None):
            return None
    return frozenset(words).difference(_BRANDS, *(stated.get(word, ()) for word in wanted))


def names_another(version: str, named: Iterable[str]) -> bool:
    return not all(is_prefix(one, version) for one in named)


def comparisons(verdict: Verdict, wanted: Requirement, now: datetime) -> Iterator[tuple[str, Reason, str]]:
    """Compare each field of a requirement: yield its name, the reason and a message where the verdict does not fit."""
    has, host = verdict.environment, verdict.host
    gpus, driver = ", ".join(gpu.name for gpu in host.gpus) or "no GPU", host.driver or "none"
    because = f": {'; '.join(verdict.reasons)}" if verdict.reasons else ""
    name, version = (has.id, has.tensorflow) if has else ("no environment of envbuilder", "unknown")
    if wanted.environment is not None and not wanted.environment.is_met_by(name):
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
    named = (verdict.suite, verdict.lock) if verdict.environment or verdict.lock else (verdict.suite,)
    if unclear := [text for text in named if not DIGEST.match(text)]:
        return f"its suite or lock is {unclear[0][:80]!r}, which is not a digest"
    if moment(verdict.started) - moment(verdict.finished) > CLOCK_SKEW:
        return f"it ended ({verdict.finished}) before it began ({verdict.started})"
    if (has := verdict.environment) and has.misnamed:
        return f"the id {has.id} does not fit its TensorFlow, Python, CUDA, cuDNN, system and machine"
    return contradiction(verdict)


def rank(level: Level) -> int:
    return 0 if level == "none" else 1 + LEVELS.index(level)


def moment(text: str) -> datetime:
    """Read an ISO 8601 time. Raises DamagedError for any other text, and for a time without a zone."""
    with decoding.damaged("not a time"):
        time = datetime.fromisoformat(text if text.isprintable() else "")
        if time.tzinfo is None:
            raise decoding.DamagedError(f"{text!r} names no time zone")
        return time.astimezone(UTC)


def age_s(verdict: Verdict, now: datetime) -> float:
    return max(0.0, round((now - moment(verdict.finished)).total_seconds(), 1))
