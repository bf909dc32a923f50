"""What is asked about one combination, in the user's words."""

from __future__ import annotations

from typing import Literal

import msgspec

Install = Literal["and-cuda", "plain", "system"]


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One combination to judge, in the user's words; None is "choose for me".

    ``gpus`` are names in any vendor form, ``capabilities`` compute capabilities (``"9.0"``) that need no name.
    ``install`` is how the packages came: ``and-cuda`` (the extra, unpinned), ``plain`` (the package alone, unpinned),
    ``system`` (CUDA from the system); None means that every package is pinned to what the build was made with.
    ``packages`` are exact pins such as ``numpy==2.0.0``. ``avx`` is False for a processor without it. ``as_of`` is
    the day (``2026-11-20``) on which it is installed. ``driver`` may be a branch alone (``535``): its production
    releases. ``arch`` None is the machine that the GPUs are built into, x86_64 where they fit into any. ``gpu`` is
    False where no GPU is meant to be used. ``compat`` is False where CUDA's forward-compatibility package is not to be
    had, as in the images that are built here.
    """

    tensorflow: str
    package: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    install: Install | None = None
    base_image: str | None = None
    os: str | None = None
    arch: str | None = None
    packages: tuple[str, ...] = ()
    avx: bool = True
    as_of: str | None = None
    gpu: bool = True
    compat: bool | None = None
