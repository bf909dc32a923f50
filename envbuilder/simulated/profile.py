"""The profile of a simulated host: driver, GPUs and failures, such as ``driver=470.57.02,gpu=A100``."""

import re

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import DriverBranch, Gpu
from envbuilder.errors import NoClaimError, UsageError
from envbuilder.workspace import packaged_yaml

EXAMPLE = "driver=470.57.02,gpu=A100,gpus=8,fail=no-device"
_KEYS = ("driver", "libcuda", "gpu", "gpus", "memory", "fail")
_REPEATED = ("gpu", "fail")
_MOST_GPUS = 32
_VERSION = re.compile(r"[0-9]{3,4}(?:\.[0-9]{1,4}){1,2}")
_FORCED = re.compile(r"(cu|nvml)[A-Za-z0-9_]{2,60}:[0-9]{1,3}")
_UNKNOWN_MEMORY_GIB = 16

Forcing = tuple[str, int]

FAILURES = packaged_yaml("simulated/failures.yaml", dict[str, dict[str, int]])


class SimulatedGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU of the simulated host; memory in bytes, ``ecc`` if the model has it."""

    name: str
    compute_capability: str
    memory: int
    ecc: bool


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated host.

    ``driver`` is the kernel module's version, ``libcuda`` the CUDA library's (newer with a compatibility package),
    ``cuda`` and ``ptx`` that library's versions (``ptx`` is None if unknown). ``gpus`` are those of the host,
    ``visible`` those of the container.
    """

    text: str
    driver: str
    libcuda: str
    cuda: str
    ptx: str | None
    gpus: tuple[SimulatedGpu, ...]
    visible: tuple[SimulatedGpu, ...]
    fail: tuple[str, ...] = ()
    forced: tuple[Forcing, ...] = ()


def parse(text: str, catalog: Catalog) -> Profile:
    """Read a profile such as ``driver=470.57.02,gpu=A100,gpus=8,fail=no-device``.

    ``gpu`` and ``fail`` may be repeated; ``gpus`` is the number of equal GPUs; ``memory`` is in GiB. Raises UsageError
    for other texts, NoClaimError for a driver or GPU that is not in the catalogue.
    """
    given = _arguments(text)
    driver = _version(given, "driver")
    libcuda = _version(given, "libcuda") if "libcuda" in given else driver
    module, library = _branch(catalog, driver), _branch(catalog, libcuda)
    gpus = _gpus(given, catalog)
    fail = tuple(dict.fromkeys(given.get("fail", ())))
    toolkit = catalog.toolkit(library.cuda)
    return Profile(
        text=text,
        driver=driver,
        libcuda=libcuda,
        cuda=library.cuda,
        ptx=toolkit.ptx_isa or None if toolkit else None,
        gpus=tuple(_as_simulated(gpu, name, given) for gpu, name in gpus),
        visible=tuple(_as_simulated(gpu, name, given) for gpu, name in gpus if _served(gpu, driver, module))
        if "no-device" not in fail
        else (),
        fail=fail,
        forced=(*_named(fail), *_combination(driver, libcuda, module, tuple(gpu for gpu, _ in gpus), catalog)),
    )


def statements(profile: Profile) -> str:
    """Return the profile for the driver's libraries: one statement per line."""
    major, minor = versions.numbers(versions.minor(profile.cuda))
    ecc_errors = 1 if "ecc" in profile.fail else 0
    lines = [f"driver {profile.driver}", f"cuda {major * 1000 + minor * 10}", "persistence 1"]
    if profile.ptx:
        lines.append(f"ptx {profile.ptx.replace('.', '')}")
    lines += [
        # The catalogue has no number of multiprocessors, and no check reads it.
        f"gpu {gpu.compute_capability} 80 {gpu.memory} {ecc_errors if gpu.ecc else -1} {gpu.name}"
        for gpu in profile.visible
    ]
    lines += [f"force {name} {code}" for name, code in profile.forced]
    return "\n".join(lines) + "\n"


