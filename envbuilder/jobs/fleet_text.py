"""Write the document of `fleet` for people: a row a proof, and in a line what they come to."""

from __future__ import annotations

from envbuilder.jobs.fleet_document import FleetDocument, ProofRow
from envbuilder.support.console import table


def as_text(document: FleetDocument) -> str:
    """Write the table and the sum under it."""
    rows = [
        (row.environment, row.kind, f"{row.count}", row.state, _to_do(row), row.error or row.why or _since(row))
        for row in document.rows
    ]
    counted = [f"{number} {state}" for state, number in document.states.items()]
    counted += [f"{document.left} left, {document.left_here} of them for this host"]
    ran = [f"ran: {', '.join(document.ran)}"] if document.ran else []
    return "\n".join(
        [
            table(("environment", "kind of host", "hosts", "state", "left", "since or why"), rows),
            "",
            f"{document.matrix} in {document.repository}: {'; '.join(counted)}",
            *ran,
        ]
    )


def _to_do(row: ProofRow) -> str:
    return ("here" if row.here else "there") if row.left else "-"


def _since(row: ProofRow) -> str:
    return f"{row.finished} at level {row.level}" if row.finished else "-"
