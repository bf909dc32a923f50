"""The document that reproduce prints."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.compat.check import EnvironmentAnswer
from envbuilder.environment import Predicate
from envbuilder.finding import Code, Finding
from envbuilder.reproduce.causes import is_cause
from envbuilder.reproduce.diagnose import ReportDiagnosis
from envbuilder.reproduce.messages.catalog import MessageMatch
from envbuilder.reproduce.report.reported import Reported
from envbuilder.verdict import Word

Kind = Literal["wheels", "image", "none"]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How the reported environment is rebuilt.

    ``kind`` is ``wheels`` (an envbuilder environment, with ``deviations`` installed on top), ``image`` (a published
    image with CUDA) or ``none``; ``why_not`` then gives the reason. ``untold`` removes the loader configuration for
    CUDA wheels. ``host`` is the simulated driver and GPU ('' for this host). ``dockerfile`` is the text that is built.
    """

    kind: Kind
    environment: str | None = None
    base: str | None = None
    deviations: tuple[str, ...] = ()
    untold: bool = False
    host: str = ""
    dockerfile: str = ""
    why_not: str = ""


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    """What an image showed when it was run; None and empty if it was not."""

    image: str | None = None
    verdict: Word | None = None
    simulated: bool = False
    symptoms: tuple[MessageMatch, ...] = ()
    needs: str = ""


class Run(Observed, frozen=True, kw_only=True):
    """The result of the rebuilt environment.

    ``reproduced`` is true if every reported message that can appear here did, false if none did, null if this host
    cannot decide it; ``needs`` then names what is missing. ``proof`` pairs each reported message with the observed
    line.
    """

    findings: tuple[Finding, ...] = ()
    reproduced: bool | None = None
    proof: tuple[tuple[str, str], ...] = ()


class NearestRun(Observed, frozen=True, kw_only=True):
    """The result of the closest environment when it was built.

    ``proven`` is true if the failure was reproduced before, and here none of its messages or findings appeared and the
    suite found no other failure. ``needs`` names further findings, or why nothing is proven.
    """

    proven: bool | None = None


POSTED = "nearest.yaml"
"""The suggested file name for the matrix that the answer contains."""


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The closest compatible environment: its changes, the commands that install it, and the matrix that builds it.

    ``predicate`` defines "works", as in the answer of ``envbuilder check``. ``id`` and ``image`` name envbuilder's own
    environment for it ('' if there is none).
    """

    environment: EnvironmentAnswer
    changes: tuple[str, ...]
    predicate: Predicate = "installable"
    id: str = ""
    image: str = ""
    diff: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    matrix: str = ""
    proof: NearestRun | None = None

    @property
    def needs_driver(self) -> bool:
        """True if the versions are not enough: the driver changes too."""
        return any(change.startswith("driver ") for change in self.changes)


class ReproduceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of ``envbuilder reproduce``."""

    schema: str = "envbuilder/reproduce/v1"
    reported: Reported
    symptoms: tuple[MessageMatch, ...]
    predicted: tuple[Finding, ...]
    diagnosis: ReportDiagnosis
    recipe: Recipe
    run: Run | None = None
    nearest: Nearest | None = None

    @property
    def answered(self) -> bool | None:
        """True if reproduced or explained, False if the run differs, None if unknown."""
        if self.run is not None:
            refuted = self.nearest is not None and self.nearest.proof is not None and self.nearest.proof.proven is False
            return False if refuted and self.run.reproduced else self.run.reproduced
        unknown = any(row.code is Code.UNKNOWN for row in self.predicted)
        known = any(map(is_cause, self.predicted)) or (self.reported.tensorflow is not None and not unknown)
        return True if known else None
