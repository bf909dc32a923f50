"""Pin the system's own packages: exact versions and digests, as signed package lists name them on the day of the lock.

What a matrix asks of the system, and the CUDA of a distribution's packages, are resolved by apt on this host, with
their dependencies and against nothing but the bootstrapped base. A build downloads exactly these bytes, or fails.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec

from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, InputError, Problem
from envbuilder.image import apt_sources, debian, lockfile
from envbuilder.image.user_config import config_file
from envbuilder.support import subprocesses
from envbuilder.versions import pins
from envbuilder.workspace import cache_dir, temporary_folder, users_text, write_atomically, writing

SYSTEM_LOCK, CUDNN_LOCK = "system.lock", "cudnn.lock"
"""Their names in a build context: packages of the system in the format of sha256sum, and cuDNN's wheel in pip's."""

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DEBIAN_FIRST = "Package: *\nPin: release o=Debian\nPin-Priority: 900\n"
"""Of a name that Debian has, and a further repository in a higher version, Debian's is taken."""

_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64})  (?P<file>(?P<name>[a-z0-9][a-z0-9+.-]*)_(?P<version>[^_\s/]+)_(?:amd64|all)\.deb)\Z"
)
_PRINTED = re.compile(r"^'[^']*' (?P<file>\S+\.deb) \d+ SHA256:(?P<sha256>[0-9a-f]{64})$", re.MULTILINE)
_BEFORE = ("?essential", "?priority(required)", "apt", *debian.PACKAGES)
"""What a bootstrapped base holds: it is not pinned again, and nothing of it is installed twice."""

_IN_BASE = "# in the base: "
"""Begins a lock's line for what was asked for and is in the base already: it is asked for, and nothing is installed."""

_SECONDS = 300


class SystemPackage(msgspec.Struct, frozen=True):
    """One package of the system: its name, its exact version, and the digest and the name of its file."""

    name: str
    version: str
    sha256: str
    file: str

    @property
    def pin(self) -> str:
        """The package as apt installs it."""
        return f"{self.name}={self.version}"


def parse(text: str) -> tuple[SystemPackage, ...]:
    """List a lock's packages. Raises ValueError for a line that is none."""
    return tuple(_package(line) for line in text.splitlines() if line and not line.startswith(_IN_BASE))


def of_base(text: str) -> set[str]:
    """Name what was asked for and is in the base: a package, or ``name=version``."""
    return {line.removeprefix(_IN_BASE) for line in text.splitlines() if line.startswith(_IN_BASE)}


def digest(system: Mapping[str, str]) -> str:
    """Return one digest of the system's locks, by their names: an image's label has it."""
    return lockfile.digest("".join(system[name] for name in sorted(system)))


def texts(context: Path, environment: Environment) -> dict[str, str]:
    """Read the system's locks of a build context as they lie there, whether they stand or not; by their names.

    Raises InputError for one that cannot be read.
    """
    found = {name: users_text(context / name) for name in needed(environment) if (context / name).is_file()}
    for name, text in found.items():
        _is_standing(context / name, text, environment)
    return found


def _package(line: str) -> SystemPackage:
    found = _LINE.match(line)
    if found is None:
        raise ValueError(f"not a pinned package of the system: {line!r}")
    return SystemPackage(found["name"], unquote(found["version"]), found["sha256"], found["file"])


def of_context(context: Path, environment: Environment) -> dict[str, str] | None:
    """Read the system's locks of a build context; None where one that the environment needs is not there, or of others.

    Raises InputError for one that cannot be read.
    """
    found: dict[str, str] = {}
    for name in needed(environment):
        path = context / name
        if not path.is_file():
            return None
        found[name] = users_text(path)
        if not _is_standing(path, found[name], environment):
            return None
    return found


def absent(context: Path, environment: Environment) -> tuple[str, ...]:
    """Name the system's locks that an environment needs and a build context has not.

    Raises InputError for one that is there and does not pin what the environment asks for: a lock never changes
    unasked.
    """
    there = [context / name for name in needed(environment) if (context / name).is_file()]
    stale = [path for path in there if not _is_standing(path, users_text(path), environment)]
    if stale:
        asked = ", ".join(environment.pinned_packages)
        problems = tuple(
            Problem(str(path), 1, "", f"does not pin {asked}, which the matrix asks for") for path in stale
        )
        raise InputError(problems, hint=f"envbuilder lock -s {environment.id}")
    return tuple(name for name in needed(environment) if context / name not in there)


def _is_standing(path: Path, text: str, environment: Environment) -> bool:
    try:
        return _stands(path.name, text, environment)
    except ValueError as error:
        hint = f"envbuilder lock -s {environment.id}"
        raise InputError((Problem(str(path), 1, "", str(error)),), hint=hint) from error


def needed(environment: Environment) -> tuple[str, ...]:
    """Name the system's locks that an environment has."""
    names = (SYSTEM_LOCK,) if environment.pinned_packages else ()
    return (*names, CUDNN_LOCK) if environment.packaged_cuda else names


