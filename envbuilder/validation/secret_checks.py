"""Find credentials in the layers, variables, labels, build history and commands of an image; check permissions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from envbuilder.engine.port import Image
from envbuilder.finding import Finding, Severity
from envbuilder.support import pem
from envbuilder.validation.file_records import site_of
from envbuilder.validation.image_context import CheckOutput, ImageContext, found, listed, output
from envbuilder.validation.installed_files import area_output, compared
from envbuilder.validation.layer_scan import PATHS
from envbuilder.validation.secret_scan import INSTRUCTION, VARIABLE, secrets_in

_BUNDLE, _PACKAGED = "etc/ssl/certs/ca-certificates.crt", "usr/share/ca-certificates/"
_MOST_SHOWN, _MOST_TEXTS, _MOST_TEXT = 40, 2000, 1 << 20
"""Findings of a check; variables, labels and instructions that are searched, and their bytes."""

_COMPILED = re.compile(r"__pycache__/([^/]+)\.cpython-[^/]+\.pyc\Z")
"""Byte code is as public as its source; the check `files` compares them."""

_SETS = re.compile(r"(?:/bin/sh -c #\(nop\)\s+)?(ENV|LABEL|CMD|ENTRYPOINT) ")
_LEAST_VALUE = 7
"""Characters of a value; shorter ones occur in other words."""


def secrets(subject: ImageContext) -> CheckOutput:
    left = list(_left(subject, hidden=False))
    public = {path for path in compared(subject).same if site_of(path)} if left else ()  # published examples
    findings = [
        *(one for path, one in left if _COMPILED.sub(r"\1.py", path) not in public),
        *_configured(subject),
        *_authorities(subject),
        *([found("root_by_default")] if subject.user == 0 else []),
    ][:_MOST_SHOWN]
    return area_output(subject, "secrets", findings, "none found")


def layers(subject: ImageContext) -> CheckOutput:
    findings = [one for _, one in _left(subject, hidden=True)][:_MOST_SHOWN]
    number, count = len(subject.files.records), sum(len(record.rows) for record in subject.files.records)
    observed = f"none in {count} files of {number} layers"
    return output(findings, observed, layers=number, files=count)


def _left(subject: ImageContext, *, hidden: bool) -> Iterator[tuple[str, Finding]]:
    for number, record in enumerate(subject.files.records):
        if number < subject.proven:
            continue
        where = f" (layer {number + 1} of the image; a later one hides it)" if hidden else ""
        for one in record.secrets:
            entry, severity = subject.files.paths.get(one.path), Severity.WARNING if site_of(one.path) else None
            if hidden is (entry is None or entry.layer != number):
                shown = listed([one.path])
                yield (
                    one.path,
                    found("secret_in_file", severity, path=one.path, what=one.what, shown=shown, where=where),
                )


def _configured(subject: ImageContext) -> Iterator[Finding]:
    """Find credentials in variables, labels and commands, and in instructions, also values replaced by later ones."""
    image = subject.image
    texts = [("the variable ", name[:100], VARIABLE, f"{name}={value}") for name, value in sorted(image.env.items())]
    texts += [("the label ", name[:100], VARIABLE, f"{name}={value}") for name, value in sorted(image.labels.items())]
    texts += [("", "the entry point", INSTRUCTION, " ".join(image.entrypoint))]
    texts += [("", "the command", INSTRUCTION, " ".join(image.command))]
    count, size = len(texts) + len(image.history), sum(map(len, (*image.history, *(text for *_, text in texts))))
    if count > _MOST_TEXTS or size > _MOST_TEXT:
        yield found("too_much_text", count=count, size=size)
        return
    for kind, name, place, text in texts:
        for what in secrets_in(place, text.encode("utf-8", "replace")):
            yield found("secret_in_value", kind=kind, name=name, what=what)
    onbuild = image.settings.get("on_build")
    waiting = onbuild if isinstance(onbuild, tuple) else ()
    steps = [*reversed(image.history), *(one for one in waiting if not any(one in text for text in image.history))]
    for number, text in enumerate(steps, 1):
        replaced = ", which a later one replaced" if _SETS.match(text) else ""
        for what in secrets_in(INSTRUCTION, _without_values(image, text).encode("utf-8", "replace")):
            yield found("secret_in_step", number=number, what=what, replaced=replaced)


def _without_values(image: Image, instruction: str) -> str:
    now = (*image.env.values(), *image.labels.values(), *image.command, *image.entrypoint)
    for value in now if _SETS.match(instruction) else ():
        instruction = instruction.replace(value, "") if len(value) >= _LEAST_VALUE else instruction
    return instruction


def _authorities(subject: ImageContext) -> Iterator[Finding]:
    # A later layer may have deleted the sources of the bundle, to save space or to hide an addition.
    brought = [pair for record in subject.files.records for pair in record.contents.items()]
    of_base = [pair for record in subject.files.records[: subject.of_base] for pair in record.contents.items()]
    packaged = _known(brought, lambda path: path.startswith(_PACKAGED))
    own = _known(of_base, lambda path: path == _BUNDLE or PATHS["authorities"].match(path)) | subject.authorities
    extra = pem.certificates(subject.files.content(_BUNDLE) or b"") - packaged - own if packaged else ()
    if extra and not subject.is_later(_BUNDLE):
        yield found("authorities", path=_BUNDLE, count=len(extra))


def _known(contents: Iterable[tuple[str, bytes]], holds: Callable[[str], object]) -> frozenset[bytes]:
    return frozenset().union(*(pem.certificates(content) for path, content in contents if holds(path)))
