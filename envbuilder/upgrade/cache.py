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
from envbuilder.upgrade.observe import ProbeTarget, probe_files
from envbuilder.upgrade.observed import TimingSample
from envbuilder.workspace import content_key, read_document, write_atomically, write_document

_Value = TypeVar("_Value")


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """The measured rounds of two images on one machine: ``old[i]`` and ``new[i]`` are round i."""

    schema: str = "envbuilder/rounds/v1"
    key: str
    old: tuple[TimingSample, ...] = ()
    new: tuple[TimingSample, ...] = ()


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer as JSON, and its question."""

    key: str
    value: msgspec.Raw


def key_of(*places: ProbeTarget, more: Mapping[str, bytes] | None = None) -> str:
    """Name a question: images, GPUs, memory, probe sources, this machine, and further contents."""
    asked = [f"{place.image} {place.gpus} {place.memory}" for place in places]
    own = {"asked": "\n".join((platform.node(), *asked)).encode()}
    return content_key({**probe_files(), **own, **(more or {})})


@dataclass(frozen=True)
class AnswerCache:
    """Cached answers in a folder; ``fresh`` ignores them."""

    folder: Path
    fresh: bool = False

    def rounds(self, key: str) -> Rounds:
        """Return the rounds measured before for this question."""
        found = None if self.fresh else read_document(self.folder / "rounds.json", Rounds)
        return found if found is not None and found.key == key else Rounds(key=key)

    def add(self, rounds: Rounds) -> None:
        """Store rounds atomically."""
        write_document(self.folder / "rounds.json", rounds)

    def answer(
        self,
        name: str,
        key: str,
        kind: type[_Value],
        make: Callable[[], _Value],
        whole: Callable[[_Value], bool] = lambda _: True,
    ) -> _Value:
        """Return the cached answer of that name, or compute it; only a ``whole`` (complete) answer is stored."""
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
