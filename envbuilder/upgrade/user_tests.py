"""Run the user's tests in an image: pytest files and scripts, as input files, under the probes' limits."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec
from uv import find_uv_bin

from envbuilder.engine.port import FILES_AT
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import decoding, subprocesses
from envbuilder.support.console import Task
from envbuilder.upgrade.compare import THE_RUN, hanging, to_run_again
from envbuilder.upgrade.document import UserTest
from envbuilder.upgrade.observe import AnswerCache, Output, ProbeTarget, key_of, run_probe
from envbuilder.workspace import cache_dir, content_key, folder_contents, temporary_folder, writing

PROBE = "user_tests"
TEST_LIMIT_S, SUITE_LIMIT_S = 90, 3600
"""Defaults in seconds: of silence, after which a test hangs, and of all tests in one image."""
HANGS = "hangs: stopped at its limit, and not run again (--test-limit)"
MAX_BYTES = 256 << 20
AGAIN = 5
"""Further runs of each image: a test that fails in 30 of 100 runs fails in all of them in one of 400 comparisons."""
AGAIN_S = 30.0
"""Seconds of further runs of an image. With one hang, both images take less than 3 minutes for all of it."""

_UNWANTED = {"__pycache__", ".git", ".pytest_cache", ".venv"}
_TEST = re.compile(r"(?:^|/)(?:test_[^/]*|[^/]*_test)\.py$")
_MAIN = re.compile(rb"^if __name__ == ['\"]__main__['\"]:", re.MULTILINE)


@dataclass(frozen=True)
class UserSuite:
    """A test folder: its files by path, the pytest files, the scripts, and limits in seconds.

    ``skip``: tests, and complete files, that do not run, because they hang.
    """

    files: dict[str, bytes]
    tests: tuple[str, ...]
    scripts: tuple[str, ...]
    test_limit: int = TEST_LIMIT_S
    limit: int = SUITE_LIMIT_S
    skip: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        more = " ".join((str(self.test_limit), str(self.limit), *sorted(self.skip)))
        return content_key({**self.files, "(limits)": more.encode()})

    def only(self, names: Collection[str]) -> UserSuite:
        """Return the suite reduced to the complete files of these tests, because tests may depend on each other."""
        wanted = {name.partition("::")[0] for name in names}
        tests, scripts = (tuple(path for path in paths if path in wanted) for paths in (self.tests, self.scripts))
        return replace(self, tests=tests, scripts=scripts)


def read_suite(folder: Path, test_limit: int = TEST_LIMIT_S, limit: int = SUITE_LIMIT_S) -> UserSuite:
    """Read a folder of tests.

    pytest runs ``test_*.py`` and ``*_test.py``; scripts are ``*.sh`` files and other ``*.py`` files with a ``__main__``
    block. Raises UsageError if there is neither, or if the folder is too large.
    """
    files = read_files(folder)
    tests = tuple(name for name in files if _TEST.search(name))
    programs = {name for name, data in files.items() if name.endswith(".py") and _MAIN.search(data)}
    scripts = tuple(name for name in files if name not in tests and (name.endswith(".sh") or name in programs))
    if not tests and not scripts:
        raise UsageError(f"{folder}: holds no tests", hint="pytest files are test_*.py, scripts *.sh or with __main__")
    return UserSuite(files, tests, scripts, test_limit, limit)


def read_files(folder: Path) -> dict[str, bytes]:
    """Read a folder of input files for containers. Raises UsageError if it is none, too large, or leads elsewhere."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: no such folder", hint="--suite takes a folder of pytest files or scripts")
    files = {name: data for name, data in folder_contents(folder).items() if _UNWANTED.isdisjoint(name.split("/"))}
    root = folder.resolve()
    if outside := [name for name in files if root not in (folder / name).resolve().parents]:
        raise UsageError(f"{folder / outside[0]} leads out of the folder", hint="copy the file: a test may print it")
    if sum(map(len, files.values())) > MAX_BYTES:
        raise UsageError(f"{folder}: more than {MAX_BYTES >> 20} MiB", hint="move data sets out of the folder")
    return files


