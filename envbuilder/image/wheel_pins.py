"""What large wheels hold, by the word of a build that hashed them: `images/wheels.json`.

A build installs every wheel by its hash, so that an image in which just the files of a RECORD lie proves that RECORD.
What was proved on one host is written down for the others: there neither the index nor the image is believed for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from envbuilder.support import decoding
from envbuilder.workspace import Workspace, digest, read_document, write_atomically

_BY_INSTALLERS = frozenset({"RECORD", "RECORD.jws", "RECORD.p7s", "INSTALLER", "REQUESTED", "direct_url.json"})
_INTO_PACKAGES = ("purelib", "platlib")


class Pin(msgspec.Struct, frozen=True):
    """A wheel's name, and the digest of the rows of its RECORD (`rows_digest`)."""

    filename: str
    rows: str


class WheelPins(msgspec.Struct, frozen=True, kw_only=True):
    """The document: a wheel's hash, as locks name it, and what it holds."""

    schema: str = "envbuilder/wheels/v1"
    wheels: dict[str, Pin] = {}


def read_pins(workspace: Workspace) -> Mapping[str, Pin]:
    """Return what is written down of wheels, by their hash; nothing where there is no such document."""
    found = read_document(workspace.wheels, WheelPins)
    return found.wheels if found is not None else {}


def add_pins(workspace: Workspace, proved: Iterable[tuple[str, str, bytes]]) -> None:
    """Write down what was proved: hash, name and RECORD of each wheel. What stands there already is never changed.

    A wheel that puts files elsewhere than among its packages is not written down: its pin would not cover them.
    """
    before = read_pins(workspace)
    found = {
        wheel: Pin(name, rows)
        for wheel, name, record in proved
        if wheel not in before and not _brings_elsewhere(record) and (rows := rows_digest(record))
    }
    if found:
        write_atomically(workspace.wheels, _lines({**before, **found}))


def _lines(wheels: Mapping[str, Pin]) -> bytes:
    rows = (f'    "{wheel}": {decoding.to_json(pin).decode()}' for wheel, pin in sorted(wheels.items()))
    head = f'{{\n  "schema": "{WheelPins().schema}",\n  "wheels": {{\n'
    return (head + ",\n".join(rows) + "\n  }\n}\n").encode()


def rows_digest(record: bytes) -> str:
    """Return one digest of the files that a RECORD names inside the packages' folder, '' where it cannot tell them.

    It is the same for a wheel's own RECORD and for the one that an installer leaves: notes of installers, byte code and
    what lies elsewhere are left out. A wheel that brings files of packages by its ``.data`` has none.
    """
    own = _hashed(record)
    return digest("".join(f"{_quoted(path)},{written}\n" for path, written in sorted(own)).encode()) if own else ""


def hashed_rows(record: bytes) -> bytes:
    """Return a RECORD of just the rows that `rows_digest` covers: a pin vouches for no other."""
    return "".join(f"{_quoted(path)},{written},\n" for path, written in _hashed(record)).encode()


def _brings_elsewhere(record: bytes) -> bool:
    return any(row[0].partition("/")[0].endswith(".data") for row in decoding.csv_rows(record) if row)


def _hashed(record: bytes) -> list[tuple[str, str]]:
    """List path and digest of each row that is hashed; none where a row is not of three fields, or a path is twice."""
    rows = [row for row in decoding.csv_rows(record) if row]
    if any(len(row) != _FIELDS or not row[0] for row in rows):
        return []
    paths = [path for path, _, _ in rows]
    moved = any(path.partition(".data/")[2].startswith(_INTO_PACKAGES) for path in paths if ".data/" in path)
    own = [(path, written) for path, written, _ in rows if ".data/" not in path and not _is_of_installers(path)]
    return own if not moved and len(dict(own)) == len(own) else []


def _quoted(path: str) -> str:
    """Write a path as all who write RECORDs do."""
    return '"' + path.replace('"', '""') + '"' if set(path) & set(',"') else path


def _is_of_installers(path: str) -> bool:
    folder, _, leaf = path.rpartition("/")
    if path.startswith(("../", "/")) or (folder.endswith("__pycache__") and leaf.endswith(".pyc")):
        return True
    return folder.endswith(".dist-info") and leaf in _BY_INSTALLERS


_FIELDS = 3
"""Path, digest and size: what a row of a RECORD is, and no installer writes another."""
