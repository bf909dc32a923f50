"""Where an import stops: the package in whose files a traceback of Python ends, where its last line names nobody."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder.reproduce.messages.message import Symptom
from envbuilder.reproduce.transcript import Transcript

_FRAME = re.compile(
    r"(?:site|dist)-packages[\\/](?P<package>[A-Za-z0-9_]{2,40})(?:[\\/](?P<below>[A-Za-z0-9_]{2,40}))?[^\n]{0,200}\.(?:py|so|pyd)\b"
)
_RAISED = re.compile(
    r"^\s{0,4}(?:E +)?(?P<kind>(?:Import|ModuleNotFound|Attribute|Type|System|Key|Runtime|Value)Error)\b:?"
)
_NAMES_OTHER = re.compile(r"DLL load failed|No module named|\.so\b|\.dll\b|GLIBC|undefined symbol", re.IGNORECASE)
_STOPPED_IN = {
    "google": "stopped_in_protobuf", "numpy": "stopped_in_numpy", "h5py": "stopped_in_h5py",
}  # fmt: skip
_WIDEST = 60
"""Lines from one frame of a traceback to the next, source code and carets between them."""

_LONGEST = 400


def traced(transcript: Transcript, known: tuple[Symptom, ...]) -> Iterator[Symptom]:
    """Yield a symptom (not exact) for each traceback through TensorFlow that ends in another package's files.

    A traceback whose last line is a known message is left to that.
    """
    if "-packages" not in transcript.lowered:
        return
    explained = {row.line for row in known}
    through, package, seen = False, "", -_WIDEST
    named: set[str] = set()
    for number, line in enumerate(transcript.lines, start=1):
        frame = _FRAME.search(line[:_LONGEST])
        if number > seen + _WIDEST:
            through, package = False, ""
        if frame is not None:
            package, seen = frame["package"].lower(), number
            through = through or package.startswith(("tensorflow", "keras"))
            continue
        raised = _RAISED.match(line)
        if raised is None or not package:
            continue
        signature = _STOPPED_IN.get(package)
        told = number in explained or _NAMES_OTHER.search(line) is not None
        if through and signature is not None and signature not in named and not told:
            named.add(signature)
            yield Symptom(signature=signature, line=number, text=line.strip()[:_LONGEST], exact=False)
        through, package = False, ""
