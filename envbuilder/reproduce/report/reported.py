"""What a report says: fields with the lines that they came from, and what contradicts them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

Platform = Literal["linux", "windows", "macos"]
Install = Literal["pip", "conda", "docker", "source"]
Build = Literal["gpu", "cpu"]
Origin = Literal["tfjs", "jetson", "nvidia", "conda", "source", "library", "jax", "third-party"]
"""Whose build it is, where the report says that it is not the package index's."""
Complaint = Literal["invisible", "slow", "stuck", "breaks", "installing", "import", "building", "several"]
"""What is complained of: no GPU is seen or used; it is slow, hangs, breaks; it cannot be installed, imported, built;
it is about several GPUs at once."""


class Trust(StrEnum):
    """How much a statement weighs, strongest first.

    What a running program printed, what a tool listed, what a command or recipe asked for, what a person filled into
    a form, and what a person mentioned in prose.
    """

    PROVED = "proved"
    LISTED = "listed"
    ORDERED = "ordered"
    STATED = "stated"
    MENTIONED = "mentioned"


RANK = {trust: rank for rank, trust in enumerate(reversed(Trust), start=1)}


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """One statement: the field, the value read, the line (from 1), its text, how it was recognised, how it weighs.

    ``index`` tells several GPUs of one listing apart (-1 where they are not numbered), ``count`` is what "2x" says.
    ``works`` is true of a side that is said to work: another machine, another version, before or after.
    ``title`` is true of what the report's title mentions: it was written first, and every other sentence outweighs it.
    """

    field: str
    value: str
    line: int
    text: str
    source: str
    trust: Trust
    index: int = -1
    count: int = 1
    works: bool = False
    title: bool = False


class Contradiction(msgspec.Struct, frozen=True, kw_only=True):
    """Two statements that cannot both hold: ``kept`` is the more trustworthy one."""

    field: str
    kept: Evidence
    dropped: Evidence


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A gap between two lines of a log: the line before it, its length in seconds, and the texts around it."""

    line: int
    seconds: float
    after: str
    before: str


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """What the report says; None and empty stand for what it does not say.

    ``cuda`` is the toolkit or runtime, ``driver_cuda`` the newest CUDA that the driver serves (what ``nvidia-smi``
    prints). ``distribution`` is the package's name on the index, ``build`` whether it has GPU support at all.
    ``origin`` is whose build it is (None: the index's). ``built`` is what TensorFlow says it was built with,
    ``environment`` the variables that matter here. ``works`` is what was said of a side that works: another machine,
    another version, before or after. ``complaints`` are what the report complains of.
    """

    tensorflow: str | None = None
    distribution: str | None = None
    build: Build | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    gpus: tuple[str, ...] = ()
    compute_capabilities: tuple[str, ...] = ()
    os: str | None = None
    platform: Platform | None = None
    arch: str | None = None
    install: Install | None = None
    origin: Origin | None = None
    image: str | None = None
    packages: dict[str, str] = {}
    built: dict[str, str] = {}
    environment: dict[str, str] = {}
    evidence: tuple[Evidence, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    pauses: tuple[Pause, ...] = ()
    works: tuple[Evidence, ...] = ()
    complaints: tuple[Complaint, ...] = ()


SCALARS = (
    "tensorflow", "distribution", "build", "python", "cuda", "cudnn", "driver", "driver_cuda", "os", "platform", "arch",
    "install", "image",
)  # fmt: skip
