"""The options of ``envbuilder verify``, and the state of images on host classes for reports and fleets."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from envbuilder.attest.envelope import BUNDLE, KeyOpener, KeySealer, Opener, Sealer
from envbuilder.attest.keys import load_public_keys
from envbuilder.attest.requirements import (
    CLOCK_SKEW,
    EnvironmentRequirement,
    GpuRequirement,
    ModelOf,
    Requirement,
    fitting,
    read_driver,
    read_environment,
    read_gpu,
    read_version,
)
from envbuilder.attest.sigstore import SigstoreOpener
from envbuilder.attest.trust_policy import HostClass, decide_by_class, parse_host_classes
from envbuilder.errors import UsageError
from envbuilder.publish.attached_statements import PublishedVerdicts, published, statements_of
from envbuilder.publish.tags import meant_by
from envbuilder.publish.verification import Verification
from envbuilder.publish.verify import VerifyQuestion, verify
from envbuilder.registry.client import Repository
from envbuilder.registry.deadline import Deadline, within
from envbuilder.registry.errors import RegistryFailedError
from envbuilder.registry.reference import Reference, parse
from envbuilder.verdict import ImageStanding, Level

ANSWER_S = 25.0
"""Seconds in which `verify` answers, even if the registry does not."""

MAX_SKEW_S = CLOCK_SKEW.total_seconds()
"""How far the clocks of two hosts may differ."""

_DURATION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([smhdw])")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@dataclass(frozen=True)
class VerifyOptions:
    """The command's options, as given."""

    image: str
    keys: tuple[Path, ...]
    identity: str | None = None
    issuer: str | None = None
    level: Level | None = None
    driver: str | None = None
    gpu: str | None = None
    max_age: str = "90d"
    environment: str | None = None
    tensorflow: str | None = None
    threshold: int = 1
    on: str | None = None


def verify_image(options: VerifyOptions, model_of: ModelOf) -> Verification:
    """Verify the image of the options. Raises UsageError if one is not understood, or if they contradict each other.

    With host classes, the required level is ``gpu`` by default.
    """
    if options.on is not None and (options.driver is not None or options.gpu is not None):
        raise UsageError("--on names drivers and GPUs itself", hint="leave --driver and --gpu out")
    reference, wanted = parse(options.image), requirement_of(options, model_of)
    on = parse_host_classes(options.on, model_of) if options.on is not None else ()
    deadline = Deadline(ANSWER_S)

    def opened() -> tuple[tuple[Opener, ...], Repository]:
        openers = openers_of(options.keys, options.identity, options.issuer)
        return openers, Repository(reference, os.environ, deadline)

    try:
        openers, repository = within(deadline, opened)
    except RegistryFailedError as error:
        text = f"the key files and certificates could not be read in {ANSWER_S:g} s"
        raise UsageError(text, hint="is one a pipe that nothing writes to?") from error
    signers = len(_names(openers))
    if not 1 <= options.threshold <= signers:
        raise UsageError(f"{options.threshold} of {signers} signers is impossible", hint="give as many --key")
    return verify(repository, openers, VerifyQuestion(wanted, options.threshold, on), datetime.now(UTC))


def requirement_of(options: VerifyOptions, model_of: ModelOf) -> Requirement:
    """Read the requirement of the options. A tag that is an environment's id means this environment."""
    meant = meant_by(parse(options.image).tag)
    return Requirement(
        level=options.level or ("gpu" if options.on is not None else "cpu"),
        driver=read_driver(options.driver) if options.driver is not None else None,
        gpu=read_gpu(options.gpu, model_of) if options.gpu is not None else None,
        max_age_s=duration(options.max_age),
        environment=read_environment(options.environment) if options.environment is not None else meant,
        tensorflow=read_version(options.tensorflow) if options.tensorflow is not None else None,
    )


def duration(text: str) -> float:
    """Read ``90d``, ``12h``, ``30m``, ``45s`` or ``2w`` as seconds. Raises UsageError for anything else."""
    found = fitting(_DURATION, text, "a duration", "a number and one of s, m, h, d, w: 90d")
    return float(found[1]) * _SECONDS[found[2]]


