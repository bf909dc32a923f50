"""Images of a few files, made for the checks that look at an image from outside: no engine, nothing on disk."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from envbuilder.engine.port import Image, LayerFile, LayerStream
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.validation.checks.suite_plan import Facts
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.layer_scan import LayerRecord, scan
from envbuilder.validation.outside import Outside

SITE = "opt/venv/lib/python3.11/site-packages"

Layer = Mapping[str, bytes | str | LayerFile | None]
"""Path → content, a link's target as text, or None for what the layer deletes."""


def entry(path: str, what: bytes | str | LayerFile | None) -> LayerFile:
    """Make one entry of a layer."""
    if isinstance(what, LayerFile):
        return what
    if what is None:
        return LayerFile(path, "deleted")
    if isinstance(what, str):
        return LayerFile(path, "link", target=what)
    return LayerFile(path, "file", mode=0o755, size=len(what), pieces=lambda: iter([what] if what else []))


def record(layer: Layer) -> LayerRecord:
    """Read a layer as the engine's would be read."""
    return scan(LayerStream(iter([entry(*pair) for pair in layer.items()]), "sha256:" + "0" * 64))


def image_of(*layers: Layer) -> ImageFiles:
    """Stack layers, lowest first."""
    return ImageFiles(tuple(record(layer) for layer in layers))


def row(path: str, content: bytes) -> str:
    """Write one row of a RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(content)}\n"


def package(name: str, version: str, files: Mapping[str, bytes], *, tag: str = "py3-none-any") -> dict[str, bytes]:
    """Make an installed distribution: its files and its metadata, with a RECORD of all."""
    info = f"{name}-{version}.dist-info"
    named = {
        **files,
        f"{info}/METADATA": f"Name: {name}\nVersion: {version}\n\n".encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
    }
    rows = "".join(row(path, content) for path, content in named.items()) + f"{info}/RECORD,,\n"
    return {f"{SITE}/{path}": content for path, content in {**named, f"{info}/RECORD": rows.encode()}.items()}


def outside(
    files: ImageFiles, *, lock: str = "", omissions: str = "", facts: Mapping[str, Any] | None = None, **image: Any
) -> Outside:
    """Put an image of ours before the checks: ``image`` are its configuration, ``facts`` what it should be."""
    described = Image(
        id="sha256:1", tags=(), digests=(), size=0, labels={}, env={}, user="envbuilder", architecture="amd64"
    )
    told = Facts(**{"flavor": "cpu", "environment": "tf2.20.0-py311-cpu-bookworm", **(facts or {})})
    return Outside(replace(described, **image), files, told, lock, WheelRecords(None), omissions)
