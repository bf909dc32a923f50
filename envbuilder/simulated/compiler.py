"""The simulated driver for a container: its libraries, compiled once and cached, and the variables that load them."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuilder.engine.port import FILES_AT
from envbuilder.errors import InfrastructureError
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.profile import Profile
from envbuilder.support import subprocesses
from envbuilder.workspace import cache_dir, packaged, read_stored, temporary_folder, writing

FOLDER = "simulated"
"""Its folder below `FILES_AT`."""

CUDA, NVML, STUB = "libcuda.so.1", "libnvidia-ml.so.1", "stubs/libcuda.so"
"""The driver's libraries. The stub is for the negative control that has it instead of a driver."""

SOURCES = {
    CUDA: ("libcuda.c", "contexts.c", "memory.c", "modules.c", "names.c", "profile.c"),
    NVML: ("libnvidia_ml.c", "profile.c"),
    STUB: ("stub.c",),
}
_HEADERS = ("driver.h", "has.inc", "lacks.inc")

# So that old images can load the libraries: no fortified or new functions of the C library (a test reads them back),
# no exports but those of the sources, and no trace of the build host.
_FLAGS = (
    *("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-stack-protector", "-U_FORTIFY_SOURCE"),
    *("-Wl,--build-id=none", "-Wl,-z,noexecstack", "-s"),
)


@dataclass(frozen=True)
class Simulation:
    """The simulated driver for a container.

    ``files`` are paths below `FILES_AT` and their contents, as in ContainerSpec. ``env`` is added to the container's
    environment; if that has an LD_LIBRARY_PATH, use `environment`.
    """

    profile: Profile
    files: Mapping[str, bytes]
    env: Mapping[str, str]

    def environment(self, image: Mapping[str, str]) -> dict[str, str]:
        """Return ``env`` for an image with this environment: the simulated driver before the image's own paths."""
        before = image.get("LD_LIBRARY_PATH", "")
        path = f"{self.env['LD_LIBRARY_PATH']}:{before}" if before else self.env["LD_LIBRARY_PATH"]
        return dict(self.env) | {"LD_LIBRARY_PATH": path}


def simulation(profile: Profile, *, cache: Path | None = None, root: str = FILES_AT) -> Simulation:
    """Return the simulated driver; libraries that are not cached are compiled.

    ``root`` is the folder of the container's files. Raises InfrastructureError if no C compiler works.
    """
    folder = f"{root}/{FOLDER}"
    wanted = (CUDA,) if "no-nvml" in profile.fail else (CUDA, NVML)
    built = compiled(cache or cache_dir())
    return Simulation(
        profile=profile,
        files={f"{FOLDER}/{name}": built[name] for name in wanted}
        | {f"{FOLDER}/profile": profiles.statements(profile).encode()},
        env={
            "LD_LIBRARY_PATH": folder,
            "TF_ENVBUILDER_SIMULATED_PROFILE": f"{folder}/profile",
            "TF_ENVBUILDER_SIMULATED": profile.text,
        },
    )


def stub() -> bytes:
    return compiled(cache_dir())[STUB]


def compiled(cache: Path) -> dict[str, bytes]:
    """Return the libraries by file name, cached by sources, options and compiler.

    Raises InfrastructureError if there is no C compiler, or if it fails.
    """
    names = sorted({*_HEADERS, *(name for sources in SOURCES.values() for name in sources)})
    texts = {name: packaged(f"simulated/{name}") for name in names}
    compiler = _compiler()
    folder = cache / f"{FOLDER}-{_digest(texts, compiler)}"
    if not all((folder / name).is_file() for name in SOURCES):
        _compile(texts, compiler, folder)
    return {name: read_stored(folder / name) or b"" for name in SOURCES}


def _compile(texts: Mapping[str, bytes], compiler: str, folder: Path) -> None:
    with temporary_folder("compile", folder.parent) as work:  # on the disk of its target, to be moved there
        for name, text in texts.items():
            with writing(work / name):
                (work / name).write_bytes(text)
        for name, sources in SOURCES.items():
            output = work / "compiled" / name
            output.parent.mkdir(parents=True, exist_ok=True)
            soname = CUDA if name == STUB else name
            _run([compiler, *_FLAGS, "-o", str(output), *sources, f"-Wl,-soname,{soname}"], work)
        for name in SOURCES:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (work / "compiled" / name).replace(folder / name)


def _run(command: list[str], work: Path) -> None:
    hint = "set CC to a C compiler that makes shared libraries for this machine"
    failed = f"{command[0]} could not compile the simulated driver:"
    try:
        done = subprocesses.run(command, within=120, folder=work)
    except subprocesses.ProgramError as error:
        raise InfrastructureError(f"{failed} {error.message}", hint=hint) from error
    if done.code:
        raise InfrastructureError(f"{failed}\n{done.error_text.strip()}", hint=hint)


def _compiler() -> str:
    found = (shutil.which(name) for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if name)
    if (compiler := next(filter(None, found), None)) is None:
        raise InfrastructureError(
            "the simulated driver is compiled at its first use, and this host has no C compiler",
            hint="install gcc (Debian: apt-get install gcc libc6-dev), or set CC",
        )
    return compiler


def _digest(texts: Mapping[str, bytes], compiler: str) -> str:
    try:
        version = subprocesses.run([compiler, "--version"], within=60).out
    except subprocesses.ProgramError as error:
        raise InfrastructureError(f"{compiler} does not report its version: {error.message}", hint="set CC") from error
    parts = [version, repr((_FLAGS, SOURCES)).encode()]
    parts += [part for name, text in texts.items() for part in (name.encode(), text)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
