"""Locks for tests: packages at their versions, each with one hash that no file has."""

from __future__ import annotations


def pin(name: str, version: str) -> str:
    """Write one package of a lock."""
    return f"{name}=={version} \\\n    --hash=sha256:{'0' * 64}\n"


def lock_of(**versions: str) -> str:
    """Write a lock of packages, by name; an underscore stands for a hyphen."""
    return "".join(pin(name.replace("_", "-"), version) for name, version in versions.items())
