"""Search an image's files as its loader and its Python would, on the host, without running the image."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from envbuilder.engine.port import Image
from envbuilder.probes.suite import installed, runtime_libraries, tensorflow_install
from envbuilder.probes.suite.elf import Elf
from envbuilder.probes.suite.loader import DEFAULTS, Search, parse_cache
from envbuilder.support import decoding
from envbuilder.validation.file_records import SITE
from envbuilder.validation.image_files import ImageFiles, StackedFile
from envbuilder.validation.layer_scan import Binary

_METADATA = re.compile(r"/(?P<folder>[^/]+\.(?:dist|egg)-info)(?:/(?P<leaf>METADATA|PKG-INFO))?\Z")
_SYSTEM_SITE = re.compile(rb"(?mi)^\s*include-system-site-packages\s*=\s*true")
_VERSION = re.compile(rb"(?mi)^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)")
_OBJECT = re.compile(r"\.so(\.[0-9][0-9.]*)?\Z")


class RecordedElf(Elf):
    """A shared object from the record of its layer."""

    def __init__(self, path: str, binary: Binary) -> None:
        self.path, self.extent, self.sections = path, 0, {}
        self.soname, self.machine = binary.soname or None, binary.machine or None
        self.needed, self.rpath, self.runpath = list(binary.needed), list(binary.rpath), list(binary.runpath)
        self.versions = {library: list(names) for library, names in binary.versions.items()}
        self.defines, self.dynamic = list(binary.defines), binary.is_dynamic


STUB_AT_MOST = 512 * 1024
"""Bytes of the largest stub: drivers have megabytes, stubs some kilobytes."""


class LocalSearch(Search):
    """The loader's view of this host."""

    def runs(self, path: str) -> bool:
        """Return True if a path leads to a program that users may start."""
        return Path(path).is_file() and os.access(path, os.X_OK)

    def is_stub(self, path: str) -> bool:
        """Recognise a stub of the driver by its folder or its size.

        A file on another file system than the root was mounted, as container runtimes do with the driver.
        """
        status = Path(path).stat()
        is_small = status.st_size < STUB_AT_MOST and status.st_dev == Path("/").stat().st_dev
        return "/stubs/" in self.real(path) or is_small

    def cudnn_version(self, path: str) -> str | None:
        return runtime_libraries.ask_cudnn(path)[0]


