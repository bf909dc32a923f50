"""Files: ``images/`` (generated, committed), ``out/`` (results), the cache, and data of the package.

Every path below ``out/`` is defined here only, so that readers and writers agree.
"""

from __future__ import annotations

import glob
import hashlib
import itertools
import os
import re
import shlex
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from platformdirs import user_cache_path

from envbuilder import errors
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import console, decoding
from envbuilder.support.subprocesses import is_gone, owner

_PACKAGE = Path(__file__).resolve().parent
_Document = TypeVar("_Document")

VERDICT, KNOWN = "verdict.json", "image.json"
_CONTROLS, _UPGRADES, _BISECTS, _REPORTS, _ATTACHED = "controls", "upgrades", "bisects", "reproduce", "attached"
_NOT_RESULTS = frozenset({_CONTROLS, _UPGRADES, _BISECTS, _REPORTS, _ATTACHED})
"""Folders of ``out/`` that are not results of an environment."""


PROJECT_FILES = {"envbuilder.toml": (), "pyproject.toml": ("tool", "envbuilder")}
"""Files with the settings of a project, and the tables that hold them."""


class ProjectSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults of a project: its matrices, of which commands that take one take the first, selectors, and repository.

    Matrices are paths, relative to the file, or names of shipped matrices. ``repository`` names images in the engine.
    """

    matrices: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    repository: str = ""


def project_folder() -> Path:
    """Return the folder that commands work in: the current one if it has a matrix, else the nearest with settings.

    Raises UsageError for settings that do not fit.
    """
    here = Path.cwd()
    own = (here / "matrix.yaml").is_file() or any((here / "matrices").glob("*.yaml"))
    return here if own else next((one for one in (here, *here.parents) if settings_in(one)), here)


def settings_of(folder: Path) -> ProjectSettings:
    """Read the nearest settings in a folder or above it. Raises UsageError for a file that does not fit."""
    found = (settings_in(one) for one in (folder, *folder.absolute().parents))
    return next(filter(None, found), ProjectSettings())


def settings_in(folder: Path) -> ProjectSettings | None:
    """Read the settings in a folder itself; None if it has none. Raises UsageError for a file that does not fit."""
    files = {folder / name: keys for name, keys in PROJECT_FILES.items() if (folder / name).is_file()}
    return next(filter(None, (_project_settings(path, keys) for path, keys in files.items())), None)


def _project_settings(path: Path, keys: tuple[str, ...]) -> ProjectSettings | None:
    """Read the settings of a file; None if it has no table for them."""
    text = users_text(path)
    try:
        with decoding.damaged(str(path)):
            table: Any = tomllib.loads(text)
            for key in keys:
                table = table.get(key, {})
            return decoding.converted(table, ProjectSettings, str(path)) if table or not keys else None
    except decoding.DamagedError as error:
        raise UsageError(str(error), hint='write matrices = ["team.yaml"] and select = ["flavor=cpu"]') from error


@dataclass(frozen=True)
class Workspace:
    """The project's folder: a command writes only below ``root`` and to the user's cache."""

    root: Path
    given: Path | None = None
    """Folder of the files that a matrix names: ``root``, except for a workspace below another one."""

    matrices: tuple[str, ...] = ()
    """The matrices as the user named them, for commands that messages propose."""

    @classmethod
    def here(cls, *matrices: str | None) -> Workspace:
        return cls(project_folder(), matrices=tuple(filter(None, matrices)))

    def command(self, name: str, *selectors: str) -> str:
        """Write a command of envbuilder for the same matrices."""
        words = ("envbuilder", name, *self.matrices, *(word for one in selectors for word in ("-s", one)))
        return shlex.join(words)

    def users(self, name: str) -> Path:
        return (self.given or self.root) / name

    @property
    def images(self) -> Path:
        return self.root / "images"

    def base(self, digest: str) -> Path:
        """Return the facts of a base, by its digest (``sha256:…``); committed like the build contexts."""
        return self.root / "bases" / f"{digest.replace(':', '-')}.json"

    @property
    def wheels(self) -> Path:
        """The proved records of large wheels; committed like the build contexts."""
        return self.images / "wheels.json"

    @property
    def out(self) -> Path:
        return self.root / "out"

    def context(self, environment_id: str) -> Path:
        return self.images / environment_id

    def known_image(self, environment_id: str) -> Path:
        """Return the record of an image without errors; committed next to the lock, and in no build."""
        return self.context(environment_id) / KNOWN

    def results(self, environment_id: str) -> Path:
        return self.out / environment_id

    def build_log(self, environment_id: str) -> Path:
        return self.results(environment_id) / "build.log"

    def image_record(self, environment_id: str) -> Path:
        """Return the record of an environment's image, which exists after a complete build."""
        return self.results(environment_id) / "image.json"

    def image_records(self) -> tuple[Path, ...]:
        return self._of_environments("image.json")

    def verdict(self, environment_id: str) -> Path:
        return self.results(environment_id) / VERDICT

    def verdicts(self) -> tuple[Path, ...]:
        """Return the files of verdicts, also of a damaged one that was renamed and has no successor yet."""
        aside = (path.with_name(VERDICT) for path in self._of_environments(f"{VERDICT}.damaged"))
        return tuple(sorted({*self._of_environments(VERDICT), *aside}))

    def publication(self, environment_id: str) -> Path:
        return self.results(environment_id) / "publish"

    def attached(self, digest: str) -> Path:
        """Return the folder of the verdict on a registry's digest until it is attached there."""
        return self.out / _ATTACHED / digest.removeprefix("sha256:")[:32]

    @property
    def history(self) -> Path:
        return self.out / "history"

    def control(self, name: str) -> Path:
        """Return the folder of one negative control: its context, log and verdict."""
        return self.out / _CONTROLS / name

    def control_verdicts(self) -> tuple[Path, ...]:
        return tuple(sorted((self.out / _CONTROLS).glob(f"*/{VERDICT}")))

    def upgrade(self, name: str) -> Path:
        """Return the document of one comparison of two versions; ``upgrade.md`` is in the same folder."""
        return self.out / _UPGRADES / name / "upgrade.json"

    def upgrades(self) -> tuple[Path, ...]:
        return tuple(sorted((self.out / _UPGRADES).glob("*/upgrade.json")))

    @property
    def for_upgrades(self) -> Workspace:
        return Workspace(self.out / _UPGRADES / "work", self.given or self.root)

    @property
    def bisects(self) -> Path:
        return self.out / _BISECTS

    @property
    def for_reports(self) -> Workspace:
        """The workspace for environments of reports, which are in no matrix."""
        return Workspace(self.out / _REPORTS, self.given or self.root)

    def report_build(self, name: str) -> Path:
        """Return the build folder of an image for a report that is not one of envbuilder's environments."""
        return self.out / _REPORTS / "built" / name

    def report_matrix(self, name: str) -> Path:
        return self.out / _REPORTS / "matrices" / f"{name}.yaml"

    def _of_environments(self, name: str) -> tuple[Path, ...]:
        """Return the files of this name, also links that lead nowhere."""
        folders = (one for one in sorted(self.out.glob("*")) if one.name not in _NOT_RESULTS)
        return tuple(path for one in folders if os.path.lexists(path := one / name))


