"""What a compatibility rule is; each stands beside its function, in the table at its module's end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat.candidate import Candidate
from envbuilder.finding import Code, Finding

Side = Literal["host", "gpu"]


class Rule(msgspec.Struct, frozen=True):
    """One rule: the side of a candidate that it reads, and the codes that it may give.

    A rule of the side ``host`` reads the Python, the system, the processor and the packages; one of the side ``gpu``
    reads CUDA, cuDNN, the driver, the GPUs and the image. Both read the release and how it is installed. No rule
    reads both sides, so that the two can be judged, and remembered, apart.
    """

    side: Side
    codes: tuple[Code, ...]
    find: Callable[[Candidate, Catalog], Iterator[Finding]]
