"""A signature (a message and what it means) and a symptom (where one was seen)."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.finding import Code, Severity

Proof = Literal["image", "driver", "gpu", "architecture", "host", "other-system"]
"""What it takes to see it again: an image alone, a driver of another age (which can be simulated), any GPU, a GPU of
one architecture, a state of the host that no image brings about, or a system that is not Linux."""

Layer = Literal[
    "container", "driver", "loader", "cudnn", "cublas", "architecture", "xla", "python", "install", "cpu", "system",
    "memory", "speed", "distribution", "symptom", "fact", "noise",
]  # fmt: skip


class Signature(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One known message.

    ``literals`` are texts of which a line must hold one (any case) before ``regex`` is tried on it (``re`` syntax,
    ASCII, case as written). ``versions`` says where it occurs; ``code`` is the finding that it is evidence of (None
    for facts and noise). ``prose`` is true of what people write, which no program printed. ``samples`` are lines of
    ours in the form that the program prints.
    """

    id: str
    layer: Layer
    severity: Severity
    proof: Proof
    literals: tuple[str, ...]
    regex: str
    cause: str
    fix: str
    versions: str
    samples: tuple[str, ...]
    code: Code | None = None
    prose: bool = False
    sources: tuple[str, ...] = ()


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """A signature seen in a text: ``line`` counts from 1, ``values`` are what the message names (a library, say).

    ``exact`` is false where the line only resembles the message: misspelt, or cut.
    """

    signature: str
    line: int
    text: str
    values: dict[str, str] = {}
    exact: bool = True
