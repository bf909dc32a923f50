"""Read one layer of an image once: every file's row, the contents that later checks need, and likely credentials.

Archives are not unpacked. Values of credentials (`secret_patterns.yaml`) are never quoted.
"""

import hashlib
import mmap
import re
import struct
import time
from itertools import groupby

import msgspec

from envbuilder.engine.port import LayerEntry, LayerFile, LayerStream
from envbuilder.probes.suite.elf import PT_DYNAMIC, DamagedElfError, Elf, NotElfError
from envbuilder.support import decoding
from envbuilder.workspace import packaged_yaml

_PATTERNS = packaged_yaml("validation/paths.yaml", dict[str, str])  # The file explains them
PATHS = {name: re.compile(pattern, re.VERBOSE) for name, pattern in _PATTERNS.items()}
MAX_KEPT = 16 << 20
# Bounds for a whole image: bytes for its entries and the rows of its lists, bytes of kept contents, bytes of all
# contents, and seconds of computing besides their digests. An image of 5 GB takes a third of each.
MEMORY, KEPT_OF_IMAGE, CONTENT, SECONDS = 160 << 20, 32 << 20, 24 << 30, 40.0
OF_ENTRY = 500  # Bytes of an entry, besides twice its names and tables, in its layer's record and in the stacked image
# Bytes of a shared object that are stored while it is read: its beginning (the names of libtensorflow_cc 2.20 end at
# 87 MB), its end, and the dynamic section (cuBLASLt 11.4 has it 26 MB before its end).
_HEAD, _ENDS = 96 << 20, 24 << 20
_LARGEST = 16 << 30  # Bytes of the largest possible shared object; TensorFlow's largest has a tenth of that
_MAGIC = b"\x7fELF"
_INTERPRETER = re.compile(rb"#![ \t]*([^ \t\n]{1,255})")
# Files without a zero byte among their first ones are text. Pieces are searched for secrets with an overlap; of a
# binary file, this many bytes.
_TEXT, _OVERLAP, _MOST_BINARY = 8192, 4096, 256 << 20
_HEADER = (("<Q", 32), ("<H", 54), ("<H", 56))  # Offset, size and number of program headers in an ELF header
# Parts of cuDNN export their version as a number: 0x00090300 is 9.3.0 (read off 9.3's wheel).
_CUDNN = re.compile(r"cudnn_\w+_version\Z")
_CONSTANT = re.compile(r"(?:cufft|curand|cusolver)GetVersion\Z")
# `mov dword [rdi], n`: all that these functions do is write a constant (read off CUDA 12.5's wheels).
_STORES = re.compile(rb"\xc7\x07(....)", re.DOTALL)
# What the run time may call its toolkit: 11020 is 11.2. It is the one such number that its code stores (read off the
# run times of 11.2, 11.8, 12.2 and 12.5).
_TOOLKITS = range(5000, 30000, 10)
_SHORT = 32
_MARK = b"Cuda compilation tools, release "
_BUILT = re.compile(_MARK + rb"\d+\.\d+, V([\d.]+)")
# In place of a path: a variable or a label (`name=value`), and a build instruction or a command.
VARIABLE, INSTRUCTION = "<variable>", "<instruction>"
# Every hint contains one of these letters, the rarest in source code first. A regular expression that begins with one
# letter skips to the next such letter at memory speed, so that a text is read once per letter and not once per hint.
_ANCHORS = b"KJI/-_"
_BY_ANCHOR: dict[bytes, list[bytes]] = {}
_WORD = re.compile(b"[A-Za-z0-9]{8,}")
_KINDS = 3  # A match is a placeholder (`hf_xxxx…`) if its last word has at most so many different letters


