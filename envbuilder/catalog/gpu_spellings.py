"""GPU names as vendors, ``nvidia-smi``, ``lspci`` and people write them, and the row that each of them means."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

from envbuilder.catalog import gpu_text
from envbuilder.catalog.rows import Gpu

_NOISE = re.compile(
    r"\((?:r|tm)\)|\bnvidia\b|\bcorporation\b|\bgraphics\b|\bgpu\b|\bmig\b.*$|\b(?:super)?micro\b", re.IGNORECASE
)
_BRANDS = re.compile(r"\b(?:geforce|tesla|quadro|grid)\b", re.IGNORECASE)
_FORMS = re.compile(
    r"\b(?:sxm\d?|pci-?e|nvl|hbm\d?e?|fhhl|dgxs|hgx|active|sse2|\d+\s?gi?b?)\b|\blaptop\b|\bmobile\b"
    r"|\b(?:with\s+)?max[- ]?q(?:\s+design)?\b",
    re.IGNORECASE,
)
_MODEL = re.compile(r"\[([^\]]+)\]")
"""How ``lspci`` names the model: ``GP104 [GeForce GTX 1080] (rev a1)``."""
_JOINED = re.compile(r"[^a-z0-9]+")

Spellings = dict[str, tuple[Gpu, ...]]


class GpuNames:
    """GPUs by what the vendor writes, and by what is left of it when brands and model lines are left out."""

    def __init__(self, gpus: tuple[Gpu, ...]) -> None:
        self._gpus = gpus

    @cached_property
    def _exact(self) -> Spellings:
        found: dict[str, dict[str, Gpu]] = {}
        for row in self._gpus:
            for name in _written(row):
                found.setdefault(_squeeze(name), {})[row.name] = row
                found.setdefault(_squeeze(_NOISE.sub(" ", name)), {})[row.name] = row
        return _rows(found)

    @cached_property
    def _loose(self) -> Spellings:
        found: dict[str, dict[str, Gpu]] = {}
        for row in self._gpus:
            for name in _written(row):
                for spelling in _forms(name):
                    found.setdefault(spelling, {})[row.name] = row
            for short in _without_line(row.name):
                found.setdefault(short, {})[row.name] = row
        return _rows(found)

    def find(self, text: str) -> Gpu | None:
        """Return the GPU that a text names; None where it names none, or several of different compute capabilities."""
        rows = self.meant(text)
        return _agreed(rows) if rows else None

    def meant(self, text: str) -> tuple[Gpu, ...]:
        """Return every GPU that a text may name.

        Tries the whole text first, then what is left without what tools and people write around a name (`gpu_text`).
        """
        return self._named(text) or next(
            (rows for name in gpu_text.read(text).names[1:] if (rows := self._named(name))), ()
        )

    def _named(self, text: str) -> tuple[Gpu, ...]:
        """Try the text, then without the vendor's words, form factors and memory sizes."""
        spellings = list(_forms(text))
        exact = next((rows for spelling in spellings if (rows := self._exact.get(spelling))), ())
        return exact or next((rows for spelling in spellings if (rows := self._loose.get(spelling))), ())


def _written(row: Gpu) -> tuple[str, ...]:
    return row.name, *row.smi_names, *row.aliases, *row.shared


def _rows(found: dict[str, dict[str, Gpu]]) -> Spellings:
    return {spelling: tuple(rows.values()) for spelling, rows in found.items()}


def _squeeze(text: str) -> str:
    return _JOINED.sub("", text.lower())


def _forms(text: str) -> Iterator[str]:
    """Give ever shorter spellings of a GPU's name, the most telling first."""
    named = _MODEL.search(text)
    text = named[1] if named else text
    plain = _NOISE.sub(" ", text)
    bare = _FORMS.sub(" ", re.sub(r"[-/_]", " ", plain))
    for spelling in (text, plain, bare, _BRANDS.sub(" ", plain), _BRANDS.sub(" ", bare)):
        if squeezed := _squeeze(spelling):
            yield squeezed


def _without_line(name: str) -> Iterator[str]:
    """Give what people write for a GeForce without ``RTX`` or ``GTX``: ``2080ti``."""
    squeezed = _squeeze(_BRANDS.sub(" ", _NOISE.sub(" ", name)))
    if name.startswith("GeForce") and re.match(r"^(?:rtx|gtx|gt)\d", squeezed):
        yield re.sub(r"^(?:rtx|gtx|gt)", "", squeezed)


def _agreed(rows: tuple[Gpu, ...]) -> Gpu | None:
    """Choose the row when all that a text could mean compute alike; the plainest name stands for them."""
    if len({row.compute_capability for row in rows}) > 1:
        return None
    return min(rows, key=lambda row: (len(row.name), row.name))
