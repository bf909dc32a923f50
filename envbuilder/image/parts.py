"""The steps that install an environment that leaves something out: what changes seldom first, each a layer of its own.

A node that holds an image pulls of another the layers that differ. An engine that stacks layers (Docker's own store)
has of an image what is below the first layer that differs; one that stores them by digest (containerd) has every layer
that is the same. So what differs between releases comes last, and nothing large is in one layer with what changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.image.omissions import Omissions
from envbuilder.versions import pins

FOLLOWS_TENSORFLOW = "nvidia-nccl-"
"""Each TensorFlow brings another release of NCCL for one and the same CUDA: in the CUDA layer it would keep four
TensorFlow versions from sharing 2.5 GB."""

_TAKEN_IN_PART = ("nvidia-cusolver-", "nvidia-curand-")
"""Of these another release of TensorFlow takes another part, with the same CUDA: 2.20 names nothing of cuRAND. They
come after the others of the set, whose layers an engine then has already."""


@dataclass(frozen=True)
class Part:
    """One step: the distributions that it installs, and why they are together."""

    name: str
    distributions: frozenset[str]
    comment: str

    @property
    def lock(self) -> str:
        """Name the part's lock in its folder."""
        return f"{self.name}.lock"

    @property
    def folder(self) -> str:
        """Name the part's folder in a context: its lock, and the part of the list of omissions that it carries out."""
        return f"parts/{self.name}"


def cuda_names(environment: Environment) -> frozenset[str]:
    """Name the distributions of the CUDA layer; NCCL is not one of them, see `FOLLOWS_TENSORFLOW`."""
    return frozenset(name for name in pins(environment.cuda_wheels) if not name.startswith(FOLLOWS_TENSORFLOW))


def parts(environment: Environment, lock: str, listed: Omissions) -> tuple[Part, ...]:
    """Divide what a lock pins among steps, lowest first; a step that would install nothing is left out.

    Each distribution of the CUDA set is a layer of its own: what is left out of one may hang on the release of
    TensorFlow, and the others are then the same still. What a matrix adds comes last, with all that only it requires.
    """
    return tuple(part for part in _divided(environment, lock, listed) if part.distributions)


def _divided(environment: Environment, lock: str, listed: Omissions) -> Iterator[Part]:
    pinned = frozenset(package.name for package in lockfile.parse(lock))
    framework, *added = lockfile.names(environment.requirements)
    cuda = cuda_names(environment) & pinned
    nccl = frozenset(name for name in pinned if name.startswith(FOLLOWS_TENSORFLOW)) - cuda
    own = frozenset({framework}) & pinned
    others = pinned - cuda - nccl - own
    required = others & frozenset(listed.required) if listed.required else others - frozenset(added)
    for name in sorted(cuda, key=lambda name: (name.startswith(_TAKEN_IN_PART), name)):
        yield Part(name, frozenset({name}), f"Of the CUDA set: {name}.")
    yield Part("nccl", nccl, "NCCL, of which releases of TensorFlow bring their own.")
    yield Part("tensorflow", own, "TensorFlow itself.")
    yield Part("required", required, "What it requires.")
    yield Part("added", others - required, "What the matrix adds, and what only that requires.")
