"""Pin the system's packages: exact versions and digests, as signed package lists have them on the day of the lock.

apt resolves the packages of a matrix, and the CUDA of a distribution's packages, on this host with their
dependencies, against the bootstrapped base only. A build downloads exactly these bytes, or fails.
"""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote

import msgspec

from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, InputError, Problem
from envbuilder.image import debian, host_settings, lockfile
from envbuilder.support import subprocesses
from envbuilder.versions import pins
from envbuilder.workspace import cache_dir, packaged, temporary_folder, users_text, write_atomically, writing

SYSTEM_LOCK, CUDNN_LOCK = "system.lock", "cudnn.lock"
"""Files of a build context: packages of the system in the format of sha256sum, and cuDNN's wheel in pip's."""

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_DEBIAN_FIRST = "Package: *\nPin: release o=Debian\nPin-Priority: 900\n"
"""Debian's package is taken even if a further repository has a higher version."""

_LINE = re.compile(
    r"(?P<sha256>[0-9a-f]{64})  (?P<file>(?P<name>[a-z0-9][a-z0-9+.-]*)_(?P<version>[^_\s/]+)_(?:amd64|all)\.deb)\Z"
)
_PRINTED = re.compile(r"^'[^']*' (?P<file>\S+\.deb) \d+ SHA256:(?P<sha256>[0-9a-f]{64})$", re.MULTILINE)
_BEFORE = ("?essential", "?priority(required)", "apt", *debian.PACKAGES)
"""Content of a bootstrapped base, which is not pinned or installed again."""

_IN_BASE = "# in the base: "
"""Begins a lock's line for a requested package that the base has already."""


class SystemPackage(msgspec.Struct, frozen=True):
    name: str
    version: str
    sha256: str
    file: str

    @property
    def pin(self) -> str:
        return f"{self.name}={self.version}"


def pinned_wheels(lock: str, system: Mapping[str, str]) -> tuple[lockfile.Locked, ...]:
    return (*lockfile.parse(lock), *lockfile.parse(system.get(CUDNN_LOCK, "")))


def parse(text: str) -> tuple[SystemPackage, ...]:
    """List a lock's packages. Raises ValueError for a line that is not one."""
    packages = []
    for line in text.splitlines():
        if line and not line.startswith(_IN_BASE):
            if (found := _LINE.match(line)) is None:
                raise ValueError(f"not a pinned package of the system: {line!r}")
            packages.append(SystemPackage(found["name"], unquote(found["version"]), found["sha256"], found["file"]))
    return tuple(packages)


def of_base(text: str) -> set[str]:
    """Return the requested packages (``name`` or ``name=version``) that the base has already."""
    return {line.removeprefix(_IN_BASE) for line in text.splitlines() if line.startswith(_IN_BASE)}


def digest(system: Mapping[str, str]) -> str:
    return lockfile.digest("".join(system[name] for name in sorted(system)))


def needed(environment: Environment) -> tuple[str, ...]:
    names = (SYSTEM_LOCK,) if environment.pinned_packages else ()
    return (*names, CUDNN_LOCK) if environment.packaged_cuda else names


def _stored(context: Path, environment: Environment, hint: str = "") -> dict[str, tuple[str, bool]]:
    """Read the system's locks of a build context, and if each pins all that the environment asks for.

    Raises InputError for a damaged one.
    """
    found = {}
    for path in (context / name for name in needed(environment)):
        if path.is_file():
            text = users_text(path)
            try:
                found[path.name] = text, _fits(path.name, text, environment)
            except ValueError as error:
                problem = Problem(str(path), 1, "", str(error))
                raise InputError((problem,), hint=hint) from error
    return found


def _fits(name: str, text: str, environment: Environment) -> bool:
    if name == CUDNN_LOCK:
        wanted = pins((environment.packaged_cuda.cudnn,)) if environment.packaged_cuda else {}
        return {package.name: package.version for package in lockfile.parse(text)} == wanted
    locked = {package.name: package.version for package in parse(text)}
    asked = (one.partition("=") for one in environment.pinned_packages if one not in of_base(text))
    return all(locked.get(package) == (version or locked.get(package, "")) for package, _, version in asked)


def texts(context: Path, environment: Environment) -> dict[str, str]:
    """Read the system's locks of a build context by name, even if they do not fit the environment."""
    return {name: text for name, (text, _) in _stored(context, environment).items()}


