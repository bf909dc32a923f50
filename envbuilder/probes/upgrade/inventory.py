"""List the distributions of an image with licence and size, and the build options of TensorFlow.

Only files are read, so it also works for an image whose TensorFlow does not start.
"""

from __future__ import annotations

import csv
import email.parser
import importlib.util
import os
import sys
from collections.abc import Mapping
from typing import Any

from ..suite import installed, tensorflow_install
from ..suite.channel import Writer


def main(writer: Writer, wanted: Mapping[str, Any]) -> None:
    found: dict[str, installed.Distribution] = {}
    for site in sys.path:
        for one in installed.distributions([site]):
            if one.folder.endswith(".dist-info"):
                found.setdefault(one.name, one)
    requires = [found[name].requires for name in tensorflow_install.DISTRIBUTIONS if name in found]
    python, packages = "{0}.{1}.{2}".format(*sys.version_info[:3]), [describe(found[name]) for name in sorted(found)]
    required = requires[0] if requires else []
    writer.send({"python": python, "packages": packages, "build": build_info(), "requires": required})


def describe(one: installed.Distribution) -> dict[str, Any]:
    with open(os.path.join(one.folder, "METADATA"), encoding="utf-8", errors="replace") as stream:
        metadata = email.parser.Parser().parse(stream, headersonly=True)
    files = size(os.path.dirname(one.folder), os.path.join(one.folder, "RECORD"))
    return {"name": one.name, "version": one.version, "licence": licence(metadata), "size": files}


def licence(metadata: email.message.Message) -> str:
    expression = (metadata.get("License-Expression") or "").strip()
    if expression:
        return expression
    classifiers = [value for value in metadata.get_all("Classifier", []) if value.startswith("License ::")]
    names = sorted({value.split(" :: ")[-1] for value in classifiers} - {"OSI Approved"})
    if names:
        return " / ".join(names)
    lines = (metadata.get("License") or "").strip().splitlines()
    return lines[0].strip()[:80] if lines else ""


def size(site: str, record: str) -> int:
    """Return the bytes of a distribution's files, compiled bytecode included."""
    if not os.path.exists(record):
        return 0
    total = 0
    with open(record, encoding="utf-8", newline="") as stream:
        for row in csv.reader(stream):
            path = os.path.join(site, row[0]) if row else ""
            total += _bytes(path)
            if path.endswith(".py"):
                total += _bytes(importlib.util.cache_from_source(path))
    return total


def _bytes(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def build_info() -> dict[str, str | list[str]]:
    """Return the build options of the installed TensorFlow; empty if it does not state them."""
    info = tensorflow_install.build_info(tensorflow_install.tensorflow_folder())
    return {key: _plain(value) for key, value in info.items()}


def _plain(value: object) -> str | list[str]:
    return [str(item) for item in value] if isinstance(value, (list, tuple)) else str(value)
