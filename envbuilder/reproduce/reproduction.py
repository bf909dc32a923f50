"""The answer of ``envbuilder reproduce``."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.compat.check import EnvironmentAnswer
from envbuilder.environment import Predicate
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.message import Symptom
from envbuilder.reproduce.report.reported import Reported
from envbuilder.verdict import Word

Kind = Literal["wheels", "image", "none"]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How the reported environment is rebuilt.

    ``kind`` is ``wheels`` (one of our environments, with ``deviations`` installed on top), ``image`` (a published
    image that brings its CUDA) or ``none``, where ``why_not`` says why it cannot be. ``host`` is the simulated driver
    and GPU ('' where this host's own serve). ``dockerfile`` is the text that is built.
    """

    kind: Kind
    environment: str | None = None
    base: str | None = None
    deviations: tuple[str, ...] = ()
    host: str = ""
    dockerfile: str = ""
    why_not: str = ""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What the rebuilt environment did.

    ``reproduced`` is true where every reported message that can show here was seen, false where none was, null where
    it cannot be known here; ``needs`` then says what it would take. ``proof`` pairs each reported message with the
    line that was seen. ``stand_ins`` are CUDA libraries that something stood in for, beside a simulated driver.
    """

    image: str | None = None
    verdict: Word | None = None
    simulated: bool = False
    stand_ins: tuple[str, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    findings: tuple[Finding, ...] = ()
    reproduced: bool | None = None
    needs: str = ""
    proof: tuple[tuple[str, str], ...] = ()


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """What the nearest environment did when it was built.

    ``proven`` is true where the failure was reproduced, and here neither its messages nor its findings came again, nor
    did the suite fail the image for anything else. ``needs`` names what else the suite finds, or why nothing is proven.
    """

    proven: bool | None = None
    image: str | None = None
    verdict: Word | None = None
    simulated: bool = False
    stand_ins: tuple[str, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    needs: str = ""


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The nearest environment that works, what differs, how to get it by hand, and the matrix that builds it.

    ``predicate`` says what "works" means, as in the answer of ``envbuilder check``.
    """

    environment: EnvironmentAnswer
    changes: tuple[str, ...]
    predicate: Predicate = "installable"
    diff: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    matrix: str = ""
    proof: Proof | None = None


class ReproduceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """From a report to its cause and its fix."""

    schema: str = "envbuilder/reproduce/v1"
    reported: Reported
    symptoms: tuple[Symptom, ...]
    predicted: tuple[Finding, ...]
    recipe: Recipe
    run: Run | None = None
    nearest: Nearest | None = None

    @property
    def exit_code(self) -> int:
        """0 done or reproduced, 1 where something else came of it, 8 where nothing can be said."""
        if self.run is not None:
            refuted = self.nearest is not None and self.nearest.proof is not None and self.nearest.proof.proven is False
            return {True: 1 if refuted else 0, False: 1, None: 8}[self.run.reproduced]
        known = [row for row in self.predicted if row.code is not Code.UNKNOWN and row.severity is not Severity.INFO]
        return 0 if known or (self.reported.tensorflow and not self.predicted) else 8
