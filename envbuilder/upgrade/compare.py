"""Differences between two images: contents, platform, hosts, outcomes, numerics and results."""

from __future__ import annotations

import base64
import math
import re
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TypeVar

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.fleet import FleetHost, findings_on
from envbuilder.environment import Environment
from envbuilder.finding import Code, Finding, compatible, is_condition
from envbuilder.support import decoding
from envbuilder.upgrade import document, statistics, surface
from envbuilder.upgrade.document import Differences, FactChange, Inventory, Numerics, OutcomeChange, UserTest, paired
from envbuilder.upgrade.statistics import Samples, Settings
from envbuilder.verdict import CheckResult
from envbuilder.workspace import packaged_yaml

_Evidence = TypeVar("_Evidence")
_Found = TypeVar("_Found")
_Change = TypeVar("_Change", FactChange, OutcomeChange)


@dataclass(frozen=True)
class ImageEvidence:
    """The evidence about one image; ``checks`` is None without a verdict."""

    compared: document.ComparedImage
    observed: document.Observations
    checks: tuple[CheckResult, ...] | None = None


@dataclass(frozen=True)
class CollectedEvidence:
    """The evidence about each image, what needs both (measurements, exchanged models), and unanswered questions."""

    old: ImageEvidence
    new: ImageEvidence
    samples: tuple[Samples, ...] = ()
    models: tuple[document.ModelExchange, ...] | None = None
    gaps: tuple[str, ...] = ()


def differences(
    found: CollectedEvidence, fleet: Sequence[FleetHost], catalog: Catalog, settings: Settings
) -> Differences:
    """Compare two images in every respect with evidence for both; the rest is None, never "no difference"."""
    old, new = found.old, found.new
    one, other = old.observed, new.observed
    timed = [row for row in found.samples if row.unit == "s"]
    outputs, compared = _both(compare_outputs, one.numerics, other.numerics) or (None, 0)
    tests = compare_tests(one.tests or (), other.tests or (), one.again, other.again)
    counted = _both(partial(count_tests, changes=tests), one.tests, other.tests)
    sizes = [one.image.size for one in (old.compared, new.compared) if one.image and one.image.size]
    gpu = new.compared.environment.flavor == "gpu"
    return Differences(
        packages=_both(packages, one.inventory, other.inventory),
        requirements=_both(requirements, one.inventory, other.inventory),
        platform=platform(old, new),
        sets=sets(old.compared, new.compared),
        hosts=compare_hosts(old.compared.environment, new.compared.environment, fleet, catalog)
        if fleet and gpu
        else None,
        size_ratio=sizes[1] / sizes[0] if len(sizes) == 2 else None,  # noqa: PLR2004 - both images
        layers=layers(old.compared, new.compared),
        timings=statistics.compare(timed, settings) if found.samples else None,
        numerics=_both(numerics, one.numerics, other.numerics),
        warnings_new=_both(warnings, one.printed, other.printed),
        warnings_gone=_both(warnings, other.printed, one.printed) or (),
        surface=_both(surface.compare_surfaces, one.surface, other.surface),
        checks=_both(checks, old.checks, new.checks),
        tests=tests if counted else None,
        tests_run=counted.total if counted else None,
        tests_counted=counted,
        outputs=outputs,
        outputs_compared=compared,
        streams_changed=_both(streams, one.numerics, other.numerics),
        memory=_memory(found.samples, settings),
        models=found.models,
    )


def _both(
    compared: Callable[[_Evidence, _Evidence], _Found], old: _Evidence | None, new: _Evidence | None
) -> _Found | None:
    return None if old is None or new is None else compared(old, new)


def _memory(samples: Sequence[Samples], settings: Settings) -> tuple[document.MemoryChange, ...] | None:
    """Evaluate memory peaks as a family of their own; None without samples."""
    rows = statistics.compare([one for one in samples if one.unit == "B"], settings)
    made = document.MemoryChange
    same = ({one: getattr(row, one) for one in ("name", "rounds", "ratio", "change")} for row in rows)
    return tuple(made(old=row.old_s, new=row.new_s, **more) for row, more in zip(rows, same, strict=True)) or None


