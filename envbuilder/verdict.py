"""The verdict document: every check's outcome, bound to the image, the lock, the suite, the driver and the GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, assert_never

import msgspec

from envbuilder.environment import Environment, Flavor
from envbuilder.finding import Finding, Severity

CheckLevel = Literal["static", "load", "cpu", "gpu", "multi-gpu"]
Level = Literal["none", "static", "load", "cpu", "gpu", "multi-gpu"]
Outcome = Literal["passed", "failed", "skipped", "error", "timeout"]
Word = Literal["PASSED", "FAILED", "INCONCLUSIVE"]

LEVELS: tuple[CheckLevel, ...] = ("static", "load", "cpu", "gpu", "multi-gpu")

SCHEMA = "envbuilder/verdict/v1"
"""What a verdict calls itself."""


class Measurement(msgspec.Struct, frozen=True):
    """One measured quantity; ``unit`` is an SI symbol, ``B`` or ``1`` for a ratio or count."""

    value: float
    unit: str


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one check answered. ``expected`` and ``observed`` are texts that a person can compare."""

    name: str
    level: CheckLevel = msgspec.field(name="tier")
    outcome: Outcome
    duration_s: float = 0.0
    expected: str = ""
    observed: str = ""
    findings: tuple[Finding, ...] = ()
    measurements: dict[str, Measurement] = {}
    log: str = ""


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of start-up: a sample per fresh process, in seconds, with cold and with warm kernel caches."""

    phase: str
    cold_s: tuple[float, ...] = ()
    warm_s: tuple[float, ...] = ()


Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""Bytes, or processors: no more than any machine counts, so that who writes them as GB need not expect more."""


class ImageRef(msgspec.Struct, frozen=True, kw_only=True):
    """The validated image; ``digest`` is the registry's manifest digest (None before a push), size in bytes."""

    id: str
    digest: str | None = None
    size: Count = 0
    reference: str = ""
    base: str = ""


