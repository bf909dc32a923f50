"""Pin every package of an environment with its hash, by uv's resolver."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from envbuilder.environment import Environment
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.image import lockfile
from envbuilder.image.wheel_records import supported_tags, wheel_tags
from envbuilder.pypi.index_config import configured, for_uv
from envbuilder.support import decoding, subprocesses
from envbuilder.versions import at_least, distribution, is_final, minor, numbers
from envbuilder.workspace import temporary_folder, users_text

_UV_GLIBC = (17, 28, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40)
"""The glibc minors that uv knows as ``manylinux_2_N`` platforms (uv's ``--python-platform``)."""

_FIRST_WITHOUT_SDISTS = "2.6"
"""TensorFlow before this line requires packages that exist as sdists only (termcolor 1.1.0, wrapt 1.12.1)."""

_TIME_LIMIT_S = 600

_YES = frozenset({"1", "true", "t", "yes", "y", "on"})
"""What uv takes for yes in a variable."""


def lock(
    environment: Environment, glibc: str, *, keep: str = "", wheels: Path | None = None, dependencies: bool = True
) -> str:
    """Resolve an environment's packages for its Python, glibc and machine; return the lock's text.

    The lock is in pip's format, sorted by name: every package with ``==``, and the hash of the one file that this
    Python and machine install. The index is the one
    that uv or pip is set to. ``keep`` is another lock whose versions are kept wherever they fit; ``wheels`` a folder
    of further wheels to choose from; without ``dependencies`` what is asked for is pinned alone. Raises
    UnsatisfiableError with the resolver's reason, InfrastructureError where the index does not answer.
    """
    with temporary_folder("lock") as folder:
        wishes = Path(folder, "requirements.in")
        wishes.write_text("\n".join((*environment.requirements, *environment.cuda_wheels)) + "\n")
        bounds = Path(folder, "constraints.txt")
        bounds.write_text("\n".join(environment.constraints) + "\n")
        result = Path(folder, "requirements.lock")
        if keep:
            result.write_text(keep)
        words = [*_arguments(environment, glibc, wishes, bounds), "--output-file", str(result)]
        words += [] if dependencies else ["--no-deps"]
        words += ["--find-links", str(wheels)] if wheels else []
        _run(environment, words)
        text = one_hash_each(users_text(result), environment, glibc, wheels=wheels)
    framework, *asked_for = environment.requirements
    if not asked_for or not dependencies:
        return text
    alone = msgspec.structs.replace(environment, requirements=(framework,), constraints=tuple(_pins(text)))
    required = {package.name for package in lockfile.parse(lock(alone, glibc, keep=text, wheels=wheels))}
    return lockfile.with_added(text, {package.name for package in lockfile.parse(text)} - required)


def one_hash_each(text: str, environment: Environment, glibc: str, *, wheels: Path | None = None) -> str:
    """Return a lock in which each package has the hash of the file that is installed: its best wheel, else its sdist.

    Raises InfrastructureError if the index does not answer.
    """
    with temporary_folder("hashes") as folder:
        pinned, result = Path(folder, "pinned.in"), Path(folder, "pylock.toml")
        pinned.write_text("\n".join(_pins(text)) + "\n")
        words = [*_arguments(environment, glibc, pinned, Path(os.devnull)), "--no-deps", "--format", "pylock.toml"]
        words += ["--output-file", str(result)]
        _run(environment, [*words, "--find-links", str(wheels)] if wheels else words)
        found = decoding.converted(tomllib.loads(users_text(result)), _PyLock)
    ranks = {
        tag: rank for rank, tag in enumerate(supported_tags(environment.python, environment.arch, numbers(glibc)[1]))
    }
    files = {(distribution(one.name), one.version): one.best(ranks) for one in found.packages}
    lines = []
    for package in lockfile.parse(text):
        file = files.get((package.name, package.version))
        if file is None or not file.hashes:
            raise InfrastructureError(f"the index has no file of {package.name} {package.version} for {environment.id}")
        lines.append(f"{package.name}=={package.version} --hash=sha256:{file.hashes['sha256']}\n")
    return "".join(lines)


def _pins(text: str) -> list[str]:
    return [f"{package.name}=={package.version}" for package in lockfile.parse(text)]


class _File(msgspec.Struct):
    hashes: dict[str, str]
    name: str = ""
    url: str = ""
    path: str = ""

    @property
    def filename(self) -> str:
        return self.name or unquote(urlsplit(self.url).path or self.path).rpartition("/")[2]


class _Package(msgspec.Struct):
    name: str
    version: str = ""
    wheels: list[_File] = []
    sdist: _File | None = None

    def best(self, ranks: Mapping[str, int]) -> _File | None:
        """Return the wheel of the best rank, else the sdist."""
        fitting = [one for one in self.wheels if not wheel_tags(one.filename).isdisjoint(ranks)]
        best = min(
            fitting, key=lambda one: min(ranks[tag] for tag in wheel_tags(one.filename) if tag in ranks), default=None
        )
        return best or self.sdist


class _PyLock(msgspec.Struct):
    """What is read of uv's lock in the format of https://packaging.python.org/en/latest/specifications/pylock-toml/."""

    packages: list[_Package] = []


def _run(environment: Environment, words: list[str]) -> None:
    done = _uv(words, environment.added.indexes)
    if done.code:
        raise _failure(environment, done.error_text)


def lock_alone(environment: Environment, glibc: str, requirement: str) -> str:
    """Pin one package with its hashes and nothing that it requires; errors as of `lock`."""
    alone = msgspec.structs.replace(environment, requirements=(requirement,), cuda_wheels=(), constraints=())
    return lock(alone, glibc, dependencies=False)


def _arguments(environment: Environment, glibc: str, wishes: Path, bounds: Path) -> list[str]:
    words = ["pip", "compile", str(wishes), "--constraints", str(bounds), "--generate-hashes", "--no-header"]
    words += ["--no-annotate", "--quiet", "--python-version", environment.python, "--no-python-downloads"]
    words += ["--python-platform", uv_platform(environment.arch, glibc)]
    if at_least(minor(environment.tensorflow), _FIRST_WITHOUT_SDISTS):
        words += ["--only-binary", ":all:"]
    if not is_final(environment.tensorflow):
        words += ["--prerelease", "if-necessary-or-explicit"]
    return words


def uv_platform(arch: str, glibc: str) -> str:
    """Name uv's platform for a machine and a glibc: the newest that the glibc satisfies."""
    known = max((candidate for candidate in _UV_GLIBC if candidate <= numbers(glibc)[1]), default=_UV_GLIBC[0])
    return f"{arch}-manylinux_2_{known}"


def uv_binary() -> str:
    """Return the path of uv's binary, as its own distribution tells it."""
    from uv import find_uv_bin  # noqa: PLC0415 - only locking needs it

    return find_uv_bin()


def _uv(arguments: list[str], own: tuple[str, ...]) -> subprocesses.CompletedProgram:
    """Run uv with the indexes of this host, and before them ``own``, those of a matrix.

    What one of these has is taken from there alone, whatever the strategy is between others: a package of a team's own
    name that somebody else published under a higher version is that somebody's code. By variables, which no list of
    processes shows: addresses of this host's settings may hold credentials.
    """
    environ = {**os.environ, **for_uv(configured()), "NO_COLOR": "1"}
    if own:
        further = " ".join((*own, *environ.get("UV_INDEX", "").split()))
        environ |= {"UV_INDEX": further, "UV_INDEX_STRATEGY": "first-index"}
    try:
        return subprocesses.run([uv_binary(), *arguments], within=_TIME_LIMIT_S, env=environ)
    except subprocesses.ProgramError as error:
        raise InfrastructureError(
            f"uv did not finish: {error.message}", hint="check the network and the package index"
        ) from error


def _failure(environment: Environment, stderr: str) -> UnsatisfiableError | InfrastructureError:
    if os.environ.get("UV_OFFLINE", "").lower() in _YES:  # then what uv has not kept is to it as if it were nowhere
        return InfrastructureError(
            f"{environment.id} cannot be locked: uv may use no network",
            hint="unset UV_OFFLINE, then run it again",
        )
    if "No solution found" in stderr or "no wheels" in stderr:
        reason = re.sub(r"[^\x20-\x7e]+|\s+", " ", stderr).strip()
        reason = re.sub(r" {2,}", " ", reason)
        return UnsatisfiableError(
            f"{environment.id} cannot be locked: {reason}",
            hint=f"run `envbuilder explain {environment.id}`, or loosen the matrix's packages",
        )
    last = "\n".join(stderr.strip().splitlines()[-4:])
    return InfrastructureError(
        f"uv could not resolve {environment.id}:\n{last}",
        hint="check the network, the index that uv or pip is configured for (UV_DEFAULT_INDEX) and SSL_CERT_FILE",
    )
