"""Spellings of GPUs and operating systems."""

from __future__ import annotations

import re

MAKER = r"N[IV]{1,3}D{1,2}I?A"
"""NVIDIA and its usual misspellings: Nvida, NIVIDIA, NVDIA."""

_MAKES = rf"{MAKER}[ :-]{{1,2}}"
_NVIDIA = rf"(?:{_MAKES})?"
_SHORT = r"A10G?|A16|A2|A30|A40|L2|L4|L20|P4|T4G?"
"""Models that are too short to recognise without a brand before them."""
_CENTRE = (
    r"A100X?|A800|B100|B200|B300|GB200|GB300|GH200|GB10|H100|H200|H800|K80|L40S?|P100|V100S?|K40[cm]?|K20[cmX]?"
    r"|M40|M60|P40"
)
_SUFFIX = (
    r"(?: Ada Generation| Ada)?(?: Laptop GPU| Mobile| with Max-Q Design| Generation)?"
    r"(?![0-9]| ?series| ?/ ?[0-9]+ ?MiB|\.\.\.)"
)
_NO_SERIES = r"(?!3000\b(?! ?(?:ada|laptop|mobile)))"
""""RTX 3000" alone means the 30 series."""

_FORM = r"(?:-(?:PCIE|PCIe|SXM[0-9]?|NVL|DGXS)|-[0-9]{2,3}GB| (?:PCIe|NVL|80GB HBM3|[0-9]{2,3}GB))*"
_BOARDS = (
    (
        rf"{_NVIDIA}(?:GeForce[ -]?)?(?:RTX|GTX|GT|MX)[ -]?{_NO_SERIES}[0-9]{{3,4}}"
        rf"(?:[ -]?(?:Ti|SUPER|Max-?Q|XM|M|D)\b)*{_SUFFIX}"
    ),
    rf"{_NVIDIA}GeForce[ -]?[0-9]{{3,4}}(?:MX|M|A)\b",
    rf"{_NVIDIA}(?:RTX|Quadro)(?: RTX| PRO)? ?[AKMPTV]?[0-9]{{3,4}}(?: Ada| Blackwell)?{_SUFFIX}",
    rf"{_NVIDIA}(?:GeForce[ -])?(?:GTX[ -])?TITAN(?: X \(Pascal\)|(?: (?:Xp|X|V|RTX|Black|Z))?\b(?!\.\.\.))",
    rf"(?:{_MAKES}|Tesla[ -]|GRID[ -])?(?:{_CENTRE}){_FORM}\b(?!\.\.\.)",
    rf"(?:{_SHORT})(?= gpus?\b)",
    rf"(?:{_MAKES}|Tesla[ -]|GRID[ -])(?:{_SHORT}|H20|P6|M4|M6|M10)(?:-[0-9]{{1,2}}[A-Z])?\b",
)
_BARE = rf"(?:[1-5]0[5-9]0|[67][0-9]0|9[4-8]0)(?:[ -]?(?:Ti|SUPER))*\b|(?:{_SHORT})\b"

_START = r"(?:(?<![\w./-])|(?<=[1-9]x)|(?<=\[))"
"""Where a model name may begin: at a word, or directly after a count (8xH100)."""

_TI = r"[1-5]0[5-9]0[ -]?(?:Ti|SUPER)\b"
ON_MACOS = re.compile(r"\bon (?:an? )?(?:mac ?os|os ?x|mac(?:book)?)\b", re.IGNORECASE | re.ASCII)

GPU = re.compile(rf"{_START}(?:" + "|".join((*_BOARDS, _TI)) + ")", re.IGNORECASE | re.ASCII)
"""A GPU in prose, with a brand or an unambiguous model."""

GPU_IN_FIELD = re.compile(rf"{_START}(?:" + "|".join((*_BOARDS, _BARE)) + ")", re.IGNORECASE | re.ASCII)
"""A GPU in a form's GPU field: the model number is enough."""

_BEFORE = re.compile(r"(?:\b([2-9]|1[0-6]) ?[x\u00d7*] {0,3}|\b(dual|two) )$", re.IGNORECASE)
_AFTER = re.compile(r"^ ?[*x\u00d7] ?([2-9]|1[0-6])\b", re.IGNORECASE | re.ASCII)

