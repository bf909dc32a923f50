"""Make known changes in images of a real environment and let the real upgrade find them.

``python tests/support/planted.py`` compares ten pairs of equal images, and one pair for each change.
Images are those of an environment that ships with one more layer, below ``out/planted``. Results are kept after each
comparison, so an interrupted run resumes. Measurements need a machine with no other work.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NoReturn

import msgspec

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest
from envbuilder.support.console import Console
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.upgrade.build import ImageBuilder
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.upgrade.gather import UpgradeTools, ValidatedImage
from envbuilder.upgrade.pairs import Pair, UpgradeOptions
from envbuilder.upgrade.upgrade import compare_images, read_policy
from envbuilder.upgrade.user_tests import read_suite
from envbuilder.workspace import Workspace, write_atomically

ROOT = Path(__file__).parents[2]
NAME = "envbuilder/planted"
RELEASES = ("2.20.0", "2.19.1", "2.16.2", "2.15.1")
"""Whose CPU environments on Python 3.11 the equal pairs are made of, in turn; changes are planted in the first."""
PAIRS = 10
ROUNDS = 12
"""Fewer than an upgrade's own 15; 20 % more work is surely found with as many (`tests/property`)."""

FRAMEWORK = "/opt/venv/lib/python3.11/site-packages/tensorflow/__init__.py"


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of planted.yaml; its first lines explain the fields."""

    name: str
    violated: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    may: tuple[str, ...] = ()
    decision: tuple[str, ...] = ("ADOPT_WITH_NOTES",)
    before: str = ""
    after: str = ""
    suite: str = ""
    measured: bool = True


CHANGES = read_yaml(Path(__file__).with_name("planted.yaml"), tuple[Change, ...])


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What a comparison came to: the clauses that were violated, what is wrong with that, and the figures."""

    name: str
    rounds: int
    decision: str
    violated: dict[str, tuple[str, ...]]
    wrong: tuple[str, ...]
    durations: dict[str, tuple[float, float | None, float | None, str]]
    memory: dict[str, tuple[float, float | None, float | None, str]]
    seconds: float
    finished: str


def equal_pairs() -> Iterator[tuple[str, Change]]:
    """Yield ten pairs that differ in a comment: the release, and a change that is none."""
    for number in range(PAIRS):
        decisions = ("ADOPT", "UNDECIDED")
        yield (
            RELEASES[number % len(RELEASES)],
            Change(f"equal {number + 1}", decision=decisions, after=f"# {number + 1}\n"),
        )


@dataclass
class Garden:
    """Where changes are planted: an engine, a folder for everything, and how many rounds are measured."""

    folder: Path
    rounds: int
    engine: DockerEngine = field(default_factory=connect)
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.catalog = load()
        self.policy = read_policy(None, Path())
        self.console = Console()

    def compare(self, release: str, change: Change) -> Outcome:
        """Build the image with the change and let an upgrade decide between the one without and it."""
        begun = time.monotonic()
        choice = choose("tensorflow", (f"tf{release}-py311-cpu-bookworm",), Workspace(ROOT), self.catalog)
        (environment,) = choice.environments
        both = Pair(environment, environment, choice.catalog)
        request = UpgradeOptions(release, release, self.policy, rounds=self.rounds if change.measured else 1)
        workspace = Workspace(self.folder / f"tf{release}")
        tools = UpgradeTools(workspace, self.engine, self.console, choice.catalog, _no_proposal)
        maker = ImageBuilder(Workspace(ROOT), self.engine, self.console, choice.catalog)
        side = maker.lock_old(environment)
        built = maker.build(side)
        old = ValidatedImage(side, built, maker.validate(side, built, request))
        planted = self.planted(built.record.reference, change)
        new = replace(old, built=replace(built, record=msgspec.structs.replace(built.record, image=planted)))
        suite = None
        if change.suite:
            users = workspace.root / "users" / change.name.replace(" ", "-") / "test_users.py"
            write_atomically(users, change.suite.encode())
            suite = read_suite(users.parent)
        document = compare_images(tools, both, (old, new), suite, request, begun)
        return outcome(change, document, time.monotonic() - begun)

    def planted(self, base: str, change: Change) -> str:
        """Build the image with one more layer; returns its id. The size of the layer is not the change's."""
        context = self.folder / "context"
        for name, text in (("before", change.before), ("after", change.after)):
            write_atomically(context / name, text.encode())
        lines = (
            f"FROM {base}",
            "USER root",
            "WORKDIR /planted",
            "COPY before after ./",
            f"RUN cat before {FRAMEWORK} after > all && cp all {FRAMEWORK} && python -m compileall -q -f {FRAMEWORK}",
            "WORKDIR /home/envbuilder",
            "USER envbuilder",
        )
        write_atomically(context / "Dockerfile", "\n".join(lines).encode())
        tag = f"{NAME}:{base.rpartition(':')[2]}-{re.sub('[^a-z0-9]+', '-', change.name)}"
        self.made.append(tag)
        return self.engine.build(BuildRequest(context=context, tag=tag), lambda _: None).id

    def clear(self) -> None:
        for tag in self.made:
            self.engine.remove(tag)


