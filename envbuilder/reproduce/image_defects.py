"""Known defects of published images (image_defects.yaml), by the image and the messages of a report."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.causes import explains
from envbuilder.reproduce.messages.catalog import MessageMatch
from envbuilder.reproduce.question import Case
from envbuilder.reproduce.report.reported import Reported
from envbuilder.workspace import packaged_yaml

_DAY = re.compile(r"\b(20[12][0-9]-[01][0-9]-[0-3][0-9])[ T][0-2][0-9]:", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECONDS = re.compile(r"\b[EFIW]0000 00:00:(1[0-9]{9})\.", re.ASCII)
"""Timestamp of messages before absl's log is open: seconds since 1970."""

_MOVES = ("latest", "nightly", "devel")
"""Tags that are moved to newer images."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    url: str
    date: str
    says: str


class ImageDefect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of ``image_defects.yaml``; the file explains the fields."""

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
    return packaged_yaml(resources.files("envbuilder.reproduce") / "image_defects.yaml", tuple[ImageDefect, ...])


def image_defects(case: Case) -> dict[Finding, tuple[str, ...]]:
    """Find the known defects of the images that a report names, and the messages that each explains.

    An error if a log message proves it. INFO if the tag moves and its image is unknown, or if no message proves it but
    it explains the complaint. Nothing if the log was written at another time.
    """
    reported, symptoms = case.reported, case.messages
    named = [value for row in symptoms for name, value in row.values.items() if name.startswith("image")]
    images = dict.fromkeys([*named, *([reported.image] if reported.image else [])])
    day = day_of(reported, symptoms) if images else None
    found = {}
    for row in image_defect_rows():
        image = next((image for image in images if re.fullmatch(row.images, image)), None)
        if image is None or (day and _moves(image) and not row.since <= day <= (row.until or day)):
            continue  # fixed tags keep a defect, moving tags lose it with the fix
        shown = next((each for each in symptoms if _shows(row, each, image)), None)
        if shown is None and (symptoms or not reported.complaints or not explains(row.code, reported)):
            continue
        sure = shown is not None and (day is not None or not _moves(image) or row.until is None)
        found[_finding(row, image, shown, sure=sure)] = row.shows if sure else ()
    return found


def day_of(reported: Reported, symptoms: tuple[MessageMatch, ...]) -> str | None:
    """Return the date of a report's first dated log line, or None."""
    texts = [row.text for row in symptoms] + [row.text for row in reported.evidence]
    texts += [text for row in reported.pauses for text in (row.before, row.after)]
    days = [match[1] for text in texts for match in _DAY.finditer(text)]
    stamps = [int(match[1]) for text in texts for match in _SECONDS.finditer(text)]
    days += [(_EPOCH + timedelta(seconds=stamp)).date().isoformat() for stamp in stamps]
    return min(days, default=None)


def _moves(image: str) -> bool:
    return image.rpartition(":")[2].startswith(_MOVES)


def _shows(row: ImageDefect, symptom: MessageMatch, image: str) -> bool:
    """Return True if a message belongs to this defect: same image, and same library if it names one."""
    if symptom.signature not in row.shows or not symptom.exact:
        return False
    own = [value for name, value in symptom.values.items() if name.startswith("image")]
    return (not own or image in own) and symptom.values.get("library", row.library) == row.library


def _finding(row: ImageDefect, image: str, shown: MessageMatch | None, *, sure: bool) -> Finding:
    until = f" to {row.until}" if row.until else ""
    known = f"known from {row.since}{until}" if row.until != row.since else f"known of {row.since}"
    said = f"Line {shown.line} shows a known defect of {image}" if sure and shown else f"A defect of {image} is known"
    whose = "" if sure or not _moves(image) else "; it is unknown whether this pull of the tag has it"
    return Finding(
        code=row.code,
        severity=Severity.ERROR if sure else Severity.INFO,
        subject=image,
        message=f"{said}: {row.what} ({known}){whose}.",
        found=image,
        fix=row.fix,
        sources=tuple(source.url for source in row.sources),
    )
