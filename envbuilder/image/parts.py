"""The steps that install an environment that leaves something out: what changes seldom first, each a layer of its own.

A node that holds an image pulls of another the layers that differ. An upgrade of TensorFlow leaves the CUDA layer as it
was; a package that a matrix adds leaves all others as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.versions import pins

FOLLOWS_TENSORFLOW = "nvidia-nccl-"
"""Each TensorFlow brings another release of NCCL for one and the same CUDA: in the CUDA layer it would keep four
TensorFlow versions from sharing 2.5 GB."""


@dataclass(frozen=True)
class Part:
    """One step: the distributions that it installs, and why they are together."""

    name: str
    distributions: frozenset[str]
    comment: str

    @property
    def lock(self) -> str:
        """Name the part's lock in a context."""
        return f"{self.name}.lock"

    @property
    def omissions(self) -> str:
        """Name the part of the list of omissions that the step carries out."""
        return f"{self.name}-omissions.json"


def cuda_names(environment: Environment) -> frozenset[str]:
    """Name the distributions of the CUDA layer; NCCL is not one of them, see `FOLLOWS_TENSORFLOW`."""
    return frozenset(name for name in pins(environment.cuda_wheels) if not name.startswith(FOLLOWS_TENSORFLOW))


def parts(environment: Environment, lock: str) -> tuple[Part, ...]:
    """Divide what a lock pins among steps, lowest first; a step that would install nothing is left out.

    What a matrix adds comes last, by itself: what it requires beyond the rest is with the rest, whose layer it changes.
    """
    return tuple(part for part in _divided(environment, lock) if part.distributions)


def _divided(environment: Environment, lock: str) -> Iterator[Part]:
    pinned = frozenset(package.name for package in lockfile.parse(lock))
    framework, *added = lockfile.names(environment.requirements)
    cuda = cuda_names(environment) & pinned
    own = frozenset(name for name in pinned if name == framework or name.startswith(FOLLOWS_TENSORFLOW)) - cuda
    last = frozenset(added) & pinned - cuda - own
    yield Part(
        "cuda", cuda, "The CUDA set: the same layer for every environment on this base that uses these versions."
    )
    yield Part("tensorflow", own, "TensorFlow itself, and what is released with it.")
    yield Part("rest", pinned - cuda - own - last, "What it requires.")
    yield Part("added", last, "What the matrix adds.")
