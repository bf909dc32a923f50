"""Tell what a build has functions to open, what of that it does not find in wheels, and what the loader must be told.

TensorFlow's opener has a function for each library (``GetCuptiDsoHandle``), and their names stand in its bytes. Some
are called only when they are asked for (CUPTI by the profiler), so that they are not among a row's ``libraries``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.catalog.runpath import EVERY, opener_folders
from envbuilder.catalog.runpath import loader_folders as folders_for_gpus

FOLDERS: Mapping[str, str | None] = {
    "CudaDriver": None,
    "CudaRuntime": "cuda_runtime",
    "Cublas": "cublas",
    "CublasLt": "cublas",
    "Cudnn": "cudnn",
    "Cufft": "cufft",
    "Cupti": "cuda_cupti",
    "Curand": "curand",
    "Cusolver": "cusolver",
    "Cusparse": "cusparse",
    "Nccl": "nccl",
    "NvInfer": None,
    "NvInferPlugin": None,
    "Nvml": None,
    "Nvrtc": "cuda_nvrtc",
    "Nvshmem": "nvshmem",
}
"""What is opened, with the folder under ``nvidia`` in which CUDA's wheels bring it; None of what they do not bring."""


def unsearched(release: TensorflowRelease, wheels: Iterable[str]) -> tuple[str, ...]:
    """List the folders that ``wheels`` bring for what a build opens, and that its opener does not look into."""
    looked = opener_folders(release.searches)
    brought = {_folder(pin) for pin in wheels}
    wanted = dict.fromkeys(FOLDERS.get(name) for name in release.openers)
    return tuple(folder for folder in wanted if folder is not None and folder in brought - set(looked))


def loader_folders(release: TensorflowRelease, wheels: Iterable[str]) -> tuple[str, ...]:
    """Name the folders of CUDA wheels that the loader must be told of, because this release does not look there."""
    told = folders_for_gpus(release)
    return told if EVERY in told else tuple(sorted({*told, *unsearched(release, wheels)}))


def _folder(pin: str) -> str:
    """Name the folder under ``nvidia`` of a CUDA wheel: ``nvidia-cuda-cupti-cu12==12.5.82`` is in ``cuda_cupti``."""
    name = re.split(r"[=<>!~]", pin, maxsplit=1)[0]
    return re.sub(r"-cu\d+$", "", name.removeprefix("nvidia-")).replace("-", "_")