def pytest_files(python: str) -> dict[str, bytes]:
    """Return pytest for a Python as files, from the cache or from the index that uv is configured for.

    One folder serves every image with that Python. Raises InfrastructureError if the index does not answer.
    """
    folder = cache_dir() / f"pytest-py{python}"
    if not (folder / "pytest" / "__init__.py").is_file():
        with temporary_folder("pytest", folder.parent) as made:  # whole or not at all
            words = [find_uv_bin(), "pip", "install", "-q", "--only-binary", ":all:", "--target", str(made / "pytest")]
            done = subprocesses.run([*words, "--python-version", python, "pytest"], within=300)
            if done.code:
                last = "\n".join(done.error_text.strip().splitlines()[-3:])
                text = f"cannot fetch pytest for Python {python}: exit code {done.code}: {last}"
                raise InfrastructureError(text, hint="check uv's index, or try again; tests can be scripts, too")
            with writing(folder):
                shutil.rmtree(folder, ignore_errors=True)  # a part of it, by an installation that was killed
                (made / "pytest").replace(folder)
    return {name: data for name, data in folder_contents(folder).items() if name.endswith(".py") or "/" in name}


Tests = tuple[UserTest, ...]
END = b'{"end": true}'
"""The runner's last line."""


def run_suite(place: ProbeTarget, suite: UserSuite, python: str) -> Tests:
    """Run a suite in a container; tests without an answer are missing, and a last entry gives the reason."""
    files = {f"suite/{name}": data for name, data in suite.files.items()}
    if suite.tests:
        files |= {f"pytest/{name}": data for name, data in pytest_files(python).items()}
    order: dict[str, object] = {
        "tests": [path for path in suite.tests if path not in suite.skip],
        "scripts": [path for path in suite.scripts if path not in suite.skip],
        "root": f"{FILES_AT}/suite",
        "pytest": f"{FILES_AT}/pytest",
        "limit_s": suite.test_limit,
        "skip": sorted(suite.skip),
    }
    return results(run_probe(place, PROBE, order, files=files, limit_s=suite.limit))


def run_again(
    place: ProbeTarget, suite: UserSuite, python: str, names: Collection[str], first: Collection[UserTest] = ()
) -> tuple[Tests, ...]:
    """Run the files of these tests again until each has passed and failed (``first`` counts), or up to the limit.

    Slow files run at least once more, and not again after a test that hangs, or if that would take longer than
    `AGAIN_S` seconds.
    """
    part = suite.only(names)
    runs: list[Tests] = []
    begun = time.monotonic()
    while len(runs) < AGAIN and (not runs or (time.monotonic() - begun) * (1 + 1 / len(runs)) < AGAIN_S):
        runs.append(run_suite(place, part, python))
        seen = [{test.name: test.outcome == "passed" for test in run} for run in (first, *runs) if run]
        if hanging(runs[-1]) or all({True, False} <= {run.get(name, False) for run in seen} for name in names):
            break
    return tuple(runs)


def run_on_both(
    places: Sequence[ProbeTarget], pythons: Sequence[str], suite: UserSuite, cache: AnswerCache, task: Task
) -> list[tuple[Tests, tuple[Tests, ...]]]:
    """Return the results of both images, with further runs of the files in which a test fails.

    A test that hangs is stopped once: it runs neither again nor on the other image.
    """
    tests: list[Tests] = []
    for name, place, python in zip(("old", "new"), places, pythons, strict=True):
        hung = hanging(chain(*tests))
        task.update(f"your tests on the {name} image (each at most {suite.test_limit} s, together {suite.limit} s)")
        wanted = replace(suite, skip=hung)
        key = key_of(place, more={"suite": wanted.digest.encode()})
        run = partial(run_suite, place, wanted, python)
        found = cache.answer(
            f"tests-{name}", key, Tests, run, lambda found: THE_RUN not in {test.name for test in found}
        )
        left = (UserTest(name=one, outcome="skipped", message="it hangs on the old image") for one in sorted(hung))
        tests.append((*found, *left))
    again: list[tuple[Tests, ...]] = []
    failed, part = to_run_again(*tests), replace(suite, skip=hanging(chain(*tests)))
    for name, place, python, first in zip(("old", "new"), places, pythons, tests, strict=True) if failed else ():
        task.update(f"{len(failed)} of your tests again on the {name} image")
        again.append(run_again(place, part, python, failed, first))
    return list(zip(tests, again or [(), ()], strict=True))


def results(output: Output) -> Tests:
    """Decode the runner's lines; an unfinished run adds an entry for itself. A test's worst answer counts."""
    found: dict[str, UserTest] = {}
    lines = output.stdout.splitlines()
    for line in lines:
        try:
            test = decoding.from_json(line, UserTest)
        except decoding.DamagedError:
            continue  # no answer of the runner's: the test that it may have been of is missing, and counts as failed
        if test.name not in found or found[test.name].outcome == "passed":
            found[test.name] = msgspec.structs.replace(test, message=HANGS) if hanging([test]) else test
    if END not in lines:
        why = output.wrong or "the runner ended early"
        found[THE_RUN] = UserTest(name=THE_RUN, outcome="error", message=why)
    return tuple(found.values())
