"""What stands around a GPU's name: logs, labels, counts, virtual GPUs, board partners; and other vendors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple


class GpuText(NamedTuple):
    """What a text says of a GPU: spellings of its name, the most telling first, and what stands beside the name.

    ``capability`` is what a log states ('' where it states none); ``series`` the letter of a virtual GPU's type that
    has no CUDA ('' for every other GPU).
    """

    names: tuple[str, ...]
    capability: str = ""
    series: str = ""


@lru_cache(maxsize=4096)
def read(text: str) -> GpuText:
    """Take a text apart. Text that is a name and nothing else is its only spelling."""
    found = dict.fromkeys([text.strip()])
    for peel in _LAYERS:
        for name in tuple(found):
            found.update(dict.fromkeys(one.strip(" \"'|,;") for one in peel(name)))
    names = tuple(name for name in found if name)
    stated = _search(_CAPABILITY, text)
    return GpuText(
        names=names,
        capability=".".join(part for part in stated.groups() if part) if stated else "",
        series=next((letter for name in names if (letter := _without_cuda(name))), "") if has_more(text) else "",
    )


def has_more(text: str) -> bool:
    """Tell whether something may stand beside the name that changes the answer: a virtual GPU's type has a dash."""
    return "-" in text


@lru_cache(maxsize=4096)
def other_vendor(text: str) -> str | None:
    """Name the vendor of a GPU that is none of NVIDIA's; None where the text does not say so."""
    if _search(_NVIDIA, text):
        return None
    return next((vendor for vendor, pattern in _OTHERS if _search(pattern, text)), None)


_CAPABILITY = r"compute ?capability:?\s*(\d{1,2})\.(\d)\b|\bmajor:\s*(\d{1,2})\s+minor:\s*(\d)\b"
"""How TensorFlow's log lines state it: ``compute capability: 7.5``, before 2.1 ``major: 6 minor: 1``."""

_LINES = (
    r"\bname:\s*([^,:\n]+?)(?=,|\s+major:|\s+computeCapability:|\s+pci|\s*$)",
    r"StreamExecutor device \(\d+\):\s*([^,]+)",
    r"^\s*GPU \d+:\s*(.+?)\s*(?:\(UUID:.*)?$",
    r"^\s*(.+?)\s*\(UUID:.*$",
    r"^\|\s*\d+\s+(.+?)\s+(?:On|Off|N/A)\s*\|",
    r"^\s*\d+,\s*([^,]+),",
    r"^([^,:=]+),",
)
"""Lines with a name in them: TensorFlow's, XLA's, those of ``nvidia-smi -L``, of its table and of its lists."""

_LABELS = (
    r"gpu[.\w-]*\.product[\"']?\s*[=:]\s*(.+)$",
    r"^[a-z0-9.-]+/[\w.-]+\s*[=:]\s*(.+)$",
    r"^(?:gres/)?gpu:([\w.-]+?)(?:[:=]\d+)?$",
)
"""Labels of Kubernetes (a key and its value), and Slurm's resources (``gpu:a100:4``)."""

_SHARES = r"-(?:SHARED|MIG-\d+(?:c\.\d+)?g\.\d+gb(?:\.me)?)\b"
"""What the label of a part of a GPU ends in: a time slice, a MIG profile."""

_COUNTS = (
    r"^\s*\d{1,4}\s*[x\u00d7*]\s*(?=\D)(.+)$",
    r"^\s*\d{1,2}\s+(?=[a-z])(.+)$",
    r"^(?:dual|twin|two|quad|four|eight)\s+(.+)$",
    r"^(.+?)\s*\(\s*[x\u00d7]?\s*\d{1,4}\s*[x\u00d7]?\s*\)$",
    r"^(.+?)\s+[x\u00d7*]\s*\d{1,4}$",
    r"^(.*\d\S*)[x\u00d7]\d{1,2}$",
)
"""How many boards there are: ``2x RTX 3090``, ``RTX 3090 (x2)``, ``A100x8``."""

_VIRTUAL = (
    r"^(?:(?:nvidia|grid|tesla|quadro)[ -])*(?P<board>[a-z0-9][a-z0-9 -]*?)"
    r"-(?:\d-)?(?P<memory>\d{1,3})(?P<series>[ABCQ])(?:ME|NOME|GFX|MEGFX)?\d?$"
)
"""A virtual GPU's type: the board, memory in GB, and the series (NVIDIA's vGPU user guide): ``GRID A100D-3-40C``."""

_BOARD = r"^(.*\d)[a-z]{1,2}$"
"""Letters behind a board's number tell form and memory apart: ``A100D``, ``A100DX``, ``V100D``, ``H100XM``."""

_COMPUTE_SERIES = frozenset("CQ")
_LARGEST_ONLY = frozenset({"M6", "M10", "M60"})
"""Boards whose type ``8Q`` alone has CUDA."""

_LARGEST = "8"

