"""What is asked for where a report does not tell: by the complaint, in words that the reporter's system understands."""

from __future__ import annotations

from envbuilder.reproduce.diagnosis import deciding_commands
from envbuilder.reproduce.report.reported import Reported


def test_an_import_that_fails_is_asked_for_its_whole_trace() -> None:
    """No line of it is filtered away, and the interpreter's width and version are asked for."""
    commands = deciding_commands(Reported(complaints=("import",), platform="windows"))
    assert any("architecture()" in row for row in commands)
    assert commands[-1].startswith('python -c "import tensorflow')
    assert not any("nvidia-smi" in row or "pip index" in row for row in commands)


def test_an_installer_that_finds_nothing_is_asked_which_wheels_it_sees() -> None:
    """What the interpreter's own pip finds on the index tells a Python without wheels."""
    assert any("pip index versions" in row for row in deciding_commands(Reported(complaints=("installing",))))


def test_windows_is_not_asked_for_what_it_has_not() -> None:
    """No grep, no tail, no variable before a command."""
    for complaints in ((), ("invisible",), ("installing",)):
        for row in deciding_commands(Reported(complaints=complaints, platform="windows")):
            assert not row.startswith("TF_")
            assert not {"grep", "tail"} & set(row.split())


def test_an_invisible_gpu_is_asked_for_the_loader_lines() -> None:
    """The driver, the packages, and what TensorFlow opened, in this order."""
    first, second, third = deciding_commands(Reported(complaints=("invisible", "import")))
    assert (first, "pip list" in second, "dso_loader" in third) == ("nvidia-smi", True, True)
