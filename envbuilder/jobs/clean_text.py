"""Write what a clean-up removed, or would remove, for people."""

from __future__ import annotations

from envbuilder.jobs.clean import CleanDocument
from envbuilder.support.console import table


def as_text(document: CleanDocument) -> str:
    """Write every image that went or would go, and what was freed beside them."""
    verb = "would go" if document.dry_run else "removed"
    rows = [(row.reference, f"{row.size / 1e9:.2f} GB", row.kept or verb) for row in document.images]
    lines = [table(("image", "size", ""), rows)] if rows else ["no image of ours to remove"]
    if document.containers:
        lines.append(f"{document.containers} containers of interrupted runs removed")
    if document.freed:
        lines.append(f"{document.freed / 1e9:.2f} GB freed of replaced builds and the builder's cache")
    return "\n".join(lines)
