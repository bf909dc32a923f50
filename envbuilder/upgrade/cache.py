"""Cached answers of an image's probes, so that an interrupted upgrade resumes."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from envbuilder.support import decoding
from envbuilder.upgrade.observe import Place, probe_files
from envbuilder.upgrade.observed import Timed
from envbuilder.workspace import content_key, read_document, write_atomically, write_document

_Value = TypeVar("_Value")


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """The rounds that were measured of one pair of images on one machine: ``old[i]`` and ``new[i]`` are round i."""

    schema: str = "envbuilder/rounds/v1"
    key: str
    old: tuple[Timed, ...] = ()
    new: tuple[Timed, ...] = ()


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as JSON, and what it is an answer to."""

    key: str
    value: msgspec.Raw


def key_of(*places: Place, more: Mapping[str, bytes] | None = None) -> str:
    """Name what was asked: images, GPUs, memory, the probes themselves, this machine, and further contents."""
    asked = [f"{place.image} {place.gpus} {place.memory}" for place in places]
    own = {"asked": "\n".join((platform.node(), *asked)).encode()}
    return content_key({**probe_files(), **own, **(more or {})})


@dataclass(frozen=True)
class Kept:
    """Cached answers in a folder; ``fresh`` ignores them and computes all again."""

    folder: Path
    fresh: bool = False

    def rounds(self, key: str) -> Rounds:
        """Return the rounds that were measured before; none of other images, probes or machines."""
        found = None if self.fresh else read_document(self.folder / "rounds.json", Rounds)
        return found if found is not None and found.key == key else Rounds(key=key)

    def add(self, rounds: Rounds) -> None:
        """Keep rounds at once, each whole."""
        write_document(self.folder / "rounds.json", rounds)

    def answer(
        self,
        name: str,
        key: str,
        kind: type[_Value],
        make: Callable[[], _Value],
        whole: Callable[[_Value], bool] = lambda _: True,
    ) -> _Value:
        """Return the answer of that name, made only where none was kept; one that is not ``whole`` is not kept."""
        path = self.folder / f"{name}.json"
        kept = None if self.fresh else read_document(path, _Answer)
        if kept is not None and kept.key == key:
            with suppress(decoding.DamagedError):  # written by another version of envbuilder
                return decoding.from_json(bytes(kept.value), kind)
        value = make()
        if whole(value):
            raw = msgspec.Raw(msgspec.json.encode(value))
            write_atomically(path, msgspec.json.encode(_Answer(key=key, value=raw)))
        return value
