"""``envbuilder schema``: print the JSON Schema of a document or of a file."""

from __future__ import annotations

import json
from typing import Any

import click
import msgspec

from envbuilder.cli.error_document import ErrorDocument
from envbuilder.compat.check import CheckDocument
from envbuilder.compat.fleet import Fleet
from envbuilder.controls.control_run import ControlsDocument
from envbuilder.controls.controls_text import ControlListDocument
from envbuilder.environment import Environment
from envbuilder.errors import UsageError
from envbuilder.image.build import ImageRecord
from envbuilder.jobs.clean import CleanDocument
from envbuilder.jobs.doctor import Diagnosis
from envbuilder.jobs.explain import ExplainDocument
from envbuilder.jobs.listing import CatalogDocument
from envbuilder.jobs.plan_matrix import NewestDocument, PlanDocument
from envbuilder.jobs.run import RunDocument
from envbuilder.matrix import Matrix
from envbuilder.publish.publish_document import PublishDocument
from envbuilder.publish.verify_document import Verification
from envbuilder.refresh.agreement import VerifyDocument
from envbuilder.refresh.propose import RefreshDocument
from envbuilder.reproduce.report.captured import CaptureDocument
from envbuilder.reproduce.reproduction import ReproduceDocument
from envbuilder.schemas import json_schema, name_of
from envbuilder.upgrade.bisect import BisectDocument
from envbuilder.upgrade.policy import Policy
from envbuilder.upgrade.upgrade_document import UpgradeDocument
from envbuilder.verdict import Verdict

FILES: tuple[tuple[str, Any], ...] = (
    ("matrix", Matrix),
    ("environment", Environment),
    ("fleet", Fleet),
    ("upgrade-policy", Policy),
)
"""Files without a ``schema`` of their own, so that their name stands here."""

DOCUMENTS: tuple[type[msgspec.Struct], ...] = (
    Verdict,
    ImageRecord,
    RunDocument,
    Diagnosis,
    CheckDocument,
    PlanDocument,
    NewestDocument,
    ExplainDocument,
    UpgradeDocument,
    BisectDocument,
    ReproduceDocument,
    CaptureDocument,
    ControlsDocument,
    ControlListDocument,
    CatalogDocument,
    VerifyDocument,
    RefreshDocument,
    PublishDocument,
    CleanDocument,
    Verification,
    ErrorDocument,
)
"""Everything that names its schema: what commands print, and what they leave in ``out/``."""

NAMES: dict[str, Any] = {**dict(FILES), **{name_of(kind): kind for kind in DOCUMENTS}}


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document or a file. Raises UsageError that names them all for an unknown name."""
    if name not in NAMES:
        raise UsageError(f"there is no document {name!r}", hint="one of: " + ", ".join(NAMES))
    return json_schema(NAMES[name])


@click.command("schema")
@click.argument("name", metavar="NAME")
def command(name: str) -> None:
    r"""Print the JSON Schema of a document, for editors and for scripts that check what they read.

    \b
    Examples:
      envbuilder schema matrix > matrix.schema.json     completion in an editor
      envbuilder schema verdict
    """
    click.echo(json.dumps(schema(name), indent=2))


command.epilog = "Documents: " + ", ".join(NAMES)
