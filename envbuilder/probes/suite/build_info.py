"""Describe the TensorFlow that this Python would import, and compare the build's own description with the catalogue."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterable

from . import cuda_driver, installed, tensorflow_install
from .result import Answer, Facts, Finding, finding, judged, passed, skipped


def identity(facts: Facts) -> Answer:
    """Return Python, TensorFlow's distribution and its build's own description from its files; nothing is imported."""
    folder = tensorflow_install.tensorflow_folder()
    if folder is None:
        return passed(observed="no TensorFlow")
    name, version = tensorflow_install.distribution()
    build = tensorflow_install.build_info(folder)
    is_cuda_build = bool(build.get("is_cuda_build"))
    data = {
        "python": ".".join(map(str, sys.version_info[:2])),
        "package": name or "",
        "version": version or "",
        "build": build,
        "sites": installed.site_folders(),
        "folder": folder,
        "release": platform.python_version(),
        "is_cuda_build": is_cuda_build,
        "is_for_gpus": is_cuda_build and (_has_cuda_runtime() or bool(cuda_driver.device_nodes())),
    }
    return passed(data=data)


def _has_cuda_runtime() -> bool:
    search = tensorflow_install.new_search()
    folders = tensorflow_install.search_path(search, tensorflow_install.callers(search))
    folders += tensorflow_install.wheel_folders()
    return any(name.startswith("libcudart.so.") for folder in folders for name in search.names(folder))


def claims(facts: Facts) -> Answer:
    import tensorflow as tf

    folder = tensorflow_install.tensorflow_folder()
    recorded = getattr(tf.sysconfig, "get_build_info", lambda: tensorflow_install.build_info(folder))  # since 2.3
    info = dict(recorded())
    if not info:
        return skipped("this release does not say what it was built with")
    findings = []
    gpu = bool(info.get("is_cuda_build"))
    if facts["flavor"] == "gpu" and not gpu:
        text = "a GPU environment, and a build without CUDA: it will run on the CPU"
        findings.append(finding("NOT_A_GPU_BUILD", "TensorFlow " + tf.__version__, text, "a CUDA build", "a CPU build"))
    if facts["flavor"] == "cpu" and gpu and not facts.get("environment"):
        text = "this build can use GPUs, and no CUDA run time is here: it runs on the CPU"
        fix = "install tensorflow[and-cuda], or the CUDA that it was built with"
        findings.append(finding("MISSING_LIBRARY", "CUDA", text, fix=fix, severity="warning"))
    for name, code, key in (("cuda", "CUDA_MISMATCH", "cuda_version"), ("cudnn", "CUDNN_MISMATCH", "cudnn_version")):
        wanted, found = facts.get("built_" + name), str(info.get(key) or "")
        if gpu and wanted and found and not same(wanted, found):
            text = f"the catalogue has {name} {wanted} for this build, the build itself has {found}"
            findings.append(finding(code, name, text, wanted, found, "correct the catalogue's row, or the wheel"))
    if gpu and facts.get("cubins") and info.get("cuda_compute_capabilities"):
        findings += _capabilities(facts, info["cuda_compute_capabilities"])
    expected = f"{facts['flavor']}, CUDA {facts.get('built_cuda')}, cuDNN {facts.get('built_cudnn')}"
    return judged(findings, expected, ", ".join(f"{key}={info[key]}" for key in sorted(info)))


def same(wanted: str, found: str) -> bool:
    """Return True if two versions agree in the parts that both have (``12.5`` and ``12.5.1``; ``9.3`` and ``9``)."""
    left, right = wanted.split("."), found.split(".")
    length = min(len(left), len(right), 2)
    return left[:length] == right[:length]


def _capabilities(facts: Facts, info: Iterable[object]) -> list[Finding]:
    """Compare compute capabilities: ``sm_XY`` is machine code, ``compute_XY`` machine code and PTX."""
    names = [str(name) for name in info]
    code = sorted({_dotted(name) for name in names})
    ptx = sorted({_dotted(name) for name in names if name.startswith("compute_")})
    findings = []
    for kind, wanted, found in (("machine code", facts["cubins"], code), ("PTX", facts["ptx"], ptx)):
        if sorted(wanted) != found:
            text = f"{kind}: the environment names {sorted(wanted)}, the build {found}"
            findings.append(finding("IMAGE_CLAIM", "compute capabilities", text, str(sorted(wanted)), str(found)))
    return findings


def _dotted(name: str) -> str:
    digits = "".join(letter for letter in name.rsplit("_", maxsplit=1)[-1] if letter.isdigit())
    return digits[:-1] + "." + digits[-1:]
