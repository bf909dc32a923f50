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


def statements(text: str) -> Iterator[ReportStatement]:
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
            yield statement(field, value, line, lines[line - 1], "capture", Trust.PROVED, index=index)


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
