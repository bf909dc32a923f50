"""Put a simulated driver into a container: compile its libraries once, and say where they and the profile go."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from envbuilder.errors import InfrastructureError
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.profile import Profile
from envbuilder.workspace import cache_dir

FOLDER = "simulated"
"""Where it lies among a container's files, which is ``/envbuilder/simulated`` in the container."""

CUDA, NVML, STUB = "libcuda.so.1", "libnvidia-ml.so.1", "stubs/libcuda.so"

LIBRARIES: dict[str, tuple[str, ...]] = {
    CUDA: ("libcuda.c", "contexts.c", "memory.c", "modules.c", "names.c", "profile.c"),
    NVML: ("libnvidia_ml.c", "profile.c"),
    STUB: ("stub.c",),
}
"""The libraries by file name, and their sources. The stub is no driver: a negative control puts it in its place."""

_SONAMES = {STUB: CUDA}

_HEADERS = ("driver.h", "has.inc", "lacks.inc")

# What keeps the libraries loadable in old images: no fortified or newer-than-needed entry points of the C library
# (a test reads them back), nothing exported but the driver's interface, nothing of the build host inside.
_FLAGS = (
    *("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-stack-protector", "-U_FORTIFY_SOURCE"),
    *("-Wl,--build-id=none", "-Wl,-z,noexecstack", "-s"),
)
_COMPILERS = ("cc", "gcc", "clang")


@dataclass(frozen=True)
class Simulation:
    """What a container needs to meet the simulated driver.

    ``files`` are paths below ``/envbuilder`` and their contents, as ContainerSpec takes them. ``env`` is added to the
    container's environment; where that has an LD_LIBRARY_PATH of its own, use `environment` instead.
    """

    profile: Profile
    files: Mapping[str, bytes]
    env: Mapping[str, str]

    def environment(self, image: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` for an image with this environment: the simulated driver before the image's own paths."""
        before = image.get("LD_LIBRARY_PATH", "")
        path = f"{self.env['LD_LIBRARY_PATH']}:{before}" if before else self.env["LD_LIBRARY_PATH"]
        return dict(self.env) | {"LD_LIBRARY_PATH": path}


def simulation(profile: Profile, *, cache: Path | None = None, root: str = "/envbuilder") -> Simulation:
    """Compile what is not in the cache yet and gather what a container needs.

    ``root`` is where the container finds its files. Raises InfrastructureError where no C compiler works.
    """
    folder = f"{root}/{FOLDER}"
    wanted = (CUDA,) if "no-nvml" in profile.fail else (CUDA, NVML)
    built = libraries(cache or cache_dir())
    return Simulation(
        profile=profile,
        files={f"{FOLDER}/{name}": built[name] for name in wanted}
        | {f"{FOLDER}/profile": profiles.statements(profile).encode()},
        env={
            "LD_LIBRARY_PATH": folder,
            "ENVBUILDER_SIMULATED_PROFILE": f"{folder}/profile",
            "ENVBUILDER_SIMULATED": profile.text,
        },
    )


def stub(*, cache: Path | None = None) -> bytes:
    """Return a link-time stub of the driver, for the control that puts it where the driver belongs."""
    return libraries(cache or cache_dir())[STUB]


def libraries(cache: Path) -> dict[str, bytes]:
    """Return the compiled libraries by file name, from the cache where sources, flags and compiler are the same."""
    sources = {name: (package_files("envbuilder.simulated") / name).read_bytes() for name in _every_source()}
    compiler = _compiler()
    folder = cache / f"simulated-{_digest(sources, compiler)}"
    if not all((folder / name).is_file() for name in LIBRARIES):
        _compile(sources, compiler, folder)
    return {name: (folder / name).read_bytes() for name in LIBRARIES}


def _every_source() -> tuple[str, ...]:
    return tuple(sorted({*_HEADERS, *(name for names in LIBRARIES.values() for name in names)}))


def _compile(sources: Mapping[str, bytes], compiler: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="simulated-", dir=folder.parent) as temporary:
        work = Path(temporary)
        for source, text in sources.items():
            (work / source).write_bytes(text)
        for name, parts in LIBRARIES.items():
            made = work / "made" / name
            made.parent.mkdir(parents=True, exist_ok=True)
            soname = _SONAMES.get(name, name)
            _call([compiler, *_FLAGS, f"-Wl,-soname,{soname}", "-o", str(made), *parts], work)
        for name in LIBRARIES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (work / "made" / name).replace(folder / name)


def _call(command: list[str], work: Path) -> None:
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        raise InfrastructureError(
            f"{command[0]} could not compile the simulated driver:\n{done.stderr.strip()}",
            hint="set CC to a C compiler that makes shared libraries for this machine",
        )


def _compiler() -> str:
    for name in (os.environ.get("CC", ""), *_COMPILERS):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise InfrastructureError(
        "a simulated driver is compiled when it is first used, and this host has no C compiler",
        hint="install gcc (Debian: apt-get install gcc libc6-dev), or set CC",
    )


def _digest(sources: Mapping[str, bytes], compiler: str) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, check=False, timeout=60).stdout
    parts = [version, *(flag.encode() for flag in _FLAGS)]
    parts += [part for name in sorted(sources) for part in (name.encode(), sources[name])]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
