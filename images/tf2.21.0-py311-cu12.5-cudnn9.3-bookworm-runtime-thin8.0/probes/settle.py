"""Give what a build step installed one time of change, so that the same files are the same layer wherever it is built.

Run at the end of the step: ``python -m probes.settle FOLDER [PLACE ...]`` settles all below ``FOLDER``, and the places.
A layer's digest covers the times of its files: two builders that install the same wheels make one layer only where the
times are the same. Standard library only.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import Iterator, List, Optional

SETTLED = 1577836800
"""2020-01-01, as a base's own files have it. Not 0: zip files start in 1980."""

_CODE = struct.Struct("<III")
"""Flags, time of the source's change, its size: what follows the magic number (https://peps.python.org/pep-0552/)."""


def settle(folder: str) -> int:
    """Settle a folder and all below it; return how many files, links and folders were touched.

    What has that time already is not touched: a step that did would copy files of the layers below into its own.
    """
    return sum(_settled(place) for place in _below(folder))


def _below(folder: str) -> Iterator[str]:
    """Yield byte code before its source (whose time it is held to), and a folder after all that is in it."""
    for top, folders, files in os.walk(folder, topdown=False):
        for name in sorted(files):
            yield os.path.join(top, name)
        for name in sorted(folders):
            if os.path.islink(os.path.join(top, name)):
                yield os.path.join(top, name)
        yield top


def _settled(place: str) -> bool:
    if os.lstat(place).st_mtime_ns == SETTLED * 10**9:
        return False
    if place.endswith(".pyc"):
        _settle_code(place)
    os.utime(place, (SETTLED, SETTLED), follow_symlinks=False)
    return True


def _settle_code(place: str) -> None:
    """Write into byte code that its source was changed then; code that is not of its source stays so."""
    source = _source(place)
    if source is None or os.path.islink(place):
        return
    with open(place, "r+b") as stream:
        head = stream.read(4 + _CODE.size)
        if len(head) < 4 + _CODE.size:
            return
        flags, changed, size = _CODE.unpack_from(head, 4)
        status = os.stat(source)
        if flags == 0 and changed == int(status.st_mtime) & 0xFFFFFFFF and size == status.st_size & 0xFFFFFFFF:
            stream.seek(4)
            stream.write(_CODE.pack(flags, SETTLED, size))


def _source(place: str) -> Optional[str]:
    """Name the source that Python holds cached byte code to; None where there is none."""
    folder, name = os.path.split(place)
    found = os.path.join(os.path.dirname(folder), name.partition(".")[0] + ".py")
    return found if os.path.basename(folder) == "__pycache__" and os.path.isfile(found) else None


def main(arguments: List[str]) -> int:
    """Settle what the command line names; places that are not there are none."""
    folder, *places = arguments
    touched = settle(folder) + sum(_settled(place) for place in places if os.path.lexists(place))
    print("settled {0} files".format(touched))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
