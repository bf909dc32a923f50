"""Check that XLA finds what it compiles for GPUs with: ptxas and libdevice, in the places where it looks."""

from __future__ import annotations

import base64
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence

from . import tensorflow_files
from .answer import Answer, Facts, Finding, finding, judged, passed, skipped
from .kernel_text import Kernel

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
    return found_in(_places(facts), _path(), _runs, os.path.isfile)


def _places(facts: Facts) -> list[str]:
    folder = tensorflow_files.tensorflow_folder() or ""
    return roots(folder, facts.get("built_cuda"), os.environ.get("XLA_FLAGS", ""))


def _path() -> list[str]:
    return os.environ.get("PATH", os.defpath).split(os.pathsep)


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")
LIMIT_S = 40.0
LARGEST = 1 << 20


def assembled(facts: Facts) -> Answer:
    """Run ptxas, and nvlink where there is one, on this run's kernel; the host looks at what they made."""
    ptxas = tool("ptxas", _places(facts), _path(), _runs)
    if ptxas is None:
        return skipped("ptxas is not there; the check of XLA's tools says so")
    kernel = Kernel(facts.get("challenge") or "", facts.get("built_cuda"))
    made = {}
    try:
        release = RELEASE.search(_said([ptxas, "--version"]))
        with tempfile.TemporaryDirectory() as folder:
            source, cubin, linked = (os.path.join(folder, name) for name in ("k.ptx", "k.cubin", "linked.cubin"))
            with open(source, "w") as stream:
                stream.write(kernel.text)
            architecture = "-arch=sm_{0}".format(kernel.target)
            _said([ptxas, architecture, source, "-o", cubin])
            made["ptxas"] = _content(cubin)
            nvlink = os.path.join(os.path.dirname(ptxas), "nvlink")
            if _runs(nvlink):
                _said([ptxas, "-c", architecture, source, "-o", cubin])  # nvlink takes relocatable code alone
                _said([nvlink, architecture, cubin, "-o", linked])
                made["nvlink"] = _content(linked)
    except (OSError, subprocess.SubprocessError) as error:
        text = "{0} does not work: {1}".format(ptxas, str(error)[:1000])
        return judged([finding("XLA_TOOLS_MISSING", "ptxas", text, "ptxas", ptxas, FIX)], "ptxas assembles", text)
    if release is None:
        text = "{0} does not say which release it is: it is no ptxas".format(ptxas)
        return judged([finding("XLA_TOOLS_MISSING", "ptxas", text, "ptxas", ptxas, FIX)], "ptxas assembles", text)
    observed = "{0} {1}".format(ptxas, release.group(2))
    return passed("machine code of this run's kernel", observed, data={"version": release.group(2), "made": made})


FIX = "install the nvidia-cuda-nvcc package of this CUDA anew"


def _said(command: Sequence[str]) -> str:
    """Run a tool; return what it printed. Raises where it fails, hangs or cannot start."""
    done = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
    )
    said = done.stdout[:4000].decode("utf-8", "replace")
    if done.returncode != 0:
        raise subprocess.SubprocessError("exit code {0}: {1}".format(done.returncode, said[-300:]))
    return said


def _content(path: str) -> str:
    with open(path, "rb") as stream:
        return base64.b64encode(stream.read(LARGEST)).decode()


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
