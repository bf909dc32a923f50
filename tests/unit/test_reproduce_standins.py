"""Stand-ins: they are asked for by the one message that needs them, and forward cuDNN's version to the real library."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment
from envbuilder.reproduce.messages.catalog import match
from envbuilder.reproduce.reproduction_run import REPLACED, needed, stand_ins

pytestmark = pytest.mark.skipif(shutil.which("cc") is None and shutil.which("gcc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def environment() -> Environment:
    """Resolve a GPU environment, for the names that it opens."""
    made = resolve(Combination(tensorflow="2.20.0", python="3.11", flavor="gpu"), load())
    assert isinstance(made, Environment)
    return made


def test_only_the_message_that_needs_them_asks_for_them() -> None:
    """An older cuDNN's refusal asks for stand-ins; a missing library does not."""
    refused = "Loaded runtime CuDNN library: 9.1.0 but source was compiled with: 9.3.0."
    assert needed(match(refused))
    assert not needed(match("Cannot dlopen some GPU libraries"))


def test_they_stand_for_what_the_environment_opens(environment: Environment, tmp_path: Path) -> None:
    """Run time, cuBLAS and cuDNN have a stand-in under the name that TensorFlow opens; the driver has none."""
    made = stand_ins(environment, tmp_path)
    assert set(made.names) == {name for name in environment.libraries if name.startswith(REPLACED)}
    assert all(path.startswith("simulated/") for path in made.files)
    assert not any("libcuda.so" in path for path in made.files)
    assert made.env["ENVBUILDER_CUDA_RUNTIME"] == "12050"
    older = msgspec.structs.replace(environment, cuda="11.8")
    assert stand_ins(older, tmp_path).env["ENVBUILDER_CUDA_RUNTIME"] == "11080"


def test_the_version_is_the_real_librarys_word(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version is what the named library answers, and 0 where there is none."""
    made = stand_ins(environment, tmp_path)
    path = tmp_path / "standin.so"
    path.write_bytes(next(iter(made.files.values())))
    source = "unsigned long cudnnGetVersion(void) { return 90100; }"
    real = tmp_path / "real.so"
    words = [shutil.which("cc") or "gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(real)]
    subprocess.run(words, input=source.encode(), check=True)
    program = f"import ctypes; f = ctypes.CDLL({str(path)!r}).cudnnGetVersion; f.restype = ctypes.c_size_t; print(f())"
    for paths, version in ((f"/nowhere/libcudnn.so.9:{real}", "90100"), ("/nowhere/libcudnn.so.9", "0")):
        env = {**os.environ, "ENVBUILDER_REAL_CUDNN": paths}
        done = subprocess.run(["python3", "-c", program], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == version
    monkeypatch.setenv("ENVBUILDER_CUDA_RUNTIME", "12050")
    number = ctypes.c_int()
    assert ctypes.CDLL(str(path)).cudaRuntimeGetVersion(ctypes.byref(number)) == 0
    assert number.value == 12050
