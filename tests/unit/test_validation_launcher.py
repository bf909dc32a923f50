"""How a run of the probes that came to nothing is told from what it says about the image."""

from __future__ import annotations

import pytest

from envbuilder.engine.fake import FakeEngine, Script
from envbuilder.errors import UsageError
from envbuilder.finding import Code
from envbuilder.validation.events import Session, Unfinished
from envbuilder.validation.launcher import Place, in_container


def run(script: Script, place: Place | None = None) -> Unfinished | None:
    """Run a plan in a container that ends as the script says."""
    engine = FakeEngine(script=lambda _: script)
    engine.add("some:image")
    there = place or Place("some:image", time_limit=10.0)
    return in_container(engine, there, b"{}", Session((), lambda _: None))


def said(script: Script) -> str:
    """Return why such a run came to nothing."""
    why = run(script)
    assert why is not None
    return why.why


def test_an_image_in_which_nothing_can_start_is_the_users_to_change() -> None:
    """The engine's refusal is quoted; what is printed decides nothing, not even a word of our own script."""
    with pytest.raises(UsageError, match=r"cannot start: no /bin/sh for start\.sh") as caught:
        run(Script(exit_code=127, stderr=b"no /bin/sh for start.sh", refusal="no /bin/sh for start.sh\n"))
    assert caught.value.hint == "the image needs /bin/sh"


def test_an_exit_code_of_the_runner_is_no_refusal() -> None:
    """A runner that began and ended with 127 did not answer; that is no mistake in the command's words."""
    assert said(Script(exit_code=127, stderr=b"gone")) == "not run: the runner ended with exit code 127: gone"


def test_a_run_that_ends_well_needs_no_reason() -> None:
    """Nothing where the plan was run; a reason and its code where time or memory ran out."""
    assert run(Script()) is None
    assert "time limit" in said(Script(seconds=11.0))
    assert run(Script(seconds=11.0)) == Unfinished(said(Script(seconds=11.0)), Code.PROBE_TIMEOUT)
    assert "out of memory" in said(Script(exit_code=137, out_of_memory=True))


def test_a_check_that_was_killed_for_its_memory_ends_no_run() -> None:
    """The engine says so of any process; a runner that came to its end told of the check that died by itself."""
    assert run(Script(exit_code=0, out_of_memory=True)) is None


def test_a_flood_is_named() -> None:
    """A container that was killed for a million lines says so, and its missing answers are no timeouts."""
    why = run(Script(stderr=b"\n" * 1_000_001))
    assert why is not None
    assert why.code is Code.PROTOCOL_VIOLATION
    assert "a million lines" in why.why


def test_an_image_without_tensorflow_is_named() -> None:
    """The starter's own exit code says that no Python has TensorFlow."""
    with pytest.raises(UsageError, match=r"some:image: no Python in it has TensorFlow"):
        run(Script(exit_code=3))


def test_a_python_that_does_not_start_says_so_itself() -> None:
    """Python's own message is the reason that is given, not that there is no TensorFlow."""
    words = b"start.sh: python does not start: Fatal Python error: No module named 'encodings'"
    assert "No module named 'encodings'" in said(Script(exit_code=4, stderr=words))


def test_the_key_is_on_standard_input_alone() -> None:
    """No argument, variable, label or file of the container holds the key that seals the run's messages."""
    engine = FakeEngine(script=lambda _: Script())
    engine.add("some:image")
    in_container(engine, Place("some:image"), b"{}", Session((), lambda _: None, key="the-secret-key"))
    (spec,) = engine.runs
    assert b"the-secret-key" in spec.stdin
    assert "the-secret-key" not in repr((spec.command, spec.env, spec.files, spec.labels, spec.mounts))


def test_an_environment_that_lost_its_framework_is_no_mistake_of_the_user() -> None:
    """Where TensorFlow is meant to be in the image, its absence, or no start at all, is a result and no refusal."""
    known = Place("some:image", is_known=True)
    why = run(Script(exit_code=3), known)
    assert why is not None
    assert "no Python in it has TensorFlow" in why.why
    why = run(Script(refusal="no such file"), known)
    assert why is not None
    assert "cannot start" in why.why


def test_errors_name_what_the_user_named() -> None:
    """The reference that was given, not the id that it stands for."""
    with pytest.raises(UsageError, match=r"\Amine:latest: no Python in it"):
        run(Script(exit_code=3), Place("some:image", called="mine:latest"))
