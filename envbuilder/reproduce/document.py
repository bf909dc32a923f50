"""The document that reproduce prints."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from envbuilder.compat.check import EnvironmentAnswer
from envbuilder.environment import Predicate
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.diagnosis import Diagnosis
from envbuilder.reproduce.messages.catalog import Symptom
from envbuilder.reproduce.report.reported import Evidence, Reported
from envbuilder.verdict import Word
from envbuilder.workspace import Workspace

Kind = Literal["wheels", "image", "none"]


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How the reported environment is rebuilt.

    ``kind`` is ``wheels`` (one of our environments, with ``deviations`` installed on top, and where ``untold`` without
    what ours tells the loader of CUDA wheels), ``image`` (a published image that brings its CUDA) or ``none``, where
    ``why_not`` says why it cannot be. ``host`` is the simulated driver and GPU ('' where this host's own serve).
    ``dockerfile`` is the text that is built.
    """

    kind: Kind
    environment: str | None = None
    base: str | None = None
    deviations: tuple[str, ...] = ()
    untold: bool = False
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


POSTED = "nearest.yaml"
"""The name under which the nearest environment's matrix is saved by who reads an answer that brings it along."""


class Nearest(msgspec.Struct, frozen=True, kw_only=True):
    """The nearest environment that works, what differs, how to get it by hand, and the matrix that builds it.

    ``predicate`` says what "works" means, as in the answer of ``envbuilder check``. ``worked`` are the report's own
    words where this is what it has working; empty where the rules alone chose it.
    """

    environment: EnvironmentAnswer
    changes: tuple[str, ...]
    predicate: Predicate = "installable"
    diff: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    matrix: str = ""
    proof: Proof | None = None
    worked: tuple[Evidence, ...] = ()


class ReproduceDocument(msgspec.Struct, frozen=True, kw_only=True):
    """From a report to its cause and its fix."""

    schema: str = "envbuilder/reproduce/v1"
    reported: Reported
    symptoms: tuple[Symptom, ...]
    predicted: tuple[Finding, ...]
    diagnosis: Diagnosis
    recipe: Recipe
    run: Run | None = None
    nearest: Nearest | None = None

    @property
    def answered(self) -> bool | None:
        """True where it was reproduced or explained, False where something else came of it, None where nobody knows."""
        if self.run is not None:
            refuted = self.nearest is not None and self.nearest.proof is not None and self.nearest.proof.proven is False
            return False if refuted and self.run.reproduced else self.run.reproduced
        known = [row for row in self.predicted if row.code is not Code.UNKNOWN and row.severity is not Severity.INFO]
        unknown = any(row.code is Code.UNKNOWN for row in self.predicted)
        return True if known or (self.reported.tensorflow and not unknown) else None


def matrix_path(document: ReproduceDocument, workspace: Workspace) -> Path:
    """Return where a run leaves the matrix of the nearest environment."""
    return workspace.report_matrix(document.recipe.environment or "report")


def build_command(document: ReproduceDocument) -> str:
    """Name the command that builds the nearest environment from that matrix, in the folder of the run."""
    return f"envbuilder run {matrix_path(document, Workspace(Path()))}"
