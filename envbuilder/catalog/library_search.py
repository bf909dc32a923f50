"""Where a build searches for CUDA's libraries: the ``nvidia/<folder>/lib`` entries in the RUNPATH of its own libraries.

The loader searches for a library opened by name (``dlopen``) in the RUNPATH of the object with the call only: ld.so(8),
dlopen(3). So the RUNPATH of `OPENER` decides. It has a function for each library (``GetCuptiDsoHandle``). Some are
called on demand only (CUPTI by the profiler), so these libraries are not among a row's ``libraries``.
"""

import re
from collections.abc import Iterable, Mapping

from envbuilder.catalog.rows import FindsCuda, Search, TensorflowRelease

OPENER = "libtensorflow_framework.so"
"""The library that opens CUDA's. In 2.16.1 the RUNPATH of `libtensorflow_cc` has the folders, so none is searched."""

OBJECTS = (OPENER, "libtensorflow_cc.so")
"""The libraries whose RUNPATH is in a row; beginnings of file names."""

EVERY = "*"
"""Stands for every folder of the wheels."""

_FOLDERS = {"libcudart": "cuda_runtime", "libcublasLt": "cublas"}
"""Libraries in a folder of another name; ``libcufft.so.11`` is in ``nvidia/cufft/lib``."""

_PLAIN = ("cublas", "cudnn", "cufft", "curand", "cusolver", "cusparse", "nccl", "nvshmem")
_OTHERS = {"CudaRuntime": "cuda_runtime", "CublasLt": "cublas", "Cupti": "cuda_cupti", "Nvrtc": "cuda_nvrtc"}
_WITHOUT = dict.fromkeys(("CudaDriver", "NvInfer", "NvInferPlugin", "Nvml"))
WHEEL_FOLDERS: Mapping[str, str | None] = {**{name.capitalize(): name for name in _PLAIN}, **_OTHERS, **_WITHOUT}
"""Functions of the opener, and the folder under ``nvidia`` with their library; None if no CUDA wheel has it."""


def folder_of(soname: str) -> str:
    """Return the folder under ``nvidia`` in which wheels have a library."""
    stem = soname.partition(".so")[0]
    return _FOLDERS.get(stem, stem.removeprefix("lib"))


def opener_folders(searches: Iterable[Search]) -> tuple[str, ...]:
    return next((one.folders for one in searches if one.object.startswith(OPENER)), ())


def unfound(libraries: Iterable[str], searches: Iterable[Search]) -> tuple[str, ...]:
    """List the libraries that a build opens without searching their wheels."""
    known = opener_folders(searches)
    return tuple(soname for soname in libraries if folder_of(soname) not in known)


def finds_cuda(libraries: Iterable[str], searches: Iterable[Search]) -> FindsCuda | None:
    """Classify where a build finds the libraries that it opens; None if these are not known.

    Their own dependencies are found by their own RUNPATH.
    """
    needed = {folder_of(soname) for soname in libraries}
    known = needed.intersection(opener_folders(searches))
    if not needed:
        return None
    if not known:
        return "system"
    if known == needed:
        return "wheels"
    return "unfindable" if known == {"cuda_runtime"} else "partly"


def unsearched(release: TensorflowRelease, wheels: Iterable[str]) -> tuple[str, ...]:
    """List the folders of ``wheels`` with a library that a build opens, on demand too, but does not search."""
    folders = set(map(_wheel_folder, wheels)) - set(opener_folders(release.searches))
    wanted = dict.fromkeys(WHEEL_FOLDERS.get(name) for name in release.openers)
    return tuple(folder for folder in wanted if folder is not None and folder in folders)


def loader_folders(release: TensorflowRelease, wheels: Iterable[str] = ()) -> tuple[str, ...]:
    """List the folders of CUDA wheels that have to be on the loader's path, because this release does not search them.

    With ``wheels``, those of libraries that are opened on demand are included.
    """
    if release.finds_cuda in {"system", "unfindable"}:
        return (EVERY,)
    partly = unfound(release.libraries, release.searches) if release.finds_cuda == "partly" else ()
    return tuple(sorted({*map(folder_of, partly), *unsearched(release, wheels)}))


def _wheel_folder(pin: str) -> str:
    """Return the folder under ``nvidia`` of a CUDA wheel: ``nvidia-cuda-cupti-cu12==12.5.82`` is in ``cuda_cupti``."""
    name = re.split(r"[=<>!~]", pin, maxsplit=1)[0]
    return re.sub(r"-cu\d+$", "", name.removeprefix("nvidia-")).replace("-", "_")
