"""The content of a report: fields with their source lines, and contradictions."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

Platform = Literal["linux", "windows", "macos"]
Install = Literal["pip", "conda", "docker", "source"]
Build = Literal["gpu", "cpu"]
Origin = Literal["tfjs", "jetson", "nvidia", "conda", "source", "library", "jax", "rocm", "directml", "third-party"]
"""The distributor of the build if it is not the package index."""
Complaint = Literal["invisible", "slow", "stuck", "breaks", "installing", "import", "building", "several", "wrong"]
"""The complaint: no GPU is found or used; it is slow, hangs, breaks; it cannot be installed, imported, built; it
concerns several GPUs; the results are wrong.
"""


class Trust(StrEnum):
    """The source of a statement, strongest first.

    Output of a running program, output of a tool, a command or recipe, an answer in a form, and a mention in prose.
    """

    PROVED = "proved"
    LISTED = "listed"
    ORDERED = "ordered"
    STATED = "stated"
    MENTIONED = "mentioned"


RANK = {trust: rank for rank, trust in enumerate(reversed(Trust), start=1)}


class ReportStatement(msgspec.Struct, frozen=True, kw_only=True):
    """One statement: field, value, line (from 1), its text, the recogniser, and its confidence.

    ``index`` distinguishes the GPUs of one listing (-1 without numbers), ``count`` is the number in "2x". ``works``
    marks a working setup: another machine or version. ``title`` marks the report's title, which every other sentence
    outranks.
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


def statement(
    field: str, value: str, line: int, text: str, source: str, trust: Trust, *, index: int = -1, count: int = 1
) -> ReportStatement:
    shown = text.strip()[:1_000]
    return ReportStatement(
        field=field, value=value, line=line, text=shown, source=source, trust=trust, index=index, count=count
    )


class ConflictingStatements(msgspec.Struct, frozen=True, kw_only=True):
    """Two incompatible statements; ``kept`` has the higher confidence."""

    field: str
    kept: ReportStatement
    dropped: ReportStatement


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """A gap between two log lines: the line before it, its length in seconds, and the texts around it."""

    line: int
    seconds: float
    after: str
    before: str


class Reported(msgspec.Struct, frozen=True, kw_only=True):
    """The reported environment; None and empty mean that the report does not state the field.

    ``cuda`` is the toolkit or runtime, ``driver_cuda`` the newest CUDA that the driver supports (printed by
    ``nvidia-smi``). ``distribution`` is the package's name on the index, ``build`` whether it supports GPUs. ``origin``
    is the distributor of the build (None: the index). ``built`` is TensorFlow's build information, ``environment`` the
    relevant variables. ``works`` are statements about a working setup, ``complaints`` the complaints.
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
    evidence: tuple[ReportStatement, ...] = ()
    contradictions: tuple[ConflictingStatements, ...] = ()
    pauses: tuple[Pause, ...] = ()
    works: tuple[ReportStatement, ...] = ()
    complaints: tuple[Complaint, ...] = ()


SCALARS = tuple(row.name for row in msgspec.structs.fields(Reported) if row.default is None and row.name != "origin")
