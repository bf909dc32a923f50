"""What ``envbuilder verify`` was asked: whom to trust and what to demand; and its document written for people."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from envbuilder.attest.envelope import KeyOpener, Opener
from envbuilder.attest.keys import load_public
from envbuilder.attest.sigstore import SigstoreOpener
from envbuilder.attest.trust import DRIVER_PATTERN, Demand
from envbuilder.errors import UsageError
from envbuilder.publish.verify import Verification, duration, published_verdicts, verify
from envbuilder.registry.client import Repository
from envbuilder.registry.reference import parse
from envbuilder.verdict import Level, Verdict


@dataclass(frozen=True)
class VerifyOptions:
    """The command's options, as given."""

    image: str
    keys: tuple[Path, ...]
    identity: str | None
    issuer: str | None
    level: str
    driver: str | None
    gpu: str | None
    max_age: str


def verify_image(options: VerifyOptions) -> Verification:
    """Verify the image that the options name. Raises UsageError where they do not fit together."""
    if options.driver is not None and not re.match(DRIVER_PATTERN, options.driver):
        raise UsageError(f"{options.driver!r} is not a driver", hint="a branch (535) or a release (535.104.05)")
    demand = Demand(
        level=cast("Level", options.level), driver=options.driver, gpu=options.gpu, max_age_s=duration(options.max_age)
    )
    openers = openers_of(options.keys, options.identity, options.issuer)
    return verify(Repository(parse(options.image), os.environ), openers, demand, datetime.now(UTC))


def openers_of(keys: tuple[Path, ...], identity: str | None, issuer: str | None) -> tuple[Opener, ...]:
    """Return who is trusted. Raises UsageError where nobody is."""
    if bool(identity) != bool(issuer):
        raise UsageError("--identity and --issuer belong together", hint="an identity means nothing without its issuer")
    openers: list[Opener] = []
    if keys:
        openers.append(KeyOpener(tuple(load_public(path) for path in keys)))
    if identity and issuer:
        openers.append(SigstoreOpener(identity, issuer))
    if not openers:
        raise UsageError(
            "nobody is trusted: every statement would be refused", hint="give --key, or --identity and --issuer"
        )
    return tuple(openers)


def fetch(repository: str, keys: tuple[Path, ...]) -> tuple[Verdict, ...]:
    """Fetch the verdicts that trusted keys signed from a repository that several people publish to."""
    return published_verdicts(Repository(parse(repository), os.environ), openers_of(keys, None, None))


def as_text(found: Verification) -> str:
    """Write the answer for people: one line where it is accepted, a line a reason where it is not."""
    if not found.accepted:
        lines = [f"REFUSED {found.image}" + (f" ({found.digest})" if found.digest else "")]
        lines += [f"  {refusal.reason}: {refusal.message}" for refusal in found.refusals]
        return "\n".join(lines)
    ran = f"driver {found.driver}, {', '.join(found.gpus)}" if found.gpus else f"driver {found.driver or 'none'}"
    return (
        f"ACCEPTED {found.image} ({found.digest})\n"
        f"  {found.verdict} at level {found.level} on {found.finished} ({ran})\n"
        f"  signed by {found.signed_by}"
    )
