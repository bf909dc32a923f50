"""Whether binaries hold the machine code that an environment names, and, where it is thin, none of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from device_code import CUBIN, PTX, container, entry, shared_object

from envbuilder.probes.suite import architectures, framework
from envbuilder.probes.suite.elf import Elf


def kernels(*numbers: int) -> bytes:
    """Make a fat binary with machine code for these, and PTX."""
    return container(*(entry(CUBIN, one) for one in numbers), entry(PTX, 90))


def judged(monkeypatch: pytest.MonkeyPatch, library: Path, **facts: Any) -> tuple[str, list[str]]:
    """Judge one object as TensorFlow's; return the outcome and what was found in each finding."""
    monkeypatch.setattr(framework, "callers", lambda _: [Elf(str(library))])
    answer = architectures.in_binaries({"ptx": ("9.0",), **facts})
    return answer["outcome"], [one["found"] for one in answer["findings"]]


@pytest.mark.parametrize(
    ("listed", "generated", "left"),
    [
        ([kernels(80)], [kernels(80)], []),
        ([kernels(80, 86)], [], []),
        ([kernels(80), kernels(70, 80)], [], ["7.0"]),
        ([kernels(80)], [kernels(80, 89)], ["8.9"]),
        ([kernels(80), container(entry(CUBIN, 60))], [], []),
        ([kernels(80, 90)], [kernels(60, 80)], ["6.0 9.0"]),
    ],
)
def test_a_thin_environment_holds_no_machine_code_of_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listed: list[bytes], generated: list[bytes], left: list[str]
) -> None:
    """Code that none of its GPUs runs is IMAGE_CLAIM, in generated kernels too; one that stands alone had to stay."""
    library = shared_object(tmp_path, listed, generated)
    seen = judged(monkeypatch, library, cubins=("8.0",), thin=("8.6",))
    assert seen == ("failed" if left else "passed", left)
    assert judged(monkeypatch, library, cubins=("8.0",))[0] == "passed", "everybody else may hold any"


def test_code_that_is_named_and_not_there_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment that names more than its binaries hold is found, thin or not."""
    library = shared_object(tmp_path, [kernels(80)])
    for thin in ((), ("8.0", "9.0")):
        outcome, found = judged(monkeypatch, library, cubins=("8.0", "9.0"), thin=thin)
        assert (outcome, found) == ("failed", ["8.0"])
