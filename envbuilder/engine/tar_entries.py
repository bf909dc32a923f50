"""One way to read a layer's tar: an entry that an engine would read otherwise is refused, or read as the engine does.

Engines unpack layers by Go's ``archive/tar``, and this is Python's ``tarfile``. Where the two differ, a layer could
show one file here and be another in a container.
"""

from __future__ import annotations

import posixpath
import tarfile
from collections.abc import Mapping
from typing import Any, NoReturn

from envbuilder.errors import InfrastructureError

XATTR = "SCHILY.xattr."
"""What an extended attribute's name has in front of it in a header."""

OPAQUE = ("trusted.overlay.opaque", "user.overlay.opaque")
"""Attributes of a folder that hides what layers below have in it."""

STRANGE: Mapping[str, tuple[str, ...]] = {
    "folder": ("trusted.overlay.redirect", "user.overlay.redirect"),
    "file": ("trusted.overlay.metacopy", "user.overlay.metacopy"),
}
"""Attributes by which a folder holds what lies elsewhere, or a file has another one's content."""


def plain(path: str) -> str:
    """Return a name as a text; what of it is none is written out (a backslash, x and two digits a byte)."""
    if path.isascii():
        return path
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def refuse(path: str, why: str) -> NoReturn:
    """Raise the InfrastructureError that a layer cannot be judged for one of its entries."""
    raise InfrastructureError(f"the image has a layer that cannot be judged, at {plain(path)[:200]!r}: {why}")


def one_way() -> Mapping[str, Any]:
    """Return what `tarfile.open` is to be told so that it raises ReadError where an engine reads otherwise."""
    return {"tarinfo": type("_Entry", (_Header,), {"before": []}), "pax_headers": _Ignored()}


class _Ignored(dict[str, str]):
    """What a global header sets for all entries to come: nothing, as engines pass such headers over."""

    def __setitem__(self, keyword: str, value: str) -> None:
        pass


_EXTENSIONS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
_USTAR, _OF_STAR = b"ustar\0", b"tar\0"


class _Header(tarfile.TarInfo):
    """An entry's header, taken only where there is one way to read it; ``before`` are those that extend the next."""

    before: list[bytes]

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Header:
        """Read a header. Raises ReadError where engines refuse it, or read it otherwise."""
        try:
            made = super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as error:
            if any(buf):  # an archive that ends otherwise than in zeros hides the rest of it
                raise tarfile.ReadError(str(error)) from error
            raise
        is_long = cls.before and set(cls.before) | {made.type} <= set(_EXTENSIONS[2:])
        if cls.before and (made.type in cls.before or (made.type in (*_EXTENSIONS, tarfile.XGLTYPE) and not is_long)):
            raise tarfile.ReadError("an entry has two headers that say its name")
        if cls.before and made.type in (tarfile.AREGTYPE, tarfile.DIRTYPE) and buf[156:157] == tarfile.AREGTYPE:
            raise tarfile.ReadError("an entry is a file or a folder by its name alone")
        if buf[345] and made.type not in tarfile.GNU_TYPES and (buf[257:263] != _USTAR or buf[508:512] == _OF_STAR):
            raise tarfile.ReadError("an entry's name depends on which form of tar it is")
        if made.type in _EXTENSIONS:
            cls.before.append(made.type)
        elif made.type != tarfile.XGLTYPE:
            cls.before.clear()
        return made


def check(member: tarfile.TarInfo) -> None:
    """Raise InfrastructureError for an entry whose further headers say what no two programs take alike."""
    for keyword, value in member.pax_headers.items():
        if keyword.removeprefix(XATTR) in {name for names in STRANGE.values() for name in names}:
            refuse(member.name, "it leads elsewhere by an attribute of the engine's own")
        is_number = value.isascii() and value.isdigit()
        if (keyword in ("path", "linkpath") and not value) or (keyword == "size" and not is_number):
            refuse(member.name, f"its header's {keyword} says nothing")


def unpacked(name: str) -> str:
    """Return where an entry of this name is unpacked: no name leads out of the image, or twice to one place."""
    return posixpath.normpath(f"/{plain(name)}").lstrip("/")
