"""What holds for every test: examples are the same in every run, and what is not marked stays on this machine."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from closed import closed
from hypothesis import is_hypothesis_test, settings
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from envbuilder.support import terminal_text

if TYPE_CHECKING:
    from envbuilder.controls.run import Controller
    from envbuilder.engine.docker import DockerEngine

OUT = Path(__file__).parents[1] / "out"
"""Has test-times.tsv (seconds, phase, outcome and name of each slow test) and test-failures.txt, of all runs."""

_GROUP = re.compile(r"@[\w-]+-\d+\]\Z")
"""End of the name of a test that runs with its group, `[name@group-1]`, whatever else its file has."""

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
"""For jsonschema it compiles grammars of IRIs, 2 s in each worker; no schema here has one."""

yaml.safe_load = partial(yaml.load, Loader=yaml.CSafeLoader)
"""The tables of tests are read ten times as fast by libyaml, 2 s in each worker."""

settings.register_profile("fixed", max_examples=40, derandomize=True, deadline=None)
settings.register_profile("explore", max_examples=200, deadline=None)
settings.load_profile("fixed")


class FilesAndGroups(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs a file, or a group of its tests."""

    def _split_scope(self, nodeid: str) -> str:
        group = _GROUP.search(nodeid)
        return nodeid.partition("::")[0] + (group[0] if group else "")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FilesAndGroups | None:
    return FilesAndGroups(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the laws; begin with files that take or wait longest, end with small groups.

    Then all workers end together.
    """
    first = {item.path for item in items if item.get_closest_marker("engine") or item.get_closest_marker("network")}
    first |= {item.path for item in items if item.path.parent.name == "faults"}
    for item in items:
        if item.path.parent.name == "property" or is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker("law")

    def place(item: pytest.Item) -> tuple[bool, bool, bool]:
        is_group = _GROUP.search(item.nodeid) is not None
        return is_group and item.path.name == "test_adversarial_images.py", item.path not in first, is_group

    items.sort(key=place)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what fails, or takes longer than a second, as it ends: a run that is stopped prints neither."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        return
    OUT.mkdir(exist_ok=True)
    if report.duration > 1:
        with (OUT / "test-times.tsv").open("a") as file:
            file.write(f"{report.duration:.1f}\t{report.when}\t{report.outcome}\t{report.nodeid}\n")
    if report.failed:
        with (OUT / "test-failures.txt").open("a") as file:
            file.write(f"{report.nodeid}\n{report.longreprtext}\n\n")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Close network and engine to a test and its fixtures, unless its marks open them; keep the handlers of signals."""
    marks = {mark.name for mark in item.iter_markers()}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    try:
        with closed(network="network" in marks, engine="engine" in marks):
            return (yield)
    finally:  # a command that ran in this process has set its own, whose grace ends the process
        for number, handler in handlers.items():
            signal.signal(number, handler)
        terminal_text._hidden.clear()  # logins of the test, which are words of others


@pytest.fixture(scope="session")
def controller() -> Controller:
    """Build good images (`good("cpu")`, `good("gpu")`) and controls; needs the marks ``engine`` and ``network``."""
    from good_images import shared_controller  # noqa: PLC0415 - few tests need the engine

    return shared_controller()


@pytest.fixture(scope="session")
def engine() -> DockerEngine:
    """Connect to the engine; needs the mark ``engine``."""
    from envbuilder.engine.docker import connect  # noqa: PLC0415 - few tests need the engine

    return connect()
