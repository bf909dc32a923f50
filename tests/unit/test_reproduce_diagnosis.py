"""What is asked for where a report does not tell: by the complaint, in words that the reporter's system understands."""

from __future__ import annotations

from envbuilder.reproduce.diagnosis import deciding_commands
from envbuilder.reproduce.report.reported import Reported


def test_failed_import_asks_for_the_full_traceback() -> None:
    commands = deciding_commands(Reported(complaints=("import",), platform="windows"))
    assert any("architecture()" in row for row in commands)
    assert commands[-1].startswith('python -c "import tensorflow')
    assert not any("nvidia-smi" in row or "pip index" in row for row in commands)


def test_failed_installation_asks_for_the_versions_on_the_index() -> None:
    assert any("pip index versions" in row for row in deciding_commands(Reported(complaints=("installing",))))


def test_commands_for_windows_use_no_unix_tools() -> None:
    for complaints in ((), ("invisible",), ("installing",)):
        for row in deciding_commands(Reported(complaints=complaints, platform="windows")):
            assert not row.startswith("TF_")
            assert not {"grep", "tail"} & set(row.split())


def test_invisible_gpu_asks_for_driver_packages_and_loader_log() -> None:
    first, second, third = deciding_commands(Reported(complaints=("invisible", "import")))
    assert (first, "pip list" in second, "dso_loader" in third) == ("nvidia-smi", True, True)