class Budget:
    """Bounds on reading images; ``reached`` names the first that was reached, ``is_full``: a content was not kept."""

    def __init__(self, images: int = 1) -> None:
        self.reached, self.is_full = "", False
        self._memory, self._kept, self._content = MEMORY * images, KEPT_OF_IMAGE * images, CONTENT * images
        self._seconds, self._clock = SECONDS * images, time.thread_time()

    def read(self, size: int) -> None:
        self._content -= size
        self._clock = time.thread_time()

    def spend(self, memory: int = 0) -> bool:
        """Take the time since the last call, and memory for entries or rows. False if a bound is reached."""
        before, self._clock = self._clock, time.thread_time()
        self._seconds -= max(0.0, self._clock - before)
        self._memory -= memory
        if min(self._memory, self._content, self._seconds) < 0 and not self.reached:
            what = f"more than {SECONDS:g} s of computing time"
            what = f"more than {CONTENT >> 30} GB" if self._content < 0 else what
            what = f"more than {MEMORY >> 20} MB of memory for their names" if self._memory < 0 else what
            self.reached = f"its files take {what}"
        return not self.reached

    def keeps(self, size: int) -> bool:
        """Take memory for a content. False if it is too large, or there is no room left: then it is not kept."""
        self.is_full = self.is_full or MAX_KEPT >= size > self._kept
        keeps = size <= min(MAX_KEPT, self._kept)
        self._kept -= size if keeps else 0
        return keeps


class Binary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tables of an ELF file; ``damaged``: why it is incomplete; ``version``: of a CUDA library by its bytes, or ''."""

    machine: str = ""
    soname: str = ""
    needed: list[str] = []
    rpath: list[str] = []
    runpath: list[str] = []
    versions: dict[str, list[str]] = {}
    defines: list[str] = []
    dynamic: bool = False
    version: str = ""
    has_cuda_code: bool = False
    damaged: str = ""


class FileRow(LayerEntry, frozen=True, kw_only=True, omit_defaults=True):
    """``digest`` is the SHA-256 of a file, ``interpreter`` the program that the first line of a script names."""

    digest: bytes = b""
    md5: bytes = b""
    head: bytes = b""
    interpreter: str = ""
    binary: Binary | None = None


class LayerRecord(msgspec.Struct, frozen=True):
    """A layer's rows, kept contents and secrets (path and kind); bytes: ``size`` (archive), ``memory`` (budget)."""

    diff_id: str
    size: int
    rows: tuple[FileRow, ...]
    contents: dict[str, bytes]
    secrets: tuple[tuple[str, str], ...]
    memory: int = 0


def scan(stream: LayerStream, budget: Budget | None = None) -> LayerRecord:
    budget = budget or Budget()
    rows: list[FileRow] = []
    contents: dict[str, bytes] = {}
    secrets: list[tuple[str, str]] = []
    memory = 0
    for file in stream.files:
        reading = _Reading(file, budget)
        rows.append(reading.row())
        secrets += ((file.path, what) for what in reading.secrets)
        if reading.kept is not None:
            contents[file.path] = bytes(reading.kept)
        memory += (taken := OF_ENTRY + 2 * len(msgspec.msgpack.encode(rows[-1])))
        if not budget.spend(taken):
            break
    return LayerRecord(stream.diff_id, stream.size, tuple(rows), contents, tuple(secrets), memory)


