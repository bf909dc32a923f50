"""Locks: read one, fit it to a variant, and pin every package of an environment with its hash, by uv's resolver."""

import itertools
import os
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
from packaging.markers import Marker, default_environment
from packaging.pylock import PackageSdist, PackageWheel, Pylock, PylockSelectError
from packaging.tags import Tag, compatible_tags, cpython_tags
from uv import find_uv_bin

from envbuilder import workspace
from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.pypi.index_config import configured, for_uv
from envbuilder.support import subprocesses
from envbuilder.support.templates import shipped
from envbuilder.versions import at_least, distribution, is_final, minor, numbers, pins

LOCK = "requirements.lock"
"""The lock's name in a build context."""

_ADDED = "# added by the matrix: "
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PACKAGE = re.compile(rf"^(?P<name>{_NAME.pattern})==(?P<version>[^\s;\\]+)")
_HASH = re.compile(r"--hash=(sha256:[0-9a-f]{64})")

_UV_GLIBC = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)
"""The glibc minors that uv knows as ``manylinux_2_N`` platforms (uv's ``--python-platform``)."""

_FIRST_WITHOUT_SDISTS = "2.7"
"""TensorFlow before this line requires packages that exist as sdists only (termcolor 1.1.0, clang 5.0)."""

_NEEDS_SDIST = {("2.12", "3.8")}
"""Lines of TensorFlow and Python with such a package: no jax before 0.4.16 has a wheel, and those need Python 3.9."""

_NEWEST_GLIBC = 45
"""The largest minor version of the GNU C library in a wheel's name; no such release exists yet."""


@dataclass(frozen=True)
class Locked:
    """One package of a lock: normalised name, exact version, sha256 of every file that may be installed."""

    name: str
    version: str
    hashes: tuple[str, ...]
    text: str


def of_context(context: Path) -> str | None:
    """Read the lock of a build context; None if there is none. Raises UsageError, or InputError if it is not text."""
    path = context / LOCK
    return workspace.users_text(path) if path.is_file() else None


@lru_cache(maxsize=16)
def parse(text: str) -> tuple[Locked, ...]:
    """List a lock's packages in its order. Raises ValueError for a line that pins nothing."""
    packages: list[Locked] = []
    for block in re.split(r"(?<!\\)\n(?=\S)", text.strip()):
        if not block or block.startswith("#"):
            continue
        if (found := _PACKAGE.match(block)) is None:
            raise ValueError(f"not a pinned package: {block.splitlines()[0]!r}")
        hashes = tuple(_HASH.findall(block))
        packages.append(Locked(distribution(found["name"]), found["version"], hashes, block.strip()))
    return tuple(packages)


def names(requirements: Iterable[str]) -> tuple[str, ...]:
    """Return the normalised names of requirements (``numpy>=2,<3``), in their order."""
    return tuple(distribution(found[0]) for text in requirements if (found := _NAME.match(text)))


@lru_cache(maxsize=8)
def installer(python: str) -> str:
    """Return a lock of pip and uv for a Python, for images that may be changed."""
    text = ""
    for line in workspace.users_text(shipped("templates") / "installer.lock").splitlines():
        pin, _, rest = line.partition(" ; ")
        marker, _, digest = rest.partition(" --hash=")
        if digest and Marker(marker).evaluate({"python_version": python}):
            text += f"{pin} --hash={digest}\n"
    return text


def for_variant(text: str, environment: Environment) -> str:
    """Return a lock for a variant: without the wheels that it leaves out, and with pip and uv if it may be changed."""
    tools = {one.name: one for one in parse(installer(environment.python))}
    gone = {*pins(environment.not_installed), *tools} - added(text)
    lines = {one.text for one in parse(text) if one.name in gone}
    kept = "".join(line for line in text.splitlines(keepends=True) if line.strip() not in lines)
    missing = tools.keys() - {one.name for one in parse(kept)} if environment.may_be_changed else ()
    return kept + "".join(f"{tools[name].text}\n" for name in sorted(missing))


def added(text: str) -> frozenset[str]:
    """Return the packages that only the matrix's additions require; none if a lock does not note them."""
    line = next((line for line in text.splitlines() if line.startswith(_ADDED)), _ADDED)
    return frozenset(line.removeprefix(_ADDED).split())


def digest(text: str) -> str:
    return workspace.digest(text.encode())


def supported_tags(python: str, arch: str, glibc: int = _NEWEST_GLIBC) -> tuple[Tag, ...]:
    """List the tags of wheels that a CPython takes on Linux: the most specific for Python first, then the oldest glibc.

    So environments on several systems take the same wheel. ``glibc`` is the minor version of the GNU C library.
    """
    version = numbers(minor(python))
    platforms = [f"{old}_{arch}" for old in ("linux", "manylinux1", "manylinux2010", "manylinux2014")]
    platforms += [f"manylinux_2_{number}_{arch}" for number in range(5, glibc + 1)]
    tags = itertools.chain(
        cpython_tags(version, platforms=platforms),
        compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
    )
    return tuple(dict.fromkeys(tags))


