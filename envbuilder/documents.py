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
    ("image", "envbuilder.building:ImageRecord"),
    ("run", "envbuilder.running:RunDocument"),
    ("doctor", "envbuilder.diagnosing:Diagnosis"),
    ("check", "envbuilder.rules.answer:CheckDocument"),
    ("plan", "envbuilder.planning:PlanDocument"),
    ("newest", "envbuilder.planning:NewestDocument"),
    ("fleet", "envbuilder.fleet:Fleet"),
    ("explain", "envbuilder.explaining:ExplainDocument"),
    ("upgrade", "envbuilder.comparing.document:UpgradeDocument"),
    ("bisect", "envbuilder.bisecting.stage:BisectDocument"),
    ("upgrade-policy", "envbuilder.comparing.policy:Policy"),
    ("reproduce", "envbuilder.reproducing.documents:ReproduceDocument"),
    ("capture", "envbuilder.reports.captured:CaptureDocument"),
    ("controls", "envbuilder.controlling:ControlsDocument"),
    ("catalog", "envbuilder.catalog.listing:CatalogDocument"),
    ("catalog-verify", "envbuilder.catalog.compare:VerifyDocument"),
    ("catalog-refresh", "envbuilder.proposing:RefreshDocument"),
    ("publish", "envbuilder.publishing.document:PublishDocument"),
    ("clean", "envbuilder.cleaning:CleanDocument"),
    ("verify", "envbuilder.publishing.verifying:Verification"),
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
