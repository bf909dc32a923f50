"""Which FAILED counts against which demand, and which PASSED makes up for it."""

from __future__ import annotations

from datetime import datetime

from envbuilder.attest.demand import CLOCK_SKEW, Demand, SameGpu, driver_branch, inconsistent, moment, rank
from envbuilder.verdict import LEVELS, CheckLevel, Verdict

_ON_GPU = ("gpu", "multi-gpu")


def failed_levels(verdict: Verdict) -> tuple[CheckLevel, ...]:
    """Return the levels in which a verdict's checks failed, crashed or ran out of time, lowest first."""
    failed = {check.level for check in verdict.checks if check.outcome in ("failed", "error", "timeout")}
    return tuple(level for level in LEVELS if level in failed)


def concerns(verdict: Verdict, demand: Demand, same_gpu: SameGpu) -> bool:
    """Tell whether a FAILED speaks about what is demanded.

    What fails before a GPU is touched fails for everybody, whoever's host it was. What fails on a GPU speaks about that
    kind of host: its GPU model and its driver's branch. A demand that names no kind means all of them.
    """
    failed, host = failed_levels(verdict), verdict.host
    if not failed or any(level not in _ON_GPU for level in failed) or not host.gpus or host.driver is None:
        return True
    other_gpu = demand.gpu is not None and not any(same_gpu(demand.gpu, gpu.name) for gpu in host.gpus)
    other_driver = demand.driver is not None and driver_branch(demand.driver) != driver_branch(host.driver)
    return not (other_gpu or other_driver)


def supersedes(passed: Verdict, failed: Verdict, now: datetime) -> bool:
    """Tell whether a verdict makes up for a FAILED: a newer, real PASSED that got as far, on the same kind of host."""
    if passed.verdict != "PASSED" or passed.unreal or inconsistent(passed):
        return False
    if not moment(failed.finished) < moment(passed.finished) <= now + CLOCK_SKEW:
        return False
    levels = failed_levels(failed)
    reached = rank(passed.level)
    as_far = reached >= rank(levels[-1]) if levels else reached > rank(failed.level)
    on_gpu = any(level in _ON_GPU for level in levels)
    return as_far and (not on_gpu or _kind(passed) == _kind(failed))


def _kind(verdict: Verdict) -> tuple[frozenset[str], str]:
    host = verdict.host
    return frozenset(gpu.name.casefold() for gpu in host.gpus), driver_branch(host.driver or "")
