"""Read pip's settings as pip does: files from the system's to the environment's, then variables."""

from __future__ import annotations

import configparser
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from envbuilder.errors import UsageError
from envbuilder.support import decoding

_SECTIONS = ("global", "install", ":env:")
"""Later ones outrank earlier ones, whichever files they are in: a command's own section, then the variables."""

_NO_SETTINGS = ("version", "help")


def settings(environ: Mapping[str, str] = os.environ, prefix: Path | None = None) -> dict[str, str]:
    """Return what ``pip install`` is set to, by option (``index-url``); values as written, empty ones left out.

    ``prefix`` is the Python environment whose own file counts (default: the one that runs). Raises UsageError for a
    file that cannot be parsed.
    """
    found: dict[tuple[str, str], str] = {}
    for path in files(environ, prefix):
        found.update(_parsed(path))
    for name, value in environ.items():
        if name.startswith("PIP_") and name[4:].lower() not in _NO_SETTINGS:
            found[":env:", _option(name[4:])] = value
    ordered = sorted(found.items(), key=lambda item: _SECTIONS.index(item[0][0]))
    return {option: value for (_, option), value in ordered if value.strip()}


def files(environ: Mapping[str, str], prefix: Path | None = None) -> Iterator[Path]:
    """Name the files that pip reads, each outranked by those after it; none where ``PIP_CONFIG_FILE`` is /dev/null.

    The system's (``$XDG_CONFIG_DIRS``, then ``/etc``), the user's (the legacy one, then ``$XDG_CONFIG_HOME``), the
    environment's, ``PIP_CONFIG_FILE``. Where that last one is there, the user's are not read.
    """
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return
    home = Path(environ.get("HOME") or Path.home())
    for folder in (environ.get("XDG_CONFIG_DIRS", "").strip() or "/etc/xdg").split(os.pathsep):
        yield Path(folder, "pip/pip.conf")
    yield Path("/etc/pip.conf")
    if not (named and Path(named).exists()):
        yield home / ".pip/pip.conf"
        yield Path(environ.get("XDG_CONFIG_HOME", "").strip() or home / ".config") / "pip/pip.conf"
    yield (prefix or Path(sys.prefix)) / "pip.conf"
    if named:
        yield Path(named)


def _parsed(path: Path) -> Iterator[tuple[tuple[str, str], str]]:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(decoding.text(decoding.small_file(path)), str(path))
    except OSError:
        return  # pip reads none that it cannot open
    except (configparser.Error, decoding.DamagedError) as error:
        raise UsageError(f"{path}: {error}", hint="mend pip's configuration file") from error
    for section in _SECTIONS[:2]:
        for name, value in parser.items(section) if parser.has_section(section) else ():
            yield (section, _option(name)), value


def _option(name: str) -> str:
    return name.lower().replace("_", "-").removeprefix("--")
