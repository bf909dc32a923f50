"""Search files, variables and build instructions for credentials (`secret_patterns.yaml`). Values are never quoted."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import resources

import msgspec

from envbuilder.workspace import packaged_yaml


class Secret(msgspec.Struct, frozen=True):
    """A likely credential: ``what`` it is, and the ``path`` of its file."""

    path: str
    what: str


class _TokenShape(msgspec.Struct, frozen=True):
    what: str
    hints: tuple[str, ...]
    pattern: str


class _Store(msgspec.Struct, frozen=True):
    path: str
    head: str


class _Patterns(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    shapes: tuple[_TokenShape, ...]
    address: str
    credential_files: tuple[str, ...]
    always_credentials: tuple[str, ...]
    plain: tuple[str, ...]
    by_tool: tuple[str, ...]
    compose: str
    plain_in_compose: str
    stores: tuple[_Store, ...]
    variable: str
    options: tuple[str, ...]


_PATTERNS = packaged_yaml(resources.files("envbuilder.validation") / "secret_patterns.yaml", _Patterns)

_SHAPES = tuple(
    (shape.what, hint.encode(), re.compile(shape.pattern.replace("HINT", re.escape(hint)).encode()))
    for shape in _PATTERNS.shapes
    for hint in shape.hints
)
_ADDRESS = re.compile(_PATTERNS.address.encode())
_FILES = re.compile(rf"(?:^|/)(?:{'|'.join(_PATTERNS.credential_files)})\Z")
_ALWAYS = tuple(map(re.compile, _PATTERNS.always_credentials))
_PLAIN = tuple(re.compile(pattern.encode(), re.MULTILINE) for pattern in _PATTERNS.plain)
_BY_TOOL = tuple(re.compile(pattern.encode(), re.MULTILINE) for pattern in _PATTERNS.by_tool)
_COMPOSE = re.compile(_PATTERNS.compose)
_PLAIN_IN_COMPOSE = (re.compile(_PATTERNS.plain_in_compose.encode(), re.MULTILINE),)
_STORES = tuple((re.compile(one.path), re.compile(one.head.encode(), re.DOTALL)) for one in _PATTERNS.stores)
_VARIABLE = re.compile(_PATTERNS.variable)
_OPTIONS = tuple(map(re.compile, _PATTERNS.options))

_KEY_HEADER = re.compile(rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY")
_ASSIGNED = re.compile(r"(?:^|[\s|'\"])([A-Za-z_][A-Za-z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s;&|]*)")

_ANCHORS = b"KJI-_"
"""Every hint contains one of these letters, the rarest in source code first.

A regular expression that begins with one letter skips to the next such letter at memory speed, so that a text is read
once per letter and not once per hint.
"""


def _prefilters(hints: frozenset[bytes]) -> tuple[re.Pattern[bytes], ...]:
    """Return one expression for each anchor letter: the letter with the rest of a hint around it."""
    grouped: dict[int, list[bytes]] = {}
    for hint in sorted(hints):
        anchor = next(letter for letter in _ANCHORS if letter in hint)
        before, own, after = hint.partition(bytes((anchor,)))
        grouped.setdefault(anchor, []).append(b"(?<=%b)%b" % (re.escape(before + own), re.escape(after)))
    return tuple(
        re.compile(b"%b(?:%b)" % (re.escape(bytes((anchor,))), b"|".join(around))) for anchor, around in grouped.items()
    )


_PREFILTERS = _prefilters(frozenset(hint for _, hint, _ in _SHAPES))


def with_known_shape(path: str, content: bytes) -> Iterator[Secret]:
    """Search any file, text or binary, for the shapes of known credentials."""
    if any(prefilter.search(content) for prefilter in _PREFILTERS):
        yield from (Secret(path, what) for what, hint, shape in _SHAPES if hint in content and shape.search(content))


def in_text(path: str, text: bytes) -> tuple[Secret, ...]:
    """Search a text file: known shapes in any file, plain passwords in the files in which tools keep them."""
    found = list(with_known_shape(path, text))
    if not found and path.endswith((".key", ".pem")) and _KEY_HEADER.search(text):
        found.append(Secret(path, "a private key"))
    if not found and text.strip() and any(pattern.search(path) for pattern in _ALWAYS):
        found.append(Secret(path, "a credential"))
    if not found and _FILES.search(path) and _has_plain_credential(path, text):
        found.append(Secret(path, "a credential"))
    return tuple(dict.fromkeys(found))


def _has_plain_credential(path: str, text: bytes) -> bool:
    plain = _PLAIN_IN_COMPOSE if _COMPOSE.search(path) else _PLAIN
    return any(pattern.search(text) for pattern in (*plain, _ADDRESS, *_BY_TOOL))


def is_key_store(path: str, head: bytes | bytearray) -> bool:
    """Return True for a binary file that holds private keys, by its name and first bytes."""
    return any(name.search(path) and first.match(head) for name, first in _STORES)


def in_variable(name: str, value: str) -> str:
    """Return a description of the credential in a variable or label; '' if there is none."""
    if shaped := _known_shape(value):
        return shaped
    return "what looks like a credential" if _VARIABLE.search(name) and _is_value(value) else ""


def in_instruction(text: str) -> str:
    """Return a description of the credential in a build instruction, entry point or command; '' if there is none."""
    if shaped := _known_shape(text):
        return shaped
    assigned = [(name, value.strip("\"'")) for name, value in _ASSIGNED.findall(text)]
    given = any(_VARIABLE.search(name) and _is_value(value) for name, value in assigned)
    return "what looks like a credential" if given or any(option.search(text) for option in _OPTIONS) else ""


def _known_shape(text: str) -> str:
    data = text.encode("utf-8", "replace")
    shaped = next((what for what, hint, shape in _SHAPES if hint in data and shape.search(data)), "")
    return shaped or ("an address with a password" if _ADDRESS.search(data) else "")


def _is_value(value: str) -> bool:
    """Return False for an empty value, a reference, a placeholder, a switch and the name of a mounted file."""
    return bool(value) and not value.startswith(("$", "<", "{", "/")) and value.lower() not in ("true", "false", "none")


_OVERLAP = 4096
_HEAD = 8192
"""A file without a zero byte among its first bytes is text."""

_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_MOST_BINARY = 256 << 20
"""Bytes of a binary file that are searched."""


class FileSecrets:
    """Searches a file piece by piece; ``found`` holds each likely credential once. Archives are not unpacked."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._find: Callable[[str, bytes], Iterable[Secret]] | None = None
        self._rest = b""
        self._is_utf_16 = False
        self._left = 0
        self.found: list[Secret] = []

    def take(self, piece: bytes | bytearray) -> None:
        """Search the next piece."""
        if self._find is None:
            self._begin(piece)
        if self._left > 0 and self._find is not None:
            self._left -= len(piece)
            content = self._rest + (piece.replace(b"\0", b"") if self._is_utf_16 else piece)
            self.found += [one for one in self._find(self._path, content) if one not in self.found]
            self._rest = content[-_OVERLAP:]

    def _begin(self, piece: bytes | bytearray) -> None:
        self._is_utf_16 = piece.startswith(_UTF_16)
        is_text = self._is_utf_16 or b"\0" not in piece[:_HEAD]
        self._find = in_text if is_text else with_known_shape
        self._left = sys.maxsize if is_text else _MOST_BINARY
        if not is_text and is_key_store(self._path, piece):
            self.found.append(Secret(self._path, "a store of keys"))
