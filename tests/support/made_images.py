"""Images of a few files for the checks on the host: no engine, nothing on disk."""

import base64
import hashlib
import io
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from envbuilder.engine.port import Image, LayerFile, LayerStream
from envbuilder.finding import Finding, Severity
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.installed_files import files
from envbuilder.validation.layer_scan import LayerRecord, scan
from envbuilder.validation.suite_plan import CHECKS, Facts
from envbuilder.validation.validate import output_of

SITE = "opt/venv/lib/python3.11/site-packages"

Layer = Mapping[str, bytes | str | LayerFile | None]
"""Path → content, a link's target as text, or None for what the layer deletes."""


_ELF = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096)
_FILES: dict[str, bytes | str] = {
    "usr/bin/python3.11": _ELF,
    "usr/bin/dirname": _ELF + b"dirname",
    "usr/lib/python3.11/os.py": b"name = 'posix'\n",
    "usr/lib/python3.11/lib-dynload/_ssl.cpython-311-x86_64-linux-gnu.so": b"ssl",
    "usr/lib/x86_64-linux-gnu/libz.so.1": "libz.so.1.2",
    "usr/lib/x86_64-linux-gnu/libz.so.1.2": b"zlib",
    "usr/lib/x86_64-linux-gnu/gconv/GBK.so": b"gbk",
    "usr/lib/ssl/openssl.cnf": "/etc/ssl/openssl.cnf",
    "etc/ssl/openssl.cnf": b"[default]\n",
    "etc/ld.so.conf": b"/usr/local/lib\n/usr/lib/x86_64-linux-gnu\n",
}
SYSTEM: dict[str, bytes | str] = {
    **_FILES,
    "var/lib/dpkg/info/all.list": "".join(f"/{path}\n" for path in _FILES).encode(),
    "opt/venv/bin/python": "python3",
    "opt/venv/bin/python3": "/usr/bin/python3.11",
    "opt/venv/bin/python3.11": "python3",
    "opt/venv/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.2\n",
}
"""A small system with its package's list, and the environment that was made with its Python."""


def cache_of(led: Mapping[str, str]) -> bytes:
    """Write a loader's cache: name → path (glibc's ``dl-cache.h``, the newer form)."""
    head, rows, texts = b"glibc-ld.so.cache1.1", b"", b""
    start = 48 + 24 * len(led)
    for name, path in led.items():
        at = start + len(texts)
        texts += name.encode() + b"\0" + path.encode() + b"\0"
        rows += struct.pack("<iIIIQ", 0x0303, at, at + len(name) + 1, 0, 0)
    return head + struct.pack("<II", len(led), len(texts)) + bytes(20) + rows + texts


def entry(path: str, what: bytes | str | LayerFile | None) -> LayerFile:
    if isinstance(what, LayerFile):
        return what
    if what is None:
        return LayerFile(path, "deleted")
    if isinstance(what, str):
        return LayerFile(path, "link", target=what)
    return LayerFile(path, "file", mode=0o755, size=len(what), pieces=lambda: iter([what] if what else []))


def file(path: str, mode: int = 0o644, **given: Any) -> dict[str, LayerFile]:
    return {path: LayerFile(path, "file", mode=mode, size=1, pieces=lambda: iter([b"x"]), **given)}


def folder(path: str, mode: int = 0o755, **given: Any) -> dict[str, LayerFile]:
    return {path: LayerFile(path, "folder", mode=mode, **given)}


def record(layer: Layer) -> LayerRecord:
    return scan(LayerStream(iter([entry(*pair) for pair in layer.items()]), "sha256:" + "0" * 64))


def image_of(*layers: Layer) -> ImageFiles:
    return ImageFiles(tuple(record(layer) for layer in layers))


def row(path: str, content: bytes) -> str:
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


def zipped(package: Mapping[str, bytes]) -> bytes:
    """Make the wheel of a distribution, the same in every run."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, data in package.items():
            archive.writestr(zipfile.ZipInfo(path.removeprefix(f"{SITE}/"), (2020, 1, 1, 0, 0, 0)), data)
    return content.getvalue()


def context_of(
    found: ImageFiles, *, lock: str = "", removed: str = "", facts: Mapping[str, Any] | None = None, **image: Any
) -> ImageContext:
    """Put an image of ours before the checks: ``image`` are its configuration, ``facts`` what it should be."""
    described = Image(
        id="sha256:1", tags=(), digests=(), size=0, labels={}, env={}, user="envbuilder", architecture="amd64"
    )
    told = Facts(**{"flavor": "cpu", "environment": "tf2.20.0-py311-cpu-bookworm", **(facts or {})})
    return ImageContext(replace(described, **image), found, told, lock, WheelRecords(None), removed)


def errors(*layers: Layer, **image: Any) -> list[Finding]:
    return [one for one in files(context_of(image_of(*layers), **image)).findings if one.severity is Severity.ERROR]


def findings_of(name: str, subject: ImageContext) -> tuple[Finding, ...]:
    (check,) = (one for one in CHECKS if one.name == name)
    return output_of(check, subject).findings
