"""Check that XLA finds what it compiles for GPUs with: ptxas and libdevice, in the places where it looks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from . import tensorflow_files
from .answer import Answer, Facts, Finding, finding, judged

# tsl/platform/default/cuda_root_path.cc: the wheel of nvcc beside TensorFlow's folder, the copy of libdevice in
# TensorFlow's own wheel, then the toolkit's usual places; executables are looked up on PATH last.
USUAL = ["/usr/local/cuda"]
LIBDEVICE = os.path.join("nvvm", "libdevice", "libdevice.10.bc")


def roots(folder: str, cuda: str | None, flags: str) -> list[str]:
    """List the folders in which XLA looks for CUDA's tools, in its order; ``flags`` are XLA's."""
    option = "--xla_gpu_cuda_data_dir="
    found = [word[len(option) :] for word in flags.split() if word.startswith(option)]
    for base in (folder, os.path.join(folder, "python")):
        found += [os.path.join(base, up, "nvidia", "cuda_nvcc") for up in ("..", os.path.join("..", ".."))]
        found.append(os.path.join(base, "cuda"))
    if cuda and USUAL:
        found.append(USUAL[0] + "-" + ".".join(cuda.split(".")[:2]))
    found += USUAL
    return list(dict.fromkeys(os.path.normpath(path) for path in found))


def found(facts: Facts) -> Answer:
    """Look for ptxas and libdevice where XLA would."""
    folder = tensorflow_files.tensorflow_folder() or ""
    places = roots(folder, facts.get("built_cuda"), os.environ.get("XLA_FLAGS", ""))
    on_path = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return found_in(places, on_path, lambda path: os.path.isfile(path) and os.access(path, os.X_OK), os.path.isfile)


def tool(name: str, places: Iterable[str], on_path: Iterable[str], runs: Callable[[str], bool]) -> str | None:
    """Return the program that XLA would start, None where it finds none; ``runs`` tells a program."""
    candidates = _candidates(places, os.path.join("bin", name)) + [os.path.join(folder, name) for folder in on_path]
    return next((path for path in candidates if runs(path)), None)


def found_in(
    places: Sequence[str], on_path: Iterable[str], runs: Callable[[str], bool], is_file: Callable[[str], bool]
) -> Answer:
    """Look in these places, then on PATH; ``runs`` tells a program, ``is_file`` a file."""
    ptxas = tool("ptxas", places, on_path, runs)
    device = next((path for path in [*_candidates(places, LIBDEVICE), "libdevice.10.bc"] if is_file(path)), None)
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
