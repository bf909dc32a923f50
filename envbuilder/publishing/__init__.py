"""Publish images whose verdict allows it, with signed statements; and decide whether a published image is trusted."""

from envbuilder.publishing.stage import Publication, Tools, publish
from envbuilder.publishing.verifying import Verification, verify

__all__ = ["Publication", "Tools", "Verification", "publish", "verify"]
