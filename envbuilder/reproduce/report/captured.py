"""Read the document of ``envbuilder capture`` field by field."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from envbuilder.reproduce.report.reported import SCALARS, ReportStatement, Trust, statement
from envbuilder.support import decoding

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


_GROUPS = ("packages", "built", "environment")


def statements(text: str) -> Iterator[ReportStatement]:
    document = parse(text)
    if document is None:
        return
    lines = text.split("\n")
    for field in SCALARS:
        value = getattr(document, field, None)  # a capture does not contain the name of its image
        if isinstance(value, str):
            yield _proved(field, value, lines, f'"{field}"')
    for group in _GROUPS:
        for name, value in getattr(document, group).items():
            yield _proved(f"{group}.{name}", value, lines, f'"{name}"')
    for field in ("gpus", "compute_capabilities"):
        for index, value in enumerate(getattr(document, field)):
            yield _proved(field, value, lines, f'"{value}"', index)


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


def _proved(field: str, value: str, lines: list[str], key: str, index: int = -1) -> ReportStatement:
    line = next((number for number, text in enumerate(lines, start=1) if key in text), 1)
    return statement(field, value, line, lines[line - 1], "capture", Trust.PROVED, index=index)
