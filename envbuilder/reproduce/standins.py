"""Stand-ins for CUDA's libraries, so that the real TensorFlow gets as far as comparing its cuDNN without a GPU."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from envbuilder import versions
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError
from envbuilder.reproduce.messages.message import Symptom
from envbuilder.simulated.compiler import FOLDER
from envbuilder.workspace import write_atomically

SHOWN_BY = frozenset({"cudnn_older_than_built"})
"""The messages that TensorFlow prints only with a run time that starts."""

REPLACED = ("libcudart.so.", "libcublas.so.", "libcublasLt.so.", "libcudnn.so.")
_FLAGS = ("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-U_FORTIFY_SOURCE", "-fno-stack-protector")


@dataclass(frozen=True)
class StandIns:
    """Files (path below ``/envbuilder`` → content) and variables for a container, beside a simulated driver."""

    names: tuple[str, ...]
    files: Mapping[str, bytes]
    env: Mapping[str, str]


def needed(symptoms: tuple[Symptom, ...]) -> bool:
    """Tell whether a report quotes a message that only shows with a run time."""
    return any(row.signature in SHOWN_BY for row in symptoms)


def stand_ins(environment: Environment, cache: Path) -> StandIns:
    """Make the stand-ins for what a TensorFlow opens. Raises InfrastructureError without a C compiler."""
    library = _library(cache)
    names = tuple(name for name in environment.libraries if name.startswith(REPLACED))
    cudnn = next((name for name in names if name.startswith("libcudnn")), "libcudnn.so")
    places = (
        f"/opt/venv/lib/python{environment.python}/site-packages/nvidia/cudnn/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/local/cuda/lib64",
    )
    major, minor = versions.numbers(versions.minor(environment.cuda or "0"))
    return StandIns(
        names=names,
        files={f"{FOLDER}/{name}": library for name in names},
        env={
            "ENVBUILDER_REAL_CUDNN": ":".join(f"{place}/{cudnn}" for place in places),
            "ENVBUILDER_CUDA_RUNTIME": str(major * 1000 + minor * 10),
        },
    )


def _library(cache: Path) -> bytes:
    """Compile the library, or take it from the cache where source and compiler are the same."""
    source = (resources.files("envbuilder") / "reproduce" / "standins.c").read_bytes()
    compiler = next(
        (found for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if (found := shutil.which(name))), ""
    )
    if not compiler:
        raise InfrastructureError("this host has no C compiler for the stand-ins", hint="install gcc, or set CC")
    key = hashlib.sha256(b"\0".join((source, compiler.encode(), *(flag.encode() for flag in _FLAGS)))).hexdigest()[:16]
    path = cache / f"standins-{key}.so"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        made = path.with_suffix(f".{os.getpid()}")
        words = [compiler, *_FLAGS, "-x", "c", "-", "-o", str(made), "-ldl"]
        done = subprocess.run(words, input=source, capture_output=True, check=False, timeout=120)
        if done.returncode:
            raise InfrastructureError(f"the stand-ins could not be compiled:\n{done.stderr.decode(errors='replace')}")
        write_atomically(path, made.read_bytes())
        made.unlink()
    return path.read_bytes()
