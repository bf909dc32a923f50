"""Reproduce what a user reported: read it, predict it, rebuild it, compare what comes of it, and find what works."""

from __future__ import annotations

from envbuilder.reproducing.documents import ReproduceDocument
from envbuilder.reproducing.running import Tools
from envbuilder.reproducing.stage import Options, foresee, reproduce

__all__ = ["Options", "ReproduceDocument", "Tools", "foresee", "reproduce"]
