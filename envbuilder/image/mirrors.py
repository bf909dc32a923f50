"""Where images are pulled from in place of a registry: mirrors, by a configuration file and the environment."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from envbuilder.errors import UsageError, decode
from envbuilder.workspace import users_text

HUB = "docker.io"
"""The registry of a reference that names none."""

VARIABLE = "ENVBUILDER_MIRRORS"
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::[0-9]{1,5})?\Z")
_NAMES_REGISTRY = re.compile(r"(?:[^/]*[.:][^/]*|localhost)/")
_MIRROR = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*\Z")


def config_file(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's configuration file, whether it is there or not."""
    home = Path(environ.get("HOME") or Path.home())
    return Path(environ.get("XDG_CONFIG_HOME", "").strip() or home / ".config") / "envbuilder/config.toml"


def mirrors(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the mirror of each registry that has one: ``docker.io`` → ``mirror.example.org/hub``.

    The file's table ``[mirrors]`` and, outranking it, the variable ``ENVBUILDER_MIRRORS``
    (``docker.io=mirror.example.org/hub,quay.io=…``). Raises UsageError for what is no registry and no mirror.
    """
    path = config_file(environ)
    found = _of_file(path) if path.is_file() else {}
    for pair in environ.get(VARIABLE, "").replace(",", " ").split():
        registry, _, mirror = pair.partition("=")
        found[registry] = _checked(registry, mirror, VARIABLE)
    return found


def _of_file(path: Path) -> dict[str, str]:
    try:
        with decode.damaged("not TOML"):
            table = tomllib.loads(users_text(path)).get("mirrors", {})
    except decode.DamagedError as error:
        raise UsageError(
            f"{path}: {error}", hint='write [mirrors], and below it "docker.io" = "mirror.example.org"'
        ) from error
    if not isinstance(table, dict):
        raise UsageError(f"{path}: mirrors is no table", hint='write [mirrors], and below it "docker.io" = "…"')
    return {registry: _checked(registry, mirror, str(path)) for registry, mirror in table.items()}


def _checked(registry: str, mirror: object, where: str) -> str:
    if not _HOST.match(registry) or not isinstance(mirror, str) or not _MIRROR.match(mirror):
        raise UsageError(
            f"{where}: {registry!r} = {mirror!r} is no mirror of a registry",
            hint="hosts without a scheme, as in docker.io = mirror.example.org:5000/hub",
        )
    return mirror


def sources(reference: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """List the references under which an image can be had: its mirror's first, then its own.

    A name without a registry is the Hub's; an official image is in ``library`` there.
    """
    first, _, rest = reference.partition("/")
    registry, path = (first, rest) if _NAMES_REGISTRY.match(reference) else (HUB, reference)
    mirror = mirrors(environ).get(registry)
    if mirror is None:
        return (reference,)
    official = registry == HUB and "/" not in path.partition("@")[0].partition(":")[0]
    return (f"{mirror}/{'library/' if official else ''}{path}", reference)
