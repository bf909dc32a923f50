"""The content of a report: fields with their source lines, contradictions, and the document of `capture`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from enum import StrEnum
from typing import Literal

import msgspec

from envbuilder.support import decoding

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


class ReportStatement(msgspec.Struct, frozen=True):
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

SCHEMA = "envbuilder/capture/v1"


class CaptureDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The document of ``envbuilder capture``; unknown values are None.

    ``cuda`` and ``cudnn`` are loaded or installed versions, ``built`` the build information of TensorFlow, ``loaded``
    the CUDA libraries that it opened, ``libraries`` the ones that the loader finds, in its order, ``log`` its messages.
    ``driver_result`` is that of cuInit: 0 is success, None a missing library. ``computes``: a GPU convolved.
    """

    schema: str = SCHEMA
    tensorflow: str | None = None
    distribution: str | None = None
    build: str | None = None
    install: str | None = None
    wheel_tag: str | None = None
    git_version: str | None = None
    python: str | None = None
    os: str | None = None
    platform: str | None = None
    arch: str | None = None
    glibc: str | None = None
    container: bool = False
    wsl: bool = False
    avx: bool | None = None
    driver: str | None = None
    driver_cuda: str | None = None
    driver_result: int | None = None
    gpus: tuple[str, ...] = ()
    compute_capabilities: tuple[str, ...] = ()
    cuda: str | None = None
    cudnn: str | None = None
    built: dict[str, str] = {}
    imports: bool = False
    devices: tuple[str, ...] = ()
    computes: bool = False
    loaded: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    packages: dict[str, str] = {}
    libraries: tuple[str, ...] = ()
    nvidia_smi: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


def captured_statements(text: str) -> Iterator[ReportStatement]:
    document = parse(text)
    if document is None:
        return
    lines = text.split("\n")
    scalars = ((field, getattr(document, field, None), field, -1) for field in SCALARS)  # it has no name of an image
    groups = ((group, getattr(document, group).items()) for group in ("packages", "built", "environment"))
    named = ((f"{group}.{name}", value, name, -1) for group, items in groups for name, value in items)
    lists = ((field, enumerate(getattr(document, field))) for field in ("gpus", "compute_capabilities"))
    listed = ((field, value, value, index) for field, items in lists for index, value in items)
    for field, value, key, index in (*scalars, *named, *listed):
        if isinstance(value, str):
            line = next((number for number, text in enumerate(lines, start=1) if f'"{key}"' in text), 1)
            yield ReportStatement(field, value, line, lines[line - 1], "capture", Trust.PROVED, index=index)


def parse(text: str) -> CaptureDocument | None:
    """Find and decode the document: the full text, or the text between the first and the last brace.

    Tolerates pasted text and other versions: unknown fields are ignored, and values of a wrong type are reduced to
    their valid entries or the default. None if there is no document.
    """
    if SCHEMA not in text:
        return None
    try:
        found: object = decoding.from_json(text[text.find("{") : text.rfind("}") + 1], object)
    except decoding.DamagedError:
        return None
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        return None
    kept: dict[str, object] = {}
    for field in msgspec.structs.fields(CaptureDocument):
        value = found.get(field.name)
        for candidate in (_texts(value), value):
            with suppress(decoding.DamagedError):
                kept[field.name] = decoding.converted(candidate, field.type)
    return decoding.converted(kept, CaptureDocument)


def _texts(value: object) -> object:
    if isinstance(value, dict):
        return {name: each for name, each in value.items() if isinstance(each, str)}
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else value
