"""Bootstrap a Debian root file system from signed packages: reproducible, small, with nothing of this host in it."""

import hashlib
import os
import platform
import re
import shlex
import shutil
import tarfile
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from envbuilder.engine.archive import MODIFIED
from envbuilder.errors import InfrastructureError
from envbuilder.image import host_settings
from envbuilder.pypi.index_config import without_credentials
from envbuilder.support import decoding, subprocesses
from envbuilder.workspace import packaged_yaml, place_in_memory, temporary_folder, writing

PACKAGES = ("python3", "python3-venv", "ca-certificates")
# Bookworm alone demands a merged /usr and brings perl (55 MB) to merge it with; mmdebstrap can lay it out merged. Then
# this package says so, without which apt takes usrmerge, and with it perl.
IS_MERGED = {"bookworm": ("usr-is-merged",)}
_ROOM = 2 << 30
_MOST_OF_A_LINE = 1 << 16


class _Hooks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dpkg: tuple[str, ...]
    exclude: str
    clean: str


_HOOKS = packaged_yaml("image/debian.yaml", _Hooks)


class _UpdatesError(InfrastructureError):
    """A bootstrap failed, and the last messages are about the security updates."""


def recipe(suite: str) -> str:
    """Return a digest of everything that decides a bootstrap's content, except the versions of packages."""
    text = repr((suite, PACKAGES, _HOOKS.dpkg, _HOOKS.clean, MODIFIED, _merging(suite)))
    return hashlib.sha256(text.encode()).hexdigest()


def _merging(suite: str) -> tuple[str, ...]:
    """Return mmdebstrap's options for a suite that demands a merged /usr."""
    includes = tuple(f"--include={name}" for name in IS_MERGED.get(suite, ()))
    return ("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", *includes) if includes else ()


def bootstrap(suite: str, target: Path, report: Callable[[str], None]) -> str:
    """Write a suite's root file system as a tar, complete or not at all; return what it was made from, as a phrase.

    Takes 30 to 60 s. Raises InfrastructureError with mmdebstrap's last lines.
    """
    if shutil.which("mmdebstrap") is None:
        raise InfrastructureError("mmdebstrap is not installed", hint="apt-get install mmdebstrap, or scripts/setup")
    lines, updates = mirror_lines(suite), " with its security updates"
    with writing(target), temporary_folder("base", within=target.parent) as folder:
        part = folder / "root.part"
        try:
            _mmdebstrap(suite, part, lines, report)
        except _UpdatesError:  # a suite out of support may have lost them
            report(f"{suite} cannot be had with its security updates; trying without")
            _mmdebstrap(suite, part, lines[:1], report)
            updates = ", without security updates"
        part.replace(target)
    return f"signed packages of {suite}{updates}"


def mirror_lines(suite: str) -> tuple[str, ...]:
    """Return apt's lines for a suite: by the user's configuration, else as apt has them on this host for any suite.

    Empty if neither has them: mmdebstrap then has a default of its own.
    """
    apt = host_settings.apt()
    main, security = apt.debian.rstrip("/"), apt.debian_security.rstrip("/")
    if not main and (release := _codename()):
        form = "$(COMPONENT) $(RELEASE) $(REPO_URI)"
        told = subprocesses.answer("apt-get", "indextargets", "--format", form, "Created-By: Packages")
        rows = (line.split(" ", 2) for line in told.splitlines() if line.startswith("main "))
        sources = {name: without_credentials(uri).rstrip("/") for _, name, uri in rows}
        main, security = sources.get(release, ""), sources.get(f"{release}-security", "")
    lines = (f"deb {main} {suite} main", f"deb {main} {suite}-updates main") if main else ()
    return (*lines, f"deb {security} {suite}-security main") if main and security else lines


def lines_of_base(suite: str, bases: Path) -> tuple[str, ...]:
    """Return apt's lines of a base of this suite in the folder ``bases``, where mmdebstrap wrote them; or none."""
    for tar in sorted(bases.glob(f"*-{recipe(suite)[:12]}.tar")):
        with suppress(OSError, tarfile.TarError, ValueError, KeyError), tarfile.open(tar, "r:") as archive:
            file = archive.extractfile("./etc/apt/sources.list")
            lines = decoding.lossy(file.read(_MOST_OF_A_LINE)).splitlines() if file else ()
            return tuple(re.sub(r" \[[^]]*\]", "", line).strip() for line in lines if line.startswith("deb "))
    return ()


def _mmdebstrap(suite: str, part: Path, mirrors: tuple[str, ...], report: Callable[[str], None]) -> None:
    # mmdebstrap does not take over apt's proxy settings.
    told = subprocesses.answer("apt-config", "dump")
    proxies = re.findall(r"^Acquire::https?::(?:Proxy|[^ ]+::Proxy) .*;$", told, re.MULTILINE)
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        *_merging(suite),
        *(f"--aptopt={option}" for option in proxies),
        f"--extract-hook={_HOOKS.exclude.format(dpkg=shlex.join(_HOOKS.dpkg))}",
        f"--customize-hook={_HOOKS.clean}",
        "--format=tar",
        suite,
        str(part),
        *mirrors,
    ]
    last: deque[str] = deque(maxlen=12)
    with temporary_folder("bootstrap", within=place_in_memory(_ROOM)) as folder:
        folder.chmod(0o755)  # mmdebstrap unpacks its tree (240 MB) there, perhaps as another user, in a namespace
        with subprocesses.started(
            command,
            env={**os.environ, "SOURCE_DATE_EPOCH": str(MODIFIED), "LC_ALL": "C.UTF-8", "TMPDIR": str(folder)},
            stdin=subprocesses.NOTHING,
            stdout=subprocesses.PIPE,
            stderr=subprocesses.TO_OUTPUT,
        ) as process:
            while process.stdout and (line := decoding.lossy(process.stdout.readline(_MOST_OF_A_LINE))):
                last.append(line.rstrip())
                if line.startswith("I: ") and "hook" not in line:
                    report(line[3:].rstrip())
            code = process.wait()
    if code:
        kind = _UpdatesError if any("security" in line for line in last) else InfrastructureError
        hint = "check the mirror in apt's configuration, and that debian-archive-keyring knows this suite"
        raise kind("\n  | ".join((f"mmdebstrap could not make {suite}:", *last)), hint=hint)


def _codename() -> str:
    """Return this host's Debian suite; '' on any other system."""
    with suppress(OSError):
        release = platform.freedesktop_os_release()
        return release.get("VERSION_CODENAME", "") if release["ID"] == "debian" else ""
    return ""
