"""Where files live: ``images/`` (generated, committed), ``out/`` (results), the cache, and data that ships with us."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from envbuilder.errors import InfrastructureError, UsageError

_PACKAGE = Path(__file__).resolve().parent
_Document = TypeVar("_Document")

DEFAULT_MATRIX = "quickstart"


@dataclass(frozen=True)
class Workspace:
    """The folder that a command works in; everything it writes stays below ``root`` or in the user's cache."""

    root: Path

    @property
    def images(self) -> Path:
        """The build contexts, one folder an environment."""
        return self.root / "images"

    @property
    def out(self) -> Path:
        """The results: logs, image records, verdicts."""
        return self.root / "out"

    def context(self, environment_id: str) -> Path:
        """Return the build context of one environment."""
        return self.images / environment_id

    def results(self, environment_id: str) -> Path:
        """Return the folder for the results of one environment."""
        return self.out / environment_id


def cache_dir() -> Path:
    """Return the user's cache folder for envbuilder (``$XDG_CACHE_HOME`` or ``~/.cache``)."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "envbuilder"


def shipped(kind: str) -> Path:
    """Return ``templates``, ``matrices`` or ``policies``: as they ship with the package, or stand in its checkout."""
    installed = _PACKAGE / "data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def find_matrix(name: str | None, root: Path) -> Path:
    """Find a matrix by path, or by the name of one that ships; None is the quickstart.

    Raises UsageError that names what ships where there is no such file.
    """
    wanted = name or DEFAULT_MATRIX
    for candidate in (root / wanted, root / "matrices" / f"{wanted}.yaml", shipped("matrices") / f"{wanted}.yaml"):
        if candidate.is_file():
            return candidate
    if name and (shipped("matrices") / Path(name).name).is_file() and Path(name).parent.name == "matrices":
        return shipped("matrices") / Path(name).name
    ships = ", ".join(sorted(path.stem for path in shipped("matrices").glob("*.yaml")))
    raise UsageError(f"{wanted}: no such matrix", hint=f"give the path of a matrix file, or one of: {ships}")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part. Makes the folder."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _temporary_beside(path) as temporary:
            temporary.write_bytes(data)
            temporary.chmod(0o644)
            temporary.replace(path)
    except OSError as error:
        raise InfrastructureError(
            f"cannot write {path}: {error.strerror}", hint="free disk space or check permissions"
        ) from error


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    try:
        yield Path(name)
    finally:
        with suppress(FileNotFoundError):
            Path(name).unlink()


def write_document(path: Path, document: object) -> None:
    """Write a msgspec value as indented JSON, atomically."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")


def read_document(path: Path, kind: type[_Document]) -> _Document | None:
    """Read a JSON document of ours; None where there is none, or where it is not one that this version wrote."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.MsgspecError):
        return None


def content_key(parts: Mapping[str, bytes]) -> str:
    """Return the sha256 over named contents, independent of their order (``sha256:…``)."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{len(name)}:{name}:{len(parts[name])}:".encode())
        digest.update(parts[name])
    return f"sha256:{digest.hexdigest()}"


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Read every file below a folder, by its path relative to it; empty where there is no folder."""
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}
