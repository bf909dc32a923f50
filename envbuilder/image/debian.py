"""Bootstrap a Debian root file system from signed packages: reproducible, small, with nothing of this host in it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from envbuilder.engine.archive import MODIFIED
from envbuilder.errors import InfrastructureError, of_system
from envbuilder.image import apt_sources
from envbuilder.support import decoding, subprocesses
from envbuilder.workspace import is_gone, owner, temporary_folder, writing

PACKAGES = ("python3", "python3-venv", "ca-certificates")
# Documentation and translations are left out; copyright files stay, because licences ask for them.
_DPKG = (
    "path-exclude=/usr/share/man/*",
    "path-exclude=/usr/share/locale/*",
    "path-exclude=/usr/share/doc/*",
    "path-include=/usr/share/doc/*/copyright",
)
# mmdebstrap copies this host's name and name servers in, and writes our options and mirror down; caches and logs
# differ from run to run. The list of packages stays: it says what the image holds.
_CLEAN = (
    ': > "$1/etc/hostname"; : > "$1/etc/resolv.conf"; '
    'rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap" "$1/etc/machine-id" "$1/var/cache/ldconfig/aux-cache"; '
    'rm -f "$1/var/log/dpkg.log" "$1/var/log/alternatives.log" "$1/var/log/bootstrap.log"; '
    'rm -rf "$1/var/log/apt" "$1/var/lib/apt/lists" "$1/var/cache/apt/archives" "$1/run/lock/"*; '
    'mkdir -p "$1/var/lib/apt/lists/partial" "$1/var/cache/apt/archives/partial"; '
    'sed -i -E "s#//[^/@ ]*@#//#" "$1/etc/apt/sources.list"'
)
# Bookworm alone demands a merged /usr and brings perl (55 MB) to merge it with; mmdebstrap can lay it out merged.
_MERGED_USR = {"bookworm": ("--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr", "--include=usr-is-merged")}
_LAST_LINES = 12
_MOST_OF_A_LINE = 1 << 16


def recipe(suite: str) -> str:
    """Digest everything that decides what a bootstrap of a suite holds, its packages' versions apart."""
    text = repr((suite, PACKAGES, _DPKG, _CLEAN, MODIFIED, _MERGED_USR.get(suite, ())))
    return hashlib.sha256(text.encode()).hexdigest()


def bootstrap(suite: str, target: Path, report: Callable[[str], None]) -> str:
    """Write a suite's root file system as a tar, whole or not at all, and say in a phrase what it was made from.

    The mirror is the one that apt uses here, else mmdebstrap's own default. Takes 30 to 60 s. Raises
    InfrastructureError with mmdebstrap's last lines.
    """
    if shutil.which("mmdebstrap") is None:
        raise InfrastructureError(
            "mmdebstrap is not installed", hint="apt-get install mmdebstrap (scripts/setup does it)"
        )
    part = target.with_name(f"{target.name}.{owner()}.part")
    with writing(target):
        _remove_parts(target)
        try:
            said = _first_that_works(suite, part, report)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
    return said


def _remove_parts(target: Path) -> None:
    """Remove what a bootstrap that was killed had written of this target."""
    for left in target.parent.glob(f"{target.name}.*.part"):
        if is_gone(left.name.split(".")[-2]):
            with suppress(OSError):
                left.unlink()


class _UpdatesError(InfrastructureError):
    """A bootstrap failed, and what apt said last is about the security updates."""


def _first_that_works(suite: str, part: Path, report: Callable[[str], None]) -> str:
    """Try with security updates, then without: a suite out of support may have lost them."""
    every = mirror_lines(suite)
    try:
        _mmdebstrap(suite, part, every, report)
    except _UpdatesError:
        report(f"{suite} cannot be had with its security updates; trying without")
        _mmdebstrap(suite, part, every[:1], report)
        return f"signed packages of {suite}, without security updates"
    return f"signed packages of {suite} with its security updates"


def mirror_lines(suite: str) -> tuple[str, ...]:
    """Say where Debian is found: by the user's configuration, else as apt has it on this host, for any suite of it.

    Nothing where neither says: then mmdebstrap has a default of its own.
    """
    if configured := apt_sources.debian_lines(suite):
        return configured
    release = _codename()
    if not release:
        return ()
    sources = dict(_apt_sources())
    main, security = sources.get(release), sources.get(f"{release}-security")
    if main is None:
        return ()
    lines = [f"deb {main} {suite} main", f"deb {main} {suite}-updates main"]
    return (*lines, f"deb {security} {suite}-security main") if security else tuple(lines)


