"""Where files live: ``images/`` (generated, committed), ``out/`` (results), the cache, and data that ships with us.

Every path below ``out/`` is named here and nowhere else: who reads one finds it where its writer left it.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from envbuilder import errors
from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import console, decoding, subprocesses

_PACKAGE = Path(__file__).resolve().parent
_Document = TypeVar("_Document")

DEFAULT_MATRIX = "quickstart"

VERDICT = "verdict.json"
_CONTROLS, _UPGRADES, _BISECTS, _REPORTS, _ATTACHED = "controls", "upgrades", "bisects", "reproduce", "attached"
_NOT_RESULTS = frozenset({_CONTROLS, _UPGRADES, _BISECTS, _REPORTS, _ATTACHED})
"""Folders of ``out/`` that hold no environment's results."""


@dataclass(frozen=True)
class Workspace:
    """The folder that a command works in; everything it writes stays below ``root`` or in the user's cache."""

    root: Path
    given: Path | None = None
    """Where the files lie that users name in a matrix: ``root``, but for a workspace below another one."""

    def users(self, name: str) -> Path:
        """Return a file that a matrix names."""
        return (self.given or self.root) / name

    @property
    def images(self) -> Path:
        """The build contexts, one folder an environment."""
        return self.root / "images"

    def base(self, digest: str) -> Path:
        """Return what was found in a base, by its digest (``sha256:…``); committed like the build contexts."""
        return self.root / "bases" / f"{digest.replace(':', '-')}.json"

    @property
    def wheels(self) -> Path:
        """What large wheels were proved to hold; committed like the build contexts."""
        return self.root / "wheels.json"

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

    def attached(self, digest: str) -> Path:
        """Return the folder that keeps the verdict on a registry's digest until it is attached there."""
        return self.out / _ATTACHED / digest.removeprefix("sha256:")[:32]

    def rehearsed(self, digest_: str, host: str) -> Path:
        """Return the folder that keeps what came of a simulated host, apart from what is real."""
        return self.attached(digest_) / "rehearsals" / digest(host.encode()).removeprefix("sha256:")[:16]

    @property
    def fleet_logs(self) -> Path:
        """Return the folder for what the jobs of a cluster say."""
        return self.out / "fleet" / "logs"

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
        return Workspace(self.out / _UPGRADES / "work", self.given or self.root)

    @property
    def bisects(self) -> Path:
        """The folder of searches, each in a file of its own."""
        return self.out / _BISECTS

    @property
    def for_reports(self) -> Workspace:
        """The workspace for environments of reports, which are in no matrix."""
        return Workspace(self.out / _REPORTS, self.given or self.root)

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
    """Return the folder ``templates`` or ``matrices`` of the installed package, or of its checkout."""
    installed = _PACKAGE / "data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def find_matrix(name: str | None, root: Path) -> Path:
    """Find a matrix by path, or by the name of one that ships; None is the quickstart.

    Raises UsageError that names what ships where there is no such file.
    """
    if name == "":
        raise UsageError(
            "the matrix is empty", hint="is a variable of the shell not set? Name a matrix, or leave it out"
        )
    wanted = name or DEFAULT_MATRIX
    if name and _is_stream(root / name):
        return root / name
    for candidate in (root / wanted, root / "matrices" / f"{wanted}.yaml", shipped("matrices") / f"{wanted}.yaml"):
        if candidate.is_file():
            return candidate
    if name and (shipped("matrices") / Path(name).name).is_file() and Path(name).parent.name == "matrices":
        return shipped("matrices") / Path(name).name
    ships = ", ".join(sorted(path.stem for path in shipped("matrices").glob("*.yaml")))
    raise UsageError(f"{wanted}: no such matrix", hint=f"give the path of a matrix file, or one of: {ships}")