class ImageSearch(LocalSearch):
    """The loader's view of an image: its own LD_LIBRARY_PATH, its own cache, its own files."""

    def __init__(self, files: ImageFiles, image: Image) -> None:
        cache = parse_cache(files.content("etc/ld.so.cache") or b"")
        super().__init__(image.env.get("LD_LIBRARY_PATH", ""), cache, DEFAULTS)
        self._files = files

    def read(self, path: str) -> Elf | None:
        """Return a file's record; None if it is missing or not a shared object; empty if it is damaged."""
        if path not in self._known:
            entry = self._files.file(path)
            binary = entry.row.binary if entry is not None else None
            self._known[path] = RecordedElf(path, binary) if binary is not None else None
        return self._known[path]

    def usable(self, path: str, caller: Elf | None = None) -> bool:
        """Return True if the loader would use this file, or fail at it: at a damaged one it does not search on."""
        read = self.read(path)
        return read is not None and (caller is None or read.machine in (None, caller.machine))

    def real(self, path: str) -> str:
        return "/" + self._files.resolve(path)

    def exists(self, path: str) -> bool:
        return self._files.file(path) is not None

    def names(self, folder: str) -> list[str]:
        return self._folders.get(self._files.resolve(folder), [])

    def size(self, path: str) -> int:
        entry = self._files.file(path)
        return entry.row.size if entry is not None else 0

    def is_stub(self, path: str) -> bool:
        return "/stubs/" in self.real(path) or self.size(self.real(path)) < STUB_AT_MOST

    def cudnn_version(self, path: str) -> str | None:
        """Return the version of a cuDNN: since 8 only the parts next to the main library have one."""
        folder = posixpath.dirname(self._files.resolve(path))
        beside = [one for one in self._files.paths if posixpath.dirname(one) == folder and "/libcudnn" in one]
        found = (self._files.file(one) for one in sorted(beside))
        binaries = (entry.row.binary for entry in found if entry is not None)
        return next((binary.version for binary in binaries if binary is not None and binary.version), None)

    def runs(self, path: str) -> bool:
        entry = self._files.file(path)
        return entry is not None and bool(entry.row.mode & 0o111)

    @cached_property
    def _folders(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in sorted(self._files.paths):
            folder, _, name = path.rpartition("/")
            found.setdefault(folder, []).append(name)
        return found


class LocalPython:
    """A Python of this host that has TensorFlow, and its packages."""

    def __init__(self, sites: tuple[str, ...], framework_folder: str | None, release: str) -> None:
        self.sites = sites
        self.framework_folder = framework_folder
        self._release = release

    def version(self, otherwise: str) -> str:
        """Return its version (``3.11.2``), or the given one."""
        return self._release or otherwise

    def distributions(self) -> list[installed.Distribution]:
        """Return every distribution that it finds, sorted by name."""
        return installed.distributions(self.sites)

    def objects(self, search: Search) -> list[str]:
        """Return every shared object of its packages, links resolved, sorted."""
        found = (f"{folder}/{name}" for site in self.sites for folder, _, names in os.walk(site) for name in names)
        return sorted({search.real(path) for path in found if _OBJECT.search(path)})

    def own(self, search: Search) -> list[Elf]:
        """Return TensorFlow's own large objects."""
        return tensorflow_install.callers(search, self.framework_folder) if self.framework_folder else []


class ImagePython(LocalPython):
    """The Python of an image that has TensorFlow, and its packages."""

    def __init__(self, files: ImageFiles, image: Image) -> None:
        sites = _sites(files, image)
        folder = next((f"/{site}/tensorflow" for site in sites if f"{site}/tensorflow" in files.paths), None)
        super().__init__(sites, folder, "")
        self._files = files

    def version(self, otherwise: str) -> str:
        for site in self.sites:
            found = _VERSION.search(_configuration(self._files, site) or b"")
            if found:
                return decoding.lossy(found[1])
        return otherwise

    def distributions(self) -> list[installed.Distribution]:
        kept: dict[tuple[str, str], bytes] = {}
        for path, content in self._files.kept():
            found = _METADATA.search(path)
            if found is None or path[: found.start()] not in self.sites:
                continue
            key = (path[: found.start()], found["folder"])
            if found["leaf"] != "PKG-INFO" or key not in kept:
                kept[key] = content
        made = (
            installed.described(decoding.lossy(content).splitlines(), posixpath.join("/", *key))
            for key, content in kept.items()
        )
        return sorted((one for one in made if one is not None), key=lambda one: (one.name, one.version))

    def objects(self, search: Search) -> list[str]:
        found: dict[str, str] = {}
        for path, entry in self._below():
            if entry.row.kind in ("file", "link") and _OBJECT.search(path):
                found.setdefault(search.real(path), f"/{path}")
        return sorted(found)

    def _below(self) -> Iterator[tuple[str, StackedFile]]:
        places = tuple(f"{site}/" for site in self.sites)
        for path, entry in self._files.paths.items():
            if path.startswith(places):
                yield path, entry


def _sites(files: ImageFiles, image: Image) -> tuple[str, ...]:
    """Return the folders that the Python with TensorFlow searches: of its virtual environment, or of its prefix."""
    every = sorted(path for path, entry in files.paths.items() if entry.row.kind == "folder" and SITE.search(path))
    homes = [site for site in every if f"{site}/tensorflow" in files.paths]
    if not homes:
        return tuple(every)
    first = [folder.strip("/").rpartition("/")[0] for folder in image.env.get("PATH", "").split(":")]
    home = next((site for prefix in first for site in homes if prefix and site.startswith(f"{prefix}/lib/")), homes[0])
    settings = _configuration(files, home)
    if settings is not None and not _SYSTEM_SITE.search(settings):
        return (home,)
    version = re.search(r"/(python3\.\d+)/", home)
    others = [
        site
        for site in every
        if site != home
        and _configuration(files, site) is None
        and "/.local/" not in site
        and (found := re.search(r"/(python3(?:\.\d+)?)/", site))
        and (version is None or found[1] in ("python3", version[1]))
    ]
    return (home, *others)


def _configuration(files: ImageFiles, site: str) -> bytes | None:
    """Return the ``pyvenv.cfg`` of a site; None if its Python is not a virtual environment."""
    return files.content(posixpath.normpath(f"{site}/../../../pyvenv.cfg"))
