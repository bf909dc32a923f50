"""Describe this host: its driver and GPUs as NVML reports them, its kernel, processors and memory."""

import os
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from envbuilder.support.architectures import ARCHS
from envbuilder.verdict import GpuSeen, HostRef, every_on

_Ask = Callable[..., Any]


def describe(root: Path = Path("/"), nvml: Any = None) -> HostRef:  # noqa: ANN401 - a module, which has no type
    """Describe the host. Unknown values are None, 0 or ''; nothing is raised.

    The driver is NVML's, or the kernel module's without NVML. A GPU that cannot answer one query is still listed.
    """
    driver = ""
    gpus: tuple[GpuSeen, ...] = ()
    modes: list[int | None] = []
    with _session(nvml or import_module("pynvml")) as ask:  # 20 ms that few commands need
        if ask is not None:
            driver = _text(ask("nvmlSystemGetDriverVersion"))
            handles = [ask("nvmlDeviceGetHandleByIndex", index) for index in range(ask("nvmlDeviceGetCount") or 0)]
            devices = [device for handle in handles if handle is not None for device in _devices(ask, handle)]
            gpus = tuple(_gpu(ask, *device) for device in devices)
            modes = [ask("nvmlDeviceGetPersistenceMode", handle) for handle in handles if handle is not None]
    return HostRef(
        driver=driver or _read(root / "sys/module/nvidia/version").strip() or None,
        gpus=gpus,
        kernel=platform.release(),
        cpus=len(os.sched_getaffinity(0)),
        cpu_model=_first(r"^model name\s*:\s*(.+)$", root / "proc/cpuinfo") or platform.machine(),
        memory=int(_first(r"^MemTotal:\s*(\d+) kB", root / "proc/meminfo") or 0) * 1024,
        persistence=every_on(None if mode is None else mode == 1 for mode in modes),
    )


def machine() -> str:
    """Return the processor's architecture as in the names of images and wheels: ``x86_64``, ``aarch64``."""
    name = platform.machine().lower()
    return ARCHS.get(name, name)


def has_avx(root: Path = Path("/")) -> bool | None:
    """Return True if the processor has AVX, which TensorFlow's x86-64 wheels need; None if unknown."""
    flags = _first(r"^flags\s*:(.*)$", root / "proc/cpuinfo")
    return "avx" in flags.split() if flags else None


@contextmanager
def _session(nvml: Any) -> Iterator[_Ask | None]:  # noqa: ANN401 - as above
    """Open NVML for a block and yield its query function, which returns None on a refusal; None without a driver."""

    def ask(question: str, *about: object) -> Any:  # noqa: ANN401 - each question has its own answer
        try:
            return getattr(nvml, question)(*about)
        except (nvml.NVMLError, AttributeError):
            return None  # an older driver or binding does not have this query

    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        yield None
        return
    try:
        yield ask
    finally:
        ask("nvmlShutdown")


def _devices(ask: _Ask, handle: object) -> list[tuple[object, object]]:
    """Pair each device with its board: a GPU with itself, or each of its MIG slices with the GPU."""
    mode = ask("nvmlDeviceGetMigMode", handle)
    if not mode or mode[0] != 1:
        return [(handle, handle)]
    most = ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    parts = (ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index) for index in range(most))
    return [(part, handle) for part in parts if part is not None]


def _gpu(ask: _Ask, handle: object, board: object) -> GpuSeen:
    capability = ask("nvmlDeviceGetCudaComputeCapability", board)
    memory = ask("nvmlDeviceGetMemoryInfo", handle)
    return GpuSeen(
        name=_text(ask("nvmlDeviceGetName", handle)),
        compute_capability=".".join(map(str, capability)) if capability else "",
        memory=memory.total if memory else 0,
        uuid=_text(ask("nvmlDeviceGetUUID", handle)),
    )


def _text(value: str | bytes | None) -> str:
    """Decode an answer: bytes from older bindings, text from newer ones."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value or ""


def _first(pattern: str, path: Path) -> str:
    """Return what a pattern matches first in a file of the kernel, or ''."""
    found = re.search(pattern, _read(path), re.MULTILINE)
    return found[1].strip() if found else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
