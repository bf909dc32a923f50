"""The verdict document: every check's outcome, bound to the image, the lock, the suite, the driver and the GPUs."""

import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, assert_never

import msgspec

from envbuilder.environment import Environment, Flavor
from envbuilder.finding import Finding, Severity

CheckLevel = Literal["static", "load", "cpu", "gpu", "multi-gpu"]
Level = Literal["none", "static", "load", "cpu", "gpu", "multi-gpu"]
Outcome = Literal["passed", "failed", "skipped", "error", "timeout"]
Word = Literal["PASSED", "FAILED", "INCONCLUSIVE"]

LEVELS: tuple[CheckLevel, ...] = ("static", "load", "cpu", "gpu", "multi-gpu")

SCHEMA: Literal["envbuilder/verdict/v1"] = "envbuilder/verdict/v1"


class Measurement(msgspec.Struct, frozen=True):
    """One measured quantity; ``unit`` is an SI symbol, ``B`` or ``1`` for a ratio or count."""

    value: float
    unit: str


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check. ``expected`` and ``observed`` are texts for people."""

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
"""Bytes, or processors, within 64 bits."""


class ImageRef(msgspec.Struct, frozen=True, kw_only=True):
    """The validated image; ``digest`` is the registry's manifest digest (None before a push), size in bytes."""

    id: str
    digest: str | None = None
    size: Count = 0
    reference: str = ""
    base: str = ""


class Addition(msgspec.Struct, frozen=True, kw_only=True):
    """A package in the layers above envbuilder's own, or the other files of these layers in a folder; size in bytes."""

    kind: Literal["package", "system package", "files"]
    name: str
    version: str = ""
    files: Count = 0
    size: Count = 0


class EngineRef(msgspec.Struct, frozen=True, kw_only=True):
    """The engine that built or ran it (``here`` without a container)."""

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
"""Start of the UUID of every GPU of the simulated driver, as NVML writes it: the bytes spell "simulated GPU"."""


def any_simulated(gpus: Iterable[GpuSeen]) -> bool:
    """Return True if a GPU belongs to the simulated driver, in the container or on the host."""
    return any(gpu.uuid.casefold().startswith(SIMULATED_GPU.casefold()) for gpu in gpus)


class HostRef(msgspec.Struct, frozen=True, kw_only=True):
    """The host of the checks. ``driver`` is None if none is installed.

    ``persistence`` is NVML's persistence mode of all GPUs (None if unknown). Without it each first use of a GPU
    includes the driver's initialisation.
    """

    driver: str | None = None
    gpus: tuple[GpuSeen, ...] = ()
    kernel: str = ""
    cpus: Count = 0
    cpu_model: str = ""
    memory: Count = 0
    persistence: bool | None = None


StateName = Literal["passed", "failed", "stale", "inconclusive", "missing", "refused"]
"""State of an image on a host class.

``failed``: there is a valid FAILED. ``stale``: it passed too long ago. ``refused``: level or signers are not
sufficient, or an attestation of the image cannot be read. ``missing``: there is no real attestation for the class.
"""


class HostClassState(msgspec.Struct, frozen=True, kw_only=True):
    """State of an image on one host class: a GPU model and a driver (``535`` is the branch).

    ``kind`` is both in one word, as in ``H100/535``. ``ran_on`` is the driver of the verdict for a PASSED, ``age_s``
    its age in seconds; ``why`` is the reason of any other state. ``suites`` are the digests of all suites that ran
    there.
    """

    kind: str
    gpu: str
    driver: str
    state: StateName
    level: Level | None = None
    ran_on: str | None = None
    finished: str = ""
    age_s: float | None = None
    signers: tuple[str, ...] = ()
    why: str = ""
    suites: tuple[str, ...] = ()


class ImageState(msgspec.Struct, frozen=True, kw_only=True):
    """State of one image of a repository on each requested host class."""

    digest: str
    environment: str
    kinds: tuple[HostClassState, ...]


