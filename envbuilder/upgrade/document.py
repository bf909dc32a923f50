"""The document that upgrade prints."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.environment import Environment
from envbuilder.finding import Finding
from envbuilder.upgrade.statistics import Change, Interval, Measured
from envbuilder.verdict import ImageRef, Word

Decision = Literal["ADOPT", "ADOPT_WITH_NOTES", "REJECT", "UNDECIDED"]
Presence = Literal["added", "removed", "changed"]
HostState = Literal["native", "ptx", "lost", "unknown"]
ClauseState = Literal["ok", "violated", "unknown", "not asked"]
LockIs = Literal["committed", "made", "proposed"]
"""Where an image's lock is from: committed in ``images/``, made for this row, or proposed close to the old image's."""
Otherwise = Literal["reject", "note"]


class LayerSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of an image, in bytes, and the instruction that made it."""

    created_by: str
    size: int


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One image of the comparison; ``pythons`` are those that the release has wheels for.

    They are empty where that cannot be known: of a release that is a file on this machine.
    """

    tensorflow: str
    environment: Environment
    image: ImageRef | None = None
    layers: tuple[LayerSeen, ...] = ()
    lock: str = ""
    verdict: Word | None = None
    level: str = "none"
    reasons: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    released: str = ""
    lock_is: LockIs = "made"


class PackageChange(msgspec.Struct, frozen=True, kw_only=True):
    """One distribution that is not the same on both images; sizes in bytes, None where absent."""

    name: str
    change: Presence
    old: str | None
    new: str | None
    old_licence: str | None
    new_licence: str | None
    old_size: int | None
    new_size: int | None


class FactChange(msgspec.Struct, frozen=True, kw_only=True):
    """One fact of the platform on both images (CUDA, cuDNN, NCCL, minimum driver …); None where there is none."""

    name: str
    old: str | None
    new: str | None


class SetChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a set gained and lost (Pythons, compute capabilities with machine code, with PTX)."""

    name: str
    gained: tuple[str, ...]
    lost: tuple[str, ...]


class HostChange(msgspec.Struct, frozen=True, kw_only=True):
    """How one GPU of one host of the fleet is served on both images, and the new image's findings there."""

    host: str
    gpu: str
    driver: str
    old: HostState
    new: HostState
    findings: tuple[Finding, ...] = ()


class LayerChange(msgspec.Struct, frozen=True, kw_only=True):
    """One layer, matched by the instruction that made it; bytes, None where absent."""

    created_by: str
    old: int | None
    new: int | None


class NumericChange(msgspec.Struct, frozen=True, kw_only=True):
    """One operation whose results or errors differ; ``tolerance`` is what its precision should reach."""

    operation: str
    old: float | None
    new: float | None
    tolerance: float
    outside: bool
    message: str = ""


class OutputChange(msgspec.Struct, frozen=True, kw_only=True):
    """One operation whose results differ between the images on the same inputs.

    ``drift`` is the largest difference relative to the largest result, None where they cannot be compared;
    ``outside`` where that is more than its precision allows.
    """

    operation: str
    drift: float | None
    tolerance: float
    outside: bool


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """The peak memory of a process at one point, in bytes, with the ratio new/old and the test's answer."""

    name: str
    rounds: int
    old: Interval
    new: Interval
    ratio: Interval
    change: Change


class ModelExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One format in which one image saved a model and the other loaded it; ``wrong`` says what is, '' for nothing."""

    name: str
    saved_by: Literal["old", "new"]
    wrong: str = ""


class OutcomeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One check or user's test whose outcome differs; '' where it does not exist on that side.

    ``flaky`` where running it again showed that it fails now and then; ``again`` says how often.
    """

    name: str
    old: str
    new: str
    message: str = ""
    flaky: bool = False
    again: str = ""


class TestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many of the user's tests there are, and how many passed where; ``failed_before`` names those that failed."""

    __test__ = False

    total: int
    passed_both: int
    passed_old: int
    failed_before: tuple[str, ...] = ()
    ended: bool = True


class SignatureChange(msgspec.Struct, frozen=True, kw_only=True):
    """One public name whose parameters differ; ``breaks`` says how a call could break ('' where none can)."""

    name: str
    old: str
    new: str
    breaks: str


class MemberChange(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute that is gone from, or differs on, several public classes: its name and the classes."""

    member: str
    classes: tuple[str, ...]
    count: int
    breaks: str = ""


class SurfaceChange(msgspec.Struct, frozen=True, kw_only=True):
    """How the public interface differs. Names below a removed name are not listed again."""

    old_names: int = 0
    new_names: int = 0
    removed: tuple[str, ...] = ()
    removed_members: tuple[MemberChange, ...] = ()
    added: tuple[str, ...] = ()
    signatures: tuple[SignatureChange, ...] = ()
    changed_members: tuple[MemberChange, ...] = ()
    newly_deprecated: tuple[str, ...] = ()


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that differs. None means that it could not be compared; an empty tuple, that nothing differs."""

    packages: tuple[PackageChange, ...] | None = None
    requirements: tuple[FactChange, ...] | None = None
    platform: tuple[FactChange, ...] = ()
    sets: tuple[SetChange, ...] = ()
    hosts: tuple[HostChange, ...] | None = None
    size_ratio: float | None = None
    layers: tuple[LayerChange, ...] = ()
    timings: tuple[Measured, ...] | None = None
    numerics: tuple[NumericChange, ...] | None = None
    warnings_new: tuple[str, ...] | None = None
    warnings_gone: tuple[str, ...] = ()
    surface: SurfaceChange | None = None
    checks: tuple[OutcomeChange, ...] | None = None
    tests: tuple[OutcomeChange, ...] | None = None
    tests_run: int | None = None
    tests_counted: TestCounts | None = None
    outputs: tuple[OutputChange, ...] | None = None
    outputs_compared: int = 0
    streams_changed: tuple[str, ...] | None = None
    memory: tuple[MemoryChange, ...] | None = None
    models: tuple[ModelExchange, ...] | None = None


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One clause of the policy with its figures: what was asked, what was found, and whether that is within it."""

    clause: str
    says: str
    otherwise: Otherwise
    state: ClauseState
    limit: float
    found: str
    details: tuple[str, ...] = ()


class UpgradeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder upgrade``: the decision, the clauses that made it, and every difference.

    ``row`` says on which Python and system it was judged, ``matrix`` what offers it ('' where none does);
    ``not_judged`` are the new image's environments in the matrix's other rows.
    """

    schema: str = "envbuilder/upgrade/v1"
    old: Side
    new: Side
    flavor: str
    decision: Decision
    policy: str
    clauses: tuple[Clause, ...]
    differences: Differences
    rounds: int
    would_decide: tuple[str, ...] = ()
    simulated: bool = False
    gaps: tuple[str, ...] = ()
    matrix: str = ""
    row: str = ""
    not_judged: tuple[str, ...] = ()
    started: str = ""
    finished: str = ""
