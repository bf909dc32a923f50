"""A driver branch that is named without a release: which releases are meant, and which of them would not do."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

from envbuilder.catalog.rows import DriverBranch
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.cuda_libraries import on_gpu
from envbuilder.finding import Code, Finding

_NO_RELEASE = "the catalogue knows none of its releases, so it is judged as the first of them"


def branch_meant(candidate: Candidate, works: bool, older: Callable[[str], bool]) -> Iterator[Finding]:  # noqa: FBT001
    """DRIVER_BRANCH: which releases a branch that was named alone stands for, and which of them would not do.

    ``works`` says whether its newest does, ``older`` the same of any other release; a newer one of a branch never
    fails where an older one does not.
    """
    branch = candidate.branch
    if branch is None or not on_gpu(candidate):
        return
    known = branch.production
    if len(known) > 1:
        meant = f"judged is {known[-1]}, the newest of its production releases ({known[0]} to {known[-1]})"
    else:
        meant = f"judged is {known[0]}, its only production release that is known" if known else _NO_RELEASE
    refused = known[: bisect_left(known, True, key=older)] if works and known and not older(known[0]) else ()
    say_it = phrases.warning if refused else phrases.info
    first = known[len(refused)] if refused else ""
    yield say_it(
        Code.DRIVER_BRANCH,
        f"driver branch {branch.branch}",
        f"{_named(candidate, branch)}: {meant}."
        + (f" That is the answer from {first} on; {phrases.span(refused)} would not do." if refused else ""),
        requires=f"driver {first}" if refused else "",
        found=f"driver branch {branch.branch}",
        fix="Give the release that nvidia-smi prints for an answer about it alone.",
        rows=(branch,),
    )


def _named(candidate: Candidate, branch: DriverBranch) -> str:
    if not candidate.windows:
        return f"Driver {branch.branch} names a branch"
    return (
        f"Driver {candidate.windows} is Windows' number for branch {branch.branch}, whose releases are told as on Linux"
    )