class EngineRef(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that built or ran it (``here`` where no container was used)."""

    name: str
    version: str
    builder: str = ""


class GpuSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU as the driver reports it."""

    name: str
    compute_capability: str
    memory: Count = 0
    uuid: str = ""


SIMULATED_GPU = "GPU-73696d75-6c61-7465-6420-475055"
"""How the UUID of every GPU of our simulated driver begins, as NVML writes it: the bytes spell "simulated GPU"."""


def any_simulated(gpus: Iterable[GpuSeen]) -> bool:
    """Tell whether a GPU is of our simulated driver, wherever that was put: into the container or onto the host."""
    return any(gpu.uuid.casefold().startswith(SIMULATED_GPU.casefold()) for gpu in gpus)


class HostRef(msgspec.Struct, frozen=True, kw_only=True):
    """The host that the checks ran on. ``driver`` is None where none is installed.

    ``persistence`` is NVML's persistence mode of every GPU (None: nothing there, or not asked); without it the first
    use of a GPU pays for the driver's initialisation each time.
    """

    driver: str | None = None
    gpus: tuple[GpuSeen, ...] = ()
    kernel: str = ""
    cpus: Count = 0
    cpu_model: str = ""
    memory: Count = 0
    persistence: bool | None = None


KindState = Literal["passed", "failed", "stale", "inconclusive", "missing", "refused"]
"""How an image stands on a kind of host.

``failed``: a FAILED that counts there stands. ``stale``: it passed there, too long ago. ``refused``: what is there is
not enough (its level, its signers), or something that was said about the image cannot be read. ``missing``: nothing
real was ever said of that kind.
"""


class KindStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How an image stands on one kind of host: a GPU model and a driver (``535`` stands for the branch).

    ``kind`` is both in a word, as in ``H100/535``.
    ``ran_on`` is the driver of the verdict that a PASSED rests on, ``age_s`` its age in seconds; ``why`` says what
    stands in the way of any other state. ``suites`` are the digests of those that judged it there, whatever they said.
    ``rehearsed`` are the digests of those that were run against this kind's driver simulated: they prove nothing.
    """

    kind: str
    gpu: str
    driver: str
    state: KindState
    level: Level | None = None
    ran_on: str | None = None
    finished: str = ""
    age_s: float | None = None
    signers: tuple[str, ...] = ()
    why: str = ""
    suites: tuple[str, ...] = ()
    rehearsed: tuple[str, ...] = ()


class ImageStanding(msgspec.Struct, frozen=True, kw_only=True):
    """How one image of a repository stands on each kind of host that was asked for."""

    digest: str
    environment: str
    kinds: tuple[KindStanding, ...]


def every_on(modes: Iterable[bool | None]) -> bool | None:
    """Tell from each GPU's persistence mode whether it is on for all; None where there is none, or one is unknown."""
    known = tuple(modes)
    return all(known) if known and None not in known else None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The one document that every report, statement and machine output is derived from."""

    schema: str = SCHEMA
    environment: Environment | None
    image: ImageRef
    lock: str
    suite: str
    profile: str = "quick"
    engine: EngineRef
    host: HostRef
    simulated: bool = False
    verdict: Word
    level: Level
    requires: tuple[CheckLevel, ...]
    checks: tuple[CheckResult, ...]
    timeline: tuple[Phase, ...] = ()
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    started: str
    finished: str

    @property
    def unreal(self) -> bool:
        """Whether a simulated driver was met: by what the verdict says, or by the GPUs that it names."""
        return self.simulated or any_simulated(self.host.gpus)


def required_levels(flavor: Flavor, gpus: int) -> tuple[CheckLevel, ...]:
    """Return the levels that an image must pass: with several GPUs also the multi-GPU level."""
    match flavor:
        case "cpu":
            return LEVELS[:3]
        case "gpu":
            return LEVELS if gpus > 1 else LEVELS[:4]
        case _:
            assert_never(flavor)


def word_of(checks: tuple[CheckResult, ...], requires: tuple[CheckLevel, ...], *, simulated: bool) -> Word:
    """Return the word that results come to.

    FAILED where a required check failed, crashed, ran out of time, or passed in spite of an error that it names;
    PASSED only where every required check passed, every required level has one, and nothing was simulated.
    """
    required = [check for check in checks if check.level in requires]
    if any(check.outcome != "skipped" and not is_passed(check) for check in required):
        return "FAILED"
    is_whole = all(is_passed(check) for check in required) and {check.level for check in required} == set(requires)
    return "PASSED" if is_whole and requires and not simulated else "INCONCLUSIVE"


def level_of(checks: tuple[CheckResult, ...], *, simulated: bool) -> Level:
    """Return the highest level up to which all passed without a gap; on a simulated driver none of the GPU's."""
    level: Level = "none"
    for next_level in LEVELS[:3] if simulated else LEVELS:
        made = [check for check in checks if check.level == next_level]
        if not made or not all(is_passed(check) for check in made):
            return level
        level = next_level
    return level


def is_passed(check: CheckResult) -> bool:
    """Tell whether a check passed, and names no error: a pass that does is none."""
    return check.outcome == "passed" and all(finding.severity is not Severity.ERROR for finding in check.findings)


def contradiction(verdict: Verdict) -> str:
    """Say in what way a verdict says something else than its own results come to; '' where it does not.

    What is required follows from its flavour, never from what it says that it requires. How many of the host's GPUs
    CUDA was given it says itself (CUDA_VISIBLE_DEVICES): with one, nothing speaks of several, and its level is lower.
    """
    flavor = verdict.environment.flavor if verdict.environment else "gpu" if "gpu" in verdict.requires else "cpu"
    requires = required_levels(flavor, gpus=2 if "multi-gpu" in verdict.requires else 1)
    word = word_of(verdict.checks, requires, simulated=verdict.simulated)
    level = level_of(verdict.checks, simulated=verdict.simulated)
    if (word, level) == (verdict.verdict, verdict.level):
        return ""
    return f"says {verdict.verdict} at level {verdict.level}, and its own results come to {word} at level {level}"
