"""What ``validate`` refuses before it asks any engine, and how a closed terminal ends a command."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import pytest
from command_line import ran


@pytest.mark.parametrize("target", ["", "BAD NAME!!", "../../etc/passwd", "a//..", "-", "x\ny", "/abs/olute", "a:"])
def test_a_word_that_names_no_image_is_a_usage_error(capsys: pytest.CaptureFixture[str], target: str) -> None:
    """Exit code 2, the word as it was given, and a document where JSON was asked for: no engine is asked."""
    code, out, err = ran(capsys, "validate", "--format", "json", "--", target)
    assert code == 2
    assert repr(target) in err
    assert json.loads(out)["schema"].startswith("envbuilder/error/")


def test_an_empty_simulation_is_no_real_validation(capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable in --simulate is an error, never a validation on the host's real driver."""
    code, _, err = ran(capsys, "validate", "some/image:tag", "--simulate", "")
    assert code == 2
    assert "not a simulated host" in err
    code, _, _ = ran(capsys, "validate", "--here", "--simulate", "")
    assert code == 2


@pytest.fixture
def hangup() -> Iterator[None]:
    """Put the handler of a closed terminal back."""
    before = signal.getsignal(signal.SIGHUP)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("hangup")
def test_a_closed_terminal_ends_a_command_as_ctrl_c_does(capsys: pytest.CaptureFixture[str]) -> None:
    """SIGHUP raises KeyboardInterrupt, so that containers go; under nohup it stays ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    assert ran(capsys, "schema", "verdict")[0] == 0
    assert signal.getsignal(signal.SIGHUP) is signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert ran(capsys, "schema", "verdict")[0] == 0
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