class _Reading:
    def __init__(self, file: LayerFile, budget: Budget) -> None:
        self._file, self._size = file, 0
        self._hash = hashlib.sha256()
        self._md5 = hashlib.md5(usedforsecurity=False) if PATHS["recorded"].match(file.path) else None
        self._head = self._rest = b""
        self._window: mmap.mmap | None = None
        self._dynamic = range(0)
        self.secrets: dict[str, None] = {}
        is_kept = file.kind == "file" and PATHS["kept"].search(file.path) is not None and budget.keeps(file.size)
        self.kept = bytearray() if is_kept else None
        for piece in file.pieces() if file.kind == "file" else ():
            self._hash.update(piece)
            if self._md5 is not None:
                self._md5.update(piece)
            budget.read(len(piece))
            self._take(piece)
            if self.kept is not None:
                self.kept += piece
            if not budget.spend():
                break

    def _take(self, piece: bytes | bytearray) -> None:
        if not self._size:
            self._head = bytes(piece[:_TEXT])
            if self._head.startswith(_MAGIC) and 64 <= self._file.size <= _LARGEST:  # noqa: PLR2004 - its header
                self._window = mmap.mmap(-1, self._file.size)
                self._dynamic = _dynamic(piece)
        if self._window is not None:
            self._show(self._window, piece)
        elif not self._head.startswith(_MAGIC):
            self._search(piece)
        self._size += len(piece)

    def _search(self, piece: bytes | bytearray) -> None:
        is_wide = decoding.marked(self._head).startswith(("utf-16", "utf-32"))
        is_binary = b"\0" in self._head and not is_wide
        if not is_binary or self._size < _MOST_BINARY:
            content = self._rest + (piece.replace(b"\0", b"") if is_wide else piece)
            self.secrets.update(dict.fromkeys(secrets_in(self._file.path, content, binary=is_binary)))
            self._rest = content[-_OVERLAP:]

    def _show(self, window: mmap.mmap, piece: bytes | bytearray) -> None:
        """Copy the parts that may contain tables; unwritten pages of the window take no memory."""
        size, at = len(window), self._size
        end = min(at + len(piece), size)
        loaded = at < self._dynamic.stop and end > self._dynamic.start
        if at < end and (at < _HEAD or end > size - _ENDS or loaded):
            window[at:end] = piece[: end - at] if end - at < len(piece) else piece

    def row(self) -> FileRow:
        is_run = self._file.kind == "file" and self._file.mode & 0o111
        entry = {name: getattr(self._file, name) for name in LayerEntry.__struct_fields__} | {"size": self._size}
        return FileRow(
            **entry,
            digest=self._hash.digest() if self._file.kind == "file" else b"",
            md5=self._md5.digest() if self._file.kind == "file" and self._md5 is not None else b"",
            head=self._head[:4] if PATHS["of-format"].search(self._file.path) else b"",
            interpreter=decoding.lossy(found[1]) if is_run and (found := _INTERPRETER.match(self._head)) else "",
            binary=self._binary(),
        )

    def _binary(self) -> Binary | None:
        if self._window is not None:
            with self._window as window:
                return _describe(self._file.path, window, self._size)
        why = "it is larger than any" if self._file.size > _LARGEST else "it ends within its own header"
        return Binary(damaged=why) if self._head.startswith(_MAGIC) else None


def _dynamic(piece: bytes | bytearray) -> range:
    try:
        with decoding.damaged("no headers"):
            at, size, count = [struct.unpack_from(form, piece, place)[0] for form, place in _HEADER]
            rows = [struct.unpack_from("<IIQQQQQQ", piece, at + number * size) for number in range(min(count, 64))]
    except decoding.DamagedError:
        return range(0)  # reported when the file is described
    return next((range(row[2], row[2] + min(row[5], _ENDS)) for row in rows if row[0] == PT_DYNAMIC), range(0))


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
    # A name is empty if its text is in a part that was not stored: then it is unknown.
    return Binary(
        needed=list(filter(None, elf.needed)),
        rpath=list(filter(None, elf.rpath)),
        runpath=list(filter(None, elf.runpath)),
        machine=elf.machine or "",
        soname=elf.soname or "",
        versions={library: names for library, names in elf.versions.items() if library},
        defines=elf.defines,
        dynamic=elf.dynamic,
        version=own_version(elf, window) if PATHS["versioned"].search(path) else "",
        has_cuda_code=any(name in elf.sections for name in (".nv_fatbin", ".nvFatBinSegment")),
    )


