"""``docker-bake.json``, for those who build with buildx: a target an environment, one group for all."""

from __future__ import annotations

import re

import msgspec

from envbuilder.environment import Environment

_TARGET = re.compile(r"[^a-zA-Z0-9_-]+")


class _Target(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    context: str
    tags: tuple[str, ...]
    args: dict[str, str] = {}
    platforms: tuple[str, ...] = ()


class _Bake(msgspec.Struct, frozen=True, kw_only=True):
    group: dict[str, dict[str, tuple[str, ...]]]
    target: dict[str, _Target]


_PLATFORM = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}


def bake(environments: tuple[Environment, ...], repository: str, bases: dict[str, str]) -> str:
    """Write a bake file for rendered contexts in ``images/``.

    ``bases`` gives the ``BASE`` argument by operating system; buildx needs a reference that it can pull.
    """
    targets = {target_name(one.id): _target(one, repository, bases.get(one.os, "")) for one in environments}
    document = _Bake(group={"default": {"targets": tuple(targets)}}, target=targets)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def target_name(environment_id: str) -> str:
    """Write an id as bake wants target names: letters, digits, ``_`` and ``-`` alone."""
    return _TARGET.sub("_", environment_id)


def _target(environment: Environment, repository: str, base: str) -> _Target:
    return _Target(
        context=f"images/{environment.id}",
        tags=(f"{repository}:{environment.id}",),
        args={"BASE": base} if base else {},
        platforms=(_PLATFORM[environment.arch],) if environment.arch in _PLATFORM else (),
    )
