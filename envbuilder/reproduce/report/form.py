"""Labelled values: issue forms of five generations, bullet lists, key and value lines of scripts and of JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder.reproduce.report.grammar import VARIABLES
from envbuilder.reproduce.report.labels import BEGINNING, LABEL, field_of
from envbuilder.reproduce.report.reported import Evidence, Trust
from envbuilder.reproduce.report.values import READERS
from envbuilder.reproduce.transcript import Transcript

_HEADING = re.compile(r"^\s{0,3}#{1,6}\s|^\s{0,3}\*\*[^*]{2,80}\*\*\s{0,4}:?\s{0,4}$")
_INSIDE = re.compile(r"\((pip|conda|docker)\)", re.IGNORECASE)
"""The answer that some write over the question's own hint."""

_NOTHING = re.compile(r"^[\s*_-]*(?:no response|n/?a\*?|none|no|yes|unknown|-)?[\s*_.-]*$", re.IGNORECASE)


def statements(transcript: Transcript) -> Iterator[Evidence]:
    """Yield what labelled values state, in the order of the lines."""
    for number in dict.fromkeys(transcript.matching(BEGINNING, 500)):
        line = transcript.line(number)
        match = LABEL.match(line)
        if match is None:
            continue
        target = field_of(match["label"])
        if target is None:
            continue
        value = match["value"]
        if value is not None:
            yield from _evidence(target, value, number, line)
        elif target == "install" and (inside := _INSIDE.search(match["label"])) is not None:
            yield from _evidence(target, inside[1], number, line)
        elif _is_heading(line, match["label"]) and not match["label"].lower().startswith("installed version"):
            for following in _following(transcript, number):
                yield from _evidence(target, transcript.line(following), following, transcript.line(following))


def _is_heading(line: str, label: str) -> bool:
    """Tell a label whose value stands below from a sentence that happens to begin like one."""
    return bool(_HEADING.match(line)) or line.rstrip().endswith(":") or (line.lstrip()[:1] in "-*" and len(label) > 1)


def _following(transcript: Transcript, number: int) -> Iterator[int]:
    """Yield the lines of a value that stands below its label: up to three, ending at a blank, bullet or heading."""
    taken, last = 0, min(number + 6, len(transcript.lines))
    for candidate in range(number + 1, last + 1):
        text = transcript.line(candidate).strip()
        if not text or text.startswith("```"):
            if taken:
                return
            continue
        if text.startswith(("#", "- ", "* ", "+-", "|", "<", "**")):
            return
        yield candidate
        taken += 1
        most = 3
        if taken == most:
            return


_ADDRESS = re.compile(r"https?://\S+")
_OF_THE_DRIVER = re.compile(r"CUDA Version\s{2,60}:|UMD Version")
"""``nvidia-smi -q`` aligns its colons; what it calls the CUDA version is what the driver serves."""


def _evidence(target: str, value: str, number: int, line: str) -> Iterator[Evidence]:
    if _NOTHING.match(value) or ".cc:" in value or _OF_THE_DRIVER.search(line):
        return
    value = _ADDRESS.sub(" ", value)
    reader = READERS.get(target.partition(".")[0])
    if reader is None:
        return
    for name, text, count in reader(target, value[:300]):
        # "source" is the first answer of a list that many leave as it stands: any other statement outweighs it.
        trust = Trust.MENTIONED if (name, text) == ("install", "source") else Trust.STATED
        yield Evidence(
            field=name, value=text, line=number, text=line.strip()[:1_000], source="form", trust=trust, count=count
        )


_NAMES = "|".join(VARIABLES)
_SETTING = re.compile(
    rf"(?<![\w])(?P<name>{_NAMES})(?:[\"']?\] ?= ?|[\"'] ?[:,] ?| ?= ?)"
    rf"(?:\"(?P<double>[^\"]{{0,1000}})\"|'(?P<single>[^']{{0,1000}})'"
    rf"|(?P<bare>[^\s\"',;)]{{1,1000}}))|^\s{{0,4}}(?:ENV )?(?P<name_2>{_NAMES}) (?P<rest>\S{{1,1000}})$",
    re.ASCII,
)


def settings(transcript: Transcript) -> Iterator[Evidence]:
    """Yield the environment variables that a recipe, a shell or a script sets."""
    for needle in ("tf_", "cuda_", "xla_flags", "ld_library_path", "nvidia_", "hermetic_"):
        for number in transcript.numbers(needle, 200):
            line = transcript.line(number)
            match = _SETTING.search(line)
            if match is None or "environment variable" in line:
                continue
            name = match["name"] or match["name_2"]
            value = next(text for text in (*match.group("double", "single", "bare", "rest"), "") if text is not None)
            yield Evidence(
                field=f"environment.{name}", value=value.strip(), line=number, text=line.strip()[:400],
                source="setting", trust=Trust.ORDERED,
            )  # fmt: skip