def openers_of(keys: tuple[Path, ...], identity: str | None, issuer: str | None) -> tuple[Opener, ...]:
    """Return openers for the trusted signers. Raises UsageError if there are none."""
    if bool(identity) != bool(issuer):
        raise UsageError("--identity and --issuer belong together", hint="an identity means nothing without its issuer")
    openers: list[Opener] = []
    if keys:
        trusted = load_public_keys(*keys)
        openers += [KeyOpener(trusted), KeyOpener(trusted, BUNDLE)]
    if identity and issuer:
        openers.append(SigstoreOpener(identity, issuer))
    if not openers:
        raise UsageError(
            "no trusted signer: every statement would be refused", hint="give --key, or --identity and --issuer"
        )
    return tuple(openers)


def fetch(repository: str, keys: tuple[Path, ...], say: Callable[[str], None]) -> PublishedVerdicts:
    """Fetch the verdicts in a repository that trusted keys signed; warn about keys that signed nothing.

    Raises PublishError if there is no such repository.
    """
    reference = parse(repository)
    openers = openers_of(keys, None, None)
    found = published(Repository(reference, os.environ), openers)
    for name in _names(openers):
        if not found.signed[name]:
            say(f"warning: the key {name[:16]} signed nothing in {reference.name}: the report has none of its verdicts")
    return found


def _names(openers: tuple[Opener, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for opener in openers for name in opener.names))


def standings(
    published: PublishedVerdicts, on: str | None, max_age: str, model_of: ModelOf
) -> tuple[ImageStanding, ...]:
    """Return the state of each image with statements on each host class; empty without host classes."""
    kinds = parse_host_classes(on, model_of) if on is not None else ()
    wanted, now = Requirement(level="gpu", max_age_s=duration(max_age)), datetime.now(UTC)
    named = {one.image.digest: one.environment.id for one in published.verdicts if one.environment is not None}
    return tuple(
        ImageStanding(
            digest=digest,
            environment=named.get(digest, ""),
            kinds=tuple(one.standing for one in decide_by_class(found, wanted, kinds, now)),
        )
        for digest, found in published.evidence.items()
        if kinds
    )


@dataclass(frozen=True)
class Registrar:
    """A repository with its trusted signers; ``max_age_s`` is how old a PASSED may be (seconds)."""

    repository: Repository
    openers: tuple[Opener, ...]
    model_of: ModelOf
    max_age_s: float
    now: Callable[[], datetime]

    def standing(
        self, environment: str, level: Level, kinds: Iterable[tuple[str, str]], name: str = ""
    ) -> ImageStanding | None:
        """Return the state of an environment's image on host classes, each a GPU and a driver ('' for any).

        ``name`` is the tag or digest of the image, by default the environment's id; None if the repository lacks it.
        Raises InfrastructureError or PublishError if the registry fails.
        """
        found = statements_of(self.repository, self.openers, name or environment)
        if found is None:
            return None
        wanted = Requirement(level=level, environment=EnvironmentRequirement(environment), max_age_s=self.max_age_s)
        classes = tuple(HostClass(GpuRequirement(gpu, self.model_of) if gpu else None, driver) for gpu, driver in kinds)
        decisions = decide_by_class(found.documents, wanted, classes, self.now())
        return ImageStanding(
            digest=found.digest,
            environment=environment,
            kinds=tuple(one.standing for one in decisions),
        )


def published_digest(to: Reference, environment: str, variables: Mapping[str, str]) -> str | None:
    """Return the digest under an environment's tag; None if the repository has no such tag."""
    manifest = Repository(to, variables).manifest(environment)
    return manifest.digest if manifest is not None else None


def trusting(sealer: Sealer, openers: tuple[Opener, ...]) -> Sealer:
    """Return a signer that trusts the keys of the openers too.

    Raises UsageError for a key that they do not trust: every run would repeat the work. An identity is not tried:
    Sigstore publishes every signature.
    """
    if not isinstance(sealer, KeySealer):
        return sealer
    keys = tuple(key for opener in openers if isinstance(opener, KeyOpener) for key in opener.trusted)
    if sealer.key.keyid not in {key.keyid for key in keys}:
        raise UsageError("the signing key is not one of the trusted keys", hint="give its public half with --key")
    return replace(sealer, trusted=keys)


def registrar_of(
    to: Reference, environment: Mapping[str, str], openers: tuple[Opener, ...], model_of: ModelOf, max_age_s: float
) -> Registrar:
    return Registrar(Repository(to, environment), openers, model_of, max_age_s, lambda: datetime.now(UTC))