def _is_stream(path: Path) -> bool:
    """Tell whether a path is a pipe or a device, such as ``<(command)`` and ``/dev/stdin``."""
    try:
        kind = path.stat().st_mode
    except (OSError, ValueError):  # a NUL in its name
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISCHR(kind)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a part. Makes the folder.

    Raises InfrastructureError that says why it cannot be written.
    """
    with writing(path), _temporary_beside(path) as temporary:
        temporary.write_bytes(data)
        temporary.chmod(0o644)
        temporary.replace(path)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Make a file's folder, and turn an OSError within into the InfrastructureError that names the file."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise errors.of_system(error, f"write {path}") from error


_COUNT = itertools.count()
_STALE_S = 60.0
"""A temporary file of a process that is gone is removed after this long: on a shared disk it may live elsewhere."""


@contextmanager
def _temporary_beside(path: Path) -> Iterator[Path]:
    """Yield a file of ours beside a path, which is gone when the block ends; the name is known before it is made."""
    _remove_stale(path)
    temporary = path.with_name(f".{path.name}.{owner()}.{next(_COUNT)}.tmp")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _remove_stale(path: Path) -> None:
    """Remove what a process that was killed left beside a path."""
    for left in path.parent.glob(f".{_literal(path.name)}.*.tmp"):
        with suppress(OSError):
            age = abs(time.time() - left.stat().st_mtime)  # of a clock that was put back, too
            if is_gone(left.name.split(".")[-3]) and age > _STALE_S:
                left.unlink()


def owner() -> str:
    """Name this process in a file's name: its number, which comes again (in a container always), and its start."""
    return f"{os.getpid()}_{subprocesses.process_start(os.getpid())}"


def is_gone(name: str) -> bool:
    """Tell whether the process that `owner` named so is no longer there; no for what is no such name."""
    pid, _, started = name.partition("_")
    return pid.isdigit() and subprocesses.process_start(int(pid)) != started


