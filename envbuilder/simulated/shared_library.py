"""Compile the package's C sources into shared libraries, once, and cache them."""

import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files as package_files
from pathlib import Path

from envbuilder.errors import InfrastructureError
from envbuilder.support import subprocesses
from envbuilder.workspace import packaged, read_stored, temporary_folder, writing

# So that old images can load the libraries: no fortified or new functions of the C library (a test reads them back),
# no exports but those of the sources, and no trace of the build host.
_FLAGS = (
    *("-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-fno-stack-protector", "-U_FORTIFY_SOURCE"),
    *("-Wl,--build-id=none", "-Wl,-z,noexecstack", "-s"),
)


@dataclass(frozen=True)
class Library:
    """One library: its sources, its soname ('' for none), and linker options."""

    sources: tuple[str, ...]
    soname: str = ""
    links: tuple[str, ...] = ()


@dataclass(frozen=True)
class Libraries:
    """Libraries that are compiled together: ``name`` for the cache, ``what`` for people, ``package`` of the sources."""

    name: str
    what: str
    package: str
    members: Mapping[str, Library]
    headers: tuple[str, ...] = ()


def compiled(libraries: Libraries, cache: Path) -> dict[str, bytes]:
    """Return the libraries by file name, cached by sources, options and compiler.

    Raises InfrastructureError if there is no C compiler, or if it fails.
    """
    names = {*libraries.headers, *(name for library in libraries.members.values() for name in library.sources)}
    sources = {name: packaged(package_files(libraries.package) / name) for name in sorted(names)}
    compiler = _compiler(libraries.what)
    folder = cache / f"{libraries.name}-{_digest(libraries, sources, compiler)}"
    if not all((folder / name).is_file() for name in libraries.members):
        _compile(libraries, sources, compiler, folder)
    return {name: read_stored(folder / name) or b"" for name in libraries.members}


def _compile(libraries: Libraries, sources: Mapping[str, bytes], compiler: str, folder: Path) -> None:
    with temporary_folder("compile", folder.parent) as work:  # on the disk of its target, to be moved there
        for source, text in sources.items():
            with writing(work / source):
                (work / source).write_bytes(text)
        for name, library in libraries.members.items():
            output = work / "compiled" / name
            output.parent.mkdir(parents=True, exist_ok=True)
            soname = (f"-Wl,-soname,{library.soname}",) if library.soname else ()
            _run(
                [compiler, *_FLAGS, "-o", str(output), *library.sources, *soname, *library.links], work, libraries.what
            )
        for name in libraries.members:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (work / "compiled" / name).replace(folder / name)


def _run(command: list[str], work: Path, what: str) -> None:
    hint = "set CC to a C compiler that makes shared libraries for this machine"
    try:
        done = subprocesses.run(command, within=120, folder=work)
    except subprocesses.ProgramError as error:
        raise InfrastructureError(f"{command[0]} could not compile {what}: {error.message}", hint=hint) from error
    if done.code:
        raise InfrastructureError(f"{command[0]} could not compile {what}:\n{done.error_text.strip()}", hint=hint)


def _compiler(what: str) -> str:
    for name in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        found = shutil.which(name) if name else None
        if found:
            return found
    raise InfrastructureError(
        f"{what}: they are compiled at their first use, and this host has no C compiler",
        hint="install gcc (Debian: apt-get install gcc libc6-dev), or set CC",
    )


def _digest(libraries: Libraries, sources: Mapping[str, bytes], compiler: str) -> str:
    try:
        version = subprocesses.run([compiler, "--version"], within=60).out
    except subprocesses.ProgramError as error:
        raise InfrastructureError(f"{compiler} does not report its version: {error.message}", hint="set CC") from error
    parts = [version, *(flag.encode() for flag in _FLAGS)]
    parts += [repr((name, library)).encode() for name, library in sorted(libraries.members.items())]
    parts += [part for name in sorted(sources) for part in (name.encode(), sources[name])]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
