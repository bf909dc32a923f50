"""GPU names as vendors, tools and people write them, in logs, labels and lists, and the row that each one means."""

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache, cached_property, lru_cache, partial
from typing import NamedTuple

import msgspec

from envbuilder.catalog.rows import Gpu
from envbuilder.workspace import packaged_yaml


class GpuText(NamedTuple):
    """Spellings of the GPU's name in a text, the most specific first, and details from the text.

    ``capability`` is the compute capability in a log line, or ''; ``series`` the letter of a virtual GPU's type without
    CUDA, or ''.
    """

    names: tuple[str, ...]
    capability: str = ""
    series: str = ""


class Around(msgspec.Struct, frozen=True):
    """A pattern for a text around a name, with a sample."""

    of: str
    pattern: str
    sample: str


class _Texts(msgspec.Struct, frozen=True):
    """The content of ``texts/gpu_names.yaml``."""

    lines: tuple[Around, ...]
    labels: tuple[Around, ...]
    shares: str
    counts: tuple[Around, ...]
    partners: tuple[str, ...]
    nvidia: str
    other_vendors: dict[str, str]
    capability: str
    virtual: str
    form: str
    noise: str
    brands: str
    forms: str
    model: str


@cache
def texts() -> _Texts:
    return packaged_yaml("catalog/texts/gpu_names.yaml", _Texts)


@lru_cache(maxsize=4096)
def read(text: str) -> GpuText:
    """Parse a text. A name alone is its only spelling."""
    found = dict.fromkeys([text.strip()])
    known = texts()
    layers: tuple[Callable[[str], Iterator[str]], ...] = (
        partial(_inside, known.lines),
        partial(_inside, known.labels),
        partial(_without, known.shares),
        partial(_inside, known.counts),
        _boards,
        partial(_without, rf"\b(?:{'|'.join(known.partners)})\b"),
        partial(_without, r"\bedition\b"),  # which some names have
    )
    for shorten in layers:
        for name in tuple(found):
            found.update(dict.fromkeys(one.strip(" \"'|,;") for one in shorten(name)))
    names = tuple(name for name in found if name)
    stated = _search(known.capability, text)
    return GpuText(
        names=names,
        capability=".".join(part for part in stated.groups() if part) if stated else "",
        series=next((letter for name in names if (letter := _without_cuda(name))), ""),
    )


@lru_cache(maxsize=4096)
def other_vendor(text: str) -> str | None:
    """Return the vendor of a GPU if the text names one other than NVIDIA."""
    if _search(texts().nvidia, text):
        return None
    return next((vendor for vendor, pattern in texts().other_vendors.items() if _search(pattern, text)), None)


_COMPUTE_SERIES = frozenset("CQ")
_LARGEST_ONLY = frozenset({"M6", "M10", "M60"})
"""Boards on which only the type ``8Q`` has CUDA."""


def _search(pattern: str, text: str) -> re.Match[str] | None:
    """Search without regard to case. A pattern is compiled at its first use; most commands use few."""
    return re.search(pattern, text, re.IGNORECASE)


def _inside(patterns: tuple[Around, ...], text: str) -> Iterator[str]:
    yield from (found[1] for one in patterns if (found := _search(one.pattern, text)))


def _cut(pattern: str, text: str, instead: str = " ") -> str:
    return re.sub(pattern, instead, text, flags=re.IGNORECASE)


def _without(pattern: str, text: str) -> Iterator[str]:
    if _search(pattern, text):
        yield " ".join(_cut(pattern, text).split())


def _boards(text: str) -> Iterator[str]:
    found = _search(texts().virtual, text)
    if found is None:
        return
    board = found["board"]
    for name in dict.fromkeys((board, _cut(texts().form, board, ""))):
        if name.upper().startswith("RTX") and "ADA" not in name.upper():  # Ada's boards have it in their name
            yield f"Quadro {name}"
        yield name


def _without_cuda(name: str) -> str:
    """Return the series of a virtual GPU without CUDA; '' for any other name."""
    found = _search(texts().virtual, name)
    if found is None:
        return ""
    series = found["series"].upper()
    small = found["board"].upper() in _LARGEST_ONLY and found["memory"] != "8"
    return series if series not in _COMPUTE_SERIES or small else ""


_JOINED = re.compile(r"[^a-z0-9]+")

Spellings = dict[str, tuple[Gpu, ...]]


class GpuNames:
    """GPUs by the vendor's names, and by these names without brands and model lines."""

    def __init__(self, gpus: tuple[Gpu, ...]) -> None:
        self._gpus = gpus

    @cached_property
    def _exact(self) -> Spellings:
        names = [(name, row) for row in self._gpus for name in _written(row)]
        return _index([*names, *((_cut(texts().noise, name), row) for name, row in names)])

    @cached_property
    def _loose(self) -> Spellings:
        forms = [(text, row) for row in self._gpus for name in _written(row) for text in _forms(name)]
        return _index([*forms, *((text, row) for row in self._gpus for text in _without_line(row.name))])

    def possible(self, text: str) -> tuple[Gpu, ...]:
        """Return every GPU that a text may name, complete or inside it (see `read`); of a list, those of each part."""
        inside = next((rows for name in read(text).names if (rows := self._named(name))), ())
        others = [row for part in text.split(",")[1:] if inside for row in self.possible(part)]
        return tuple({row.name: row for row in (*inside, *others)}.values())

    def _named(self, text: str) -> tuple[Gpu, ...]:
        """Look the text up as it is, then without the vendor's words, form factors and memory sizes."""
        spellings = list(_forms(text))
        exact = next((rows for spelling in spellings if (rows := self._exact.get(spelling))), ())
        return exact or next((rows for spelling in spellings if (rows := self._loose.get(spelling))), ())


def _written(row: Gpu) -> tuple[str, ...]:
    return row.name, *row.smi_names, *row.aliases, *row.shared


def _index(spellings: Iterable[tuple[str, Gpu]]) -> Spellings:
    found: dict[str, dict[str, Gpu]] = {}
    for text, row in spellings:
        found.setdefault(_squeeze(text), {})[row.name] = row
    return {text: tuple(rows.values()) for text, rows in found.items()}


def _squeeze(text: str) -> str:
    return _JOINED.sub("", text.lower())


def _forms(text: str) -> Iterator[str]:
    """Yield ever shorter spellings of a GPU's name, the most specific first."""
    known = texts()
    named = re.search(known.model, text)
    text = named[1] if named else text
    plain = _cut(known.noise, text)
    bare = _cut(known.forms, re.sub(r"[-/_]", " ", plain))
    for spelling in (text, plain, bare, _cut(known.brands, plain), _cut(known.brands, bare)):
        if squeezed := _squeeze(spelling):
            yield squeezed


def _without_line(name: str) -> Iterator[str]:
    """Yield the name of a GeForce without ``RTX`` or ``GTX``, as people write it: ``2080ti``."""
    squeezed = _squeeze(_cut(texts().brands, _cut(texts().noise, name)))
    if name.startswith("GeForce") and re.match(r"^(?:rtx|gtx|gt)\d", squeezed):
        yield re.sub(r"^(?:rtx|gtx|gt)", "", squeezed)
