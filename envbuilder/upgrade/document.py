"""The typed answers of the upgrade probes for one image, and the document that upgrade prints."""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

import msgspec

from envbuilder.environment import Environment
from envbuilder.finding import Finding
from envbuilder.upgrade.statistics import Change, Interval, RatioResult
from envbuilder.verdict import CheckResult, ImageRef, Word

_Named = TypeVar("_Named", "Package", "Operation", "UserTest", CheckResult)


def paired(old: Iterable[_Named], new: Iterable[_Named]) -> Iterator[tuple[str, _Named | None, _Named | None]]:
    """Yield what both images have under each name: in the new image's order, then what it lacks."""
    before, after = ({one.name: one for one in each} for each in (old, new))
    for name in after | before:
        yield name, before.get(name), after.get(name)


Precision = Literal["float32", "float16", "bfloat16", "float64"]
UserOutcome = Literal["passed", "failed", "skipped", "error", "timeout"]


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """One distribution in an image; ``licence`` as in its metadata, ``size`` in bytes with bytecode."""

    name: str
    version: str
    licence: str = ""
    size: int = 0


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The packages of an image; ``build`` and ``requires`` are TensorFlow's own metadata."""

    python: str = ""
    packages: tuple[Package, ...] = ()
    build: dict[str, str | tuple[str, ...]] = {}
    requires: tuple[str, ...] = ()


class Parameter(msgspec.Struct, frozen=True, array_like=True):
    """One parameter: ``p`` positional only, ``a`` any, ``v`` variadic, ``k`` by keyword, ``w`` further keywords.

    ``default`` is its text, or None.
    """

    kind: Literal["p", "a", "v", "k", "w"]
    name: str
    default: str | None = None


class PublicName(msgspec.Struct, frozen=True, array_like=True):
    """One public name: its kind, its parameters (None: unknown), and whether it is deprecated."""

    kind: str
    signature: tuple[Parameter, ...] | None = None
    deprecated: bool = False


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    version: str = ""
    names: dict[str, PublicName] = {}


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One operation in one precision (the end of its name); its error is relative to the largest exact value.

    ``values`` are its results, compressed and in base 64: doubles for double precision, else single ones.
    """

    name: str
    precision: Precision
    error: float | None
    failure: str = ""
    inputs: str = ""
    outputs: str = ""
    values: str = ""


class Numerics(msgspec.Struct, frozen=True, kw_only=True):
    """Errors and results of every operation, and digests of seeded generators ('': it raised)."""

    operations: tuple[Operation, ...] = ()
    streams: dict[str, str] = {}


class WarningLines(msgspec.Struct, frozen=True, kw_only=True):
    imported: tuple[str, ...] = ()
    used: tuple[str, ...] = ()


class TimingSample(msgspec.Struct, frozen=True, kw_only=True):
    """One new process: durations in seconds, and memory peaks in bytes, by name."""

    seconds: dict[str, float]
    bytes: dict[str, float] = {}


class SavedModels(msgspec.Struct, frozen=True, kw_only=True):
    """A small model in every format that an image can write: format → path → content in base 64."""

    saved: dict[str, dict[str, str]]


class LoadOutcomes(msgspec.Struct, frozen=True, kw_only=True):
    loaded: dict[str, str]


class UserTest(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    outcome: UserOutcome
    message: str = ""
    seconds: float = 0.0


class Observations(msgspec.Struct, frozen=True, kw_only=True):
    """All observations of one image; None if a probe gave no answer (``gaps`` give the reasons) or was not requested.

    ``again`` are further runs of files in which a test fails.
    """

    inventory: Inventory | None = None
    surface: Surface | None = None
    numerics: Numerics | None = None
    printed: WarningLines | None = None
    tests: tuple[UserTest, ...] | None = None
    again: tuple[tuple[UserTest, ...], ...] = ()
    gaps: tuple[str, ...] = ()


Decision = Literal["ADOPT", "ADOPT_WITH_NOTES", "REJECT", "UNDECIDED"]
HostState = Literal["native", "ptx", "lost", "unknown"]
ClauseState = Literal["ok", "violated", "unknown", "not asked"]
LockIs = Literal["committed", "made", "proposed"]
"""A lock is committed in ``images/``, made for this row, or proposed (in no matrix, and close to the old lock)."""
Otherwise = Literal["reject", "note"]
SavedBy = Literal["old", "new"]


class SizedLayer(msgspec.Struct, frozen=True, kw_only=True):
    created_by: str
    size: int


class ComparedImage(msgspec.Struct, frozen=True, kw_only=True):
    """One image of the comparison; ``pythons`` have wheels, and are empty if unknown (of a local wheel file)."""

    tensorflow: str
    environment: Environment
    image: ImageRef | None = None
    layers: tuple[SizedLayer, ...] = ()
    lock: str = ""
    verdict: Word | None = None
    level: str = "none"
    reasons: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    released: str = ""
    lock_is: LockIs = "made"


class PackageChange(msgspec.Struct, frozen=True, kw_only=True):
    """One changed distribution; None where absent."""

    name: str
    change: Literal["added", "removed", "changed"]
    old: str | None
    new: str | None
    old_licence: str | None
    new_licence: str | None
    old_size: int | None
    new_size: int | None


class FactChange(msgspec.Struct, frozen=True, kw_only=True):
    """One platform fact of both images (CUDA, cuDNN, NCCL, minimum driver …), or None."""

    name: str
    old: str | None
    new: str | None


class SetChange(msgspec.Struct, frozen=True, kw_only=True):
    """Additions to and removals from a set (Python versions, compute capabilities with machine code or PTX)."""

    name: str
    gained: tuple[str, ...]
    lost: tuple[str, ...]


class HostChange(msgspec.Struct, frozen=True, kw_only=True):
    """How one GPU of a fleet host is supported by both images, and the new image's findings there."""

    host: str
    gpu: str
    driver: str
    old: HostState
    new: HostState
    findings: tuple[Finding, ...] = ()


