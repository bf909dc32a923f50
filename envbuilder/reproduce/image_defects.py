"""Published images that are known to be defective: which tags, between which days, and what shows it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.explained import explains
from envbuilder.reproduce.messages.message import Symptom
from envbuilder.reproduce.messages.recognise import shipped_rows
from envbuilder.reproduce.report.reported import Reported
from envbuilder.support import decoding

_DAY = re.compile(r"\b(20[12][0-9]-[01][0-9]-[0-3][0-9])[ T][0-2][0-9]:", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECONDS = re.compile(r"\b[EFIW]0000 00:00:(1[0-9]{9})\.", re.ASCII)
"""The stamp of messages before absl's log is open: the seconds since 1970."""

_MOVES = ("latest", "nightly", "devel")
"""Tags that mean another image next month."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A public thread or document, the day of what is quoted from it, and what it says, in our words."""

    url: str
    date: str
    says: str


class ImageDefect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of ``image_defects.yaml``, which says what the fields mean."""

    id: str
    images: str
    shows: tuple[str, ...]
    since: str
    code: Code
    what: str
    fix: str
    sources: tuple[Source, ...]
    until: str | None = None
    library: str = ""


@cache
def image_defect_rows() -> tuple[ImageDefect, ...]:
    """Return every known defect, in the order of the file."""
    rows = shipped_rows(resources.files("envbuilder.reproduce") / "image_defects.yaml")
    return decoding.converted(rows, tuple[ImageDefect, ...])


def image_defects(reported: Reported, symptoms: tuple[Symptom, ...]) -> dict[Finding, tuple[str, ...]]:
    """Find the known defects of the images that a report names, and the messages that each explains.

    It is an error where a line shows it, and a remark where nobody can tell which image a tag that moves stood for, or
    where no line shows anything and it explains what is complained of; nothing where the log is of another time.
    """
    named = [value for row in symptoms for name, value in row.values.items() if name.startswith("image")]
    images = dict.fromkeys([*named, *([reported.image] if reported.image else [])])
    if not images:
        return {}
    day = day_of(reported, symptoms)
    found = {}
    for row in image_defect_rows():
        image = next((image for image in images if re.fullmatch(row.images, image)), None)
        if image is None or (day is not None and not _is_of_its_time(row, image, day)):
            continue
        shown = next((each for each in symptoms if _shows(row, each, image)), None)
        if shown is None and (symptoms or not reported.complaints or not explains(row.code, reported)):
            continue
        sure = shown is not None and (day is not None or not _moves(image) or row.until is None)
        found[_finding(row, image, shown, sure=sure)] = row.shows if sure else ()
    return found


def day_of(reported: Reported, symptoms: tuple[Symptom, ...]) -> str | None:
    """Return the first day that a report's log was written on; None where no line has one."""
    texts = [row.text for row in symptoms] + [row.text for row in reported.evidence]
    texts += [text for row in reported.pauses for text in (row.before, row.after)]
    days = [match[1] for text in texts for match in _DAY.finditer(text)]
    stamps = [int(match[1]) for text in texts for match in _SECONDS.finditer(text)]
    days += [(_EPOCH + timedelta(seconds=stamp)).date().isoformat() for stamp in stamps]
    return min(days, default=None)


def _is_of_its_time(row: ImageDefect, image: str, day: str) -> bool:
    """Tell whether a log can be of the defect: an image that stays has it ever after, one that moves until its end."""
    return row.since <= day <= (row.until or day) if _moves(image) else True


def _moves(image: str) -> bool:
    return image.rpartition(":")[2].startswith(_MOVES)


def _shows(row: ImageDefect, symptom: Symptom, image: str) -> bool:
    """Tell whether a line is a message of this defect: about this image, this library, where it names one."""
    if symptom.signature not in row.shows or not symptom.exact:
        return False
    own = [value for name, value in symptom.values.items() if name.startswith("image")]
    return (not own or image in own) and symptom.values.get("library", row.library) == row.library


def _finding(row: ImageDefect, image: str, shown: Symptom | None, *, sure: bool) -> Finding:
    until = f" to {row.until}" if row.until else ""
    known = f"known from {row.since}{until}" if row.until != row.since else f"known of {row.since}"
    said = f"Line {shown.line} shows a known defect of {image}" if sure and shown else f"A defect of {image} is known"
    whose = "" if sure or not _moves(image) else "; whether this pull of the tag has it is not known"
    return Finding(
        code=row.code,
        severity=Severity.ERROR if sure else Severity.INFO,
        subject=image,
        message=f"{said}: {row.what} ({known}){whose}.",
        found=image,
        fix=row.fix,
        sources=tuple(source.url for source in row.sources),
    )