def outcome(change: Change, document: UpgradeDocument, seconds: float) -> Outcome:
    """Hold a decision against what was planted: what was planted is named, and nothing else is claimed."""
    violated = {one.clause: (one.found, *one.details) for one in document.clauses if one.state == "violated"}
    said = "\n".join(line for clause in change.violated for line in violated.get(clause, ()))
    wrong = [f"{clause} does not say so" for clause in change.violated if clause not in violated]
    wrong += [f"{name} is not named: {said[:200]}" for name in change.names if name not in said]
    wrong += [f"{clause}: {violated[clause]}" for clause in violated if clause not in (*change.violated, *change.may)]
    if document.decision not in change.decision:
        wrong.append(f"the answer is {document.decision}")
    wrong += document.gaps
    found = document.differences
    return Outcome(
        name=change.name,
        rounds=document.rounds,
        decision=document.decision,
        violated=violated,
        wrong=tuple(wrong),
        durations={t.name: (t.ratio.value, t.ratio.low, t.ratio.high, t.change) for t in found.timings or ()},
        memory={m.name: (m.ratio.value, m.ratio.low, m.ratio.high, m.change) for m in found.memory or ()},
        seconds=seconds,
        finished=document.finished,
    )


def _no_proposal(version: str, package: str) -> NoReturn:
    raise AssertionError(f"{package} {version} is in the catalogue")


def kept(path: Path) -> dict[str, Outcome]:
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Outcome]) if path.is_file() else {}


def work(words: argparse.Namespace) -> Sequence[tuple[str, Change]]:
    planted = [(RELEASES[0], change) for change in CHANGES]
    return [each for each in (*equal_pairs(), *planted) if words.only in each[1].name]


def main() -> int:
    """Compare what is left, say what came of each, and end with 1 where anything is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", help="A part of the names of what to compare.")
    parser.add_argument("--folder", type=Path, default=ROOT / "out" / "planted")
    words = parser.parse_args()
    path = words.folder / "outcomes.json"
    garden = Garden(words.folder, words.rounds)
    for release, change in work(words):
        done = kept(path)
        if change.name not in done:
            done[change.name] = garden.compare(release, change)
            write_atomically(path, msgspec.json.format(msgspec.json.encode(done)))
        one = done[change.name]
        said = "; ".join(one.wrong) or "as it should be"
        sys.stdout.write(f"{one.name} ({release}, {one.rounds} rounds, {one.seconds:.0f} s): {one.decision}: {said}\n")
        sys.stdout.flush()
    garden.clear()
    return int(any(one.wrong for one in kept(path).values()))


if __name__ == "__main__":
    sys.exit(main())
