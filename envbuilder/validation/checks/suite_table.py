"""The table of checks: every tier's, in the order in which they are made, and the processes that they share."""

from __future__ import annotations

from envbuilder.validation.checks import cpu_tier, gpu_tier, load_tier, static_tier
from envbuilder.validation.checks.specification import Check, Group

GROUPS: tuple[Group, ...] = (
    Group("framework", "main", (("CUDA_VISIBLE_DEVICES", "-1"),), bounded=True),
    Group("static", "side"),
    Group("driver", "side"),
    Group("load", "side", bounded=True),
    Group("load-log", "main"),
    Group("gpu", "main"),
    Group("gpu-memory-growth", "main"),
    Group("gpu-memory-limit", "main"),
    Group("gpu-memory-all", "main"),
    Group("gpu-one-visible", "main", (("CUDA_VISIBLE_DEVICES", "0"),)),
    Group("gpu-none-visible", "main", (("CUDA_VISIBLE_DEVICES", "-1"),)),
    Group("multi-gpu", "main"),
    Group("timeline", "main"),
    Group("steps", "main"),
    Group("host", "host"),
    Group("protocol", "host"),
    Group("users", "host"),
)

HOST_GROUPS = frozenset(group.name for group in GROUPS if group.lane == "host")
"""The groups whose checks the stage itself makes, outside of the run."""

CHECKS: tuple[Check, ...] = (
    *static_tier.CHECKS,
    *load_tier.CHECKS,
    *cpu_tier.CHECKS,
    *gpu_tier.CHECKS,
    *load_tier.LAST,
)
"""Every check, in the order in which it is reported; those of a group run in this order."""
