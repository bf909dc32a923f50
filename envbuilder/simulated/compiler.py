"""Files and variables that give a container the simulated driver."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from envbuilder.engine.port import FILES_AT
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.profile import Profile
from envbuilder.simulated.shared_library import Libraries, Library, compiled
from envbuilder.workspace import cache_dir

FOLDER = "simulated"
"""Its folder below `FILES_AT`."""

CUDA, NVML, STUB = "libcuda.so.1", "libnvidia-ml.so.1", "stubs/libcuda.so"

LIBRARIES = Libraries(
    name="simulated",
    what="the simulated driver",
    package="envbuilder.simulated",
    members={
        CUDA: Library(("libcuda.c", "contexts.c", "memory.c", "modules.c", "names.c", "profile.c"), soname=CUDA),
        NVML: Library(("libnvidia_ml.c", "profile.c"), soname=NVML),
        STUB: Library(("stub.c",), soname=CUDA),
    },
    headers=("driver.h", "has.inc", "lacks.inc"),
)
"""The driver's libraries. The stub is for the negative control that has it instead of a driver."""


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
    built = compiled(LIBRARIES, cache or cache_dir())
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


def stub(*, cache: Path | None = None) -> bytes:
    return compiled(LIBRARIES, cache or cache_dir())[STUB]
