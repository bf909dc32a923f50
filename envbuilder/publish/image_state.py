"""The state of an environment's image on host classes, from the statements in its registry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from envbuilder.attest.envelope import KeySealer, Opened, Opener, Sealer
from envbuilder.attest.host_classes import HostClass, decide_by_class
from envbuilder.attest.requirements import EnvironmentRequirement, GpuRequirement, ModelOf, Requirement
from envbuilder.errors import UsageError
from envbuilder.publish.attached_statements import statements_of
from envbuilder.publish.verify import unless_unknown
from envbuilder.registry.client import Repository
from envbuilder.registry.reference import Reference
from envbuilder.verdict import ImageStanding, Level


@dataclass(frozen=True)
class Registrar:
    """A repository with its trusted signers; ``max_age_s`` is how old a PASSED may be (seconds)."""

    repository: Repository
    openers: tuple[Opener, ...]
    model_of: ModelOf
    max_age_s: float
    now: Callable[[], datetime]

    def standing(
        self, environment: str, level: Level, kinds: Iterable[tuple[str, str]], digest: str = ""
    ) -> ImageStanding | None:
        """Return the state of an environment's image on host classes, each a GPU and a driver ('' for any).

        None if the tag, or the ``digest`` if one is given, is not in the repository.
        Raises InfrastructureError or PublishError if the registry fails.
        """
        found = statements_of(self.repository, self.openers, digest or environment)
        if found is None:
            return None
        wanted = Requirement(level=level, environment=EnvironmentRequirement(environment), max_age_s=self.max_age_s)
        classes = tuple(HostClass(GpuRequirement(gpu, self.model_of) if gpu else None, driver) for gpu, driver in kinds)
        decisions = decide_by_class(found.trusted, wanted, classes, self.now())
        return ImageStanding(
            digest=found.digest,
            environment=environment,
            kinds=tuple(unless_unknown(one.standing, found.unknown) for one in decisions),
        )


def published_digest(to: Reference, environment: str, variables: Mapping[str, str]) -> str | None:
    """Return the digest under an environment's tag; None if the repository has no such tag."""
    manifest = Repository(to, variables).manifest(environment)
    return manifest.digest if manifest is not None else None


def check_believed(sealer: Sealer, openers: tuple[Opener, ...]) -> None:
    """Raise UsageError for a key that is not trusted: every run would repeat the work.

    An identity is not tried: Sigstore publishes every signature.
    """
    if not isinstance(sealer, KeySealer):
        return
    sealed = sealer.seal(b"{}")
    mine = (opener for opener in openers if opener.media_type == sealer.media_type)
    if not any(isinstance(opener.open(sealed), Opened) for opener in mine):
        raise UsageError("the signing key is not one of the trusted keys", hint="give its public half with --key")


def registrar_of(
    to: Reference, environment: Mapping[str, str], openers: tuple[Opener, ...], model_of: ModelOf, max_age_s: float
) -> Registrar:
    return Registrar(Repository(to, environment), openers, model_of, max_age_s, lambda: datetime.now(UTC))
