"""Stand-ins for CUDA's libraries, so that the real TensorFlow gets as far as comparing its cuDNN without a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuilder import versions
from envbuilder.environment import Environment
from envbuilder.reproduce.messages.message import Symptom
from envbuilder.simulated.compiler import FOLDER
from envbuilder.simulated.shared_library import Libraries, Library, compiled

SHOWN_BY = frozenset({"cudnn_older_than_built"})
"""The messages that TensorFlow prints only with a run time that starts."""

REPLACED = ("libcudart.so.", "libcublas.so.", "libcublasLt.so.", "libcudnn.so.")
_NAME = "libstandin.so"
LIBRARY = Libraries(
    name="standins",
    what="the stand-ins for CUDA's libraries",
    package="envbuilder.reproduce",
    members={_NAME: Library(("standins.c",), links=("-ldl",))},
)
"""One library serves under every name that is replaced, and so bears none itself."""


@dataclass(frozen=True)
class StandIns:
    """Files (path below `FILES_AT` → content) and variables for a container, beside a simulated driver."""

    names: tuple[str, ...]
    files: Mapping[str, bytes]
    env: Mapping[str, str]


def needed(symptoms: tuple[Symptom, ...]) -> bool:
    """Tell whether a report quotes a message that only shows with a run time."""
    return any(row.signature in SHOWN_BY for row in symptoms)


def stand_ins(environment: Environment, cache: Path) -> StandIns:
    """Make the stand-ins for what a TensorFlow opens. Raises InfrastructureError without a C compiler."""
    library = compiled(LIBRARY, cache)[_NAME]
    names = tuple(name for name in environment.libraries if name.startswith(REPLACED))
    cudnn = next((name for name in names if name.startswith("libcudnn")), "libcudnn.so")
    places = (
        f"/opt/venv/lib/python{environment.python}/site-packages/nvidia/cudnn/lib",
        "/usr/lib/x86_64-linux-gnu",
        "/usr/local/cuda/lib64",
    )
    return StandIns(
        names=names,
        files={f"{FOLDER}/{name}": library for name in names},
        env={
            "ENVBUILDER_REAL_CUDNN": ":".join(f"{place}/{cudnn}" for place in places),
            **({} if environment.cuda is None else {"ENVBUILDER_CUDA_RUNTIME": _runtime(environment.cuda)}),
        },
    )


def _runtime(cuda: str) -> str:
    """Write a CUDA version as ``cudaRuntimeGetVersion`` does: 12.5 is 12050."""
    major, minor = versions.numbers(versions.minor(cuda))
    return str(major * 1000 + minor * 10)
