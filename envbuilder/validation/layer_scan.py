"""Read one layer of an image once: every file's row, and the contents that later checks need. Nothing is unpacked."""

from __future__ import annotations

import hashlib
import mmap
import re
import struct
from collections.abc import Iterator

import msgspec

from envbuilder.engine.port import FileKind, LayerFile, LayerStream
from envbuilder.errors import InfrastructureError
from envbuilder.probes.suite.elf import PT_DYNAMIC, DamagedElfError, Elf, NotElfError
from envbuilder.support import decoding
from envbuilder.validation.secret_scan import FileSecrets, Secret

KEPT = re.compile(
    r"(?:^|/)(?:[^/]+\.(?:dist-info|egg-info)/(?:RECORD|WHEEL|METADATA|PKG-INFO|entry_points\.txt|INSTALLER|direct_url\.json"
    r"|installed-files\.txt)|[^/]+\.pth|[^/]+\.egg-link|[^/]+\.egg-info|pyvenv\.cfg|build_info\.py|keras\.json)\Z"
    r"|^opt/envbuilder/(?:environment\.json|(?:requirements|system|cudnn)\.lock|removed/[^/]+\.tsv)\Z"
    r"|^var/lib/dpkg/status(?:\.d/[^/]+)?\Z|^(?:etc|usr/lib)/os-release\Z|^usr/share/doc/[^/]+/copyright\Z"
    r"|^etc/(?:passwd|environment|nccl\.conf|ld\.so\.(?:conf|cache|preload|conf\.d/[^/]+)|ssl/certs/ca-certificates\.crt)\Z"
    r"|^usr/share/ca-certificates/.+\.crt\Z|^var/lib/dpkg/info/[^/]+\.list\Z|(?:^|/)conda-meta/[^/]+\.json\Z"
)
"""Files whose content the checks or the bill of materials read."""

MAX_KEPT, MAX_KEPT_OF_LAYER = 16 << 20, 128 << 20
_WHOLE, _HEAD, _ENDS = 64 << 20, 128 << 20, 24 << 20
"""Bytes of a shared object in a stream that are stored while it is read: all of a small one; of a larger one its
beginning (the names of libtensorflow_cc 2.20 end at 87 MB), its end, and the dynamic section (cuBLASLt 11.4 has it
26 MB before its end).
"""

MOST_ENTRIES = 1_000_000
"""Files and folders that a layer may have: a record of so many takes some 500 MB of memory. A GPU image has 39,000."""

_LARGEST = 16 << 30
"""Bytes of the largest possible shared object; TensorFlow's largest has a tenth of that."""

_VERSIONED = re.compile(r"(?:^|/)(?:lib(?:cu|nvrtc|nvJitLink)[\w-]*\.so[\w.]*|ptxas|nvlink)\Z")
"""Libraries and tools of CUDA: their versions come from their bytes, never from their names."""

_MAGIC = b"\x7fELF"


class Binary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The tables of an ELF file; ``damaged`` is the reason why it is incomplete ('' if it is not).

    ``version`` is the version of a CUDA library in its own bytes; '' if it is unknown.
    """

    machine: str = ""
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    versions: dict[str, tuple[str, ...]] = {}
    defines: tuple[str, ...] = ()
    is_dynamic: bool = False
    version: str = ""
    has_cuda_code: bool = False
    damaged: str = ""


class FileRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a layer; ``digest`` is the content's SHA-256 (files alone), ``modified`` seconds since the epoch."""

    path: str
    kind: FileKind
    mode: int = 0
    uid: int = 0
    size: int = 0
    modified: int = 0
    target: str = ""
    digest: bytes = b""
    head: bytes = b""
    has_capabilities: bool = False
    binary: Binary | None = None


class LayerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a layer: its rows, the content of the files in `KEPT`, and likely secrets.

    ``size`` is that of the layer in the engine's archive.
    """

    diff_id: str
    size: int
    rows: tuple[FileRow, ...]
    contents: dict[str, bytes]
    secrets: tuple[Secret, ...]


def scan(stream: LayerStream) -> LayerRecord:
    """Read a layer to its end. Raises InfrastructureError if it has more than `MOST_ENTRIES`."""
    rows: list[FileRow] = []
    contents: dict[str, bytes] = {}
    secrets: list[Secret] = []
    room = MAX_KEPT_OF_LAYER
    for file in stream.files:
        if len(rows) == MOST_ENTRIES:
            raise InfrastructureError(f"the image has a layer of more than {MOST_ENTRIES} files: it cannot be checked")
        if file.kind != "file":
            rows.append(_row(file))
            continue
        keep = file.size <= min(MAX_KEPT, room) and KEPT.search(file.path) is not None
        room -= file.size if keep else 0
        reading = _Reading(file, keep=keep)
        rows.append(reading.row)
        secrets += reading.secrets
        if reading.kept is not None:
            contents[file.path] = reading.kept
    return LayerRecord(
        diff_id=stream.diff_id, size=stream.size, rows=tuple(rows), contents=contents, secrets=tuple(secrets)
    )


def _row(file: LayerFile) -> FileRow:
    return FileRow(
        path=file.path, kind=file.kind, mode=file.mode, uid=file.uid, modified=file.modified, target=file.target
    )


class _Reading:
    """One file, read to its end: its row (digest, first bytes, ELF tables), its secrets, its bytes where kept."""

    def __init__(self, file: LayerFile, *, keep: bool = False) -> None:
        self._path, self._told = file.path, file.size
        self._is_object = False
        self._hash = hashlib.sha256()
        self._size = 0
        self._window: mmap.mmap | None = None
        self._dynamic = range(0)
        self._head = b""
        searched = FileSecrets(file.path)
        kept = bytearray()
        for piece in file.pieces():
            self._take(piece)
            if not self._head.startswith(_MAGIC):
                searched.take(piece)
            if keep:
                kept += piece
        self.kept = bytes(kept) if keep else None
        self.secrets = searched.found
        self.row = FileRow(
            path=file.path,
            kind="file",
            mode=file.mode,
            uid=file.uid,
            size=self._size,
            modified=file.modified,
            digest=self._hash.digest(),
            head=self._head if file.path.endswith((".pyc", ".bc")) else b"",
            has_capabilities=file.has_capabilities,
            binary=self._binary(),
        )

    def _take(self, piece: bytes | bytearray) -> None:
        if not self._size:
            self._head = bytes(piece[:16])
            self._is_object = piece.startswith(_MAGIC) and 64 <= self._told <= _LARGEST  # noqa: PLR2004 - its header
            if self._is_object:
                self._window = mmap.mmap(-1, self._told)
                self._dynamic = _dynamic(piece)
        self._hash.update(piece)
        if self._window is not None:
            self._show(piece)
        self._size += len(piece)

    def _show(self, piece: bytes | bytearray) -> None:
        """Copy the parts that may contain tables; unwritten pages of the window take no memory."""
        assert self._window is not None  # noqa: S101 - asked by the only caller
        size, at = self._told, self._size
        end = min(at + len(piece), size)
        loaded = at < self._dynamic.stop and end > self._dynamic.start
        if at < end and (size <= _WHOLE or at < _HEAD or end > size - _ENDS or loaded):
            self._window[at:end] = piece[: end - at] if end - at < len(piece) else piece

    def _binary(self) -> Binary | None:
        if not self._is_object:
            why = "it is larger than any" if self._told > _LARGEST else "it ends within its own header"
            return Binary(damaged=why) if self._head.startswith(_MAGIC) else None
        assert self._window is not None  # noqa: S101 - every shared object has one
        with self._window as window:
            return _describe(self._path, window, self._size)


def _dynamic(piece: bytes | bytearray) -> range:
    """Return the place of the dynamic section according to a file's headers; an empty range if they have none."""
    try:
        with decoding.damaged("no headers"):
            at, size, count = [struct.unpack_from(form, piece, place)[0] for form, place in _HEADER]
            rows = [struct.unpack_from("<IIQQQQQQ", piece, at + number * size) for number in range(min(count, 64))]
    except decoding.DamagedError:
        return range(0)  # reported when the file is described
    return next((range(row[2], row[2] + min(row[5], _ENDS)) for row in rows if row[0] == PT_DYNAMIC), range(0))


