"""Requirements of a deployment on a verdict, and the reasons why a verdict does not meet them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from envbuilder import versions
from envbuilder.errors import Reason
from envbuilder.support import decoding
from envbuilder.verdict import LEVELS, Level, Verdict, contradiction
from envbuilder.versions import DOTTED, is_prefix

CLOCK_SKEW = timedelta(minutes=5)
"""How far a verdict's end may be in the future: the clocks of two hosts differ by that much."""

DRIVER_PATTERN = rf"^{DOTTED}\Z"
"""The form of a required driver: a branch (``535``) or a release (``535.104.05``)."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One reason against one statement (``statement`` is the digest that it is stored under; '' if there is none)."""

    reason: Reason
    message: str
    statement: str = ""


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """The needs of a deployment: a level, a driver (``535`` is a branch), a GPU, an age in seconds.

    ``environment`` is an environment's id or a tag made of it; ``tensorflow`` a version or its first parts.
    """

    level: Level = "cpu"
    driver: str | None = None
    gpu: str | None = None
    max_age_s: float = 90 * 86_400.0
    environment: str | None = None
    tensorflow: str | None = None


SameGpu = Callable[[str, str], bool]
"""Compares the required GPU with a GPU's name as the driver has it."""


def shortcomings(
    stored: str, verdict: Verdict, demand: Requirement, now: datetime, same_gpu: SameGpu
) -> tuple[Refusal, ...]:
    """Return every reason why a verdict does not meet a requirement; empty if it does."""
    age = now - moment(verdict.finished)
    allowed = timedelta(seconds=demand.max_age_s)
    gpus = tuple(gpu.name for gpu in verdict.host.gpus)
    broken = inconsistent(verdict)
    checks = (
        (Reason.OTHER_ENVIRONMENT, not _is_asked(verdict, demand), _other(verdict, demand)),
        (Reason.SIMULATED, verdict.unreal, "the verdict was simulated: its driver or GPU was not real"),
        (Reason.FAILED, verdict.verdict == "FAILED", _because("the verdict is FAILED", verdict)),
        (
            Reason.INCONCLUSIVE,
            verdict.verdict == "INCONCLUSIVE",
            _because("the verdict is INCONCLUSIVE", verdict),
        ),
        (Reason.INCONSISTENT, bool(broken), f"the verdict is PASSED although {broken}"),
        (Reason.EXPIRED, age > allowed, f"validated {days(age)} ago; at most {days(allowed)} is accepted"),
        (Reason.EXPIRED, age < -CLOCK_SKEW, f"validated {days(-age)} in the future: a clock is wrong"),
        (
            Reason.LEVEL_TOO_LOW,
            rank(verdict.level) < rank(demand.level),
            f"validated up to {verdict.level}; {demand.level} is required",
        ),
        (
            Reason.OTHER_DRIVER,
            demand.driver is not None and not _driver_matches(demand.driver, verdict.host.driver),
            f"validated on driver {verdict.host.driver or 'none'}; {demand.driver} is required",
        ),
        (
            Reason.OTHER_GPU,
            demand.gpu is not None and not any(same_gpu(demand.gpu, name) for name in gpus),
            f"validated on {', '.join(gpus) or 'no GPU'}; {demand.gpu} is required",
        ),
    )
    where = f"{verdict.host.driver or 'no driver'}, {', '.join(gpus) or 'no GPU'}"
    return tuple(
        Refusal(
            reason=reason,
            statement=stored,
            message=f"{message} ({where})" if reason is Reason.FAILED else message,
        )
        for reason, holds, message in checks
        if holds
    )


def inconsistent(verdict: Verdict) -> str:
    """Return how a real PASSED verdict contradicts itself; '' if it does not. envbuilder makes no such verdict."""
    if verdict.verdict != "PASSED" or verdict.simulated:
        return ""
    gpus = len(verdict.host.gpus)
    if gpus < _GPUS.get(verdict.level, 0):
        return f"it is of level {verdict.level} and its host had {gpus} GPUs"
    return contradiction(verdict)


_GPUS: Mapping[Level, int] = {"gpu": 1, "multi-gpu": 2}
"""The least number of GPUs for each level."""


def rank(level: Level) -> int:
    """Return how high a level is, from 0 for ``none``."""
    return 0 if level == "none" else 1 + LEVELS.index(level)


def moment(text: str) -> datetime:
    """Read an ISO 8601 time. Raises DamagedError for any other text, and for a time without a zone."""
    with decoding.damaged("not a time"):
        time = datetime.fromisoformat(text)
        if time.tzinfo is None:
            raise decoding.DamagedError(f"{text!r} names no time zone")
        return time.astimezone(UTC)


def age_s(verdict: Verdict, now: datetime) -> float:
    """Return the age of a verdict in seconds; 0 for one from a clock that is ahead."""
    return max(0.0, round((now - moment(verdict.finished)).total_seconds(), 1))


def days(age: timedelta) -> str:
    """Write an age for people."""
    return f"{age.total_seconds() / 86_400:.1f} days"


def driver_branch(version: str) -> str:
    """Return the branch of a driver: ``535`` of ``535.104.05``."""
    return str(versions.major(version)) if versions.key_or_none(version) else version


def gpu_matches(wanted: str, name: str) -> bool:
    """Return True if a GPU's name has the required words in order: ``H100`` is in ``NVIDIA H100 80GB HBM3``."""
    words, parts = wanted.casefold().split(), name.casefold().replace("-", " ").split()
    wanted_words = [piece for word in words for piece in word.replace("-", " ").split()]
    return bool(wanted_words) and any(
        parts[start : start + len(wanted_words)] == wanted_words for start in range(len(parts))
    )


def same_model(model_of: Callable[[str], str | None]) -> SameGpu:
    """Compare models if both names have one, else words: an RTX 3080 Ti is not an RTX 3080."""

    def same(wanted: str, name: str) -> bool:
        models = model_of(wanted), model_of(name)
        return models[0] == models[1] if all(models) else gpu_matches(wanted, name)

    return same


def _is_asked(verdict: Verdict, demand: Requirement) -> bool:
    """Return True if a verdict is about the required environment; a tag of envbuilder may end with the image's id."""
    environment = verdict.environment
    if environment is None:
        return demand.environment is None and demand.tensorflow is None
    wanted = demand.environment or environment.id
    named = re.fullmatch(re.escape(environment.id) + r"(?:-[0-9a-f]{12})?", wanted) is not None
    return named and (demand.tensorflow is None or is_prefix(demand.tensorflow, environment.tensorflow))


def _other(verdict: Verdict, demand: Requirement) -> str:
    held = verdict.environment.id if verdict.environment else "no environment of envbuilder"
    wanted = [demand.environment or "", f"TensorFlow {demand.tensorflow}" if demand.tensorflow else ""]
    return f"this is {held}; {' with '.join(filter(None, wanted))} is required"


def _because(text: str, verdict: Verdict) -> str:
    return f"{text}: {'; '.join(verdict.reasons)}" if verdict.reasons else text


def _driver_matches(wanted: str, ran: str | None) -> bool:
    return ran is not None and versions.key_or_none(ran) is not None and is_prefix(wanted, ran)
