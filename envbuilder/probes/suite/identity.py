"""Describe the TensorFlow that this Python would import from its files, without running it."""

from __future__ import annotations

import os
import platform
import sys
from typing import Any

from . import driver, library_conflicts, tensorflow_install
from .result import Answer, Facts, passed


def describe() -> dict[str, Any]:
    """Return Python, libc, the TensorFlow folder and distribution, and the build's own description."""
    folder = tensorflow_install.tensorflow_folder()
    name, version = tensorflow_install.distribution()
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "executable": sys.executable,
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "tensorflow": folder,
        "package": name,
        "version": version,
        "build": tensorflow_install.build_info(folder),
        "cuda": cuda_here(),
        "os": os_release(),
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _proc("/proc/cpuinfo", "model name"),
        "memory": int((_proc("/proc/meminfo", "MemTotal") or "0").split()[0]) * 1024,
        "environment": _text("/opt/envbuilder/environment.json"),
        "lock": _text("/opt/envbuilder/requirements.lock"),
    }


def answer(facts: Facts) -> Answer:
    """Return the description as a check's result: the image's Python runs this, not the runner's."""
    return passed(data=describe())


def cuda_here() -> list[str]:
    """Return the CUDA runtimes that TensorFlow could load and the device nodes: signs of a GPU environment."""
    search = tensorflow_install.new_search()
    folders = (
        tensorflow_install.search_path(search, tensorflow_install.callers(search)) + tensorflow_install.wheel_folders()
    )
    return library_conflicts.copies_of(search, "libcudart", folders) + driver.device_nodes()


def _text(path: str) -> str:
    """Read a document that envbuilder writes into images; '' if it is missing."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""


def _proc(path: str, key: str) -> str:
    """Read one value of a file of ``key : value`` lines; '' if it is missing."""
    try:
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return ""


def os_release() -> dict[str, str]:
    """Read ``/etc/os-release``: ``{"ID": "debian", "VERSION_ID": "12"}``."""
    wanted = {}
    try:
        with open("/etc/os-release", encoding="utf-8") as stream:
            for line in stream:
                key, _, value = line.strip().partition("=")
                if key in ("ID", "VERSION_ID", "PRETTY_NAME"):
                    wanted[key] = value.strip('"')
    except OSError:
        pass
    return wanted