_SYSTEMS = (
    r"Ubuntu(?:[ -]?(?:server )?(?:[0-9]{2}\.[0-9]{2}(?:\.[0-9]{1,2})?|(?:1[468]|2[0246])(?![0-9]| ?bit)))?",
    r"Debian(?: GNU/Linux)?(?: [0-9]{1,2}(?:\.[0-9]{1,2})?)?(?: \(?(?:stretch|buster|bullseye|bookworm|trixie)\)?)?",
    r"(?:CentOS|Rocky|AlmaLinux|Oracle)(?: (?:Linux|Stream))?(?: release)?(?: [0-9]{1,2}(?:\.[0-9]{1,4}){0,2})?",
    r"(?:Red Hat(?: Enterprise Linux)?(?: Server)?|RHEL)(?: release)?(?: ?[0-9]{1,2}(?:\.[0-9]{1,2})?)?",
    r"Fedora(?: (?:Linux )?[0-9]{2})?",
    r"(?:Arch|Manjaro|Amazon|Kali|Gentoo|Alpine|Endeavour) ?(?:(?:GNU/)?Linux|OS)?(?: v?[0-9]{1,4}(?:\.[0-9]{1,2})?)?",
    r"Linux Mint(?: [0-9]{2}(?:\.[0-9])?)?",
    r"(?:openSUSE|SLES|SUSE)(?: (?:Leap|Tumbleweed|Linux Enterprise Server))?(?: [0-9]{2}(?:\.[0-9])?)?",
    r"(?:Pop!?_?OS|Raspbian|NixOS|elementary OS)(?: [0-9]{1,2}(?:\.[0-9]{1,2})?)?",
    r"Windows(?: Server)?(?: ?(?:XP|Vista|7|8\.1|8|10|11|20[0-9]{2}))?(?: (?:Pro|Home|Enterprise|Education)\b)?",
    r"Win ?(?:7|8|10|11)\b(?: (?:Pro|Home|Enterprise)\b)?",
    r"(?:macOS|Mac ?OS(?: ?X)?|OS ?X)(?: [A-Z][a-z]+)?(?: [0-9]{1,2}(?:\.[0-9]{1,2}){0,2})?",
    r"WSL ?[12]?\b",
)
OS = re.compile(r"(?<![\w./-])(?:" + "|".join(_SYSTEMS) + ")", re.IGNORECASE | re.ASCII)
_NEEDS_NUMBER = re.compile(r"[0-9]|arch|wsl", re.IGNORECASE | re.ASCII)


def count_around(line: str, start: int, end: int) -> int:
    """Read the number of GPUs in a line: ``2x RTX 3080``, ``2080ti * 4``, ``dual GTX 780``."""
    before = _BEFORE.search(line[max(0, start - 10) : start])
    if before is not None:
        return int(before[1]) if before[1] else 2
    after = _AFTER.match(line[end : end + 6])
    return int(after[1]) if after else 1


def systems(text: str, *, mentioned: bool = False) -> str | None:
    """Return the operating systems in a value (``Windows 11 + WSL2``), from the first name to the last.

    ``mentioned`` requires a version number: "on Windows" in a sentence may be about another machine.
    """
    found = list(OS.finditer(text[:200]))
    if mentioned:
        found = [match for match in found if _NEEDS_NUMBER.search(match[0])]
    if not found:
        return None
    span = text[found[0].start() : found[-1].end()]
    near = 60
    numbered = next((match[0] for match in found if any(letter.isdigit() for letter in match[0])), found[0][0])
    return _tidy(span if len(span) <= near else numbered)


def _tidy(name: str) -> str:
    """Normalise a system's name: single spaces, also before its number, and a capital first letter."""
    spaced = re.sub(r"(?<=[a-z])(?:[ -]|:)?(?=[0-9]{2}\.)", " ", " ".join(name.split()))
    return spaced[:1].upper() + spaced[1:] if spaced[:6] in {"ubuntu", "debian", "centos", "fedora"} else spaced


def platform_of(system: str) -> str | None:
    """Return the platform of a system's name; WSL is Linux."""
    lowered = system.lower()
    if "wsl" in lowered:
        return "linux"
    if lowered.startswith("win"):
        return "windows"
    return "macos" if lowered.startswith(("mac", "os x", "osx")) else "linux"