class NamePatterns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Regular expressions: of distributions whose versions are platform facts, and of the spellings of licences."""

    libraries: dict[str, str]
    licences: dict[str, str]


def patterns() -> NamePatterns:
    return packaged_yaml("upgrade/packages.yaml", NamePatterns)


def packages(old: Inventory, new: Inventory) -> tuple[document.PackageChange, ...]:
    """List the distributions that were added, removed, or changed in version or licence, by name."""
    every = (_package(*each) for each in sorted(paired(old.packages, new.packages), key=itemgetter(0)))
    return tuple(row for row in every if row.old != row.new or relicensed(row))


def relicensed(row: document.PackageChange) -> bool:
    if row.old is None or row.new is None:
        return row.new is not None
    return spdx(row.old_licence or "") != spdx(row.new_licence or "")


def _package(name: str, old: document.Package | None, new: document.Package | None) -> document.PackageChange:
    return document.PackageChange(
        name=name,
        change="added" if old is None else "removed" if new is None else "changed",
        old=old.version if old else None,
        new=new.version if new else None,
        old_licence=old.licence if old else None,
        new_licence=new.licence if new else None,
        old_size=old.size if old else None,
        new_size=new.size if new else None,
    )


def spdx(licence: str) -> str:
    """Return the SPDX identifier of a common licence text, else the text."""
    plain = " ".join(licence.split()).lower()
    return next((name for name, pattern in patterns().licences.items() if re.fullmatch(pattern, plain)), licence)


def requirements(old: Inventory, new: Inventory) -> tuple[FactChange, ...]:
    """List changed requirements of TensorFlow by package and extra: ``numpy <2.1.0,>=1.26.0``."""
    before, after = _requirements(old.requires), _requirements(new.requires)
    return _changed(FactChange(name=name, old=before.get(name), new=after.get(name)) for name in sorted(before | after))


def _changed(every: Iterable[_Change]) -> tuple[_Change, ...]:
    return tuple(change for change in every if change.old != change.new)


def _requirements(stated: Iterable[str]) -> dict[str, str]:
    """Index requirements by package and condition; the bounds are sorted."""
    found: dict[str, str] = {}
    for text in stated:
        with suppress(InvalidRequirement):
            wanted = Requirement(text)
            name = f"{wanted.name.lower()} ({wanted.marker})" if wanted.marker else wanted.name.lower()
            found[name] = ",".join(sorted(map(str, wanted.specifier))) or "any"
    return found


def platform(old: ImageEvidence, new: ImageEvidence) -> tuple[FactChange, ...]:
    """List the platform facts of both images, changed or not; facts that neither has are omitted."""
    before, after = (_facts(one.compared, one.observed.inventory or Inventory()) for one in (old, new))
    rows = (FactChange(name=name, old=value or None, new=after[name] or None) for name, value in before.items())
    return tuple(row for row in rows if row.old or row.new)


def _facts(image: document.ComparedImage, inventory: Inventory) -> dict[str, str | None]:
    environment = image.environment
    build = {name: value for name, value in inventory.build.items() if isinstance(value, str)}
    return {
        "TensorFlow": image.tensorflow,
        "Python": inventory.python or environment.python,
        "CUDA": environment.cuda,
        "cuDNN": environment.cudnn,
        "minimum driver": environment.minimum_driver,
        "CUDA built with": build.get("cuda_version"),
        "cuDNN built with": build.get("cudnn_version"),
        **{name: _version(inventory.packages, pattern) for name, pattern in patterns().libraries.items()},
    }


def _version(packages_: Iterable[document.Package], pattern: str) -> str | None:
    return next((package.version for package in packages_ if re.fullmatch(pattern, package.name)), None)


PYTHONS = "Python versions"
CUBINS = "compute capabilities (machine code)"
PTX = "compute capabilities (PTX)"


def sets(old: document.ComparedImage, new: document.ComparedImage) -> tuple[document.SetChange, ...]:
    pythons = [(PYTHONS, old.pythons, new.pythons)] if old.pythons and new.pythons else []
    before, after = old.environment, new.environment
    return tuple(
        document.SetChange(name=name, gained=_sorted({*theirs} - {*mine}), lost=_sorted({*mine} - {*theirs}))
        for name, mine, theirs in (*pythons, (CUBINS, before.cubins, after.cubins), (PTX, before.ptx, after.ptx))
    )


def _sorted(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(texts, key=versions.key))


def layers(old: document.ComparedImage, new: document.ComparedImage) -> tuple[document.LayerChange, ...]:
    """Match layers by their instruction, in the new image's order; removed ones come last."""
    before, after = _by_instruction(old), _by_instruction(new)
    sizes = ((name, before.get((name, place)), after.get((name, place))) for name, place in after | before)
    return tuple(
        document.LayerChange(created_by=name, old=one, new=other) for name, one, other in sizes if one or other
    )


def _by_instruction(image: document.ComparedImage) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for layer in image.layers:
        place = sum(name == layer.created_by for name, _ in found)
        found[layer.created_by, place] = layer.size
    return found


