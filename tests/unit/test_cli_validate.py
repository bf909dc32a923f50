"""What ``validate`` refuses before it asks any engine, and how a closed terminal ends a command."""

from __future__ import annotations

import json

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
    assert "--simulate' is empty" in err
    code, _, _ = ran(capsys, "validate", "--here", "--simulate", "")
    assert code == 2
