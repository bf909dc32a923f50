"""Find credentials in the layers, variables, labels, build history and commands of an image; check permissions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding
from envbuilder.validation.file_areas import areas
from envbuilder.validation.file_records import digest_of, distributions, site_of
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, finding, listed, warning
from envbuilder.validation.image_user import user_number
from envbuilder.validation.secret_scan import in_instruction, in_variable
from envbuilder.verdict import Measurement

_FIX = "use a build mount for it (RUN --mount=type=secret or type=bind), and change the secret: it is published"
_AUTHORITIES = ("usr/local/share/ca-certificates/", "etc/pki/ca-trust/source/anchors/", "run/host/")
_BUNDLE, _PACKAGED = "etc/ssl/certs/ca-certificates.crt", "usr/share/ca-certificates/"
_MOST_SHOWN = 40
_SETS = re.compile(r"(?:/bin/sh -c #\(nop\)\s+)?(ENV|LABEL|CMD|ENTRYPOINT) ")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


def secrets(subject: ImageContext) -> CheckOutput:
    """Find credentials in visible files and in the configuration, added authorities, and wide permissions."""
    public = _published(subject)
    findings = [
        _secret(path, what, "", in_package=bool(site_of(path)))
        for path, what, number in _found(subject)
        if _stands(subject, path, number) and path not in public
    ]
    findings += [*_configured(subject), *_overwritten(subject), *_authorities(subject), *_permissions(subject)]
    return CheckOutput(
        tuple(findings[:_MOST_SHOWN]),
        "no secrets and no certificates of the build host",
        "; ".join(one.message for one in findings[:_MOST_SHOWN]) or "none found",
    )


def layers(subject: ImageContext) -> CheckOutput:
    """Find credentials that a later layer deletes or replaces: they are still in a pushed image."""
    findings = [
        _secret(path, what, f" (layer {number + 1} of the image; a later one hides it)", in_package=bool(site_of(path)))
        for path, what, number in _found(subject)
        if not _stands(subject, path, number)
    ][:_MOST_SHOWN]
    count = sum(len(record.rows) for record in subject.files.records)
    number = len(subject.files.records)
    return CheckOutput(
        tuple(findings),
        "no secret in any layer",
        "; ".join(one.message for one in findings) or f"none in {count} files of {number} layers",
        (("layers", Measurement(number, "1")), ("files", Measurement(count, "1"))),
    )


def _found(subject: ImageContext) -> Iterator[tuple[str, str, int]]:
    for number, record in enumerate(subject.files.records):
        yield from ((secret.path, secret.what, number) for secret in record.secrets)


def _stands(subject: ImageContext, path: str, number: int) -> bool:
    entry = subject.files.paths.get(path)
    return entry is not None and entry.layer == number


def _published(subject: ImageContext) -> set[str]:
    """Return the files of distributions that match their RECORD: published examples are not secrets."""
    same: set[str] = set()
    for one in distributions(subject.files):
        for path, digest in (one.rows or {}).items():
            entry = subject.files.paths.get(path) if one.vouches_for(path, in_environment=False) else None
            if entry is not None and digest and digest == digest_of(entry.row.digest, digest.partition("=")[0]):
                same.add(path)
    return same


def _secret(path: str, what: str, where: str, *, in_package: bool) -> Finding:
    make = warning if in_package else error
    return make(Code.SECRET_IN_IMAGE, f"/{path}", f"{what} is left in {listed([path])}{where}", fix=_FIX)


def _configured(subject: ImageContext) -> Iterator[Finding]:
    image = subject.image
    named = (("the variable", image.env), ("the label", image.labels))
    for kind, pairs in named:
        for name, value in sorted(pairs.items()):
            if what := in_variable(name, value):
                text = f"{kind} {name[:100]} holds {what}"
                yield error(Code.SECRET_IN_IMAGE, name[:100], text, fix="give it at run time, never in the image")
    run = (("the entry point", " ".join(image.entrypoint)), ("the command", " ".join(image.command)))
    for place, text in run:
        if what := in_instruction(text):
            yield error(Code.SECRET_IN_IMAGE, place, f"{place} holds {what}", fix="give it at run time")
    for number, text in enumerate(reversed(image.history)):
        if not _SETS.match(text) and (what := in_instruction(text)):
            place = f"build instruction {number + 1}"
            yield error(Code.SECRET_IN_IMAGE, place, f"{place} of the history holds {what}", fix=_FIX)


def _overwritten(subject: ImageContext) -> Iterator[Finding]:
    """Find values that a later instruction replaced: the history keeps the first one."""
    image = subject.image
    pairs = {**image.env, **image.labels}
    for number, text in enumerate(reversed(image.history)):
        if (found := _SETS.match(text)) is None:
            continue
        rest = text[found.end() :]
        if found[1] in ("CMD", "ENTRYPOINT"):
            words = image.command if found[1] == "CMD" else image.entrypoint
            rest = "" if _WORD.findall(rest) == list(words) else rest
        for name, value in pairs.items() if found[1] in ("ENV", "LABEL") else ():
            rest = rest.replace(f"{name}={value}", "") if value else rest
        if what := in_instruction(rest):
            place = f"build instruction {number + 1}"
            message = f"{place} of the history holds {what}, which a later one replaced"
            yield error(Code.SECRET_IN_IMAGE, place, message, fix=_FIX)


_TRUSTED = re.compile(r"\Aetc/ssl/certs/[^/]+\.(?:crt|pem|cer|[0-9])\Z")


def _authorities(subject: ImageContext) -> Iterator[Finding]:
    for path, entry in sorted(subject.files.paths.items()):
        is_one = path.startswith(_AUTHORITIES) and path.endswith((".crt", ".pem")) and entry.row.kind == "file"
        if is_one and not subject.is_added(path):
            text = f"a certificate of the build host is left in {listed([path])}"
            yield error(
                Code.SECRET_IN_IMAGE, f"/{path}", text, fix="mount it in the steps that need it, copy it into none"
            )
    # A later layer may have deleted the sources of the bundle, to save space or to hide an addition.
    brought = (pair for record in subject.files.records for pair in record.contents.items())
    packaged = {body for path, content in brought if path.startswith(_PACKAGED) for body in certificates(content)}
    bundle = subject.files.content(_BUNDLE)
    extra = [body for body in certificates(bundle or b"") if body not in packaged] if packaged else []
    if extra and not subject.is_later(_BUNDLE):
        text = f"the system's bundle holds {len(extra)} authorities that its package did not bring"
        yield error(Code.SECRET_IN_IMAGE, f"/{_BUNDLE}", text, fix="mount it while building")
    yield from _trusted(subject)


def _trusted(subject: ImageContext) -> Iterator[Finding]:
    """Find files among the certificates that OpenSSL looks up by name; packages put only links there."""
    severity = subject.severity
    for path, entry in sorted(subject.files.paths.items()):
        if not _TRUSTED.match(path) or path == _BUNDLE or entry.row.kind != "file":
            continue
        if subject.is_added(path) or subject.is_of_system(path):
            continue
        if entry.layer >= subject.of_base and entry.row.size:
            text = f"an authority that no package brought is in {listed([path])}"
            fix = "mount it in the steps that need it, copy it into none"
            yield finding(severity, Code.SECRET_IN_IMAGE, f"/{path}", text, fix=fix)


def certificates(text: bytes) -> list[bytes]:
    """Return the certificates of a PEM file, each without line breaks."""
    found = re.findall(rb"-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----", text)
    return [re.sub(rb"\s", b"", body) for body in found]


def _permissions(subject: ImageContext) -> Iterator[Finding]:
    """Report setuid programs, world-writable code and the user root as warnings."""
    for event in ("writable", "raised"):
        yield from (one for one, _ in areas(subject, (event,)))
    if subject.image.user.partition(":")[0] == "root" or user_number(subject) == 0:
        text = "the image runs as root by default"
        yield warning(Code.IMAGE_CONFIGURATION, "USER", text, fix="add a user, and USER to the Dockerfile")
