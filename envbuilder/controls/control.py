"""What a negative control is made of."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.finding import Code
from envbuilder.validation.checks import Check, Profile

Base = Literal["cpu", "gpu", "told-gpu", "system-gpu", "numpy-1"]
"""The good environment that a control breaks: a CPU or a GPU build, a GPU build for which the loader has to be told of
a folder, one whose CUDA the system brings, or a CPU build made for NumPy 1.
"""


class Run(msgspec.Struct, frozen=True):
    """A command, as root; with ``network`` it reaches the package index as a build's own steps do."""

    command: str
    network: bool = False


class Copy(msgspec.Struct, frozen=True):
    """A file of the build context, put into the image."""

    source: str
    to: str


class Env(msgspec.Struct, frozen=True):
    """A variable of the image's environment."""

    name: str
    value: str


class Entrypoint(msgspec.Struct, frozen=True):
    """What the image runs before the command that its users give."""

    program: str


class FromWheel(msgspec.Struct, frozen=True):
    """One file out of a wheel on the package index, read alone: ``member`` goes to ``source`` in the context."""

    project: str
    version: str
    member: str
    source: str


class Control(msgspec.Struct, frozen=True, kw_only=True):
    """One deliberate defect.

    ``code`` is the only finding that may be an error in its verdict; None means that nothing may be red: then it
    is the good environment itself. A code of which the suite only warns is ``warned``: then nothing may be red, and no
    other warning be there. ``steps`` are added to the image of ``base``, in which ``{site}`` stands for its
    site-packages; without steps that image is used as it is. ``locked`` are versions that the defect replaces and
    that the lock is to name, so that the change itself is not what is found; ``added`` are packages that it brings,
    ``swapped`` those that another takes the place of; ``unlocked`` are packages of the system that its lock is not to
    name, ``cudnn`` the version that the lock of cuDNN beside them is to name, '' for its own. ``profile`` is the least
    that finds it, ``budgets`` the bounds. ``simulate`` is a simulated host, ``extra`` are checks that misbehave.
    ``stub`` asks for the compiled link-time stub in the context.
    """

    name: str
    base: Base
    code: Code | None
    broken: str
    steps: tuple[Run | Copy | Env | Entrypoint, ...] = ()
    wheels: tuple[FromWheel, ...] = ()
    locked: tuple[tuple[str, str], ...] = ()
    added: tuple[tuple[str, str], ...] = ()
    swapped: tuple[tuple[str, str], ...] = ()
    unlocked: tuple[str, ...] = ()
    cudnn: str = ""
    warned: bool = False
    profile: Profile = "quick"
    budgets: tuple[tuple[str, float], ...] = ()
    simulate: str = ""
    extra: tuple[Check, ...] = ()
    stub: bool = False

    @property
    def changes_lock(self) -> bool:
        """Tell whether the lock is to tell of the change."""
        return bool(self.locked or self.added or self.swapped)

    @property
    def changes_system(self) -> bool:
        """Tell whether the locks of what the system brings are to tell of the change."""
        return bool(self.unlocked or self.cudnn)
