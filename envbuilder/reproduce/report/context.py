"""The context of a field: which machine and setup, the complaint, and the time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Literal

from envbuilder.reproduce.report.reported import Complaint, Pause
from envbuilder.reproduce.transcript import Transcript

_WORKS = re.compile(
    r"(?:works? (?:fine|well|perfectly|great|for me|as expected|as intended|on|with|in|again|under|just|now|too)"
    r"|\bworks\b(?=[.,;:)]|$)|worked|no problems?\b|working (?:fine|well|on|with)|without (?:issue|problem|error)"
    r"|is working|r[au]ns? (?:fine|well)|is fine\b|\bis (?:the )?ok\b|are fine|\bloads on\b|went (?:fine|well))",
    re.IGNORECASE,
)
_DEMANDS = re.compile(
    r"(?:\brequires?\b(?! a lot)|\bneeds\b|download and install|compatible with|\bsupports\b|recommend)",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"\b(?:down-?grad(?:e|ed|ing)|(?:went|going|go|roll(?:ed|ing)?|revert(?:ed|ing)?|switch(?:ed|ing)?) (?:back|down))"
    r"(?:(?!\.\s)[^\n;]){0,80}\bto(?: (?:tensorflow|tf|cuda|cudnn|python|version|the|v))*\s*\Z",
    re.IGNORECASE,
)
"""Words before a version to which the reporter returned because the other one failed."""

_BOUND = re.compile(
    r"\s{0,2}(?:(?:or|and) (?:earlier|later|newer|older|above|below|higher|lower)\b"
    r"|(?:to|through|until|till|up to) v?[0-9]{1,2}\.[0-9])",
    re.IGNORECASE,
)
"""Words after a version at the end of a range: no version of it was reported as installed."""

_BREAK = re.compile(
    r"(?<=[^0-9\s])[.!?](?=\s|$)|;|,\s|\s(?:but|while|whereas|however|although|though)\s|\)\s|\s\(", re.IGNORECASE
)
_ADDRESS = re.compile(r"https?://\S+")
_NOT = re.compile(r"\b(?:not|n't|never|no longer|neither|stopped|fails?)\b|n't\b", re.IGNORECASE)
_MOST_LINES = 40


def without_addresses(line: str) -> str:
    """Replace the addresses of a line by spaces; positions stay."""
    if "://" not in line:
        return line
    return _ADDRESS.sub(lambda match: " " * len(match[0]), line)


Side = Literal["fails", "works", "wanted"]
"""The setup that a mention describes: failing, working, or a requirement."""


def setup_of(line: str, start: int, end: int) -> Side:
    """Classify the clause around a mention."""
    around = clause(line, start, end)
    before = max((match.end() for match in _BREAK.finditer(line, 0, start)), default=0)
    works = _WORKS.search(around)
    if works is not None and not _NOT.search(around[max(0, works.start() - 24) : works.start()]):
        return "works"
    if _AFTER.search(line, before, start) is not None:
        return "works"
    wanted = _DEMANDS.search(line, before, start) is not None or _BOUND.match(line, end) is not None
    return "wanted" if wanted else "fails"


def elsewhere(line: str, start: int, end: int) -> bool:
    """Return True if the clause around a mention describes a working setup or a requirement."""
    return setup_of(line, start, end) != "fails"


def clause(line: str, start: int, end: int) -> str:
    """Return the clause of a sentence around a mention."""
    before = max((match.end() for match in _BREAK.finditer(line, 0, start)), default=0)
    after = _BREAK.search(line, end)
    return line[before : after.start() if after else len(line)]


def other_setup_lines(transcript: Transcript) -> frozenset[int]:
    """List the lines of blocks below a sentence like "It works for me with:", up to the next blank line."""
    found: set[int] = set()
    for number in sorted({n for needle in ("works", "worked", "working") for n in transcript.numbers(needle, 40)}):
        line = transcript.line(number).rstrip()
        works = _WORKS.search(line)
        if not line.endswith(":") or works is None or _NOT.search(line[max(0, works.start() - 24) : works.start()]):
            continue
        begun = False
        for below in range(number + 1, min(number + _MOST_LINES, len(transcript.lines)) + 1):
            blank = not transcript.line(below).strip()
            if blank and begun:
                break
            begun = begun or not blank
            found.add(below)
    return frozenset(found)


_LONGEST_TITLE = 200


def title_line(transcript: Transcript) -> int:
    """Return the line of the title: the first text line, if a blank line follows; else 0."""
    first = next((number for number, line in enumerate(transcript.lines, start=1) if line.strip()), 0)
    if not first or len(transcript.line(first)) > _LONGEST_TITLE or first + 1 >= len(transcript.lines):
        return 0
    return 0 if transcript.line(first + 1).strip() else first


_UPDATE = re.compile(r"^\W{0,4}(?:update[d]?|edit(?:ed)?|upd)\b[ 0-9./:-]{0,24}(?::|$)", re.IGNORECASE)
_SHOWS = re.compile(r"\b(?:error|warning|message|output|log)s?\b[^.\n]{0,60}:\s*$", re.IGNORECASE)


def present(transcript: Transcript) -> frozenset[int]:
    """List the lines of an update that describes the current state and quotes output.

    A setup that works there is not another setup: it printed the lines in question.
    """
    found: set[int] = set()
    for start in sorted({n for needle in ("update", "edit", "upd") for n in transcript.numbers(needle, 10)}):
        if not _UPDATE.match(transcript.line(start)):
            continue
        end = min(start + _MOST_LINES, len(transcript.lines))
        shown = next((n for n in range(start, end + 1) if _SHOWS.search(transcript.line(n)[:1_500])), None)
        found |= set(range(start, shown + 1)) if shown is not None else set()
    return frozenset(found)


# ruff: noqa: E501 - an expression does not get clearer by being cut.


_NOT_A_COMPLAINT = r"(?:\bnot\b|n[o']?t\b|\bcannot|\bunable|\bfail\w*|\bnever|\bno longer|\bstopp?\w*|\bwithout|\bno\b|\bwon|\brefuses?)"
_SEES = r"(?:detect|recogni|see\b|seeing|find|found|us(?:e|es|ed|ing)\b|visible|access|list|show|utili|work|run|regist|enabl|availab)"
_WORDS = r"(?:[^\s.;]+\s+){0,6}?"

_SAID: dict[Complaint, re.Pattern[str]] = {
    "invisible": re.compile(
        rf"{_NOT_A_COMPLAINT}\s+{_WORDS}{_SEES}\w*\s+{_WORDS}(?:gpus?\b|cuda\b|graphic|video card)"
        rf"|(?:\bgpus?|[rg]tx ?[0-9]{{3,4}}(?: ?ti)?|geforce|tesla|titan|graphics card)\b[^\n.;]{{0,40}}{_NOT_A_COMPLAINT}\s+{_WORDS}{_SEES}"
        r"|\bno (?:visible |available |compatible |such )?gpus?\b|\b(?:only|just)(?: \w+){0,3} (?:the )?cpu|instead of (?:the )?gpu"
        r"|num gpus available: {1,3}0|gpu[s ]{0,2}available[^\n]{0,12}(?:false|\b0\b)|\(?gpu'?\)?[^\n]{0,20} (?:is|returns|gives|prints?)[^\n]{0,20}\[\]"
        r"|(?:on|uses|using) (?:the )?cpu\b|use (?:the |my )?gpu|is_gpu_available|gpu support|detect\w* (?:my |the )?gpus?"
        r"|gpu[^\n]{0,12}(?:未|没|沒|不|无法|認識|인식|못|使えない|使用できない|ない)|(?:不能|无法|没有|找不到|不到)[^\n]{0,12}gpu"
        r"|skipping registering gpu|cpu:0'?\]?\s*$",
    ),
    "slow": re.compile(
        r"\bslow|\btakes? (?:\w+ ){0,6}(?:minutes?|mins?|hours?|long|forever|ages)|\b(?:minutes?|mins)\b|\blong time|\blatency"
        r"|performance|speed|\bdelay|速度|慢|遅い|느리"
    ),
    "stuck": re.compile(r"\bhangs?\b|\bhung\b|\bstuck|(?<!pip )(?<!pip3 )\bfreez|\bfrozen|\bstall|\bdeadlock|never (?:ends|returns|finishes)|halts?\b|卡住|卡死"),
    "breaks": re.compile(
        r"core dumped|segfault|segmentation fault|\bcrash|\babort(?:ed|s)?\b|kernel died|\bdied\b|internalerror|unknownerror|"
        r"notfounderror|check failed|failedprecondition|resourceexhausted|\bf tensorflow/|runtimeerror|\bnan\b|cuda_error|status: |"
        r"cudnn_status|cublas_status|new(?:er)? (?:hardware|gpu|card)|\bcompatib\w* (?:\w+ ){0,2}(?:issue|problem)|"
        r"(?:run|use|work) (?:\w+ ){0,3}(?:on|with) (?:an?|my|the) (?:nvidia |geforce )?(?:rtx ?)?[2-5]0[5-9]0"
    ),
    "installing": re.compile(
        r"no matching distribution|could not find a version|not a supported wheel|(?:cannot|can't|can not|unable to|fail\w* to|trouble|"
        r"problems?|error\w*|issues?)[^\n.;]{0,24} install|install\w* (?:\S+ ){0,4}(?:fail|error|problem|issue)|resolutionimpossible|version solving|"
        r"pip(?:3)? install[^\n]{0,80}(?:error|fail)"
    ),
    "import": re.compile(
        r"(?:cannot|can't|can not|unable to|fail\w* to|fail\w*|error\w*|problem\w*|trouble|issue\w*|crash\w*)[^\n.;]{0,30}\bimport"
        r"|\bimport\w*[^\n.;]{0,40}(?:fail|error|not work|crash|problem|issue)|dll load failed|no module named|cannot import name"
    ),
    "building": re.compile(r"\bbazel build|(?<!but to )\bbuild(?:ing)?\b[^\n.;]{0,30}from source|(?<!but to )\bcompil(?:e|ing|ation)\b[^\n.;]{0,30}(?:tensorflow|fail|error|source)"),
    "several": re.compile(r"multi[- ]?gpus?\b|\b(?:several|multiple|both|two|four|eight|[248]) gpus\b|\bgpus (?:hang|wait|block)|across (?:\w+ ){0,4}gpu|number of gpus?\b|mirrored_?strategy|\bnccl|horovod"),
}  # fmt: skip
"""Usual wordings in lower case; one is enough."""

_FRAME = re.compile(
    r"(?:site|dist)-packages[\\/](?:tensorflow\w{0,12}|keras)[\\/](?:python[\\/])?(?:__init__|pywrap\w{0,40})\.py"
)
_RAISED = re.compile(
    r"(?:^|\s)(?:importerror|modulenotfounderror|attributeerror|typeerror|systemerror|keyerror|oserror)\b"
)
_LOGGED = re.compile(r"(?:\.cc|\.py|\.h):[0-9]{1,5}\]")
_LONGEST = 600


def complaints(transcript: Transcript) -> tuple[Complaint, ...]:
    """List the complaints of a text in the order of their kinds."""
    text = "\n".join(_sentences(transcript))
    said = {kind for kind, pattern in _SAID.items() if pattern.search(text)}
    if _FRAME.search(transcript.lowered) and _RAISED.search(transcript.lowered):
        said.add("import")
    return tuple(kind for kind in _SAID if kind in said)


def _sentences(transcript: Transcript) -> Iterator[str]:
    """Yield the lines that are not log lines."""
    for line in transcript.lowered.split("\n"):
        if line and _LOGGED.search(line) is None:
            yield line[:_LONGEST]


SHORTEST = 15.0
"""The shortest reported pause, in seconds, between two log lines. Users usually ask about much longer ones."""

_MOST_TIMED_LINES = 3_000
_MOST_PAUSES = 12
_ISO = re.compile(
    r"^\s{0,4}([0-9]{4}-[0-9]{2}-[0-9]{2}) ([0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?): [IWEF] ", re.ASCII
)
_EPOCH = re.compile(r"^\s{0,4}[IWEF][0-9]{4} [0-9:]{4,8}:([0-9]{10}\.[0-9]{1,6})\s", re.ASCII)


def pauses(transcript: Transcript) -> tuple[Pause, ...]:
    """List the gaps between consecutive log lines, longest first, separately for both clocks."""
    found: list[Pause] = []
    last: dict[bool, tuple[float, int]] = {}
    for number in sorted({*transcript.matching(_ANY, _MOST_TIMED_LINES)}):
        line = transcript.line(number)
        now, local = _seconds(line), line.lstrip()[:1].isdigit()
        if now is None:
            continue
        then, before = last.get(local, (now, number))
        if SHORTEST <= now - then < 86_400:  # noqa: PLR2004 - a day: another run
            after = transcript.line(before)
            found.append(
                Pause(line=before, seconds=round(now - then, 3), after=after.strip()[:300], before=line.strip()[:300])
            )
        last[local] = (now, number)
    return tuple(sorted(found, key=lambda pause: -pause.seconds)[:_MOST_PAUSES])


_ANY = re.compile(
    r"(?m)^ {0,4}(?:[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:|[iwef][0-9]{4} [0-9:]{4,8}:[0-9]{10}\.)", re.ASCII
)


def _seconds(line: str) -> float | None:
    epoch = _EPOCH.match(line)
    if epoch is not None:
        return float(epoch[1])
    iso = _ISO.match(line)
    if iso is None:
        return None
    try:
        return datetime.fromisoformat(f"{iso[1]}T{iso[2]}+00:00").timestamp()
    except ValueError:
        return None
