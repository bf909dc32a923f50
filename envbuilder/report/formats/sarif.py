"""SARIF 2.1.0, as code-scanning pages read it: findings that were made without running the framework."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from envbuilder import __version__
from envbuilder.finding import Finding, Severity
from envbuilder.report.formats.titles import name_of
from envbuilder.support import terminal_text
from envbuilder.verdict import Verdict

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"

_LEVEL = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.INFO: "note"}


def sarif(verdicts: tuple[Verdict, ...]) -> str:
    """Write the findings of the static checks, and of the environments themselves, as one SARIF run.

    A result points at the environment's Dockerfile in ``images/``: that is the file to change.
    """
    results = [(verdict, finding) for verdict in verdicts for finding in static_findings(verdict)]
    codes = sorted({finding.code for _, finding in results})
    rules = [_rule(code, [finding for _, finding in results if finding.code == code]) for code in codes]
    run = {
        "tool": {"driver": {"name": "envbuilder", "semanticVersion": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_result(verdict, finding, codes.index(finding.code)) for verdict, finding in results],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return terminal_text.json_text(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"


def static_findings(verdict: Verdict) -> tuple[Finding, ...]:
    """Return the findings that static checks made, or that hold of the environment as planned; each once."""
    found = [finding for check in verdict.checks if check.level == "static" for finding in check.findings]
    found += verdict.environment.findings if verdict.environment else ()
    return tuple(dict.fromkeys(found))


def _rule(code: str, findings: list[Finding]) -> dict[str, Any]:
    sources = sorted({source for finding in findings for source in finding.sources if source.startswith("https://")})
    rule: dict[str, Any] = {
        "id": code,
        "name": "".join(part.capitalize() for part in code.split("_")),
        "shortDescription": {"text": code.replace("_", " ").capitalize()},
        "help": {"text": f"envbuilder explain {code}"},
    }
    return {**rule, "helpUri": sources[0]} if sources else rule


def _result(verdict: Verdict, finding: Finding, index: int) -> dict[str, Any]:
    name = name_of(verdict)
    text = _text(f"{finding.message} Fix: {finding.fix}" if finding.fix else finding.message)
    place: dict[str, Any] = {
        "logicalLocations": [{"fullyQualifiedName": terminal_text.line(f"{name}: {finding.subject}")}]
    }
    if verdict.environment is not None:
        location = {"uri": f"images/{name}/Dockerfile", "uriBaseId": "%SRCROOT%"}
        place["physicalLocation"] = {"artifactLocation": location, "region": {"startLine": 1}}
    identity = msgspec.json.encode((name, finding.code, finding.subject, finding.requires, finding.found))
    return {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": _LEVEL[finding.severity],
        "message": {"text": text},
        "locations": [place],
        "partialFingerprints": {"envbuilder/v1": hashlib.sha256(identity).hexdigest()},
        "properties": {
            "environment": name,
            "requires": terminal_text.line(finding.requires),
            "found": terminal_text.line(finding.found),
        },
    }


def _text(foreign: str) -> str:
    """Write a message; SARIF reads ``[text](address)`` in one as a link (section 3.11.6)."""
    return terminal_text.line(foreign).replace("](", "] (")