_HEADER = (("<Q", 32), ("<H", 54), ("<H", 56))
"""Places in an ELF header of the offset, size and number of program headers."""


def _describe(path: str, window: mmap.mmap, size: int) -> Binary | None:
    try:
        elf = Elf(path, window)
    except DamagedElfError:
        return Binary(damaged="its tables lead nowhere")
    except NotElfError:
        return None  # of another word length or byte order
    short = elf.extent - size
    if short > 0:  # its tables are not reliable
        return Binary(machine=elf.machine or "", damaged=f"it lacks the last {short} bytes that its headers name")
    return Binary(
        machine=elf.machine or "",
        soname=elf.soname or "",
        # A name is empty if its text is in a part that was not stored: then it is unknown.
        needed=tuple(filter(None, elf.needed)),
        rpath=tuple(filter(None, elf.rpath)),
        runpath=tuple(filter(None, elf.runpath)),
        versions={library: tuple(names) for library, names in elf.versions.items() if library},
        defines=tuple(elf.defines),
        is_dynamic=elf.dynamic,
        version=own_version(elf, window) if _VERSIONED.search(path) else "",
        has_cuda_code=any(name in elf.sections for name in (".nv_fatbin", ".nvFatBinSegment")),
    )


_CUDNN = re.compile(r"cudnn_\w+_version\Z")
"""Parts of cuDNN export their version as a number: 0x00090300 is 9.3.0 (read off 9.3's wheel)."""

_CONSTANT = re.compile(r"(?:cufft|curand|cusolver)GetVersion\Z")
_STORES = re.compile(rb"\xc7\x07(....)", re.DOTALL)
"""``mov dword [rdi], n``: all that these functions do is write a constant (read off CUDA 12.5's wheels)."""

_RUN_TIME = "cudaRuntimeGetVersion"
_TOOLKITS = range(5000, 30000)
"""What the run time may call its toolkit: 11020 is 11.2. It is the one such number that its code stores (read off the
run times of 11.2, 11.8, 12.2 and 12.5)."""

_SHORT = 32
_BUILT = re.compile(rb"Cuda compilation tools, release (?P<release>\d+\.\d+), V(?P<full>[\d.]+)")


def own_version(elf: Elf, window: mmap.mmap) -> str:
    """Return a library's version from its own bytes; '' if there is none that can be read."""
    for name, offset, size in elf.exported(window):
        if name == _RUN_TIME:
            return _toolkit(elf, window)
        if _CUDNN.match(name) and size == 4:  # noqa: PLR2004 - one number
            number = int.from_bytes(window[offset : offset + 4], "little")
            return f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}" if number else ""
        if _CONSTANT.match(name) and size <= _SHORT:
            found = _STORES.search(window[offset : offset + size])
            return _dotted(int.from_bytes(found[1], "little")) if found else ""
    return next(_built(elf, window), "")


def _toolkit(elf: Elf, window: mmap.mmap) -> str:
    """Return the toolkit version of a CUDA runtime (``11.2``); '' if its code stores several such numbers."""
    offset, size = elf.sections.get(".text", (0, 0))
    numbers = {int.from_bytes(one, "little") for one in _STORES.findall(window[offset : offset + size])}
    found = {number for number in numbers if number in _TOOLKITS and number % 10 == 0}
    return "{}.{}".format(*divmod(found.pop() // 10, 100)) if len(found) == 1 else ""


def _dotted(number: int) -> str:
    """Write 11203 as 11.2.3, the numbering of the toolkit's libraries."""
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def _built(elf: Elf, window: mmap.mmap) -> Iterator[str]:
    offset, size = elf.sections.get(".rodata", (0, 0))
    at = window.find(b"Cuda compilation tools, release ", offset, offset + size)
    while at >= 0:
        found = _BUILT.match(window[at : at + 80])
        if found:
            yield decoding.lossy(found["full"])
        at = window.find(b"Cuda compilation tools, release ", at + 1, offset + size)
