"""The documents that commands print and files hold, by the name under which their JSON Schema is asked for."""

from __future__ import annotations

import importlib
import json
from typing import Any

import msgspec

from envbuilder.errors import UsageError

DOCUMENTS: tuple[tuple[str, str], ...] = (
    ("matrix", "envbuilder.matrix:Matrix"),
    ("environment", "envbuilder.environment:Environment"),
    ("verdict", "envbuilder.verdict:Verdict"),
    ("image", "envbuilder.image.build:ImageRecord"),
    ("run", "envbuilder.jobs.run:RunDocument"),
    ("doctor", "envbuilder.jobs.doctor:Diagnosis"),
    ("check", "envbuilder.compat.check:CheckDocument"),
    ("plan", "envbuilder.jobs.plan_matrix:PlanDocument"),
    ("newest", "envbuilder.jobs.plan_matrix:NewestDocument"),
    ("fleet", "envbuilder.compat.fleet:Fleet"),
    ("explain", "envbuilder.jobs.explain:ExplainDocument"),
    ("upgrade", "envbuilder.upgrade.upgrade_document:UpgradeDocument"),
    ("bisect", "envbuilder.upgrade.bisect:BisectDocument"),
    ("upgrade-policy", "envbuilder.upgrade.policy:Policy"),
    ("reproduce", "envbuilder.reproduce.reproduction:ReproduceDocument"),
    ("capture", "envbuilder.reproduce.report.captured:CaptureDocument"),
    ("controls", "envbuilder.controls.control_run:ControlsDocument"),
    ("catalog", "envbuilder.catalog.listing:CatalogDocument"),
    ("catalog-verify", "envbuilder.refresh.agreement:VerifyDocument"),
    ("catalog-refresh", "envbuilder.refresh.propose:RefreshDocument"),
    ("publish", "envbuilder.publish.publish_document:PublishDocument"),
    ("clean", "envbuilder.jobs.clean:CleanDocument"),
    ("verify", "envbuilder.publish.verify:Verification"),
)
"""Name, and where its type stands; types are imported when asked for."""


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of a document. Raises UsageError that names the documents for an unknown name."""
    home = dict(DOCUMENTS).get(name)
    if home is None:
        raise UsageError(f"there is no document {name!r}", hint="one of: " + ", ".join(known for known, _ in DOCUMENTS))
    module, _, kind = home.partition(":")
    return msgspec.json.schema(getattr(importlib.import_module(module), kind))


def as_json(document: object) -> str:
    """Write a document as indented JSON, in the field order of its type."""
    return json.dumps(json.loads(msgspec.json.encode(document)), indent=2, ensure_ascii=False)
