"""Where files live: ``images/`` (generated, committed), ``out/`` (results), the cache, and data that ships with us.

Every path below ``out/`` is named here and nowhere else: who reads one finds it where its writer left it.
"""

from __future__ import annotations

import hashlib
import os
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

VERDICT = "verdict.json"
_CONTROLS, _UPGRADES, _BISECTS, _REPORTS = "controls", "upgrades", "bisects", "reproduce"
_NOT_RESULTS = frozenset({_CONTROLS, _UPGRADES, _BISECTS, _REPORTS})
"""Folders of ``out/`` that hold no environment's results."""


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

    def build_log(self, environment_id: str) -> Path:
        """Return the log of an environment's last build."""
        return self.results(environment_id) / "build.log"

    def image_record(self, environment_id: str) -> Path:
        """Return the record of an environment's image, which is there once a build was whole."""
        return self.results(environment_id) / "image.json"

    def image_records(self) -> tuple[Path, ...]:
        """List the records of every environment's image."""
        return self._of_environments("image.json")

    def verdict(self, environment_id: str) -> Path:
        """Return the newest verdict about an environment."""
        return self.results(environment_id) / VERDICT

    def verdicts(self) -> tuple[Path, ...]:
        """List the newest verdict of every environment."""
        return self._of_environments(VERDICT)

    def publication(self, environment_id: str) -> Path:
        """Return the folder that keeps a publication's journal and verdict."""
        return self.results(environment_id) / "publish"

    @property
    def history(self) -> Path:
        """The store of every verdict that was ever reached."""
        return self.out / "history.sqlite3"

    def control(self, name: str) -> Path:
        """Return the folder for one negative control: its context, log and verdict."""
        return self.out / _CONTROLS / name

    def control_verdicts(self) -> tuple[Path, ...]:
        """List the newest verdict of every negative control; its folder bears its name."""
        return tuple(sorted((self.out / _CONTROLS).glob(f"*/{VERDICT}")))

    def upgrade(self, name: str) -> Path:
        """Return the document of one comparison of two versions; ``upgrade.md`` lies beside it."""
        return self.out / _UPGRADES / name / "upgrade.json"

    def upgrades(self) -> tuple[Path, ...]:
        """List the documents of all comparisons."""
        return tuple(sorted((self.out / _UPGRADES).glob("*/upgrade.json")))

    @property
    def for_upgrades(self) -> Workspace:
        """The workspace for contexts and images that are made for upgrades alone."""
        return Workspace(self.out / _UPGRADES / "work")

    @property
    def bisects(self) -> Path:
        """The folder of searches, each in a file of its own."""
        return self.out / _BISECTS

    @property
    def for_reports(self) -> Workspace:
        """The workspace for environments of reports, which are in no matrix."""
        return Workspace(self.out / _REPORTS)

    def report_build(self, name: str) -> Path:
        """Return the folder in which what deviates from our environments is built."""
        return self.out / _REPORTS / "built" / name

    def report_matrix(self, name: str) -> Path:
        """Return the matrix of the nearest environment that works for a report."""
        return self.out / _REPORTS / "matrices" / f"{name}.yaml"

    def _of_environments(self, name: str) -> tuple[Path, ...]:
        return tuple(path for path in sorted(self.out.glob(f"*/{name}")) if path.parent.name not in _NOT_RESULTS)


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
    import tempfile  # noqa: PLC0415 - a command that only reads does not pay for it

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