_PARTNERS = (
    r"\b(?:asus|rog|strix|tuf|proart|phoenix|turbo|astral|prime|msi|ventus|suprim|armor|aero|vanguard|expert|inspire"
    r"|gaming(?: ?(?:x|z|pro|plus|oc))?|trio|slim|evga|ftw ?\d?|xc ?\d?|sc ?\d?|kingpin|k\|?ngp\|?n|hybrid|hydro|copper"
    r"|gigabyte|aorus|eagle|windforce|vision|master|elite|xtreme|extreme|zotac|trinity|twin|edge|amp|holo|solid"
    r"|pny|verto|epic-?x|xlr8|revel|palit|game ?rock|gamingpro|stormx|jetstream|kalmx|infinity|gainward|phantom"
    r"|ghost|panther|python|pegasus|inno3d|ichill|frostbite|x[234]|kfa2|galax|galaxy|hof|ex|1-click|colorful|igame|vulcan"
    r"|neptune|ultra w?|ultra|battleax|leadtek|winfast|manli|gallardo|maxsun|icraft|terminator|yeston|afox|biostar"
    r"|point of view|club ?3d|sparkle|onda|soyo|hp|dell|lenovo|acer|predator|bifrost|founders|edition|fe|oc(?:ed)?"
    r"|overclocked|factory|advanced|lhr|v[23]|rev\.? ?[\da-z]|o\d{1,2}g|[dh]gx|\d{1,2}-gpu|dev(?:eloper)? ?kit"
    r"|dual|[234]x|\d ?fans?|triple fan|rgb|argb|white|black|silver|gold"
    r"|gddr\dx?|\d{2,3}-?bit|card|video|desktop|mega)\b"
)
"""Board partners and what they call their boards. A word that is none of these may belong to another model."""

_NVIDIA = r"\b(?:nvidia|geforce|quadro|tesla|rtx|gtx|cuda|jetson)\b"

_OTHERS: tuple[tuple[str, str], ...] = (
    ("AMD", r"\b(?:amd|ati|radeon|instinct|firepro|vega|navi|mi\d{2,3}[ax]?|rx ?\d{3,4}|gfx\d{3,4}\w?)\b"),
    ("Apple", r"\bapple\b|\bm[1-9] (?:pro|max|ultra)\b|^m[1235]$"),
    ("Intel", r"\b(?:intel|arc ?(?:pro )?[ab]\d{2,3}m?|iris|uhd|gaudi ?\d?|ponte vecchio)\b"),
    ("Google", r"\btpu\b"),
    ("Qualcomm", r"\badreno\b"),
    ("Arm", r"\bmali\b"),
    ("Huawei", r"\bascend\b"),
    ("Moore Threads", r"\b(?:moore threads|mtt s\d+)\b"),
    ("Amazon", r"\b(?:trainium|inferentia)\d?\b"),
)
"""Vendors whose GPUs no CUDA build uses, and the words by which they are known."""


def _search(pattern: str, text: str) -> re.Match[str] | None:
    """Search without regard to case; a pattern is compiled when it is asked for first, which most answers never do."""
    return re.search(pattern, text, re.IGNORECASE)


def _lines(text: str) -> Iterator[str]:
    yield from (found[1] for pattern in _LINES if (found := _search(pattern, text)))


def _labels(text: str) -> Iterator[str]:
    yield from (found[1] for pattern in _LABELS if (found := _search(pattern, text)))


def _whole(text: str) -> Iterator[str]:
    if _search(_SHARES, text):
        yield re.sub(_SHARES, "", text, flags=re.IGNORECASE)


def _counted(text: str) -> Iterator[str]:
    yield from (found[1] for pattern in _COUNTS if (found := _search(pattern, text)))


def _boards(text: str) -> Iterator[str]:
    found = _search(_VIRTUAL, text)
    if found is None:
        return
    board = found["board"]
    shorter = _search(_BOARD, board)
    for name in (board, *((shorter[1],) if shorter else ())):
        if name.upper().startswith("RTX") and "ADA" not in name.upper():  # Ada's boards say so, Turing's do not
            yield f"Quadro {name}"
        yield name


def _without_partner(text: str) -> Iterator[str]:
    plain = re.sub(_PARTNERS, " ", text, flags=re.IGNORECASE)
    if plain != text:
        yield " ".join(plain.split())


_LAYERS: tuple[Callable[[str], Iterator[str]], ...] = (_lines, _labels, _whole, _counted, _boards, _without_partner)
"""What may stand around a name, from the outside in."""


def _without_cuda(name: str) -> str:
    """Return the series of a virtual GPU that has no CUDA; '' for any other name."""
    found = _search(_VIRTUAL, name)
    if found is None:
        return ""
    series = found["series"].upper()
    small = found["board"].upper() in _LARGEST_ONLY and found["memory"] != _LARGEST
    return series if series not in _COMPUTE_SERIES or small else ""
