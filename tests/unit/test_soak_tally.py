"""The soak's tally: what is wrong is not done, nothing tried is not nothing wrong, and its commits can be followed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import pytest
from soak_tally import REPOSITORY, TALLY, Kept, Tally


def tally(folder: Path, at: str = "a" * 12) -> Tally:
    return Tally("tiny", at, folder / "tally.json")


def make(counted: Tally, *numbers: int, wrong: tuple[int, ...] = (), killed: bool = True) -> None:
    for number in numbers:
        if number in wrong:
            counted.say(number, "left a process")
        counted.add(number, "report", killed=killed, engine=False)


def test_a_trial_that_came_out_wrong_is_made_again_and_first(tmp_path: Path) -> None:
    """Its number stays wanted, over runs and commits, until it comes out right; what was said of it stays."""
    first = tally(tmp_path)
    make(first, 0, 1, 2, wrong=(1,))
    assert not first.is_right(3)
    assert "still wrong: trials 1" in first.told()
    second = tally(tmp_path, "b" * 12)
    assert list(second.wanted(4)) == [1, 3]
    make(second, 3)
    assert not second.is_right(4), "what an earlier piece found wrong is not mended by another trial"
    make(second, 1)
    assert second.is_right(4)
    assert tally(tmp_path, "c" * 12).is_right(4)
    kept = msgspec.json.decode((tmp_path / "tally.json").read_bytes(), type=Kept)
    assert [one.wrong for one in kept.pieces[:2]] == [["left a process"], []]


def test_a_trial_that_broke_is_wrong(tmp_path: Path) -> None:
    """One that ended in an exception was never counted as made."""
    broken = tally(tmp_path)
    broken.say(0, "the trial itself broke")
    assert not broken.is_right(1)
    assert list(tally(tmp_path).wanted(1)) == [0]


def test_nothing_tried_is_not_nothing_wrong(tmp_path: Path) -> None:
    """A run of no trial is right only where all that was asked for was made before, and it says that it tried none."""
    assert not tally(tmp_path).is_right(2)
    make(tally(tmp_path), 0, 1)
    again = tally(tmp_path)
    assert list(again.wanted(2)) == []
    assert again.is_right(2)
    assert "nothing was tried now" in again.told()
    assert not again.is_right(3)
    assert not again.is_right(2, kills=3)


def test_kills_are_asked_for_beside_trials(tmp_path: Path) -> None:
    """Trials go on until so many were killed alive, over all pieces of the pool; one that ended in time is no kill."""
    make(tally(tmp_path), 0, 1)
    going = tally(tmp_path, "b" * 12)
    tried = []
    for number in going.wanted(3, kills=5):
        make(going, number, killed=bool(number % 2))
        tried.append(number)
    assert tried == [2, 3, 4, 5, 6, 7]
    assert going.killed() == 5
    assert going.stands(3, kills=5)
    assert Tally("host", "b" * 12, tmp_path / "tally.json").killed() == 0


def test_the_commits_of_the_tally_can_be_followed() -> None:
    """Each piece ran at a commit of the history, or says which of them hold what it tried."""
    if git("rev-parse", "--is-shallow-repository") != "false":
        pytest.skip("the history is not here")
    for piece in msgspec.json.decode(TALLY.read_bytes(), type=Kept).pieces:
        named = re.findall(r"\b[0-9a-f]{7,40}\b", piece.merged_as or piece.commit)
        assert named, piece.commit
        for commit in named:
            assert git("merge-base", "--is-ancestor", commit, "HEAD") is not None, commit


def git(*words: str) -> str | None:
    ran = subprocess.run(["git", *words], cwd=REPOSITORY, capture_output=True, check=False, text=True)
    return ran.stdout.strip() if ran.returncode == 0 else None
