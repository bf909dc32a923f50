"""Describe the TensorFlow that this Python would import from its files, without importing it."""

from __future__ import annotations

import platform
import sys

from . import driver, installed, tensorflow_install
from .result import Answer, Facts, passed


def answer(facts: Facts) -> Answer:
    """Return Python, TensorFlow's distribution and its build's own description; no data without TensorFlow."""
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
        "is_for_gpus": is_cuda_build and (_has_cuda_runtime() or bool(driver.device_nodes())),
    }
    return passed(data=data)


def _has_cuda_runtime() -> bool:
    """Return True if TensorFlow could load a CUDA runtime."""
    search = tensorflow_install.new_search()
    folders = tensorflow_install.search_path(search, tensorflow_install.callers(search))
    folders += tensorflow_install.wheel_folders()
    return any(name.startswith("libcudart.so.") for folder in folders for name in search.names(folder))