def lines_of_base(suite: str, bases: Path) -> tuple[str, ...]:
    """Say where a base of this suite came from that was bootstrapped here: mmdebstrap writes it into the base.

    Nothing where there is none. ``bases`` is the folder that they are kept in.
    """
    for tar in sorted(bases.glob(f"*-{recipe(suite)[:12]}.tar")):
        with suppress(OSError, tarfile.TarError, ValueError), tarfile.open(tar, "r|") as archive:
            for member in archive:
                file = archive.extractfile(member) if member.name.lstrip("./") == _SOURCES and member.isfile() else None
                if file is not None:
                    lines = decoding.lossy(file.read(_MOST_OF_A_LINE)).splitlines()
                    return tuple(re.sub(r" \[[^]]*\]", "", line).strip() for line in lines if line.startswith("deb "))
    return ()


_SOURCES = "etc/apt/sources.list"


def _mmdebstrap(suite: str, part: Path, mirrors: tuple[str, ...], report: Callable[[str], None]) -> None:
    options = [f"--dpkgopt={option}" for option in _DPKG] + [f"--aptopt={option}" for option in _apt_proxies()]
    command = [
        "mmdebstrap",
        "--variant=minbase",
        f"--include={','.join(PACKAGES)}",
        *_MERGED_USR.get(suite, ()),
        *options,
        f"--customize-hook={_CLEAN}",
        "--format=tar",
        suite,
        str(part),
        *mirrors,
    ]
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with temporary_folder("bootstrap") as folder, _process(command, folder) as process:
        for line in _lines(process):
            last.append(line.rstrip())
            if line.startswith("I: ") and "hook" not in line:
                report(line[3:].rstrip())
    if process.returncode:
        kind = _UpdatesError if any("security" in line for line in last) else InfrastructureError
        raise kind(
            f"mmdebstrap could not make {suite}:\n" + "\n".join(f"  | {line}" for line in last),
            hint="check the mirror in apt's configuration, and that debian-archive-keyring knows this suite",
        )


@contextmanager
def _process(command: list[str], folder: Path) -> Iterator[subprocesses.Process]:
    """Run a program that ends when the block does, even by an exception; it unpacks its tree (240 MB) in ``folder``."""
    with writing(folder):
        folder.chmod(0o755)  # mmdebstrap may work as another user, in a namespace
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(MODIFIED), "LC_ALL": "C.UTF-8", "TMPDIR": str(folder)}
    try:
        with subprocesses.started(
            command,
            env=environment,
            stdin=subprocesses.NOTHING,
            stdout=subprocesses.PIPE,
            stderr=subprocesses.TO_OUTPUT,
        ) as process:
            yield process
            process.wait()
    except OSError as error:
        raise of_system(error, f"start {command[0]}") from error


def _lines(process: subprocesses.Process) -> Iterator[str]:
    """Yield what a program prints, a line at a time, one without end in pieces."""
    stream = process.stdout
    while stream is not None and (line := stream.readline(_MOST_OF_A_LINE)):
        yield decoding.lossy(line)


def _codename() -> str:
    """Read this host's Debian suite; '' on any other system."""
    try:
        text = decoding.lossy(Path("/etc/os-release").read_bytes())
    except OSError:
        return ""
    told = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    return told.get("VERSION_CODENAME", "").strip('"') if told.get("ID", "").strip('"') == "debian" else ""


def _apt_sources() -> Iterator[tuple[str, str]]:
    """Yield (suite, mirror) as apt has them, credentials removed, of the component main."""
    form = "$(COMPONENT) $(RELEASE) $(REPO_URI)"
    for line in _output("apt-get", "indextargets", "--format", form, "Created-By: Packages").splitlines():
        component, release, uri = line.split(" ", 2)
        if component == "main":
            parts = urlsplit(uri)
            yield release, urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])).rstrip("/")


def _apt_proxies() -> list[str]:
    """Repeat apt's proxy settings, which mmdebstrap does not take over."""
    return re.findall(r"^Acquire::https?::(?:Proxy|[^ ]+::Proxy) .*;$", _output("apt-config", "dump"), re.MULTILINE)


def _output(*command: str) -> str:
    """Run a query of apt's; '' where apt is absent or refuses."""
    try:
        told = subprocesses.run(command, within=30, brief=True)
    except subprocesses.ProgramError:
        return ""
    return told.text if told.code == 0 else ""