def cache_dir() -> Path:
    return user_cache_path("envbuilder")


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old or the new content, never a part. Creates the folder.

    Raises InfrastructureError if it cannot be written.
    """
    with writing(path):
        _remove_stale(path)
        temporary = path.with_name(f".{path.name}.{owner()}.{next(_COUNT)}.tmp")
        try:
            temporary.touch(0o600, exist_ok=False)
            temporary.write_bytes(data)
            temporary.chmod(0o644)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def remove(path: Path) -> None:
    """Remove a file if there is one. Raises InfrastructureError if it cannot be removed."""
    with writing(path):
        path.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Create a file's folder, and turn an OSError of the block into an InfrastructureError with the file's name."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise errors.of_system(error, f"write {path}") from error


_COUNT = itertools.count()
_STALE_S = 60.0
"""Seconds until a temporary file of an ended process is removed: on a shared disk it may run on another host."""


def _remove_stale(path: Path) -> None:
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):
            age = abs(time.time() - left.stat().st_mtime)  # the clock may have been set back
            if is_gone(left.name.split(".")[-3]) and age > _STALE_S:
                left.unlink()


def _temporary_place() -> Path:
    """Return the folder for temporary files. tempfile would write a probe file there, which a kill leaves behind."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    return next((Path(one) for one in (*named, "/tmp", "/var/tmp") if one and Path(one).is_dir()), Path.cwd())  # noqa: S108


