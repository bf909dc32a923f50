"""The record of an environment: what a host needs to know to build or validate it, packed for a job."""

from __future__ import annotations

import zlib
from pathlib import Path, PurePosixPath

import msgspec

from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image.context import build_files
from envbuilder.image.lockfile import LOCK
from envbuilder.image.wheel_records import WheelPins, read_pins
from envbuilder.support import decoding
from envbuilder.workspace import Workspace, read_stored, write_atomically

_MOST = 64 << 20
"""Limit of an unpacked record in bytes; the largest has 200 kB."""


def packed(environment: Environment, workspace: Workspace) -> bytes:
    """Return what this folder has of an environment, compressed.

    These are the files of its build and of its matrix, the record of its image, the facts of its base, and its pins.
    """
    base, added = environment.on_registry_base, environment.added
    build = {f"images/{name}": data for name, data in build_files(environment.id, workspace).items()}
    lock = build.get(f"images/{environment.id}/{LOCK}", b"")
    pins = {name: pin for name, pin in read_pins(workspace).items() if name.encode() in lock}
    files = {**build, "images/wheels.json": msgspec.json.encode(WheelPins(wheels=pins), order="sorted")}
    paths = [workspace.known_image(environment.id)]
    paths += [workspace.base(base.image.rpartition("@")[2])] if base else []
    for path in paths:
        files |= _file(path, path.relative_to(workspace.root))
    sources = (source for source, _ in added.files)
    for name in (*sources, *added.certificates, *filter(None, [added.template])):
        files |= _file(workspace.users(name), Path(name))
    return zlib.compress(msgspec.msgpack.encode(files, order="sorted"), 9)


def required(environment: Environment, workspace: Workspace) -> bytes:
    """Return the record of an environment. Raises UsageError for a variant without files, if their list is missing.

    Without it such an image can only end INCONCLUSIVE: its own list proves nothing.
    """
    if environment.variant and not build_files(environment.id, workspace):
        raise UsageError(
            f"{environment.id}: this folder has no images/{environment.id}, so the files that the variant "
            f"{environment.variant} leaves out are unknown",
            hint="run it in a checkout with images/; for a new environment first: "
            + workspace.command("lock", environment.id),
        )
    return packed(environment, workspace)


def unpacked(record: bytes, root: Path) -> Workspace:
    """Write a record's files below a folder. Raises UsageError for anything else, and for a path outside of it."""
    files: dict[str, bytes] = {}
    if record:
        try:
            with decoding.damaged("not the record of an environment"):
                opened = zlib.decompressobj()
                data = opened.decompress(record, _MOST)
                if not opened.eof:
                    raise ValueError("it is cut off or too large")
            files = decoding.from_msgpack(data, dict[str, bytes])
        except decoding.DamagedError as error:
            raise UsageError(str(error), hint="write the job again with this version of envbuilder") from error
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise UsageError(f"the path {name!r} of a record is outside of its folder", hint="write the job again")
        write_atomically(root / path, content)
    return Workspace(root)


def _file(path: Path, name: Path) -> dict[str, bytes]:
    data = read_stored(path)
    return {} if data is None else {name.as_posix(): data}
