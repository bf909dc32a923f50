"""What is left of a locked wheel where an image leaves something out: by the host's list, held to its RECORD."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from envbuilder.image.omissions import OfDistribution
from envbuilder.probes.omit import digest_of_rows, is_below


@dataclass(frozen=True)
class Left:
    """What is left of a wheel: path in the image → digest; the paths that went; and ``strange`` rows of the list.

    Strange is a row that is not the wheel's own, file for file: it excuses nothing.
    """

    brought: dict[str, str]
    gone: tuple[str, ...]
    strange: tuple[str, ...]


def left_of(brought: Mapping[str, str], omitted: OfDistribution, site: str) -> Left:
    """Take from what a wheel brings below ``site`` what the list says that its distribution lacks."""
    start = len(site) + 1
    left, gone, strange = dict(brought), list[str](), list[str]()
    for row in omitted.left_out:
        listed = f"{site}/{row.path}"
        below = [path for path in brought if is_below(path, listed) and not path.endswith(".pyc")]
        if len(below) != row.files or digest_of_rows((path[start:], brought[path]) for path in below) != row.digest:
            strange.append(listed)
            continue
        gone += below
        for path in below:
            left.pop(path, None)
    for cut in omitted.cut:
        path = f"{site}/{cut.path}"
        if left.get(path) == cut.digest:
            left[path] = cut.becomes
        else:
            strange.append(path)
    return Left(left, tuple(gone), tuple(strange))