class LayerChange(msgspec.Struct, frozen=True, kw_only=True):
    """One layer, matched by its instruction; sizes in bytes, None where absent."""

    created_by: str
    old: int | None
    new: int | None


class NumericChange(msgspec.Struct, frozen=True, kw_only=True):
    """One operation with changed errors; ``tolerance`` is the limit of its precision."""

    operation: str
    old: float | None
    new: float | None
    tolerance: float
    outside: bool
    message: str = ""


class OutputChange(msgspec.Struct, frozen=True, kw_only=True):
    """Different results on the same inputs: ``drift`` relative to the largest result, None if not comparable."""

    operation: str
    drift: float | None
    tolerance: float
    outside: bool


class MemoryChange(msgspec.Struct, frozen=True, kw_only=True):
    """A process's peak memory in bytes, with the ratio new/old and the test's answer."""

    name: str
    rounds: int
    old: Interval
    new: Interval
    ratio: Interval
    change: Change


class ModelExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One format of a model saved by one image and loaded by the other; ``wrong`` is the failure, or ''."""

    name: str
    saved_by: SavedBy
    wrong: str = ""


class OutcomeChange(msgspec.Struct, frozen=True, kw_only=True):
    """One check or test with different outcomes, '' where it does not exist; ``again`` counts further runs."""

    name: str
    old: str
    new: str
    message: str = ""
    flaky: bool = False
    again: str = ""


class TestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The number of the user's tests, and how many passed on each image; ``failed_before`` names old failures."""

    __test__ = False

    total: int
    passed_both: int
    passed_old: int
    failed_before: tuple[str, ...] = ()
    ended: bool = True


class SignatureChange(msgspec.Struct, frozen=True, kw_only=True):
    """One public name with changed parameters; ``breaks`` says how a call can break, or is ''."""

    name: str
    old: str
    new: str
    breaks: str


class MemberChange(msgspec.Struct, frozen=True, kw_only=True):
    member: str
    classes: tuple[str, ...]
    count: int
    breaks: str = ""


class SurfaceChange(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of the public interface. Names below a removed name are not listed again."""

    old_names: int = 0
    new_names: int = 0
    removed: tuple[str, ...] = ()
    removed_members: tuple[MemberChange, ...] = ()
    added: tuple[str, ...] = ()
    signatures: tuple[SignatureChange, ...] = ()
    changed_members: tuple[MemberChange, ...] = ()
    newly_deprecated: tuple[str, ...] = ()


class Differences(msgspec.Struct, frozen=True, kw_only=True):
    """All differences. None means that it could not be compared; an empty tuple, that nothing differs."""

    packages: tuple[PackageChange, ...] | None = None
    requirements: tuple[FactChange, ...] | None = None
    platform: tuple[FactChange, ...] = ()
    sets: tuple[SetChange, ...] = ()
    hosts: tuple[HostChange, ...] | None = None
    size_ratio: float | None = None
    layers: tuple[LayerChange, ...] = ()
    timings: tuple[RatioResult, ...] | None = None
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
    clause: str
    says: str
    otherwise: Otherwise
    state: ClauseState
    limit: float
    found: str
    details: tuple[str, ...] = ()


class UpgradeDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder upgrade``.

    ``row`` names the Python and system of the comparison, ``matrix`` the matrix that offers the version (or '');
    ``not_judged`` are the new version's environments in other rows.
    """

    schema: str = "envbuilder/upgrade/v1"
    old: ComparedImage
    new: ComparedImage
    flavor: str
    decision: Decision = "UNDECIDED"
    policy: str = ""
    clauses: tuple[Clause, ...] = ()
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
