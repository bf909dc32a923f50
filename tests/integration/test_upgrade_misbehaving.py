"""A user's suite with every kind of misbehaviour, in real containers: each is named, in few starts."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from table_rows import beside

from envbuilder.controls.run import Controller
from envbuilder.engine.docker import connect
from envbuilder.engine.port import ContainerSpec
from envbuilder.support.console import Console
from envbuilder.upgrade.compare import compare_tests, count_tests, newly_failed
from envbuilder.upgrade.observe import AnswerCache, ProbeTarget
from envbuilder.upgrade.user_tests import HANGS, read_suite, run_on_both

MISBEHAVED = beside(__file__)["bodies"]
"""Bodies of tests: NEW is true on the new image, RUN is the number of the run there."""


class Numbered:
    """An engine that tells each container its side and the number of its run, so that one image can be both sides."""

    def __init__(self) -> None:
        self.engine, self.runs = connect(), Counter[str]()

    def run(self, spec: ContainerSpec, *streams: Any) -> Any:
        side = "old" if spec.memory % 2 else "new"
        self.runs[side] += 1
        return self.engine.run(replace(spec, env={**spec.env, "SIDE": side, "RUN": str(self.runs[side])}), *streams)


LIMIT_S = 40
"""Seconds of silence after which a test hangs, here; by default 90."""


@pytest.mark.engine
@pytest.mark.network
@pytest.mark.full
def test_misbehaving_tests_are_named_in_twelve_starts(controller: Controller, tmp_path: Path) -> None:
    image, folder = controller.good("cpu").record.image, tmp_path / "all"
    folder.mkdir()
    for name, body in MISBEHAVED.items():
        head = "import os, time\nNEW, RUN = os.environ['SIDE'] == 'new', int(os.environ['RUN'])\n"
        (folder / f"test_{name}.py").write_text(f"{head}def test_{name}():\n    {body}\n")
    engine: Any = Numbered()
    places = [ProbeTarget(engine, image, memory=(4 << 30) + odd) for odd in (1, 0)]
    suite, cache = read_suite(folder, test_limit=LIMIT_S), AnswerCache(tmp_path / "kept")
    with Console().task("tests") as task:
        (old, old_again), (new, new_again) = run_on_both(places, ("3.11", "3.11"), suite, cache, task)
    # Alone 58 s were measured with a limit of 15 s, so 133 s with the default, which one test waits for, once.
    assert engine.runs.total() <= 12
    changes = {row.name.partition("::test_")[2]: row for row in compare_tests(old, new, old_again, new_again)}
    assert {name: [row.old, row.new] for name, row in changes.items()} == beside(__file__)["changes"]
    assert changes["hangs"].message == HANGS
    assert changes["crashes"].message == "the process ended: signal 6"
    assert changes["floods"].message.startswith("floods: killed after ")
    assert {name for name, row in changes.items() if row.flaky} == {"flaky_on_old", "flaky_on_new"}
    assert {name for name, row in changes.items() if newly_failed(row)} == {"hangs", "crashes", "floods"}
    assert not [test for run in (*old_again, *new_again) for test in run if "hangs" in test.name]
    counts = count_tests(old, new, tuple(changes.values()))
    assert (counts.total, counts.passed_both, counts.failed_before, counts.ended) == (7, 2, (), True)
