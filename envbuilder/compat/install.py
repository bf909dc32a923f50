"""What people copy to get an environment: the commands that install it, and the matrix that builds it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from envbuilder.catalog.library_search import EVERY

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


def matrix_text(name: str, row: dict[str, object], **more: object) -> str:
    """Write a matrix with one environment; ``more`` are further keys of the file."""
    lines = [f"{key}: {value if isinstance(value, str) else json.dumps(value)}" for key, value in more.items()]
    fields = [f"{key}: {json.dumps(value)}" for key, value in row.items()]
    return "\n".join([f"name: {name}", *lines, "include:", "  - " + "\n    ".join(fields), ""])
