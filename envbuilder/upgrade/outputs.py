"""Compare the results of operations across the sides: what is wrong in every precision alike shows only here."""

from __future__ import annotations

import base64
import math
import zlib
from array import array
from contextlib import suppress

from envbuilder.support import decoding
from envbuilder.upgrade.observed import Numerics, Operation
from envbuilder.upgrade.outcomes import TOLERANCE
from envbuilder.upgrade.upgrade_document import OutputChange


def compare_outputs(old: Numerics, new: Numerics) -> tuple[tuple[OutputChange, ...], int]:
    """List the operations whose results differ on the same inputs, and count those that could be compared."""
    before = {operation.name: operation for operation in old.operations}
    rows = [
        _change(before[one.name], one)
        for one in new.operations
        if one.name in before and comparable(before[one.name], one)
    ]
    return tuple(row for row in rows if row is not None), len(rows)


def comparable(old: Operation, new: Operation) -> bool:
    """Tell whether both sides gave results, and on the same inputs; raising is told of elsewhere."""
    return bool(old.values and new.values and old.inputs == new.inputs)


def _change(old: Operation, new: Operation) -> OutputChange | None:
    if old.outputs == new.outputs:
        return None
    tolerance = 2 * TOLERANCE[new.precision]  # either side may be off by one tolerance
    drift = drift_of(_values(old), _values(new))
    return OutputChange(
        operation=new.name, drift=drift, tolerance=tolerance, outside=drift is None or drift > tolerance
    )


def _values(operation: Operation) -> array[float]:
    """Read little-endian results; the probe writes doubles for double precision, single ones else.

    Empty, and so without a comparison, where they are damaged or larger than any operation's.
    """
    kind = "d" if operation.precision == "float64" else "f"
    with suppress(decoding.DamagedError), decoding.damaged("no results"):
        return array(kind, zlib.decompressobj().decompress(base64.b64decode(operation.values), _MOST_BYTES))
    return array(kind)


_MOST_BYTES = 64 << 20


def drift_of(old: array[float], new: array[float]) -> float | None:
    """Return the largest difference relative to the largest old result; None for other shapes, or nothing finite."""
    if len(old) != len(new) or not old:
        return None
    scale = max(map(abs, old)) or 1.0
    drift = max(abs(one - other) for one, other in zip(old, new, strict=True)) / scale
    return drift if math.isfinite(drift) else None


def streams(old: Numerics, new: Numerics) -> tuple[str, ...] | None:
    """Name the generators that give something else for the same seed now; None where one side was not asked."""
    if not old.streams or not new.streams:
        return None
    return tuple(name for name, digest in old.streams.items() if digest != new.streams.get(name, ""))