def own_version(elf: Elf, window: mmap.mmap) -> str:
    """Return a library's version from its own bytes; '' if there is none that can be read."""
    parts = {name: (at, at + min(size, _HEAD)) for name, (at, size) in elf.sections.items()}
    for name, at, size in elf.exported(window):
        if name == "cudaRuntimeGetVersion":
            stored = {int.from_bytes(one, "little") for one in _STORES.findall(window, *parts.get(".text", (0, 0)))}
            toolkits = [number for number in stored if number in _TOOLKITS]
            return f"{toolkits[0] // 1000}.{toolkits[0] // 10 % 100}" if len(toolkits) == 1 else ""
        if _CUDNN.match(name) and size == 4:  # noqa: PLR2004 - one number
            number = int.from_bytes(window[at : at + 4], "little")
            return f"{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}" if number else ""
        if _CONSTANT.match(name) and size <= _SHORT:
            found = _STORES.search(window, at, at + size)
            number = int.from_bytes(found[1], "little") if found else 0  # 11203 is 11.2.3
            return f"{number // 1000}.{number // 100 % 10}.{number % 100}" if number else ""
    at, end = parts.get(".rodata", (0, 0))
    first = window.find(_MARK, at, end)
    built = _BUILT.search(window, first, end) if first >= 0 else None
    return decoding.lossy(built[1]) if built else ""


class _Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    what: str
    hints: tuple[str, ...]
    pattern: str


class _Place(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    what: str
    paths: tuple[str, ...]
    shapes: tuple[str, ...]
    binary: bool = False


class _SecretShapes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    anywhere: tuple[_Shape, ...]
    within: tuple[_Place, ...]
    name: str


_SECRETS = packaged_yaml("validation/secret_patterns.yaml", _SecretShapes)
_ANYWHERE = tuple(
    (shape.what, hint.encode(), re.compile(shape.pattern.replace("HINT", re.escape(hint)).encode()))
    for shape in _SECRETS.anywhere
    for hint in shape.hints
)
_WITHIN = tuple(
    (
        place,
        re.compile(rf"(?:^|/)(?:{'|'.join(place.paths)})\Z"),
        tuple(re.compile(shape.replace("NAME", _SECRETS.name).encode(), re.MULTILINE) for shape in place.shapes),
    )
    for place in _SECRETS.within
)
_PLACES = re.compile(rf"(?:^|/)(?:{'|'.join(path for place in _SECRETS.within for path in place.paths)})\Z")


def _prefilter(anchor: bytes, hints: list[bytes]) -> re.Pattern[bytes]:
    """Return an expression for a letter with the rest of a hint around it; few checks follow a letter of no hint."""
    rests = {hint: hint.partition(anchor)[2] for hint in hints}
    around = [b"%b(?<=%b)" % (re.escape(rest), re.escape(hint)) for hint, rest in rests.items() if rest]
    ends = sorted((hint for hint, rest in rests.items() if not rest), key=len)
    around += [b"(?<=%b)" % b"|".join(map(re.escape, same)) for _, same in groupby(ends, len)]
    return re.compile(b"%b(?:%b)" % (re.escape(anchor), b"|".join(around)))


for _hint in sorted({hint for _, hint, _ in _ANYWHERE}):
    _BY_ANCHOR.setdefault(next(bytes((letter,)) for letter in _ANCHORS if letter in _hint), []).append(_hint)
_PREFILTERS = tuple(_prefilter(*pair) for pair in _BY_ANCHOR.items())


def _is_in(shape: re.Pattern[bytes], content: bytes, hint: bytes = b"") -> bool:
    texts = (match[0][match[0].find(hint) + len(hint) :] for match in shape.finditer(content))
    words = (_WORD.findall(text.lower()) for text in texts)
    return any(not own or len({*own[-1]}) > _KINDS for own in words)


def secrets_in(path: str, content: bytes, *, binary: bool = False) -> list[str]:
    """Return what looks like a credential in a file, or in a `VARIABLE` or `INSTRUCTION`."""
    if any(prefilter.search(content) for prefilter in _PREFILTERS):
        found = [what for what, hint, shape in _ANYWHERE if hint in content and _is_in(shape, content, hint)]
        if found:
            return list(dict.fromkeys(found))
    places = _WITHIN if _PLACES.search(path) else ()
    return [
        place.what
        for place, paths, shapes in places
        if (place.binary or not binary) and paths.search(path) and any(_is_in(shape, content) for shape in shapes)
    ][:1]
