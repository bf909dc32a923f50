"""Describe the TensorFlow that this Python would import, from its files alone: nothing of it is run."""

import ast
import importlib.util
import json
import os
import platform
import sys

DISTRIBUTIONS = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tensorflow-intel", "tf-nightly", "tf-nightly-cpu")


def describe():
    """Return Python, libc, the TensorFlow folder and distribution, and what its build says about itself."""
    folder = tensorflow_folder()
    name, version = distribution()
    return {
        "python": ".".join(map(str, sys.version_info[:2])),
        "executable": sys.executable,
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "tensorflow": folder,
        "package": name,
        "version": version,
        "build": build_info(folder),
        "cuda": cuda_here(),
        "os": os_release(),
        "kernel": platform.release(),
        "cpus": len(os.sched_getaffinity(0)),
        "cpu_model": _proc("/proc/cpuinfo", "model name"),
        "memory": int((_proc("/proc/meminfo", "MemTotal") or "0").split()[0]) * 1024,
        "environment": _text("/opt/envbuilder/environment.json"),
        "lock": _text("/opt/envbuilder/requirements.lock"),
    }


def cuda_here():
    """List the CUDA run times that TensorFlow could load, and the driver's device nodes: signs of a GPU environment."""
    from . import driver, framework, stacks

    search = framework.new_search()
    folders = framework.search_path(search, framework.callers(search)) + framework.wheel_folders()
    return stacks.copies_of("libcudart", folders) + driver.device_nodes()


def _text(path):
    """Read what an image of ours says of itself; '' where there is nothing."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read(1 << 20)
    except OSError:
        return ""


def _proc(path, key):
    """Read one value of a file of ``key : value`` lines; '' where it is not told."""
    try:
        with open(path, encoding="utf-8") as stream:
            for line in stream:
                name, _, value = line.partition(":")
                if name.strip() == key:
                    return value.strip()
    except OSError:
        pass
    return ""


def tensorflow_folder():
    """Find the package's folder without importing it; None where there is none."""
    try:
        spec = importlib.util.find_spec("tensorflow")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return next(iter(spec.submodule_search_locations))


def distribution():
    """Name the installed distribution that brings TensorFlow, and its version; (None, None) where none says so."""
    from importlib import metadata

    for name in DISTRIBUTIONS:
        try:
            return name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None, None


def build_info(folder):
    """Read what the build wrote about itself: the literal of ``build_info.py``; empty where there is none."""
    path = os.path.join(folder or "", "python", "platform", "build_info.py")
    try:
        with open(path, encoding="utf-8") as stream:
            tree = ast.parse(stream.read())
    except (OSError, SyntaxError):
        return {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "build_info":
            return _literal(node.value)
    return {}


def _literal(node):
    """Read a dict literal or ``collections.OrderedDict({...})`` of constants and lists."""
    if isinstance(node, ast.Call) and node.args:
        node = node.args[0]
    try:
        return dict(ast.literal_eval(node))
    except (ValueError, TypeError):
        return {}


def os_release():
    """Read the system's own name: ``{"ID": "debian", "VERSION_ID": "12"}``."""
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


def main():
    """Print the description as JSON."""
    print(json.dumps(describe()))
    return 0 if tensorflow_folder() else 3


if __name__ == "__main__":
    sys.exit(main())