def _stands(name: str, text: str, environment: Environment) -> bool:
    """Tell whether a lock pins all that the environment asks for."""
    if name == CUDNN_LOCK:
        wanted = pins((environment.packaged_cuda.cudnn,)) if environment.packaged_cuda else {}
        return {package.name: package.version for package in lockfile.parse(text)} == dict(wanted)
    there = {package.name: package.version for package in parse(text)}
    in_base = of_base(text)
    asked = (one.partition("=") for one in environment.pinned_packages if one not in in_base)
    return all(there.get(package) == (version or there.get(package, "")) for package, _, version in asked)


def carry_over(before: Path, context: Path, environment: Environment) -> None:
    """Give a context the system's locks of another one, where these pin what it asks for and it has none of its own.

    So two images that differ in their packages of Python alone have the same system, whatever mirrors have today.
    """
    for name in needed(environment):
        source = before / name
        if source.is_file() and not (context / name).is_file():
            text = users_text(source)
            if _is_standing(source, text, environment):
                write_atomically(context / name, text.encode())


def resolve(suite: str, packages: Iterable[str], component: str = "", repository: str = "") -> str:
    """Resolve packages of a Debian suite, with what they need beyond a bootstrapped base, and write their lock.

    ``component`` is a further part of its archive, ``repository`` the name of a further one of the user's. Takes about
    10 s. Raises UsageError where the user's configuration has none of that name, InfrastructureError with apt's reason,
    or where apt or the mirror is not to be had, and InputError for a name that no package has but others provide: such
    a name pins nothing.
    """
    packages = tuple(packages)
    with temporary_folder("apt") as folder:
        options = _prepared(suite, component, repository, folder)
        _run([*options, "update"], "check the mirror in apt's configuration")
        before = {file for file, _ in _printed(options, _BEFORE)}
        found = [row for row in _printed(options, (*_BEFORE, *packages)) if row[0] not in before]
    text = "".join(f"{sha256}  {file}\n" for file, sha256 in sorted(found))
    pinned, based = {package.name for package in parse(text)}, {file.partition("_")[0] for file in before}
    others = [one for one in packages if one.partition("=")[0] not in pinned]
    virtual = [one for one in others if one.partition("=")[0] not in based]
    if virtual:
        message = "no package of this name: others provide it, and one of these is to be named"
        problems = tuple(Problem("system_packages", 0, one, message) for one in virtual)
        raise InputError(problems, hint="apt-cache showpkg NAME, on such a system, says who provides it")
    return "".join(f"{_IN_BASE}{one}\n" for one in sorted(others)) + text


def _lines(suite: str) -> tuple[str, ...]:
    """Say where the suite's lists are: the user's word, this host's, else what mmdebstrap took for the base."""
    found = debian.mirror_lines(suite) or debian.lines_of_base(suite, cache_dir() / "bases")
    if not found:
        raise InfrastructureError(
            f"no mirror of Debian's {suite} is known on this host: its packages cannot be pinned here",
            hint=f'name one in {config_file()}: [apt] with debian = "https://mirror.example.org/debian"',
        )
    return found


def _prepared(suite: str, component: str, repository: str, folder: Path) -> list[str]:
    """Return what makes apt work in a folder of its own, on this suite and repository alone, for amd64."""
    further = apt_sources.repository(repository) if repository else None
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        with writing(folder / name):
            (folder / name).mkdir(parents=True)
    write_atomically(folder / "status", b"")
    signed = f"deb [signed-by={_KEYRING}] "
    text = "".join(f"{line.replace('deb ', signed, 1)} {component}".rstrip() + "\n" for line in _lines(suite))
    if further is not None:
        write_atomically(folder / further.key_file, further.key)
        text += further.line(str(folder))
    write_atomically(folder / "sources.list", text.encode())
    write_atomically(folder / "preferences", _DEBIAN_FIRST.encode())
    values = {
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": folder / "etc",
        "Dir::Etc::preferences": folder / "preferences",
        "Dir::Etc::preferencesparts": folder / "etc",
        "APT::Architecture": "amd64",
        "APT::Architectures": "amd64",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
        "Acquire::ForceHash": "SHA256",
        "Acquire::Retries": "5",
        "APT::Install-Recommends": "false",
        "APT::Update::Error-Mode": "any",
    }
    return [word for name, value in values.items() for word in ("-o", f"{name}={value}")]


def _printed(options: list[str], packages: Iterable[str]) -> list[tuple[str, str]]:
    """Ask apt which files it would fetch: their names and digests."""
    said = _run([*options, "--print-uris", "-y", "install", *packages], "see the versions that the mirror has")
    return [(found["file"], found["sha256"]) for found in _PRINTED.finditer(said)]


def _run(words: list[str], hint: str) -> str:
    try:
        done = subprocesses.run(["apt-get", *words], within=_SECONDS, env={**os.environ, "LC_ALL": "C.UTF-8"})
    except subprocesses.ProgramError as error:
        raise InfrastructureError(
            f"the system's packages cannot be pinned here: {error.message}",
            hint="lock on a host with apt, Debian's or Ubuntu's; what is locked is committed, and renders anywhere",
        ) from error
    if done.code:
        said = " ".join(line for line in done.error_text.splitlines() if line.startswith("E:"))
        raise InfrastructureError(f"apt cannot resolve the system's packages: {said or 'no reason given'}", hint=hint)
    return done.text
