"""What a report complains of: that an import fails, that no GPU is used, that something is slow, breaks, or hangs."""

# ruff: noqa: E501 - an expression does not get clearer by being cut.

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder.reproduce.report.reported import Complaint
from envbuilder.reproduce.transcript import Transcript

_NOT = r"(?:\bnot\b|n[o']?t\b|\bcannot|\bunable|\bfail\w*|\bnever|\bno longer|\bstopp?\w*|\bwithout|\bno\b|\bwon|\brefuses?)"
_SEES = r"(?:detect|recogni|see\b|seeing|find|found|us(?:e|es|ed|ing)\b|visible|access|list|show|utili|work|run|regist|enabl|availab)"
_WORDS = r"(?:[^\s.;]+\s+){0,6}?"

_SAID: dict[Complaint, re.Pattern[str]] = {
    "invisible": re.compile(
        rf"{_NOT}\s+{_WORDS}{_SEES}\w*\s+{_WORDS}(?:gpus?\b|cuda\b|graphic|video card)"
        rf"|(?:\bgpus?|[rg]tx ?[0-9]{{3,4}}(?: ?ti)?|geforce|tesla|titan|graphics card)\b[^\n.;]{{0,40}}{_NOT}\s+{_WORDS}{_SEES}"
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
"""How people say it, in lower case; one is enough."""

_FRAME = re.compile(
    r"(?:site|dist)-packages[\\/](?:tensorflow\w{0,12}|keras)[\\/](?:python[\\/])?(?:__init__|pywrap\w{0,40})\.py"
)
_RAISED = re.compile(
    r"(?:^|\s)(?:importerror|modulenotfounderror|attributeerror|typeerror|systemerror|keyerror|oserror)\b"
)
_LOGGED = re.compile(r"(?:\.cc|\.py|\.h):[0-9]{1,5}\]")
_LONGEST = 600


def complaints(transcript: Transcript) -> tuple[Complaint, ...]:
    """List what a text complains of, in the order of the kinds; nothing where it says nothing that is known here."""
    text = "\n".join(_sentences(transcript))
    said = {kind for kind, pattern in _SAID.items() if pattern.search(text)}
    if _FRAME.search(transcript.lowered) and _RAISED.search(transcript.lowered):
        said.add("import")
    return tuple(kind for kind in _SAID if kind in said)


def _sentences(transcript: Transcript) -> Iterator[str]:
    """Yield what is not a program's log."""
    for line in transcript.lowered.split("\n"):
        if line and _LOGGED.search(line) is None:
            yield line[:_LONGEST]
