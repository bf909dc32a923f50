"""What Docker's engine answers, as far as it is read: every field may be missing, whoever answers in its place."""

from __future__ import annotations

from typing import Any

import msgspec


class Component(msgspec.Struct, rename="pascal"):
    """A part of the engine, as it names it."""

    name: str | None = None
    version: str | None = None


class Version(msgspec.Struct, rename="pascal"):
    """What the engine says of its own version."""

    api_version: str
    components: tuple[Component, ...] | None = None


class Device(msgspec.Struct, rename="pascal"):
    """A device that it found by itself."""

    id: str | None = msgspec.field(default=None, name="ID")


class Info(msgspec.Struct, rename="pascal"):
    """What the engine says of itself and its host."""

    server_version: str | None = None
    driver: str | None = None
    docker_root_dir: str | None = None
    mem_total: int | None = None
    runtimes: dict[str, Any] | None = None
    discovered_devices: list[Device] | None = None


class Built(msgspec.Struct):
    """The image that a build came to."""

    id: str = msgspec.field(name="ID")


class Pushed(msgspec.Struct, rename="pascal"):
    """What a registry answered to a push."""

    digest: str | None = None


class Named(msgspec.Struct, rename="pascal"):
    """An image in the store, by its names."""

    repo_tags: tuple[str, ...] | None = None


class Freed(msgspec.Struct, rename="pascal"):
    """What a removal freed, in bytes."""

    space_reclaimed: int | None = None