def absent(context: Path, environment: Environment, hint: str = "") -> tuple[str, ...]:
    """Return the names of the system's locks that a build context lacks.

    Raises InputError for one that does not fit the environment: a lock changes on request only.
    """
    found = _stored(context, environment, hint)
    message = f"does not pin {', '.join(environment.pinned_packages)}, which the matrix asks for"
    problems = tuple(Problem(str(context / name), 1, "", message) for name, (_, fits) in found.items() if not fits)
    if problems:
        raise InputError(problems, hint=hint)
    return tuple(name for name in needed(environment) if name not in found)


def carry_over(before: Path, context: Path, environment: Environment) -> None:
    """Copy the fitting system locks of another context to a context that has none.

    So two images that differ only in Python packages have the same system, whatever mirrors have today.
    """
    for name, (text, fits) in _stored(before, environment).items():
        if fits and not (context / name).is_file():
            write_atomically(context / name, text.encode())


def resolve(suite: str, packages: Iterable[str], component: str = "", repository: str = "") -> str:
    """Resolve packages of a Debian suite and their dependencies that a bootstrapped base lacks; return the lock.

    ``component`` is a further part of the archive, ``repository`` the name of a further one of the user's.
    Raises UsageError without such a repository, InfrastructureError with apt's reason, and InputError for a name that
    other packages provide: it pins nothing.
    """
    packages = tuple(packages)
    with temporary_folder("apt") as folder:
        options = _prepared(suite, component, repository, folder)
        _run([*options, "update"], "check the mirror in apt's configuration")
        base = (*_BEFORE, *debian.IS_MERGED.get(suite, ()))
        before = {file for file, _ in _printed(options, base)}
        found = [row for row in _printed(options, (*base, *packages)) if row[0] not in before]
    text = "".join(f"{sha256}  {file}\n" for file, sha256 in sorted(found))
    pinned, based = {package.name for package in parse(text)}, {file.partition("_")[0] for file in before}
    others = [one for one in packages if one.partition("=")[0] not in pinned]
    message = "no package of this name: others provide it, and one of these is to be named"
    virtual = [Problem("system_packages", 0, one, message) for one in others if one.partition("=")[0] not in based]
    if virtual:
        raise InputError(tuple(virtual), hint="apt-cache showpkg NAME, on such a system, says who provides it")
    return "".join(f"{_IN_BASE}{one}\n" for one in sorted(others)) + text


def _prepared(suite: str, component: str, repository: str, folder: Path) -> list[str]:
    """Return the options for an apt in this folder that knows this suite and repository only, for amd64.

    The suite's mirror is the user's, this host's, else that of the base.
    """
    further = host_settings.repository_files(repository, f"{folder}/etc") if repository else {}
    lines = debian.mirror_lines(suite) or debian.lines_of_base(suite, cache_dir() / "bases")
    if not lines:
        raise InfrastructureError(
            f"no mirror of Debian's {suite} is known on this host: its packages cannot be pinned here",
            hint=f'name one in {host_settings.config_file()}: [apt] with debian = "https://mirror.example.org/debian"',
        )
    for name in ("state/lists/partial", "cache/archives/partial", "etc"):
        with writing(folder / name):
            (folder / name).mkdir(parents=True)
    signed = f"deb [signed-by={_KEYRING}] "
    text = "".join(f"{line.replace('deb ', signed, 1)} {component}".rstrip() + "\n" for line in lines)
    conf = packaged(Path(__file__).with_name("apt.conf")).replace(b"FOLDER", str(folder).encode())
    files = {"status": b"", "sources.list": text.encode(), "preferences": _DEBIAN_FIRST.encode(), "apt.conf": conf}
    files |= {f"etc/{name}": content for name, content in further.items()}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return ["-c", str(folder / "apt.conf")]


def _printed(options: list[str], packages: Iterable[str]) -> list[tuple[str, str]]:
    """Return names and digests of the files that apt would fetch."""
    said = _run([*options, "--print-uris", "-y", "install", *packages], "see the versions that the mirror has")
    return [(found["file"], found["sha256"]) for found in _PRINTED.finditer(said)]


def _run(words: list[str], hint: str) -> str:
    try:
        done = subprocesses.run(["apt-get", *words], within=300, env={**os.environ, "LC_ALL": "C.UTF-8"})
    except subprocesses.ProgramError as error:
        hint = "lock on a host with apt, Debian's or Ubuntu's; what is locked is committed, and renders anywhere"
        raise InfrastructureError(f"the system's packages cannot be pinned here: {error.message}", hint=hint) from error
    if done.code:
        said = " ".join(line for line in done.error_text.splitlines() if line.startswith("E:"))
        raise InfrastructureError(f"apt cannot resolve the system's packages: {said or 'no reason given'}", hint=hint)
    return done.text
