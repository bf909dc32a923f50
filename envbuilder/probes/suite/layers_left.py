"""Search an image's layers, as ``docker save`` writes them, for secrets: also those that a later layer deletes."""

from __future__ import annotations

import json
import sys
import tarfile
from typing import IO, Any

from . import secrets_left
from .answer import Finding

HEAD = 256 * 1024


def main() -> int:
    """Read the archive from standard input; print findings and how many layers and files were looked at."""
    print(json.dumps(search(sys.stdin.buffer)))
    return 0


def search(stream: IO[bytes]) -> dict[str, Any]:
    """Search every layer of an archive that is read once from start to end, whatever its entries' order."""
    findings: list[Finding] = []
    layers = files = 0
    with tarfile.open(fileobj=stream, mode="r|*") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is None or member.size < 1024 or member.name.endswith((".json", "/VERSION")):
                continue
            looked = _layer(content, "layer {0}".format(layers + 1), findings)
            if looked:
                layers += 1
                files += looked
    return {"findings": findings, "layers": layers, "files": files}


def _layer(content: IO[bytes], name: str, findings: list[Finding]) -> int:
    """Search one layer and return how many files it holds; 0 where the entry is no layer."""
    count = 0
    try:
        with tarfile.open(fileobj=content, mode="r|*") as layer:
            for member in layer:
                count += 1
                path = "/" + member.name.lstrip("./")
                file = layer.extractfile(member) if member.isfile() and secrets_left.NAMES.search(path) else None
                if file is not None:
                    found = secrets_left.judge_file(path, file.read(HEAD))
                    if found:
                        found["message"] += " ({0} of the image)".format(name)
                        findings.append(found)
    except tarfile.ReadError:
        return 0
    return count
