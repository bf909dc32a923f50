"""How exports name what a verdict is about."""

from __future__ import annotations

from envbuilder.verdict import Verdict


def name_of(verdict: Verdict) -> str:
    """Name the environment; for an image of others, its reference; for neither, the image's id."""
    if verdict.environment is not None:
        return verdict.environment.id
    return verdict.image.reference or verdict.image.id or "unnamed"
