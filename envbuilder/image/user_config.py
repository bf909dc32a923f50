"""The user's configuration file: where it is, and one table of it at a time."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path

from envbuilder.errors import UsageError
from envbuilder.support import decoding
from envbuilder.workspace import users_text


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's configuration file, whether it is there or not."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CONFIG_HOME", "").strip() or home / ".config") / "envbuilder/config.toml"


_LARGEST = 32 << 10
"""Characters of it: a name of very many parts takes time by their square."""


def section(name: str, hint: str, environ: Mapping[str, str] = os.environ) -> Mapping[str, object]:
    """Return a table of it, empty where there is none. Raises UsageError, with the hint, for what is none."""
    path = config_file(environ)
    if not path.is_file():
        return {}
    text = users_text(path)
    if len(text) > _LARGEST:
        raise UsageError(f"{path} is larger than {_LARGEST >> 10} kB", hint=hint)
    try:
        with decoding.damaged("not TOML"):
            table = tomllib.loads(text).get(name, {})
    except decoding.DamagedError as error:
        raise UsageError(f"{path}: {error}", hint=hint) from error
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {name} is no table", hint=hint)
    return table
