"""Publish images whose verdict allows it, with signed statements; and decide whether a published image is trusted."""
