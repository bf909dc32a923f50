"""Where images are pulled from in place of a registry: mirrors, by a configuration file and the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from envbuilder.errors import UsageError
from envbuilder.image.user_config import config_file, section

HUB = "docker.io"
"""The registry of a reference that names none."""

VARIABLE = "ENVBUILDER_MIRRORS"
_HINT = 'write [mirrors], and below it "docker.io" = "mirror.example.org"'
_HOST = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::[0-9]{1,5})?\Z")
_NAMES_REGISTRY = re.compile(r"(?:[^/]*[.:][^/]*|localhost)/")
_MIRROR = re.compile(r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)(?::[0-9]{1,5})?(?:/[a-z0-9][a-z0-9._-]*)*\Z")


def mirrors(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the mirror of each registry that has one: ``docker.io`` → ``mirror.example.org/hub``.

    The file's table ``[mirrors]`` and, outranking it, the variable ``ENVBUILDER_MIRRORS``
    (``docker.io=mirror.example.org/hub,quay.io=…``). Raises UsageError for what is no registry and no mirror.
    """
    table, where = section("mirrors", _HINT, environ), str(config_file(environ))
    found = {registry: _checked(registry, mirror, where) for registry, mirror in table.items()}
    for pair in environ.get(VARIABLE, "").replace(",", " ").split():
        registry, _, mirror = pair.partition("=")
        found[registry] = _checked(registry, mirror, VARIABLE)
    return found


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