def resolve(
    environment: Environment, glibc: str, *, keep: str = "", wheels: Path | None = None, refresh: bool = False
) -> str:
    """Resolve an environment's packages for its Python, glibc and machine; return the lock's text.

    The lock is in pip's format, sorted by name. ``keep`` is another lock whose versions are kept if they fit;
    ``wheels`` a folder of further wheels to choose from; ``refresh`` asks the index again for cached pages. Raises
    UnsatisfiableError with the resolver's reason, InfrastructureError if the index does not answer.
    """
    local = ("--find-links", str(wheels)) if wheels else ()
    pinned = _pins(_compiled(environment, glibc, *local, *(["--refresh"] if refresh else []), keep=keep))
    text = with_hashes(pinned, environment, glibc, *local)
    framework, *asked_for = environment.requirements
    if not asked_for:
        return for_variant(text, environment)
    alone = msgspec.structs.replace(environment, requirements=(framework,), constraints=pinned)
    required = _pins(_compiled(alone, glibc, *local, keep=text))
    note = f"{_ADDED}{' '.join(sorted(names(set(pinned) - set(required))))}\n"
    return for_variant(note + text, environment)


def with_hashes(pins: tuple[str, ...], environment: Environment, glibc: str, *options: str) -> str:
    """Return a lock of exactly these pins, each with the hash of the file that is installed: the best wheel, or sdist.

    ``options`` are uv's. Errors as of `resolve`.
    """
    exact = msgspec.structs.replace(environment, requirements=pins, cuda_wheels=(), constraints=())
    options = (*options, "--no-deps", "--format", "pylock.toml")
    found = Pylock.from_dict(tomllib.loads(_compiled(exact, glibc, *options, name="pylock.toml")))
    tags = supported_tags(environment.python, environment.arch, numbers(glibc)[1])
    target = default_environment()
    target |= {"python_version": environment.python, "python_full_version": f"{environment.python}.0"}
    try:
        files = {str(package.name): file for package, file in found.select(environment=target, tags=tags)}
        hashes = {name: file.hashes for name, file in files.items() if isinstance(file, PackageWheel | PackageSdist)}
        return "".join(f"{pin} --hash=sha256:{hashes[pin.partition('==')[0]]['sha256']}\n" for pin in pins)
    except (PylockSelectError, KeyError, ValueError) as error:  # ValueError: a wheel's name
        text = f"the index lacks a file of a package of {environment.id}: {error}"
        raise InfrastructureError(text, hint="run it again, or look at the package's files on the index") from error


def _pins(text: str) -> tuple[str, ...]:
    return tuple(f"{package.name}=={package.version}" for package in parse(text))


def _compiled(environment: Environment, glibc: str, *options: str, keep: str = "", name: str = LOCK) -> str:
    """Resolve by uv: a lock with the hash of every file of each package, in the format of its file's ``name``.

    The indexes are this host's, after those of the matrix. A package that one of these has is taken only from there,
    whatever the strategy is between others: a package of a team's own name that somebody else published under a higher
    version is somebody else's code. They are variables, which no list of processes shows: addresses of this host's
    settings may hold credentials.
    """
    environ = {**os.environ, **for_uv(configured()), "NO_COLOR": "1"}
    if own := environment.added.indexes:
        further = " ".join((*own, *environ.get("UV_INDEX", "").split()))
        environ |= {"UV_INDEX": further, "UV_INDEX_STRATEGY": "first-index"}
    with workspace.temporary_folder("lock") as folder:
        asked, bounds = folder / "requirements.in", folder / "constraints.txt"
        result = folder / name
        asked.write_text("\n".join((*environment.requirements, *environment.cuda_wheels)) + "\n")
        bounds.write_text("\n".join(environment.constraints) + "\n")
        if keep:
            result.write_text(keep)
        words = [find_uv_bin(), "pip", "compile", str(asked), "--constraints", str(bounds)]
        words += ["--output-file", str(result), "--generate-hashes", "--no-header", "--no-annotate"]
        words += ["--quiet", "--no-python-downloads", *options, *_target(environment, glibc)]
        try:
            done = subprocesses.run(words, within=600, env=environ)
        except subprocesses.ProgramError as error:
            text = f"uv did not finish: {error.message}"
            raise InfrastructureError(text, hint="check the network and the package index") from error
        if done.code:
            raise _failure(environment, done.error_text)
        return workspace.users_text(result)


def _target(environment: Environment, glibc: str) -> list[str]:
    """Return uv's options for an environment's Python and machine, with uv's newest platform for the glibc."""
    known = max((one for one in _UV_GLIBC if one <= numbers(glibc)[1]), default=_UV_GLIBC[0])
    words = ["--python-version", environment.python, "--python-platform", f"{environment.arch}-manylinux_2_{known}"]
    line = minor(environment.tensorflow)
    if at_least(line, _FIRST_WITHOUT_SDISTS) and (line, environment.python) not in _NEEDS_SDIST:
        words += ["--only-binary", ":all:"]
    if not is_final(environment.tensorflow):
        words += ["--prerelease", "if-necessary-or-explicit"]
    return words


def _failure(environment: Environment, stderr: str) -> UnsatisfiableError | InfrastructureError:
    text = f"{environment.id} cannot be locked"
    if os.environ.get("UV_OFFLINE", "").lower() in {"1", "true", "t", "yes", "y", "on"}:
        # Then uv treats everything outside of its cache as missing.
        return InfrastructureError(f"{text}: uv may use no network", hint="unset UV_OFFLINE, then run it again")
    if "No solution found" in stderr or "no wheels" in stderr:
        reason = " ".join(re.sub(r"[^\x20-\x7e]+", " ", stderr).split()).removeprefix("error: ")
        hint = "loosen the packages that the resolver names; if that is TensorFlow, check its version and the index"
        return UnsatisfiableError(f"{text}:\n{reason}", hint=hint)
    last = "\n".join(stderr.strip().splitlines()[-20:])
    hint = "check the network, the index that uv or pip is configured for (UV_DEFAULT_INDEX) and SSL_CERT_FILE"
    return InfrastructureError(f"uv could not resolve {environment.id}:\n{last}", hint=hint)
