"""Leave out of an installation what a list names: files go, symbol tables are cut off, each RECORD says what is there.

Run in a build, in the step that installs, so that what goes is in no layer: ``python -m probes.omit LIST SITE`` does
what ``LIST`` says of the distributions in ``SITE``. Standard library only, and of this package the modules beside it.
A list is made for certain wheels: where a RECORD is not what it was made from, nothing is touched and the build ends.
"""

from __future__ import annotations

import csv
import glob
import hashlib
import json
import mmap
import os
import re
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

from .shorten import PIECE, Edit, symbols_cut, written

Rows = Dict[str, Tuple[str, str]]
"""A RECORD: path as it writes it → digest and size, '' where it has none."""


class NotAsListedError(Exception):
    """The installation is not the one that the list was made from."""


def digest_of_file(path: str) -> str:
    """Return a file's digest as RECORD writes it."""
    hashed = hashlib.sha256()
    with open(path, "rb") as stream:
        for piece in iter(lambda: stream.read(PIECE), b""):
            hashed.update(piece)
    return written(hashed.digest())


def digest_of_rows(rows: Iterable[Tuple[str, str]]) -> str:
    """Return one digest of several files: of their paths and digests, sorted."""
    return written(hashlib.sha256("".join("{0},{1}\n".format(*row) for row in sorted(rows)).encode()).digest())


def is_below(path: str, listed: str) -> bool:
    """Tell whether a path is the listed one, or below it where that is a folder (it ends with a slash then)."""
    return path == listed or (listed.endswith("/") and path.startswith(listed))


def read_record(path: str) -> Rows:
    """Read a RECORD."""
    with open(path, encoding="utf-8", newline="") as stream:
        return {row[0]: (row[1], row[2]) for row in csv.reader(stream) if len(row) == 3}


def normal(name: str) -> str:
    """Return a distribution's name as packaging compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def info_folder(site: str, name: str, version: str) -> Optional[str]:
    """Find a distribution's own folder; None where it is not installed in this version."""
    for folder in glob.glob(os.path.join(site, "*.dist-info")):
        own, _, its = os.path.basename(folder)[: -len(".dist-info")].partition("-")
        if normal(own) == normal(name) and its == version:
            return folder
    return None


def apply(listed: Dict[str, Any], site: str) -> int:
    """Do what a list says; return the bytes that went. Raises NotAsListedError: the distribution is untouched then."""
    return sum(_apply(one, site) for one in listed["distributions"])


def _apply(one: Dict[str, Any], site: str) -> int:
    folder = info_folder(site, one["name"], one["version"])
    if folder is None:
        raise NotAsListedError("{name} {version} is not installed".format(**one))
    record = os.path.join(folder, "RECORD")
    rows = read_record(record)
    leaving = [path for row in one["left_out"] for path in _matched(one["name"], row, rows)]
    cuts = [(row, _planned(one["name"], row, rows, site)) for row in one["cut"]]
    gone = sum(int(row["size"]) for row in one["left_out"])
    for path in leaving:
        _remove(_place(site, path))
        del rows[path]
    for path in [path for path in rows if _is_orphan(path, leaving)]:
        del rows[path]
    for row, cut in cuts:
        cut.write_over(_place(site, row["path"]))
        rows[row["path"]] = (row["becomes"], str(cut.size))
        gone += int(row["size"]) - cut.size
    with open(record, "w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows((path, *row) for path, row in rows.items())
    for path in leaving:
        _remove_empty(os.path.dirname(_place(site, path)), site)
    return gone


def _matched(name: str, row: Dict[str, Any], rows: Rows) -> List[str]:
    found = [path for path in rows if is_below(path, row["path"]) and not path.endswith(".pyc")]
    if len(found) != row["files"] or digest_of_rows((path, rows[path][0]) for path in found) != row["digest"]:
        raise NotAsListedError("{0}: {1} is not what the list was made from".format(name, row["path"]))
    return found


def _planned(name: str, row: Dict[str, Any], rows: Rows, site: str) -> Edit:
    with open(_place(site, row["path"]), "rb") as stream:
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            edit = symbols_cut(image)
            recorded = rows.get(row["path"], ("", ""))[0]
            if edit is None or recorded != row["digest"] or edit.digest(image) != row["becomes"]:
                raise NotAsListedError("{0}: {1} is not what the list was made from".format(name, row["path"]))
            return edit


def _place(site: str, path: str) -> str:
    """Return where a RECORD's path lies; nothing outside of the environment that holds the site folder is touched."""
    place, root = os.path.normpath(os.path.join(site, path)), os.path.normpath(os.path.join(site, "../../.."))
    if not place.startswith(root + os.sep):
        raise NotAsListedError("{0} leads out of {1}".format(path, root))
    return place


def _remove(path: str) -> None:
    os.unlink(path)
    if path.endswith(".py"):
        folder, name = os.path.split(path)
        for cached in glob.glob(os.path.join(glob.escape(folder), "__pycache__", glob.escape(name[:-2]) + "*.pyc")):
            os.unlink(cached)


def _is_orphan(path: str, leaving: List[str]) -> bool:
    """Tell byte code that RECORD names, and whose source goes."""
    found = re.match(r"(.*?)__pycache__/([^/]+)\.cpython-\d+(?:\.opt-\d)?\.pyc\Z", path)
    return found is not None and "{0}{1}.py".format(*found.groups()) in leaving


def _remove_empty(folder: str, site: str) -> None:
    while folder.startswith(site + os.sep):
        cache = os.path.join(folder, "__pycache__")
        for one in (cache, folder):
            try:
                os.rmdir(one)
            except OSError:
                if one == folder:
                    return
        folder = os.path.dirname(folder)


def main(arguments: List[str]) -> int:
    """Do what the command line says; 1 where the installation is not as listed."""
    listed, site = arguments
    with open(listed, encoding="utf-8") as stream:
        known = json.load(stream)
    try:
        gone = apply(known, os.path.normpath(site))
    except (NotAsListedError, OSError) as error:
        print("not left out: {0}".format(error), file=sys.stderr)
        return 1
    print("left out {0:.1f} MB".format(gone / 1e6))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
