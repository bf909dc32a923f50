"""Make text that others wrote fit to print: no control of a terminal, no forged line, no command to a CI system."""

from __future__ import annotations

import re

_SEQUENCE = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, clear screen
    r"|(?:\x1b[\]P^_X]|[\x9d\x90\x9e\x9f\x98])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # OSC and other strings: titles
    r"|\x1b[ -/]*[0-~]"
)
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 but tab and newline, DEL, C1
    "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # direction marks: text that reads otherwise than it stands
    "\u2028\u2029\ufeff\U000e0000-\U000e007f]"  # separators that some take for newlines; tags that nobody sees
)
_CI_COMMAND = re.compile(r"(?im)^([^\S\n]*)(::(?=[a-z-]+)|##(?=\[|vso\[|teamcity\[)|section_(?=start:|end:))")
"""How GitHub, Azure, TeamCity and GitLab take orders from a job's log."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#~&])")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def text(foreign: str) -> str:
    """Return a text of several lines without anything that steers what prints it; tabs and newlines stay."""
    plain = _SEQUENCE.sub("", foreign.replace("\r\n", "\n"))
    if "\r" in plain:  # a terminal shows what was written last, over the rest of the line
        plain = "\n".join(row.rstrip("\r").rpartition("\r")[2] for row in plain.split("\n"))
    plain = _CONTROL.sub("", plain)
    return _CI_COMMAND.sub(_spaced, _SURROGATE.sub("\ufffd", plain))


def line(foreign: str) -> str:
    """Return a text as one line: what it holds cannot be taken for a line of ours."""
    return " ".join(text(foreign).split())


def markdown(foreign: str) -> str:
    """Return a text as one line in which Markdown and HTML mean nothing, and nobody is mentioned."""
    escaped = _MARKDOWN.sub(r"\\\1", line(foreign)).replace("\\<", "&lt;").replace("\\>", "&gt;")
    return escaped.replace("@", "@\u200b")


def json_text(document: str) -> str:
    """Escape in a JSON text what a terminal would act on; what it means stays the same."""
    if document.isascii() and "\x7f" not in document:
        return document
    return _UNSAFE_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def _spaced(found: re.Match[str]) -> str:
    word = found[2]
    return f"{found[1]}{word[0]} {word[1:]}"
