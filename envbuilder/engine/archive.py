"""Stream tar archives that are equal for equal content: sorted, with fixed owners and times."""

import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from envbuilder.errors import UsageError, of_system

MODIFIED = 1_577_836_800
"""2020-01-01, the time of every file. Not 0: zip files, such as wheels built from these, start in 1980."""

_CHUNK = 1 << 20
Source = Path | bytes


def context_entries(context: Path | Mapping[str, Source], extra: Mapping[str, bytes]) -> dict[str, Source]:
    """Return a build context's files by their path in it; ``extra`` adds or replaces files.

    Raises UsageError if an extra path is outside the context.
    """
    if isinstance(context, Path):
        files = (path for path in context.rglob("*") if path.is_symlink() or path.is_file())
        return context_entries({str(path.relative_to(context)): path for path in files}, extra)
    for name in extra:
        if name.startswith("/") or ".." in PurePosixPath(name).parts:
            raise UsageError(f"{name!r} is not a path inside a build context")
    return {**context, **extra}


def stream(entries: Mapping[str, Source], *, mode: int | None = None) -> Iterator[bytes]:
    """Yield a tar of the entries, sorted by path, each after its folders.

    ``mode`` overrides the files' own permissions; without it a file is 0755 if its owner may execute it, else 0644.
    """
    folders: set[str] = set()
    for name in sorted(entries):
        for parent in reversed(PurePosixPath(name).parents[:-1]):
            if str(parent) not in folders:
                folders.add(str(parent))
                yield _header(str(parent), tarfile.DIRTYPE, 0o755)
        yield from _file(name, entries[name], mode)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _file(name: str, source: Source, mode: int | None) -> Iterator[bytes]:
    """Yield a file or a link. Raises UsageError if it cannot be read: that is not the engine's fault."""
    if isinstance(source, bytes):
        yield _header(name, tarfile.REGTYPE, mode or 0o644, size=len(source))
        yield source
        yield bytes(-len(source) % tarfile.BLOCKSIZE)
        return
    try:
        if source.is_symlink():
            yield _header(name, tarfile.SYMTYPE, 0o777, target=str(source.readlink()))
            return
        status = source.stat()
        executable = bool(status.st_mode & 0o100)
        yield _header(name, tarfile.REGTYPE, mode or (0o755 if executable else 0o644), size=status.st_size)
        with source.open("rb") as file:
            left = status.st_size
            while left and (chunk := file.read(min(_CHUNK, left))):
                left -= len(chunk)
                yield chunk
    except OSError as error:
        raise of_system(error, f"read {source}", users=True) from error
    if left:
        raise UsageError(f"{source} became shorter while envbuilder read it")
    yield bytes(-status.st_size % tarfile.BLOCKSIZE)


def _header(name: str, kind: bytes, mode: int, *, size: int = 0, target: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname, info.mtime = kind, mode, size, target, MODIFIED
    # BuildKit recognises an archive by its first kilobyte and does not know pax headers there: GNU has none.
    return info.tobuf(tarfile.GNU_FORMAT)