def _arguments(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for word in text.split(","):
        key, equals, value = (part.strip() for part in word.partition("="))
        if key not in _KEYS or not equals or not value:
            raise _refused(f"{word.strip()!r} is not one of {', '.join(f'{name}=…' for name in _KEYS)}")
        if key in found and key not in _REPEATED:
            raise _refused(f"{key}= is given twice")
        found[key] = (*found.get(key, ()), value)
    if "driver" not in found:
        raise _refused("no driver= is given")
    return found


def _refused(why: str) -> UsageError:
    return UsageError(f"not a simulated host: {why}", hint=f"write it like {EXAMPLE}; failures: {', '.join(FAILURES)}")


def _version(given: dict[str, tuple[str, ...]], key: str) -> str:
    text = given[key][0]
    if not _VERSION.fullmatch(text):
        raise _refused(f"{key}={text} is not a driver version such as 470.57.02")
    return text


def _branch(catalog: Catalog, driver: str) -> DriverBranch:
    row = catalog.branch(driver)
    if row is None:
        raise NoClaimError(
            f"the catalogue has no branch for driver {driver}, so what CUDA it brings is unknown",
            hint="envbuilder catalog list drivers",
        )
    return row


def _gpus(given: dict[str, tuple[str, ...]], catalog: Catalog) -> tuple[tuple[Gpu, str], ...]:
    named = tuple((_gpu(catalog, text), text) for text in given.get("gpu", ()))
    count = given.get("gpus", ("",))[0]
    if not count:
        return named
    if not count.isascii() or not count.isdigit() or int(count) > _MOST_GPUS:
        raise _refused(f"gpus={count} is not a number up to {_MOST_GPUS}")
    if len(named) > 1 or (not named and int(count)):
        raise _refused("gpus= says how many there are of the one GPU that gpu= names")
    return named * int(count)


def _gpu(catalog: Catalog, text: str) -> Gpu:
    row = catalog.gpu(text)
    if row is None:
        raise NoClaimError(f"the catalogue has no GPU {text!r}", hint="envbuilder catalog list gpus")
    return row


def _as_simulated(gpu: Gpu, written: str, given: dict[str, tuple[str, ...]]) -> SimulatedGpu:
    printed = (*gpu.smi_names, f"NVIDIA {gpu.name}")
    memory = given.get("memory", ("",))[0]
    if memory and not re.fullmatch(r"[1-9][0-9]{0,3}", memory):
        raise _refused(f"memory={memory} is not a number of GiB")
    return SimulatedGpu(
        name=written if written in printed else printed[0],
        compute_capability=gpu.compute_capability,
        memory=int(memory or next(iter(gpu.memory_gib), _UNKNOWN_MEMORY_GIB)) << 30,
        ecc=gpu.data_center,
    )


def _served(gpu: Gpu, driver: str, branch: DriverBranch) -> bool:
    """Return True if the driver supports the GPU: its branch has it, and the driver is not older than the GPU."""
    capability = versions.key(gpu.compute_capability)
    known = versions.key(branch.first_capability) <= capability <= versions.key(branch.last_capability)
    return known and (not gpu.minimum_driver or versions.at_least(driver, gpu.minimum_driver))


def _named(fail: tuple[str, ...]) -> tuple[Forcing, ...]:
    forced: list[Forcing] = []
    for name in fail:
        if name in FAILURES:
            forced += FAILURES[name].items()
        elif _FORCED.fullmatch(name):
            function, _, code = name.partition(":")
            forced.append((function, int(code)))
        else:
            raise _refused(f"fail={name} is neither a known failure nor a function with its code such as cuInit:999")
    return tuple(forced)


def _combination(
    driver: str, libcuda: str, module: DriverBranch, gpus: tuple[Gpu, ...], catalog: Catalog
) -> tuple[Forcing, ...]:
    """Return the answers of a CUDA library on a kernel module of another version (rules of forward compatibility)."""
    if versions.key(libcuda) == versions.key(driver):
        return ()
    if versions.key(libcuda) < versions.key(driver):
        return (("cuInit", 803),)
    if not all(gpu.data_center for gpu in gpus):
        return (("cuInit", 804),)
    toolkit = catalog.toolkit(_branch(catalog, libcuda).cuda)
    return () if toolkit and module.branch in toolkit.forward_compat else (("cuInit", 803),)
