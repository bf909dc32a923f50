"""Broken and hostile images: one table, by subject. Each is built from a good image and validated for real."""

from __future__ import annotations

from hostile_files import FILE_IMAGES
from hostile_gpu import GPU_IMAGES
from hostile_liars import LIAR_IMAGES
from hostile_mistakes import MISTAKE_IMAGES
from hostile_row import Hostile
from hostile_settings import SETTING_IMAGES
from hostile_starts import START_IMAGES
from hostile_strange import STRANGE_IMAGES

HOSTILE: tuple[Hostile, ...] = (
    *FILE_IMAGES,
    *SETTING_IMAGES,
    *LIAR_IMAGES,
    *GPU_IMAGES,
    *STRANGE_IMAGES,
    *MISTAKE_IMAGES,
    *START_IMAGES,
)
"""Every row. ``nothing-done`` and ``gpu-nothing-done`` are the good images with one layer more: nothing may be red."""