def compare_hosts(
    old: Environment, new: Environment, fleet: Iterable[FleetHost], catalog: Catalog
) -> tuple[document.HostChange, ...]:
    rows = []
    for host, gpu in ((each, gpu) for each in fleet for gpu in dict.fromkeys(each.gpus)):
        alone = msgspec.structs.replace(host, gpus=(gpu,))
        before, after = (findings_on(one, alone, catalog) for one in (old, new))
        states = {"old": state(before), "new": state(after)}
        rows.append(
            document.HostChange(host=host.name, gpu=gpu, driver=host.driver or "none", findings=after, **states)
        )
    return tuple(rows)


def state(findings: Sequence[Finding]) -> document.HostState:
    """Return how a GPU is supported: by machine code, after compiling PTX, not at all, or no claim.

    The images of both versions lack the package on which a condition depends.
    """
    answer = False if any(map(is_condition, findings)) else compatible(tuple(findings))
    if answer is None:
        return "unknown"
    if not answer:
        return "lost"
    return "ptx" if any(finding.code is Code.PTX_JIT for finding in findings) else "native"


FAILURES = frozenset({"failed", "error", "timeout"})
THE_RUN = "(the run)"
"""The entry of a test run that did not finish."""

RELEVANT = 2.0
"""An error has changed if it is this many times larger or smaller."""


def checks(old: Sequence[CheckResult], new: Sequence[CheckResult]) -> tuple[OutcomeChange, ...]:
    return _changed(
        OutcomeChange(name=name, old=_outcome(one), new=_outcome(other), message=_said(other))
        for name, one, other in paired(old, new)
    )


def _outcome(result: CheckResult | UserTest | None) -> str:
    return result.outcome if result else ""


def _said(check: CheckResult | None) -> str:
    if check is None or check.outcome == "passed":
        return ""
    return "; ".join(f"{finding.code}: {finding.message}" for finding in check.findings) or check.observed


Runs = Sequence[Sequence[UserTest]]
"""Further test runs of an image."""


def compare_tests(
    old: Sequence[UserTest], new: Sequence[UserTest], old_again: Runs = (), new_again: Runs = ()
) -> tuple[OutcomeChange, ...]:
    """List the user's tests that are flaky, or have different outcomes, by name.

    The message is that of the image where it fails. A test is flaky if some runs of an image pass and some do not.
    """
    again = to_run_again(old, new)
    changes = [_rerun(one, old_again, new_again) if one.name in again else one for one in _pairs(old, new)]
    return tuple(change for change in changes if change.old != change.new or change.flaky)


def _pairs(old: Sequence[UserTest], new: Sequence[UserTest]) -> Iterator[OutcomeChange]:
    for name, one, other in sorted(paired(old, new), key=itemgetter(0)):
        message = other.message if other and other.outcome != "passed" else one.message if one else ""
        yield OutcomeChange(name=name, old=_outcome(one), new=_outcome(other), message=message)


def _rerun(change: OutcomeChange, old_again: Runs, new_again: Runs) -> OutcomeChange:
    """Return how often a test fails on the image where it fails, its first run included."""
    old, new = [change.old, *_outcomes(change.name, old_again)], [change.new, *_outcomes(change.name, new_again)]
    if len(old) == len(new) == 1:  # never run again
        return change
    bad = [sum(outcome != "passed" for outcome in outcomes) for outcomes in (old, new)]
    flaky = any("passed" in outcomes and set(outcomes) != {"passed"} for outcomes in (old, new))
    said = f"failed {bad[1]} of {len(new)} runs on the new image, {bad[0]} of {len(old)} on the old"
    return msgspec.structs.replace(change, flaky=flaky, again=said)


def _outcomes(name: str, runs: Runs) -> Iterator[str]:
    """Yield a test's outcomes; only in a run that finished, without a hang, is a missing test one that failed."""
    for run in runs:
        found = {test.name: test.outcome for test in run}
        if name in found or (THE_RUN not in found and "timeout" not in found.values()):
            yield found.get(name, "")


def to_run_again(old: Sequence[UserTest], new: Sequence[UserTest]) -> frozenset[str]:
    """Return the tests that fail on an image and need further runs to see whether they are flaky; a hang is final."""
    final = hanging((*old, *new)) | {THE_RUN}
    doubtful = (change.name for change in _pairs(old, new) if _newly(change) or change.old in FAILURES)
    return frozenset(name for name in doubtful if final.isdisjoint((name, name.partition("::")[0])))


def hanging(tests: Iterable[UserTest]) -> frozenset[str]:
    """Return the tests that were stopped at their limit; a file hangs before its first test."""
    return frozenset(test.name for test in tests if test.outcome == "timeout")


