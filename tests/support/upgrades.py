"""Two sides of an upgrade that differ in nothing, and how they are judged by the policy that ships."""

from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import replace
from table_rows import beside

from envbuilder.catalog import store
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Flavor
from envbuilder.upgrade import statistics
from envbuilder.upgrade.compare import sets
from envbuilder.upgrade.document import (
    Clause,
    ComparedImage,
    Differences,
    MemoryChange,
    SurfaceChange,
    TestCounts,
    UpgradeDocument,
)
from envbuilder.upgrade.pairs import UpgradeOptions
from envbuilder.upgrade.policy import judge
from envbuilder.upgrade.statistics import Samples, Settings
from envbuilder.upgrade.upgrade import read_policy
from envbuilder.verdict import ImageRef

USERS_TESTS = beside(__file__)["tests"]
"""A folder of two tests, of which one needs what TensorFlow 2.16 dropped."""

POLICY = read_policy(None, Path())


def options(old: str, new: str, **more: Any) -> UpgradeOptions:
    return UpgradeOptions(old=old, new=new, policy=POLICY, **more)


def never(version: str, package: str) -> NoReturn:
    """Propose no release: a test with it asks for releases of the catalogue only."""
    raise AssertionError(f"{package} {version} is in the catalogue")


def side(version: str, flavor: Flavor = "cpu", **more: Any) -> ComparedImage:
    environment = resolve(Combination(tensorflow=version, python="3.11", flavor=flavor), store.load())
    assert isinstance(environment, Environment)
    made = ComparedImage(
        tensorflow=version,
        environment=environment,
        image=ImageRef(id="sha256:1", size=1000),
        verdict="PASSED",
        pythons=("3.11",),
    )
    return replace(made, **more)


def timed(ratio: float, rounds: int = 15) -> tuple[statistics.RatioResult, ...]:
    samples = [
        Samples(name=name, old=(1.0,) * rounds, new=(ratio,) * rounds) for name in ("start.total", "work.matmul")
    ]
    return statistics.compare(samples, Settings())


def occupied(ratio: float) -> tuple[MemoryChange, ...]:
    (row,) = statistics.compare([Samples(name="memory.start", old=(5e8,) * 15, new=(5e8 * ratio,) * 15)], Settings())
    found = MemoryChange(name=row.name, rounds=15, old=row.old_s, new=row.new_s, ratio=row.ratio, change=row.change)
    return (found,)


CALM = Differences(
    packages=(),
    sets=sets(side("2.15.1"), side("2.16.2")),
    size_ratio=1.0,
    timings=timed(1.0),
    numerics=(),
    warnings_new=(),
    surface=SurfaceChange(),
    checks=(),
    outputs=(),
    outputs_compared=84,
    streams_changed=(),
    memory=occupied(1.0),
    models=(),
)


def compared(differences_: Differences, rounds: int = 15, **new: Any) -> UpgradeDocument:
    after = side("2.16.2", **new)
    flavor = after.environment.flavor
    return UpgradeDocument(old=side("2.15.1"), new=after, flavor=flavor, differences=differences_, rounds=rounds)


def judged(differences_: Differences, **new: Any) -> tuple[str, dict[str, Clause]]:
    found = judge(compared(differences_, **new), POLICY)
    return found.decision, {clause.clause: clause for clause in found.clauses}


def suite(passed_both: int, total: int, **more: Any) -> Differences:
    counts = TestCounts(total=total, passed_both=passed_both, passed_old=passed_both)
    return replace(CALM, tests=(), tests_run=total, tests_counted=replace(counts, **more))
