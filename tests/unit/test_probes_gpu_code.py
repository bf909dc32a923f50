"""Architectures in TensorFlow's binaries, compared with the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from device_code import CUBIN, PTX, container, entry, shared_object

from envbuilder.probes.suite import gpu_code, tensorflow_install
from envbuilder.probes.suite.elf import Elf


def kernels(*numbers: int) -> bytes:
    return container(*(entry(CUBIN, one) for one in numbers), entry(PTX, 90))


def judged(monkeypatch: pytest.MonkeyPatch, library: Path, **facts: Any) -> tuple[str, list[str]]:
    monkeypatch.setattr(tensorflow_install, "callers", lambda _: [Elf(str(library))])
    answer = gpu_code.in_binaries({"ptx": ("9.0",), **facts})
    return answer["outcome"], [one["found"] for one in answer["findings"]]


def test_missing_architecture_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library = shared_object(tmp_path, [kernels(80)])
    outcome, found = judged(monkeypatch, library, cubins=("8.0", "9.0"))
    assert (outcome, found) == ("failed", ["8.0"])