def every_on(modes: Iterable[bool | None]) -> bool | None:
    """Return True if persistence mode is on for all GPUs; None without GPUs, or if one is unknown."""
    known = tuple(modes)
    return all(known) if known and None not in known else None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The source of every report, attestation and JSON output."""

    schema: Literal["envbuilder/verdict/v1"] = SCHEMA
    environment: Environment | None
    image: ImageRef
    lock: str
    suite: str
    profile: Literal["quick", "full"] = "quick"
    engine: EngineRef
    host: HostRef
    simulated: bool
    verdict: Word
    level: Level
    requires: tuple[CheckLevel, ...]
    checks: tuple[CheckResult, ...]
    timeline: tuple[Phase, ...] = ()
    findings: tuple[Finding, ...] = ()
    reasons: tuple[str, ...] = ()
    additions: tuple[Addition, ...] = ()
    started: str
    finished: str

    @property
    def unreal(self) -> bool:
        """True if a simulated driver was used, according to the verdict or to its GPUs."""
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
    """Return the word for these results.

    FAILED if a required check failed, crashed, timed out, or passed with a finding that is an error. PASSED only if
    every required check passed, every required level has one, and nothing was simulated.
    """
    required = [check for check in checks if check.level in requires]
    if any(check.outcome != "skipped" and not is_passed(check) for check in required):
        return "FAILED"
    all_passed = all(is_passed(check) for check in required) and {check.level for check in required} == set(requires)
    return "PASSED" if all_passed and requires and not simulated else "INCONCLUSIVE"


def level_of(checks: tuple[CheckResult, ...], *, simulated: bool) -> Level:
    """Return the highest level up to which all checks passed; with a simulated driver no GPU level."""
    level: Level = "none"
    for next_level in LEVELS[:3] if simulated else LEVELS:
        results = [check for check in checks if check.level == next_level]
        if not results or not all(is_passed(check) for check in results):
            return level
        level = next_level
    return level


def is_passed(check: CheckResult) -> bool:
    """Return True if a check passed without a finding that is an error."""
    return check.outcome == "passed" and all(finding.severity is not Severity.ERROR for finding in check.findings)


def contradiction(verdict: Verdict) -> str:
    """Describe a difference between a verdict and its own results; '' if there is none.

    Its flavour decides what is required, not its own list. Only the number of GPUs is taken from it
    (CUDA_VISIBLE_DEVICES): with one GPU its level is lower.
    """
    flavor = verdict.environment.flavor if verdict.environment else "gpu" if "gpu" in verdict.requires else "cpu"
    if verdict.verdict == "PASSED" and not verdict.simulated:
        skipped = {finding for check in verdict.checks if check.outcome == "skipped" for finding in check.findings}
        every = (*verdict.findings, *(verdict.environment.findings if verdict.environment else ()))
        errors = {one for one in every if one.severity is Severity.ERROR} - skipped
        bad = [check.name for check in verdict.checks if check.outcome != "skipped" and not is_passed(check)]
        if bad or errors:
            return f"it says PASSED, but its own results give errors: {', '.join(bad) or 'in no check'}"
        if not {*required_levels(flavor, gpus=1)} <= {*verdict.requires}:
            return f"it says PASSED, but only the levels {', '.join(verdict.requires) or 'none'} were required"
        has_driver = (verdict.host.driver or "").replace(".", "").isdecimal()
        if verdict.level in LEVELS[3:] and (flavor == "cpu" or not has_driver):
            lacking = "GPU image" if flavor == "cpu" else "driver"
            return f"it says level {verdict.level}, but its own results give no {lacking}"
    requires = required_levels(flavor, gpus=2 if "multi-gpu" in verdict.requires else 1)
    word = word_of(verdict.checks, requires, simulated=verdict.simulated)
    level = level_of(verdict.checks, simulated=verdict.simulated)
    if (word, level) == (verdict.verdict, verdict.level):
        return ""
    return f"it says {verdict.verdict} at level {verdict.level}, but its own results give {word} at level {level}"


def span(began: float) -> tuple[str, str]:
    """Return begin (by the monotonic clock) and end of something that ends now: UTC to the second, as ISO 8601.

    The wall clock is read once, because it may have been set meanwhile, and nothing ends before it begins.
    """
    ended = datetime.now(UTC)
    begun = ended - timedelta(seconds=time.monotonic() - began)
    return begun.isoformat(timespec="seconds"), ended.isoformat(timespec="seconds")