_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made there


def place_in_memory(needed: int) -> Path | None:
    """Return a folder in memory with room for so many bytes, for programs that wait for a disk; else None."""
    with suppress(OSError):
        found = os.statvfs(_MEMORY)
        free = min(found.f_bavail * found.f_frsize, os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
        if free > needed and os.access(_MEMORY, os.W_OK) and not found.f_flag & (os.ST_NOEXEC | os.ST_NODEV):
            return _MEMORY
    return None


@contextmanager
def temporary_folder(purpose: str, within: Path | None = None) -> Iterator[Path]:
    """Create a folder that is removed at the end of the block, with those of killed processes for the same purpose.

    ``within`` is its parent, such as the folder that its content is moved to; default is the system's temporary one.
    Raises InfrastructureError if the disk is full or cannot be written.
    """
    import shutil  # noqa: PLC0415 - few commands need it

    every = within or _temporary_place()

    def sweep() -> None:
        for left in every.glob(f"envbuilder-{purpose}-*-*"):
            with suppress(OSError):  # another process may sweep as well
                if is_gone(left.name.split("-")[-2]) and left.stat().st_uid == os.getuid():
                    shutil.rmtree(left, ignore_errors=True)

    sweep()
    folder = every / f"envbuilder-{purpose}-{owner()}-{next(_COUNT)}x{os.urandom(4).hex()}"
    try:
        with writing(folder):
            folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        sweep()  # again: a program of a killed command may have continued to write there


_UNSEALED = b'"checksum": ""'
_SEALED = re.compile(rb'"checksum": "([^"]+)"')


def write_document(path: Path, document: object) -> None:
    """Write a msgspec value as indented JSON, atomically.

    A field ``checksum`` gets the digest of the text with that field empty.
    """
    data = msgspec.json.format(decoding.to_json(document), indent=2) + b"\n"
    sealed = _UNSEALED.replace(b'""', b'"%b"' % digest(data).encode())
    write_atomically(path, data.replace(_UNSEALED, sealed, 1) if hasattr(document, "checksum") else data)


def read_document(path: Path, kind: type[_Document]) -> _Document | None:
    """Read a JSON document of envbuilder; None if there is none, or if another version wrote it.

    A damaged one is renamed to ``<name>.damaged``, with a warning on standard error. Raises InfrastructureError if the
    file exists and cannot be read.
    """
    data = read_stored(path)
    if data is None:
        return None
    try:
        plain = _unsealed(data)
    except decoding.DamagedError as error:
        set_aside(path, str(error))
        return None
    try:
        return decoding.from_json(plain, kind)
    except decoding.DamagedError:
        return None  # intact, but of another version


def _unsealed(data: bytes) -> bytes:
    """Return a document with an empty checksum. Raises DamagedError if the checksum is wrong, or if it is not JSON."""
    decoding.from_json(data, msgspec.Raw, "is not JSON")
    decoding.text(data, "is not UTF-8")
    found = _SEALED.search(data)
    plain = data.replace(found[0], _UNSEALED, 1) if found else data
    if found and digest(plain).encode() != found[1]:
        raise decoding.DamagedError("does not match its checksum")
    return plain


def read_stored(path: Path) -> bytes | None:
    """Read a file of envbuilder; None if there is none. Raises InfrastructureError if it cannot be read."""
    try:
        return decoding.file_content(path, decoding.LARGE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise errors.of_system(error, f"read {path}") from error
    except decoding.DamagedError as error:
        hint = "remove it, and run the same command again"
        raise InfrastructureError(f"cannot read {path}: {error}", hint=hint) from error


def read_users(path: Path, most: int = decoding.LARGEST) -> bytes:
    """Read a file of the user. Raises UsageError if it cannot be read, or has more than ``most`` bytes."""
    try:
        return decoding.file_content(path, most, piped=True)
    except OSError as error:
        raise errors.of_system(error, f"read {path}", users=True) from error
    except ValueError as error:  # too large, or a NUL in its name
        raise UsageError(f"cannot read {path}: {error}", hint="give the path of a file") from error


def users_text(path: Path) -> str:
    """Read a text of the user. Raises UsageError if it cannot be read, InputError if it is not UTF-8."""
    return errors.text_of(read_users(path, decoding.LARGE), str(path))


def packaged(file: Path | Traversable | str) -> bytes:
    """Read a file of the package, by its path below it too. Raises InfrastructureError if the installation lacks it."""
    source = _PACKAGE / file if isinstance(file, str) else file
    try:
        return source.read_bytes()
    except OSError as error:
        raise InfrastructureError(
            f"{source}: {error.strerror}: the installation is incomplete", hint="reinstall envbuilder"
        ) from error


_DOCUMENTS: dict[tuple[str, object], Any] = {}


def packaged_yaml(file: Traversable | str, kind: type[_Document]) -> _Document:
    """Read a data file of the package as ``kind``, once. Raises ValueError if it does not fit."""
    import yaml  # noqa: PLC0415, TID251 - not the user's own file; 20 ms that not every command needs

    if (str(file), kind) not in _DOCUMENTS:
        loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        content = yaml.load(packaged(file), Loader=loader)  # noqa: S506
        _DOCUMENTS[str(file), kind] = decoding.converted(content, kind, f"{file} is damaged")
    document: _Document = _DOCUMENTS[str(file), kind]
    return document


def folders_in(folder: Path) -> tuple[Path, ...]:
    """List the folders of one of envbuilder's folders. Raises InfrastructureError if it cannot be read."""
    try:
        return tuple(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise errors.of_system(error, f"read {folder}") from error


def packaged_in(folder: Path | Traversable) -> tuple[Traversable, ...]:
    """List a folder of the package. Raises InfrastructureError if the installation lacks it."""
    try:
        return tuple(folder.iterdir())
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: {error.strerror}: the installation is incomplete", hint="reinstall envbuilder"
        ) from error


def set_aside(path: Path, why: str) -> None:
    """Rename a damaged file of envbuilder to ``<name>.damaged``, with a warning on standard error."""
    aside = path.with_name(f"{path.name}.damaged")
    try:
        path.replace(aside)
    except OSError:
        console.warn(f"{path} {why}; it is ignored")
    else:
        console.warn(f"{path} {why}; it is renamed to {aside.name}")


def cached(path: Path) -> bytes | None:
    """Return a file of `cache` if it is intact, otherwise None: a cache causes no errors."""
    try:
        data = decoding.file_content(path, decoding.LARGEST)
    except (OSError, decoding.DamagedError):
        return None
    content = data[_CHECKSUM:]
    return content if data[:_CHECKSUM] == hashlib.blake2b(content, digest_size=_CHECKSUM).digest() else None


def cache(path: Path, content: bytes) -> None:
    """Store reproducible data with its checksum. A folder that cannot be written is not an error; no home is made."""
    if not (os.environ.get("XDG_CACHE_HOME") or Path.home().is_dir()):
        return
    with suppress(OSError, InfrastructureError):
        write_atomically(path, hashlib.blake2b(content, digest_size=_CHECKSUM).digest() + content)


_CHECKSUM = 16
"""Bytes of BLAKE2b before a cached file's content."""


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def content_key(parts: Mapping[str, bytes]) -> str:
    """Return the SHA-256 of named contents, independent of their order (``sha256:…``)."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{len(name)}:{name}:{len(parts[name])}:".encode())
        digest.update(parts[name])
    return f"sha256:{digest.hexdigest()}"


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Read every file below a folder by its relative path; empty without a folder. Raises UsageError."""
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): read_users(path) for path in files}
