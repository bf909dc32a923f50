"""Ask a registry how an environment's image stands on kinds of host: what a fleet has proven already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from envbuilder.attest.demand import Demand, SameGpu, same_model
from envbuilder.attest.envelope import KeySealer, Opened, Opener, Sealer
from envbuilder.attest.kinds import Kind, add_up
from envbuilder.errors import UsageError
from envbuilder.publish.verify import said_of
from envbuilder.publish.verify_kinds import unless_unknown
from envbuilder.registry.client import Repository
from envbuilder.registry.reference import Reference
from envbuilder.verdict import ImageStanding, Level


@dataclass(frozen=True)
class Registrar:
    """Whom to believe about which repository, and how old a PASSED may be (seconds)."""

    repository: Repository
    openers: tuple[Opener, ...]
    same_gpu: SameGpu
    max_age_s: float
    now: Callable[[], datetime]

    def standing(
        self, environment: str, level: Level, kinds: Iterable[tuple[str, str]], digest: str = ""
    ) -> ImageStanding | None:
        """Say how the image under an environment's tag stands at a level on each kind, a GPU and a driver ('' any).

        None where nothing is under that tag, or the repository has no such ``digest`` where one is given.
        Raises InfrastructureError or PublishError where the registry fails.
        """
        said = said_of(self.repository, self.openers, digest or environment)
        if said is None:
            return None
        demand = Demand(level=level, environment=environment, max_age_s=self.max_age_s)
        asked = tuple(Kind(gpu=gpu, driver=driver) for gpu, driver in kinds)
        added = add_up(said.digest, said.evidence, demand, asked, self.now(), same_gpu=self.same_gpu)
        return ImageStanding(
            digest=said.digest,
            environment=environment,
            kinds=tuple(unless_unknown(one.standing, said.unknown) for one in added),
        )


def published_digest(to: Reference, environment: str, variables: Mapping[str, str]) -> str | None:
    """Return the digest under an environment's tag; None if the repository has no such tag."""
    manifest = Repository(to, variables).manifest(environment)
    return manifest.digest if manifest is not None else None


def check_believed(sealer: Sealer, openers: tuple[Opener, ...]) -> None:
    """Refuse a key that is not among the trusted ones: what it signs would prove nothing, and each run do it all again.

    Raises UsageError. An identity is not tried: Sigstore publishes whatever is signed.
    """
    if not isinstance(sealer, KeySealer):
        return
    sealed = sealer.seal(b"{}")
    mine = (opener for opener in openers if opener.media_type == sealer.media_type)
    if not any(isinstance(opener.open(sealed), Opened) for opener in mine):
        raise UsageError("the key that signs is none of those that are trusted", hint="give its public half with --key")


def registrar_of(
    to: Reference,
    environment: Mapping[str, str],
    openers: tuple[Opener, ...],
    model_of: Callable[[str], str | None],
    max_age_s: float,
) -> Registrar:
    """Ask a repository by the clock of now; ``model_of`` gives the catalogue's name of a GPU."""
    return Registrar(Repository(to, environment), openers, same_model(model_of), max_age_s, lambda: datetime.now(UTC))
