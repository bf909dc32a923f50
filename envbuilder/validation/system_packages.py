"""The files of system packages, and the layers of their lists."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator

ROW = 300
"""Bytes of memory for one file of a list."""

_LIST = re.compile(r"\Avar/lib/dpkg/info/[^/]+\.list\Z")
_CONDA = re.compile(r"\A(?P<prefix>.*?)/?conda-meta/[^/]+\.json\Z")
_CONDA_FILES = re.compile(rb'"files"\s*:\s*\[([^\]]*)\]')


def is_list(path: str) -> bool:
    return _LIST.match(path) is not None


class SystemPackages:
    """Files by path in the image; ``kept`` yields path, content and layer of the lists, ``resolve`` follows links.

    ``apart`` are the folders of virtual environments: no system package installs files there, whatever a list says.
    """

    def __init__(
        self,
        kept: Iterable[tuple[str, bytes, int]],
        resolve: Callable[[str], str],
        apart: frozenset[str] = frozenset(),
        spend: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self._layers: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._of_conda: set[str] = set()
        environments = tuple(f"{one}/" for one in apart if one)
        folders: dict[str, str] = {}
        for path, content, layer in kept:
            for name in _listed(path, content):
                if not spend(ROW):
                    break
                folder, _, leaf = name.rpartition("/")
                if folder not in folders:
                    folders[folder] = resolve(folder)
                placed = f"{folders[folder]}/{leaf}".lstrip("/")
                if environments and placed.startswith(environments):
                    continue
                if not is_list(path):
                    self._of_conda.add(placed)
                self._layers[placed] = max(layer, self._layers.get(placed, 0))
                if placed != name:
                    self._names[placed] = name

    def owns(self, path: str, *, conda: bool = True) -> bool:
        return path in self._layers and (conda or path not in self._of_conda)

    def layer(self, path: str) -> int | None:
        """Return the layer in which the file's package was last installed; None for a file of no package."""
        return self._layers.get(path)

    def name(self, path: str) -> str:
        """Return the path of a file in its package's list; it differs if a folder became a link."""
        return self._names.get(path, path)

    def files(self) -> Iterator[tuple[str, int]]:
        yield from self._layers.items()


def _listed(path: str, content: bytes) -> Iterator[str]:
    if _LIST.match(path):
        yield from (line.lstrip("/") for line in content.decode("utf-8", "replace").splitlines())
    elif (found := _CONDA.match(path)) is not None:
        for names in _CONDA_FILES.findall(content):
            for name in re.findall(rb'"([^"]+)"', names):
                yield posixpath.join(found["prefix"], name.decode("utf-8", "replace"))