def _temporary_place() -> Path:
    """Return the folder for what is temporary; the standard library writes a file there to try, which a kill leaves."""
    named = (os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP"))
    return next((Path(one) for one in (*named, "/tmp", "/var/tmp") if one and Path(one).is_dir()), Path.cwd())  # noqa: S108


def _literal(name: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", name)


@contextmanager
def temporary_folder(purpose: str, within: Path | None = None) -> Iterator[Path]:
    """Make a folder that is gone when the block ends, and with it what killed processes left of the same purpose.

    It is made ``within`` a folder from which what it holds is moved to its place, else where what is temporary belongs.

    Raises InfrastructureError where the temporary disk is full or cannot be written.
    """
    import shutil  # noqa: PLC0415 - a command that makes none does not pay for it

    every = within or _temporary_place()

    def sweep() -> None:
        for left in every.glob(f"envbuilder-{purpose}-*-*"):
            with suppress(OSError):  # somebody else sweeps as well
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
        sweep()  # again: a program that a killed command had started may have gone on writing there


_UNSEALED = b'"checksum": ""'
_SEALED = re.compile(rb'"checksum": "([^"]+)"')


def write_document(path: Path, document: object) -> None:
    """Write a msgspec value as indented JSON, atomically.

    A document with a field ``checksum`` is written with the digest of its own text, that field left empty.
    """
    data = msgspec.json.format(decoding.to_json(document), indent=2) + b"\n"
    sealed = _UNSEALED.replace(b'""', b'"%b"' % digest(data).encode())
    write_atomically(path, data.replace(_UNSEALED, sealed, 1) if hasattr(document, "checksum") else data)


def read_document(path: Path, kind: type[_Document]) -> _Document | None:
    """Read a JSON document of ours; None where there is none, or where it is not one that this version wrote.

    One that is damaged is set aside (``<name>.damaged``) and named on standard error: whoever asked makes it anew.
    Raises InfrastructureError where a file is there that cannot be read.
    """
    data = read_kept(path)
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
        return None  # whole, but of another version


def _unsealed(data: bytes) -> bytes:
    """Return a document without its checksum. Raises DamagedError where it does not match, or is not JSON at all."""
    decoding.from_json(data, msgspec.Raw, "is not JSON")
    decoding.text(data, "is not UTF-8")
    found = _SEALED.search(data)
    plain = data.replace(found[0], _UNSEALED, 1) if found else data
    if found and digest(plain).encode() != found[1]:
        raise decoding.DamagedError("does not match its checksum")
    return plain


def read_kept(path: Path) -> bytes | None:
    """Read a file of ours; None where there is none. Raises InfrastructureError where it cannot be read."""
    try:
        return _content(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise errors.of_system(error, f"read {path}") from error


def _content(path: Path) -> bytes:
    """Read a file that stays where it is. Raises OSError for a pipe or a device: nobody may ever write to its end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EEXIST, "no file but a pipe or a device", str(path))
        return file.read()


def read_users(path: Path) -> bytes:
    """Read a file that the user gave or edits. Raises UsageError that says why it cannot be read."""
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return _bounded(path, file.read(_MOST_OF_A_PIPE + 1))
            return file.read()
    except OSError as error:
        raise errors.of_system(error, f"read {path}", users=True) from error
    except ValueError as error:  # a NUL in its name, which no system takes
        raise UsageError(f"cannot read {path}: {error}", hint="give the path of a file that is there") from error


def _bounded(path: Path, data: bytes) -> bytes:
    if len(data) > _MOST_OF_A_PIPE:
        raise UsageError(f"{path} is larger than {_MOST_OF_A_PIPE >> 20} MB", hint="give the path of a file")
    return data


_MOST_OF_A_PIPE = 256 << 20
"""Bytes that are taken of what is no file, such as ``<(command)``: a device has no end."""


def users_text(path: Path) -> str:
    """Read a text that the user gave or edits. Raises UsageError where it cannot be read, InputError for no UTF-8."""
    data = read_users(path)
    try:
        return decoding.text(data)
    except decoding.DamagedError as error:
        place = getattr(error.__cause__, "start", 0)
        problem = errors.Problem(str(path), data[:place].count(b"\n") + 1, "", "is not UTF-8 text")
        raise errors.InputError((problem,), hint="write it anew, or take it from version control") from error


def packaged(source: Path | Traversable) -> bytes:
    """Read a file that ships with the package. Raises InfrastructureError where the installation lacks it."""
    try:
        return source.read_bytes()
    except OSError as error:
        raise InfrastructureError(
            f"{source}: {error.strerror}: the installation is not whole", hint="reinstall envbuilder"
        ) from error


def packaged_yaml(source: Traversable, kind: type[_Document]) -> _Document:
    """Read a data file that ships with the package as ``kind``. Raises ValueError if it does not fit."""
    import yaml  # noqa: PLC0415, TID251 - not the user's own file; 20 ms that not every command needs

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return decoding.converted(yaml.load(packaged(source), Loader=loader), kind, f"{source.name} is damaged")  # noqa: S506


def folders_in(folder: Path) -> tuple[Path, ...]:
    """List the folders of a folder of ours. Raises InfrastructureError where it cannot be read."""
    try:
        return tuple(path for path in folder.iterdir() if path.is_dir())
    except OSError as error:
        raise errors.of_system(error, f"read {folder}") from error


def packaged_in(folder: Path | Traversable) -> tuple[Traversable, ...]:
    """List a folder that ships with the package. Raises InfrastructureError where the installation lacks it."""
    try:
        return tuple(folder.iterdir())
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: {error.strerror}: the installation is not whole", hint="reinstall envbuilder"
        ) from error


def set_aside(path: Path, why: str) -> None:
    """Rename a damaged file of ours to ``<name>.damaged``, and say so on standard error."""
    aside = path.with_name(f"{path.name}.damaged")
    try:
        path.replace(aside)
    except OSError:
        console.warn(f"{path} {why}; it is left out")
    else:
        console.warn(f"{path} {why}; it is set aside as {aside.name} and made anew")


def cached(path: Path) -> bytes | None:
    """Return what `cache` kept in a file, where it is whole; None for anything else: a cache is no source of errors."""
    try:
        data = _content(path)
    except OSError:
        return None
    content = data[_CHECKSUM:]
    return content if data[:_CHECKSUM] == hashlib.blake2b(content, digest_size=_CHECKSUM).digest() else None


def cache(path: Path, content: bytes) -> None:
    """Keep what can be made again, with its checksum; a folder that cannot be written to is no error."""
    with suppress(OSError, InfrastructureError):
        write_atomically(path, hashlib.blake2b(content, digest_size=_CHECKSUM).digest() + content)


_CHECKSUM = 16
"""Bytes of BLAKE2b before a cached file's content."""


def digest(data: bytes) -> str:
    """Return the sha256 of a content (``sha256:…``)."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def content_key(parts: Mapping[str, bytes]) -> str:
    """Return the sha256 over named contents, independent of their order (``sha256:…``)."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{len(name)}:{name}:{len(parts[name])}:".encode())
        digest.update(parts[name])
    return f"sha256:{digest.hexdigest()}"


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Read every file below a folder, by its path relative to it; empty where there is no folder.

    Raises UsageError for a file that cannot be read.
    """
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): read_users(path) for path in files}
