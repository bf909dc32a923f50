"""Tell where a build looks for CUDA: the ``nvidia/<folder>/lib`` entries in the RUNPATH of its own libraries.

A library opened by name (``dlopen``) is looked for in the RUNPATH of the object whose code opens it, and in no other
object's: ld.so(8), dlopen(3). So what decides is what `OPENER` names, for each library that a release opens.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from envbuilder.catalog.rows import FindsCuda, Search, TensorflowRelease
from envbuilder.support import decoding

_TEXT = re.compile(rb"\$ORIGIN[\x20-\x7e]*\0")
_BEGUN = re.compile(rb"\$(?:O(?:R(?:I(?:G(?:I(?:N[\x20-\x7e]*)?)?)?)?)?)?\Z")
_FOLDER = re.compile(rb"/nvidia/([a-z0-9_]+)/lib")

OPENER = "libtensorflow_framework.so"
"""The library that opens CUDA's. 2.16.1 names nearly every folder in `libtensorflow_cc` and finds none of them."""

OBJECTS = (OPENER, "libtensorflow_cc.so")
"""The libraries whose RUNPATH a row holds: file names begin so."""

EVERY = "*"
"""In place of a folder: all that the wheels bring."""

_RUN_TIME = "cuda_runtime"

_FOLDERS = {"libcudart": _RUN_TIME, "libcublasLt": "cublas"}
"""Libraries whose wheel is not called like them; ``libcufft.so.11`` is in ``nvidia/cufft/lib``."""


class Watch:
    """Passes a file's pieces on unchanged and notes the first RUNPATH that goes by.

    That is the file's own: the names that the dynamic loader reads stand before a program's other texts.
    ``folders`` is None until the RUNPATH has gone by whole.
    """

    def __init__(self) -> None:
        self.folders: tuple[str, ...] | None = None

    def over(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the pieces."""
        tail = b""
        for piece in pieces:
            if self.folders is None:
                text = tail + piece
                found = _TEXT.search(text)
                if found:
                    self.folders = tuple(sorted({decoding.lossy(name) for name in _FOLDER.findall(found.group())}))
                begun = _BEGUN.search(text)
                tail = text[begun.start() :] if begun else b""
            yield piece


def folder_of(soname: str) -> str:
    """Name the folder under ``nvidia`` in which wheels bring a library."""
    stem = soname.partition(".so")[0]
    return _FOLDERS.get(stem, stem.removeprefix("lib"))


def opener_folders(searches: Iterable[Search]) -> tuple[str, ...]:
    """Name the folders that the library which opens CUDA looks into."""
    return next((one.folders for one in searches if one.object.startswith(OPENER)), ())


def unfound(libraries: Iterable[str], searches: Iterable[Search]) -> tuple[str, ...]:
    """List the libraries that a build opens and does not look for in the wheels that bring them."""
    known = opener_folders(searches)
    return tuple(soname for soname in libraries if folder_of(soname) not in known)


def finds_cuda(libraries: Iterable[str], searches: Iterable[Search]) -> FindsCuda | None:
    """Judge where a build finds what it opens; None where it is not known what that is.

    It looks at the libraries that the build opens itself: what those load in turn they find by their own RUNPATH.
    """
    needed = {folder_of(soname) for soname in libraries}
    known = needed.intersection(opener_folders(searches))
    if not needed:
        return None
    if not known:
        return "system"
    if known == needed:
        return "wheels"
    return "unfindable" if known == {_RUN_TIME} else "partly"


def loader_folders(release: TensorflowRelease) -> tuple[str, ...]:
    """Name the folders of CUDA wheels that the loader must be told of, because this release does not look there."""
    match release.finds_cuda:
        case "system" | "unfindable":
            return (EVERY,)
        case "partly":
            return tuple(sorted({folder_of(soname) for soname in unfound(release.libraries, release.searches)}))
        case _:
            return ()
