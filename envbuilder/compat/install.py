"""What people copy to get an environment: the commands that install it, and the matrix that builds it."""

import json
import shlex
from collections.abc import Iterable, Iterator

from envbuilder.catalog.library_search import EVERY
from envbuilder.catalog.model import Catalog
from envbuilder.compat.check import check
from envbuilder.compat.question import Question
from envbuilder.compat.requirement import parse
from envbuilder.environment import WHOLE, Combination, Environment

WHEELS = 'wheels="$(python -c'
"""Begin of a command about the folder of CUDA wheels: nothing is done if this Python has none."""

_LINK_NVRTC = (
    f"{WHEELS} 'import nvidia.cublas; print(nvidia.cublas.__path__[0])')\" && "
    'ln -s ../../cuda_nvrtc/lib/libnvrtc.so.11.2 "$wheels/lib/libnvrtc.so"'
)
"""Gives NVRTC the name that cuDNN 8 for CUDA 11 opens (see `Environment.needs_nvrtc_link`)."""


def pip_install(requirements: Iterable[str], folders: tuple[str, ...] = (), *, link: bool = False) -> Iterator[str]:
    """Yield the command that installs requirements, and those after which TensorFlow finds their CUDA libraries.

    ``folders`` of wheels are added to the loader's path: one, or all if there are several.
    """
    yield f"pip install {' '.join(dict.fromkeys(requirements))}"
    if link:
        yield _LINK_NVRTC
    if folders:
        folder = folders[0] if len(folders) == 1 else EVERY
        code = f'import glob, nvidia; print(":".join(glob.glob(nvidia.__path__[0] + "/{folder}/lib")))'
        yield f'{WHEELS} \'{code}\')" && export LD_LIBRARY_PATH="$wheels"'


def install(
    environment: Environment,
    catalog: Catalog,
    driver: str | None = None,
    gpus: tuple[str, ...] = (),
    packages: tuple[str, ...] = (),
) -> Iterator[str]:
    """Yield commands for people without containers: with the extra if that works, else with pinned wheels.

    ``packages`` are further requirements; they replace the environment's own bounds of the same packages.
    """
    fields = {name: getattr(environment, name) for name in ("tensorflow", "package", "python")}
    asked = Question(**fields, install="and-cuda", driver=driver, gpus=gpus, compat=False)
    named = {parse(text).name for text in packages}
    rest = (*packages, *(text for text in environment.constraints if parse(text).name not in named))
    name = f"{environment.package}=={environment.tensorflow}"
    if environment.flavor == "gpu" and check(asked, catalog).compatible is True:
        yield from pip_install(map(shlex.quote, (name.replace("==", "[and-cuda]=="), *rest)))
    elif environment.flavor == "cpu" or environment.cuda_wheels:
        words, folders = map(shlex.quote, (name, *environment.cuda_wheels, *rest)), environment.loader_folders
        yield from pip_install(words, folders, link=environment.needs_nvrtc_link)


def matrix_text(name: str, wanted: Combination, environment: Environment, **more: object) -> str:
    """Write the matrix of the environment of a combination; ``more`` are further keys of the file."""
    fields = {"tensorflow": environment.tensorflow, "package": wanted.package}
    fields |= {name: getattr(environment, name) for name in ("python", "os", "flavor")}
    fields |= {name: getattr(wanted, name) for name in ("cuda", "cudnn", "packages")}
    row = {**fields, "variant": environment.variant or WHOLE}
    lines = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}" for key, value in more.items()]
    cells = [f"{key}: {json.dumps(value)}" for key, value in row.items() if value]
    return "\n".join([f"name: {name}", *lines, "include:", "  - " + "\n    ".join(cells), ""])
