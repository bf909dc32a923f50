"""How a run of the probes that came to nothing is told from what it says about the image."""

from __future__ import annotations

import pytest

from envbuilder.engine.fake import FakeEngine, Script
from envbuilder.errors import UsageError
from envbuilder.validation.launcher import Place, in_container


def run(script: Script) -> str:
    """Run a plan in a container that ends as the script says."""
    engine = FakeEngine(script=lambda _: script)
    engine.add("some:image")
    return in_container(engine, Place("some:image", time_limit=10.0), b"{}", lambda _: None)


def test_an_image_in_which_nothing_can_start_is_the_users_to_change() -> None:
    """The engine's refusal is quoted; what is printed decides nothing, not even a word of our own script."""
    with pytest.raises(UsageError, match=r"cannot start: no /bin/sh for start\.sh") as caught:
        run(Script(exit_code=127, stderr=b"no /bin/sh for start.sh", refusal="no /bin/sh for start.sh\n"))
    assert caught.value.hint == "the image needs /bin/sh"


def test_an_exit_code_of_the_runner_is_no_refusal() -> None:
    """A runner that began and ended with 127 did not answer; that is no mistake in the command's words."""
    assert run(Script(exit_code=127, stderr=b"gone")) == "not run: the runner ended with exit code 127: gone"


def test_a_run_that_ends_well_needs_no_reason() -> None:
    """'' where the plan was run; a reason where time or memory ran out."""
    assert run(Script()) == ""
    assert "time limit" in run(Script(seconds=11.0))
    assert "out of memory" in run(Script(exit_code=137, out_of_memory=True))


def test_an_image_without_tensorflow_is_named() -> None:
    """The starter's own exit code says that no Python has TensorFlow."""
    with pytest.raises(UsageError, match=r"some:image: no Python in it has TensorFlow"):
        run(Script(exit_code=3))
