"""Load the models that the other image saved: models saved before an upgrade must be readable after it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import PurePosixPath

from envbuilder.engine.port import FILES_AT
from envbuilder.support import decoding
from envbuilder.upgrade.document import ModelExchange
from envbuilder.upgrade.observe import Gap, ProbeTarget, ask
from envbuilder.upgrade.observed import LoadOutcomes, SavedModels

PROBE = "models"


def exchange(old: ProbeTarget, new: ProbeTarget) -> tuple[tuple[ModelExchange, ...] | None, tuple[str, ...]]:
    """Save on each image and load on the other; return the failures by format, and unanswered questions.

    A format that the saving image cannot load itself is omitted.
    """
    rows: list[ModelExchange] = []
    for writer, reader, saved_by in ((old, new, "old"), (new, old, "new")):
        found = _exchanged(writer, reader, saved_by)
        if isinstance(found, Gap):
            return None, (f"models saved by the {saved_by} image: {found.why}",)
        rows += found
    return tuple(rows), ()


def _exchanged(writer: ProbeTarget, reader: ProbeTarget, saved_by: str) -> list[ModelExchange] | Gap:
    saved = ask(writer, PROBE, SavedModels)
    if isinstance(saved, Gap):
        return saved
    formats = {name: str(number) for number, name in enumerate(saved.saved)}
    order: dict[str, object] = {"folder": f"{FILES_AT}/models", "formats": formats}
    try:
        with decoding.damaged("its answer contains other values than files"):
            files = dict(_files(saved, formats))
    except decoding.DamagedError as error:
        return Gap(str(error))
    own, other = (ask(place, PROBE, LoadOutcomes, order, files) for place in (writer, reader))
    if isinstance(own, Gap):
        return own
    if isinstance(other, Gap):
        return other
    return [
        ModelExchange(
            name=name, saved_by="old" if saved_by == "old" else "new", wrong=other.loaded.get(name, "no answer")
        )
        for name in formats
        if not own.loaded.get(name)
    ]


def _files(saved: SavedModels, formats: dict[str, str]) -> Iterator[tuple[str, bytes]]:
    for name, files in saved.saved.items():
        for path, text in files.items():
            if PurePosixPath(path).is_absolute() or not {"", ".", ".."}.isdisjoint(path.split("/")):
                # One image wrote this path, and the file is copied into the other image, next to the probes.
                raise decoding.DamagedError(f"{path} leads out of its folder")
            with decoding.damaged(f"{path} is not base64"):
                yield f"models/{formats[name]}/{path}", base64.b64decode(text, validate=True)
