"""Check that XLA finds what it compiles for GPUs with: ptxas and libdevice, in the places where it looks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence

from . import tensorflow_files
from .answer import Answer, Facts, Finding, finding, judged

# tsl/platform/default/cuda_root_path.cc: the wheel of nvcc beside TensorFlow's folder, the copy of libdevice in
# TensorFlow's own wheel, then the toolkit's usual places; executables are looked up on PATH last.
USUAL = ["/usr/local/cuda"]
LIBDEVICE = os.path.join("nvvm", "libdevice", "libdevice.10.bc")


def roots(folder: str, cuda: str | None) -> list[str]:
    """List the folders in which XLA looks for CUDA's tools, in its order."""
    option = "--xla_gpu_cuda_data_dir="
    given = os.environ.get("XLA_FLAGS", "").split()
    found = [word[len(option) :] for word in given if word.startswith(option)]
    for base in (folder, os.path.join(folder, "python")):
        found += [os.path.join(base, up, "nvidia", "cuda_nvcc") for up in ("..", os.path.join("..", ".."))]
        found.append(os.path.join(base, "cuda"))
    if cuda and USUAL:
        found.append(USUAL[0] + "-" + ".".join(cuda.split(".")[:2]))
    found += USUAL
    return list(dict.fromkeys(os.path.normpath(path) for path in found))


def found(facts: Facts) -> Answer:
    """Look for ptxas and libdevice where XLA would."""
    places = roots(tensorflow_files.tensorflow_folder() or "", facts.get("built_cuda"))
    ptxas = next((path for path in _candidates(places, os.path.join("bin", "ptxas")) if os.access(path, os.X_OK)), None)
    ptxas = ptxas or shutil.which("ptxas")
    device = next((path for path in [*_candidates(places, LIBDEVICE), "libdevice.10.bc"] if os.path.isfile(path)), None)
    findings = []
    for name, path in (("ptxas", ptxas), ("libdevice.10.bc", device)):
        if path is None:
            findings.append(_missing(name, places))
    return judged(findings, "ptxas and libdevice", "ptxas {0}, libdevice {1}".format(ptxas, device))


def _candidates(places: Iterable[str], leaf: str) -> list[str]:
    return [os.path.join(place, leaf) for place in places]


def _missing(name: str, places: Sequence[str]) -> Finding:
    text = "{0} is in none of the places where XLA looks: compiled functions will fail or wait for the driver".format(
        name
    )
    fix = "install the nvidia-cuda-nvcc wheel of this CUDA, or give XLA_FLAGS=--xla_gpu_cuda_data_dir"
    return finding("XLA_TOOLS_MISSING", name, text, name, "looked in: " + ", ".join(places), fix)
