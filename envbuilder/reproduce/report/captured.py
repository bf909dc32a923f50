"""Read the document that ``envbuilder capture`` prints, field by field, without loss."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from envbuilder.reproduce.report.reported import SCALARS, Evidence, Trust

SCHEMA = "envbuilder/capture/v1"


class CaptureDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``envbuilder capture`` prints; None where it could not be found out.

    ``cuda`` and ``cudnn`` are what is loaded or installed, ``built`` what TensorFlow says it was built with,
    ``loaded`` the CUDA libraries that it opened, ``log`` its loader's lines.
    """

    schema: str = SCHEMA
    tensorflow: str | None = None
    distribution: str | None = None
    build: str | None = None
    install: str | None = None
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
    gpus: tuple[str, ...] = ()
    compute_capabilities: tuple[str, ...] = ()
    cuda: str | None = None
    cudnn: str | None = None
    built: dict[str, str] = {}
    devices: tuple[str, ...] = ()
    loaded: tuple[str, ...] = ()
    environment: dict[str, str] = {}
    packages: dict[str, str] = {}
    libraries: tuple[str, ...] = ()
    nvidia_smi: tuple[str, ...] = ()
    log: tuple[str, ...] = ()


_GROUPS = ("packages", "built", "environment")


def statements(text: str) -> Iterator[Evidence]:
    """Yield every field of a captured document; nothing where the text is another kind of report."""
    document = _document(text)
    if document is None:
        return
    lines = text.split("\n")
    for field in SCALARS:
        if isinstance(document.get(field), str):
            yield _proved(field, document[field], lines, f'"{field}"')
    for group in _GROUPS:
        members = document.get(group)
        for name, value in members.items() if isinstance(members, dict) else ():
            if isinstance(value, str):
                yield _proved(f"{group}.{name}", value, lines, f'"{name}"')
    for field in ("gpus", "compute_capabilities"):
        rows = document.get(field)
        for index, value in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(value, str):
                yield _proved(field, value, lines, f'"{value}"', index)


def _document(text: str) -> dict[str, Any] | None:
    """Find the document: the whole text, or what stands between its first and last brace."""
    if SCHEMA not in text:
        return None
    start, end = text.find("{"), text.rfind("}")
    try:
        document = json.loads(text[start : end + 1])
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) and document.get("schema") == SCHEMA else None


def _proved(field: str, value: str, lines: list[str], key: str, index: int = -1) -> Evidence:
    line = next((number for number, text in enumerate(lines, start=1) if key in text), 1)
    return Evidence(
        field=field, value=value, line=line, text=lines[line - 1].strip()[:400], source="capture", trust=Trust.PROVED,
        index=index,
    )  # fmt: skip
