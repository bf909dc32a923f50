"""Versions of libraries: an answer, a refusal, an abort with its reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from envbuilder.probes.suite import runtime_libraries


def shared_object(folder: Path, name: str, code: str) -> str:
    source, target = folder / f"{name}.c", folder / name
    source.write_text(code)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", target, source], check=True, capture_output=True)
    return str(target)


def test_cudnn_version_is_read_from_the_library(tmp_path: Path) -> None:
    path = shared_object(tmp_path, "libcudnn.so.8", "unsigned long cudnnGetVersion(void) { return 8907; }")
    assert runtime_libraries.ask_cudnn(path) == ("8.9.7", "")


def test_cudnn_that_aborts_names_the_missing_library(tmp_path: Path) -> None:
    """The wheels of cuDNN 8.7 abort over libnvrtc.so: that library is the finding, not cuDNN as a whole."""
    code = (
        "#include <stdio.h>\n#include <stdlib.h>\n"
        'unsigned long cudnnGetVersion(void) { fputs("Could not load library libcudnn_ops_infer.so.8. Error: '
        'libnvrtc.so: cannot open shared object file: No such file or directory\\n", stderr); abort(); }'
    )
    version, said = runtime_libraries.ask_cudnn(shared_object(tmp_path, "libcudnn.so.8", code))
    assert version is None
    assert runtime_libraries._silent("libcudnn.so.8", "/x/libcudnn.so.8", said)["subject"] == "libnvrtc.so"


@pytest.mark.parametrize(("answer", "version"), [(0, "11.8"), (35, "11 (by its soname)")])
def test_runtime_without_driver_has_the_version_of_its_soname(tmp_path: Path, answer: int, version: str) -> None:
    """CUDA 11's run time says nothing without a driver (error 35): its soname still tells the major, never 0.0."""
    code = f"int cudaRuntimeGetVersion(int *v) {{ if ({answer}) return {answer}; *v = 11080; return 0; }}"
    path = shared_object(tmp_path, "libcudart.so.11.0", code)
    assert runtime_libraries._runtime_version(path, "libcudart.so.11.0") == version