def count_tests(
    old: Sequence[UserTest], new: Sequence[UserTest], changes: Sequence[OutcomeChange] = ()
) -> document.TestCounts:
    """Count the user's tests, and name those that failed on the old image: they prove nothing about the new one.

    Flaky tests, marked in ``changes``, are not included.
    """
    flaky = {change.name for change in changes if change.flaky}
    passed = [{test.name for test in tests if test.outcome == "passed"} for tests in (old, new)]
    names = {test.name for test in (*old, *new)} - {THE_RUN}
    return document.TestCounts(
        total=len(names),
        passed_both=len(passed[0] & passed[1]),
        passed_old=len(passed[0]),
        failed_before=tuple(
            f"{test.name}: {test.outcome} on the old image: {test.message}"
            for test in old
            if test.outcome in FAILURES and test.name not in flaky
        ),
        ended=not any(test.name == THE_RUN for test in (*old, *new)),
    )


def newly_failed(change: OutcomeChange) -> bool:
    """Return True if a test fails only on the new image and is not flaky; a missing test counts as failed."""
    return _newly(change) and not change.flaky


def _newly(change: OutcomeChange) -> bool:
    return change.old not in FAILURES and (change.new in FAILURES or (change.old == "passed" and change.new == ""))


def numerics(old: Numerics, new: Numerics) -> tuple[document.NumericChange, ...]:
    """List operations whose error changed relevantly, or exceeds its tolerance on either image."""
    found = []
    for name, before, after in paired(old.operations, new.operations):
        if after is None:
            continue
        limit, was, error, message = tolerance_of(after), before.error if before else None, after.error, after.failure
        outside = error is None or error > limit
        if before is not None and before.inputs != after.inputs:
            message, outside = "different inputs: not comparable", True
        elif _alike(was, error, limit):
            continue
        found.append(
            document.NumericChange(
                operation=name, old=was, new=error, tolerance=limit, outside=outside, message=message
            )
        )
    return tuple(found)


class ToleranceRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    operations: tuple[str, ...]
    tolerance: dict[document.Precision, float]


def tolerance_of(operation: document.Operation) -> float:
    """Return the largest error of a correct implementation; an operation without a row has that of the first."""
    name = operation.name.rpartition(".")[0]
    rows = tuple(packaged_yaml("upgrade/numerics.yaml", dict[str, ToleranceRow]).values())
    row = next((row for row in rows if name in row.operations), rows[0])
    return row.tolerance[operation.precision]


def _alike(old: float | None, new: float | None, tolerance: float) -> bool:
    """Return True if two errors are within tolerance and not relevantly different; two raised errors are equal."""
    if old is None or new is None:
        return old is new
    low, high = sorted((old, new))
    return high <= tolerance and high <= RELEVANT * max(low, tolerance / 100)


def newly_outside(change: document.NumericChange) -> bool:
    """Return True if an operation exceeds its tolerance, or raises, only on the new image."""
    return change.outside and change.old is not None and change.old <= change.tolerance


def warnings(old: document.WarningLines, new: document.WarningLines) -> tuple[str, ...]:
    return tuple(sorted({*new.imported, *new.used} - {*old.imported, *old.used}))


def compare_outputs(old: Numerics, new: Numerics) -> tuple[tuple[document.OutputChange, ...], int]:
    """List the operations with different results on the same inputs, and count those with results of both images."""
    found, compared = [], 0
    for name, before, after in paired(old.operations, new.operations):
        if before and after and before.values and after.values and before.inputs == after.inputs:
            compared += 1
            if before.outputs != after.outputs:
                limit = 2 * tolerance_of(after)  # either image may be off by one tolerance
                drift = drift_of(_values(before), _values(after))
                outside = drift is None or drift > limit
                found.append(document.OutputChange(operation=name, drift=drift, tolerance=limit, outside=outside))
    return tuple(found), compared


def _values(operation: document.Operation) -> array[float]:
    """Decode little-endian results: doubles for double precision, else single precision.

    Empty, and so not compared, if they are damaged or too large.
    """
    kind = "d" if operation.precision == "float64" else "f"
    with suppress(decoding.DamagedError), decoding.damaged("no results"):
        return array(kind, zlib.decompressobj().decompress(base64.b64decode(operation.values), 64 << 20))
    return array(kind)


def drift_of(old: array[float], new: array[float]) -> float | None:
    """Return the largest difference relative to the largest old result; None for other shapes, or nothing finite."""
    if len(old) != len(new) or not old:
        return None
    scale = max(map(abs, old)) or 1.0
    drift = max(abs(one - other) for one, other in zip(old, new, strict=True)) / scale
    return drift if math.isfinite(drift) else None


def streams(old: Numerics, new: Numerics) -> tuple[str, ...] | None:
    """Name the generators with another result for the same seed; None if one image gave no answer."""
    if not old.streams or not new.streams:
        return None
    return tuple(name for name, digest in old.streams.items() if digest != new.streams.get(name, ""))
