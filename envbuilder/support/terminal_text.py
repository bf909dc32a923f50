"""Make foreign text safe to print: no terminal control, no forged line, no command for a CI system."""

import json
import re
import sys
from urllib.parse import quote

from envbuilder.errors import UsageError

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clear screen
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC and other strings: titles
    r"|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks: text that is shown in another order
    "\u2028\u2029\ufeff\U000e0000-\U000e007f"  # separators that some programs take for newlines; invisible tags
    "\ufffe\uffff]"  # not characters; XML has neither them nor the controls above
)
_CI_COMMAND = re.compile(
    r"(?im)(?:^(?P<lead>[^\S\n]*)(?P<first>::(?=[a-z-]+)|section_(?=start:|end:)))|(?P<any>##(?=\[|vso\[|teamcity\[))"
)
"""Commands in a job's log: GitHub and GitLab at the start of a line; Azure, TeamCity and GitHub's old form anywhere."""

_PRIVATE_KEY = re.compile(
    r"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"(?:.{0,20000}?-----END [A-Z ]*PRIVATE KEY-----|(?:(?:\s|\\n)*+[A-Za-z0-9+/=]{16,}+)*+)"
    r"|MC4CAQ[A-Za-z0-9+/=]{32,}+"  # how each unprotected ed25519 key of PKCS 8 begins, without its PEM lines
    r"|(?:\A|(?<=cannot read ))(?:(?:[\w+/-]{43}|[\w+/-]{86})={0,2}|[0-9A-Fa-f]{64}|[0-9A-Fa-f]{128})(?=: )"
)
"""A key that was given where its path belongs, whole or cut, or as its 32 or 64 bytes: an error repeats a path."""
_LEAST_UNIQUE, _UNIQUE, _hidden = 8, 1 << 20, dict[str, tuple[int, re.Pattern[str]]]()
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&])")
_ADDRESS = re.compile(r"(?i)(?<=[a-z]):(?=//)|(?<=www)\.")
_REFERENCE = re.compile(r"(?<=[@#!$%~])(?=[\w/])|(?<=\bGH)(?=-\d)")
"""Position after the sign of a mention, an issue, a merge request, a snippet, a milestone or a label."""
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def text(foreign: str) -> str:
    """Return a text of several lines without control sequences; tabs and newlines stay."""
    plain = _SEQUENCE.sub("", without_keys(foreign).replace("\r\n", "\n"))
    if "\r" in plain:  # a terminal shows the text after the last one
        plain = "\n".join(row.rstrip("\r").rpartition("\r")[2] for row in plain.split("\n"))
    plain = _CONTROL.sub("", plain)
    return _broken(_SURROGATE.sub("\ufffd", plain))


def hide(*secrets: str) -> None:
    """Let no output have these logins or tokens: a server may repeat them anywhere in its answer, in any case.

    One that may be a word is hidden where a word equals it, unless you wrote it in the command.
    """
    for secret in filter(None, (one.rstrip("=") for one in secrets)):
        pattern = "|".join(map(re.escape, {secret, repr(secret)[1:-1], quote(secret, "")}))
        is_word = len(secret) < _LEAST_UNIQUE or secret.isalpha()
        found = re.compile(rf"(?<![^\W_])(?:{pattern})(?![^\W_])" if is_word else pattern, re.IGNORECASE)
        if not (is_word and found.search(" ".join(sys.argv))):
            _hidden[secret] = (len(secret) if is_word else _UNIQUE, found)


def without_logins(foreign: str, least: int = 4) -> str:
    """Hide logins and tokens; of those that may be a word, those of at least so many characters."""
    for size, secret in tuple(_hidden.values()):
        foreign = secret.sub("****", foreign) if size >= least else foreign
    return foreign


def without_keys(foreign: str) -> str:
    return _PRIVATE_KEY.sub("(the text of a private key)", without_logins(foreign))


def line(foreign: str) -> str:
    """Return a text as one line of visible characters: it cannot pass for a line of envbuilder's output."""
    shown = "".join(char if char.isprintable() else " " for char in text(foreign))
    return _broken(" ".join(shown.split()))


def flat(foreign: str) -> str:
    """Return a text on one line with its spaces unchanged, for a field of a document."""
    return foreign if foreign.isprintable() else re.sub(r"[\n\t]", " ", text(foreign))


def markdown(foreign: str) -> str:
    """Return a text as one line without Markdown, HTML, links and mentions."""
    escaped = _MARKDOWN.sub(r"\\\1", line(foreign)).replace("\\<", "&lt;").replace("\\>", "&gt;")
    return _REFERENCE.sub("\u200b", _ADDRESS.sub(lambda found: f"\\{found[0]}", escaped))


def code(foreign: str) -> str:
    """Return a text as inline code for Markdown, also in a table: it cannot end the code or the cell."""
    return f"`{' '.join(re.sub('[`|]', ' ', line(foreign)).split())}`"


def json_text(document: str) -> str:
    """Escape control characters in a JSON text; its meaning stays the same. Logins are hidden."""
    document = _STRING.sub(_safe_string, document) if _hidden else document
    if document.isascii() and "\x7f" not in document:
        return document
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _safe_string(found: re.Match[str]) -> str:
    value = json.loads(found[0])  # keys and words of a schema have no blank
    safe = without_logins(value) if " " in value else without_logins(value, _UNIQUE)
    return found[0] if safe == value else json.dumps(safe, ensure_ascii=False)


def _broken(plain: str) -> str:
    """Break up commands for CI systems."""
    return _CI_COMMAND.sub(lambda found: f"{found['lead'] or ''}{found[0].lstrip()[0]} {found[0].lstrip()[1:]}", plain)


def in_words(seconds: float, digits: int = 0) -> str:
    """Write a duration in the largest unit of which there are two."""
    for size, unit in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.{digits}f} {unit}"
    return f"{seconds:.0f} seconds"


_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?)([smhdw])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def duration(text: str) -> float:
    """Read ``90d``, ``12h``, ``30m``, ``45s`` or ``2w`` as seconds. Raises UsageError for anything else."""
    if (found := _DURATION.fullmatch(text)) is None:
        raise UsageError(f"{text!r} is not a duration", hint="a number and one of s, m, h, d, w: 90d")
    return float(found[1]) * _SECONDS[found[2]]
