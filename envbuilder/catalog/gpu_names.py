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


@cache
def texts() -> _Texts:
    """Read the patterns; a name without a text around it needs none."""
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
    stated = _search(_CAPABILITY, text)
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


_CAPABILITY = r"compute ?capability:?\s*(\d{1,2})\.(\d)\b|\bmajor:\s*(\d{1,2})\s+minor:\s*(\d)\b"
"""In TensorFlow's log lines: ``compute capability: 7.5``, before 2.1 ``major: 6 minor: 1``."""

_VIRTUAL = (
    r"^(?:(?:nvidia|grid|tesla|quadro)[ -])*(?P<board>[a-z0-9][a-z0-9 -]*?)"
    r"-(?:\d-)?(?P<memory>\d{1,3})(?P<series>[ABCQ])(?:ME|NOME|GFX|MEGFX)?\d?$"
)
"""A virtual GPU's type: the board, memory in GB, and the series (NVIDIA's vGPU user guide): ``GRID A100D-3-40C``."""

_FORM = r"(?<=\d)[a-z]{1,2}$"
"""Letters after a board's number give its form and memory: ``A100D``, ``A100DX``, ``V100D``, ``H100XM``."""

_COMPUTE_SERIES = frozenset("CQ")
_LARGEST_ONLY = frozenset({"M6", "M10", "M60"})
"""Boards on which only the type ``8Q`` has CUDA."""


def _search(pattern: str, text: str) -> re.Match[str] | None:
    """Search without regard to case. A pattern is compiled at its first use; most commands use few."""
    return re.search(pattern, text, re.IGNORECASE)


def _inside(patterns: tuple[Around, ...], text: str) -> Iterator[str]:
    yield from (found[1] for one in patterns if (found := _search(one.pattern, text)))


def _without(pattern: str, text: str) -> Iterator[str]:
    if _search(pattern, text):
        yield " ".join(re.sub(pattern, " ", text, flags=re.IGNORECASE).split())


def _boards(text: str) -> Iterator[str]:
    found = _search(_VIRTUAL, text)
    if found is None:
        return
    board = found["board"]
    for name in dict.fromkeys((board, re.sub(_FORM, "", board, flags=re.IGNORECASE))):
        if name.upper().startswith("RTX") and "ADA" not in name.upper():  # Ada's boards have it in their name
            yield f"Quadro {name}"
        yield name


def _without_cuda(name: str) -> str:
    """Return the series of a virtual GPU without CUDA; '' for any other name."""
    found = _search(_VIRTUAL, name)
    if found is None:
        return ""
    series = found["series"].upper()
    small = found["board"].upper() in _LARGEST_ONLY and found["memory"] != "8"
    return series if series not in _COMPUTE_SERIES or small else ""


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
"""The model in the output of ``lspci``: ``GP104 [GeForce GTX 1080] (rev a1)``."""
_JOINED = re.compile(r"[^a-z0-9]+")

Spellings = dict[str, tuple[Gpu, ...]]


class GpuNames:
    """GPUs by the vendor's names, and by these names without brands and model lines."""

    def __init__(self, gpus: tuple[Gpu, ...]) -> None:
        self._gpus = gpus

    @cached_property
    def _exact(self) -> Spellings:
        names = [(name, row) for row in self._gpus for name in _written(row)]
        return _index([*names, *((_NOISE.sub(" ", name), row) for name, row in names)])

    @cached_property
    def _loose(self) -> Spellings:
        forms = [(text, row) for row in self._gpus for name in _written(row) for text in _forms(name)]
        return _index([*forms, *((text, row) for row in self._gpus for text in _without_line(row.name))])

    def possible(self, text: str) -> tuple[Gpu, ...]:
        """Return every GPU that a text may name: the complete text, or a name inside it (see `read`)."""
        return self._named(text) or next((rows for name in read(text).names[1:] if (rows := self._named(name))), ())

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
    named = _MODEL.search(text)
    text = named[1] if named else text
    plain = _NOISE.sub(" ", text)
    bare = _FORMS.sub(" ", re.sub(r"[-/_]", " ", plain))
    for spelling in (text, plain, bare, _BRANDS.sub(" ", plain), _BRANDS.sub(" ", bare)):
        if squeezed := _squeeze(spelling):
            yield squeezed


def _without_line(name: str) -> Iterator[str]:
    """Yield the name of a GeForce without ``RTX`` or ``GTX``, as people write it: ``2080ti``."""
    squeezed = _squeeze(_BRANDS.sub(" ", _NOISE.sub(" ", name)))
    if name.startswith("GeForce") and re.match(r"^(?:rtx|gtx|gt)\d", squeezed):
        yield re.sub(r"^(?:rtx|gtx|gt)", "", squeezed)
