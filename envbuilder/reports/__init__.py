"""Reading users' reports: what they say about an environment, line by line, and nothing that they do not say."""

from __future__ import annotations

from envbuilder.reports.model import Contradiction, Evidence, Pause, Reported, Trust
from envbuilder.reports.read import cleaned, read

__all__ = ["Contradiction", "Evidence", "Pause", "Reported", "Trust", "cleaned", "read"]
