"""The packages in an image's files with their RECORDs, and what its loader and its Python would find in them."""

import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from envbuilder import versions
from envbuilder.engine.port import Image
from envbuilder.probes.suite import installed, runtime_libraries, tensorflow_install, xlatools
from envbuilder.probes.suite.elf import Elf
from envbuilder.probes.suite.loader import DEFAULTS, Search, parse_cache
from envbuilder.support import decoding
from envbuilder.validation.image_files import ROW, ImageFiles
from envbuilder.validation.layer_scan import PATHS, Binary

_INFO = r"\A(?P<site>{})/(?P<folder>[^/]+\.(?:dist|egg)-info)(?:/(?P<leaf>[^/]+))?\Z"
_PROGRAMS = ("[console_scripts]", "[gui_scripts]")
OF_PACKAGE = 3000  # Bytes of memory for one file of metadata
_OF_SYSTEMS = ("usr", "usr/local")  # Prefixes that a Python shares with the system
Rows = Mapping[str, str]  # Path in the image → digest in RECORD (`sha256=…`), '' if it has none

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # PATH of an image that does not set it
STUB_AT_MOST = 512 * 1024  # Bytes of the largest stub: drivers have megabytes, stubs some kilobytes
LOADED = ("libcuda.so.1", "libnvidia-ml.so.1")  # The driver libraries that TensorFlow and NVML load by name
LINUX_ITSELF = ("ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1", "linux-vdso.so.1")
Unmet = tuple[str, str, list[str]]  # A need that is not found: its name, who needs it, the paths tried
SYSTEM_SITE = re.compile(rb"(?mi)^\s*include-system-site-packages\s*=\s*true")
_RELEASE = re.compile(rb"(?mi)^version(?:_info)?\s*=\s*(\d+\.\d+\.\d+)")

# A fact of `build_info.py`: an entry of a dict, or up to 2.2 a variable.
_FACT = re.compile(
    r"[\"']?\b(is_cuda_build|cuda_version|cudnn_version)(?:_number)?[\"']?\s*[:,=]\s*[\"']?(?P<value>[\w.]+)"
)


@dataclass(frozen=True)
class InstalledPackage:
    """One installed distribution: its folder, its tags, its RECORD and its metadata (None without one).

    ``editable`` is the source folder of an editable install.
    """

    site: str
    folder: str
    name: str
    version: str
    tags: frozenset[str]
    rows: Rows | None
    editable: str = ""
    scripts: frozenset[str] = field(default_factory=frozenset)
    metadata: installed.Distribution | None = None

    def vouches_for(self, path: str, *, in_environment: bool = True) -> bool:
        """Return True if its RECORD may list a file: of its folder or (``in_environment``) environment, no library."""
        if path.startswith(f"{self.site}/"):
            return True
        prefix = prefix_of(self.site)
        if not in_environment or site_of(path) or not path.startswith(f"{prefix}/"):
            return False
        return prefix not in _OF_SYSTEMS or not path[len(prefix) + 1 :].startswith("lib")

    def of_wheel(self, record: bytes) -> tuple[dict[str, str], frozenset[str]]:
        """Return its wheel's files as installed (of ``.data``: moved), and the scripts: an installer rewrites these."""
        site, rows, rewritten = self.site, dict[str, str](), set[str]()
        prefix = prefix_of(site)
        for row in decoding.csv_rows(record):
            path, digest = (*row, "", "")[:2]
            top, _, rest = path.partition("/")
            if not path or (top.endswith(".dist-info") and rest in ("RECORD", "RECORD.jws", "RECORD.p7s")):
                continue
            if not top.endswith(".data"):
                rows[_placed(path, site)] = digest
                continue
            scheme, _, leaf = rest.partition("/")
            target = {"purelib": site, "platlib": site, "scripts": f"{prefix}/bin", "data": prefix}.get(scheme)
            if target is not None:
                placed = _placed(leaf, target)
                rows[placed] = digest
                rewritten |= {placed} if scheme == "scripts" else set()
        return rows, frozenset(rewritten)


def site_of(path: str) -> str:
    """Return the innermost folder above a path into which Python installs packages; '' if there is none."""
    folder = path
    while "/" in folder:
        folder = folder.rpartition("/")[0]
        if PATHS["site"].search(folder):
            return folder
    return ""


def prefix_of(site: str) -> str:
    return posixpath.normpath(f"/{site}/../../..").lstrip("/")


def python_of(site: str) -> str:
    """Return the Python of a folder of packages: ``3.11``, ``3`` for any, '' if it is unknown."""
    found = re.search(r"/python(3(?:\.\d{1,2})?)/", f"/{site}")
    return found[1] if found else ""


@lru_cache(maxsize=2)
def distributions(files: ImageFiles, at: str = "") -> tuple[InstalledPackage, ...]:
    """Return the distributions in all folders into which Python installs packages, or in the folder ``at``, sorted."""
    pattern = re.compile(_INFO.format(re.escape(at) if at else r".*?(?:site|dist)-packages"))
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for path in files.paths:
        if "-info" in path and (match := pattern.match(path)) is not None:
            content, leaf = files.content(path), match["leaf"] or "PKG-INFO"
            text = (content or b"") if leaf == "RECORD" else (content or b"").partition(b"\n\n")[0]
            if not files.budget.spend(OF_PACKAGE + text.count(b"\n") * ROW):
                break
            if match["leaf"] or content is not None:
                kept = found.setdefault((match["site"], match["folder"]), {})
                kept |= {leaf: content} if content is not None else {}
    return tuple(_distribution(site, folder, kept) for (site, folder), kept in sorted(found.items()))


def owners(files: ImageFiles) -> dict[str, str]:
    """Return the names of the distributions that bring modules, by up to three parts of a module's name."""
    found = dict[str, str]()
    for one in () if files.budget.reached else distributions(files):
        for path in one.rows or ():
            parts = path.removeprefix(f"{one.site}/").partition(".")[0].split("/")
            for depth in (1, 2, 3) if files.budget.spend(ROW) else ():
                found.setdefault(".".join(parts[:depth]), one.name)
    return found


def _distribution(site: str, folder: str, kept: Mapping[str, bytes]) -> InstalledPackage:
    name, _, version = folder.rpartition(".")[0].partition("-")
    head = decoding.lossy(kept.get("METADATA") or kept.get("PKG-INFO", b"")).partition("\n\n")[0]
    metadata = installed.described(head.splitlines(), f"/{site}/{folder}")
    name = metadata.name if metadata is not None else versions.distribution(name)
    scripts = _scripts(decoding.lossy(kept.get("entry_points.txt", b"")))
    if name == "pip":  # its wheel names pip and pip3; pip and uv add the name with Python's version
        scripts |= {f"pip{python_of(site)}"}
    return InstalledPackage(
        site=site,
        folder=folder,
        name=name,
        version=(metadata and metadata.version) or version,
        tags=frozenset(re.findall(r"(?m)^Tag:\s*(\S+)", decoding.lossy(kept.get("WHEEL", b"")))),
        rows=dict(parse(kept["RECORD"], site)) if "RECORD" in kept else None,
        editable=_source(kept.get("direct_url.json", b"")),
        scripts=scripts,
        metadata=metadata,
    )


def _source(direct_url: bytes) -> str:
    """Return the folder of an editable install; '' for another package."""
    if not re.search(rb'"editable"\s*:\s*true', direct_url):
        return ""
    found = re.search(rb'"url"\s*:\s*"(?:file://)?([^"]{1,200})', direct_url)
    return decoding.lossy(found[1]) if found is not None else "an unknown folder"


def _scripts(entry_points: str) -> frozenset[str]:
    sections = re.split(r"(?m)^\s*(\[.*\])\s*$", entry_points)
    of_programs = (text for name, text in zip(sections[1::2], sections[2::2], strict=True) if name in _PROGRAMS)
    return frozenset(
        line.partition("=")[0].strip() for text in of_programs for line in text.splitlines() if "=" in line
    )


def parse(record: bytes, site: str) -> Iterator[tuple[str, str]]:
    for row in decoding.csv_rows(record):
        if row and row[0]:
            yield _placed(row[0], site), row[1] if len(row) > 1 else ""


def _placed(path: str, site: str) -> str:
    if ".." not in path and not path.startswith(("/", ".")):
        return f"{site}/{path}"  # nearly every row: a hundred thousand of them are read for one image
    return posixpath.normpath(posixpath.join("/", site, path)).lstrip("/")


class RecordedElf(Elf):
    def __init__(self, path: str, binary: Binary) -> None:
        vars(self).update(msgspec.structs.asdict(binary), path=path)
        self.soname, self.machine = binary.soname or None, binary.machine or None


class LocalSearch(Search):
    def runs(self, path: str) -> bool:
        return Path(path).is_file() and os.access(path, os.X_OK)

    def is_stub(self, path: str) -> bool:
        """Recognise a stub of the driver by folder or size; a file on another file system was mounted by a runtime."""
        status = Path(path).stat()
        is_small = status.st_size < STUB_AT_MOST and status.st_dev == Path("/").stat().st_dev
        return "/stubs/" in self.real(path) or is_small

    def cudnn_version(self, path: str) -> str | None:
        return runtime_libraries.ask_cudnn(path)[0]

    def glibc(self) -> str | None:
        """Return the newest version whose symbols the C library defines ('' if none); None without a C library."""
        path, _ = self.find("libc.so.6")
        libc = self.read(path) if path else None
        if libc is None:
            return None
        named = (name.removeprefix("GLIBC_") for name in libc.defines if name.startswith("GLIBC_"))
        return max(filter(versions.key_or_none, named), key=versions.key, default="")

    def xla_tools(self, folder: str, cuda: str | None, env: Mapping[str, str]) -> dict[str, str | None]:
        places = xlatools.roots(folder, cuda, env.get("XLA_FLAGS", ""))
        devices = (*(f"{place}/{xlatools.LIBDEVICE}" for place in places), "libdevice.10.bc")
        return {
            "ptxas": xlatools.tool("ptxas", places, env.get("PATH", "").split(":"), self.runs),
            "libdevice.10.bc": next((path for path in devices if self.exists(path)), None),
        }


class ImageSearch(LocalSearch):
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
        return "/stubs/" in self.real(path) or self.size(path) < STUB_AT_MOST

    def cudnn_version(self, path: str) -> str | None:
        """Return the version of a cuDNN: since 8 only the parts next to the main library have one."""
        folder = posixpath.dirname(self.real(path))
        parts = (self._files.file(f"{folder}/{name}") for name in self.names(folder) if name.startswith("libcudnn"))
        binaries = (part.row.binary for part in parts if part is not None)
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


def unmet(search: Search, root: str, before: Iterable[str] = ()) -> list[Unmet]:
    """Return the needs of an object that are not found, breadth first; names in ``before`` are loaded already."""
    first = search.read(root)
    queue: list[tuple[Elf, tuple[Elf, ...]]] = [(first, ())] if first is not None and first.dynamic else []
    loaded, missing = {*before, *LINUX_ITSELF}, list[Unmet]()
    while queue:
        user, chain = queue.pop(0)
        for name in user.needed:
            if name in loaded or PATHS["driver"].match(name):
                continue
            loaded.add(name)
            where, tried = search.find(name, user, chain)
            read = search.read(where) if where is not None else None
            if read is None:
                missing.append((name, user.path, tried))
            else:
                queue.append((read, (*chain, user)))  # its RPATH counts for needs of needs, a RUNPATH does not
    return missing


class InstalledFramework(msgspec.Struct, frozen=True, kw_only=True):
    """The TensorFlow that a Python would import, read from files.

    ``python`` is that Python's minor version, ``release`` its full one, ``sites`` are its folders of packages.
    ``folder`` is TensorFlow's, ``build`` the build's own record. ``is_for_gpus`` is True for a build with CUDA next to
    a CUDA runtime or a GPU. ``gpu_objects`` are the shared objects of an image's TensorFlow that contain GPU code.
    """

    python: str = ""
    package: str = ""
    version: str = ""
    build: Mapping[str, Any] = {}
    sites: tuple[str, ...] = ()
    folder: str = ""
    release: str = ""
    is_cuda_build: bool = False
    is_for_gpus: bool = False
    gpu_objects: tuple[str, ...] = ()


class LocalPython:
    def __init__(self, framework: InstalledFramework) -> None:
        self.framework, self.sites = framework, framework.sites

    def distributions(self) -> list[installed.Distribution]:
        return installed.distributions(self.sites)

    def objects(self, search: Search) -> list[str]:
        found = (f"{folder}/{name}" for site in self.sites for folder, _, names in os.walk(site) for name in names)
        return sorted({search.real(path) for path in found if PATHS["object"].search(path)})

    def own(self, search: Search) -> list[Elf]:
        return tensorflow_install.callers(search, self.framework.folder) if self.framework.folder else []


class ImagePython(LocalPython):
    def __init__(self, files: ImageFiles, image: Image) -> None:
        self._files = files
        sites = _sites(files, image)
        described = (one.metadata for one in distributions(files) if one.site in sites and one.metadata is not None)
        self._distributions = sorted(described, key=lambda one: (one.name, one.version))
        super().__init__(_framework(files, sites, self._distributions))

    def distributions(self) -> list[installed.Distribution]:
        return self._distributions

    def objects(self, search: Search) -> list[str]:
        places = tuple(f"{site}/" for site in self.sites)
        inside = (path for path, entry in self._files.paths.items() if entry.row.kind in ("file", "link"))
        own = (path for path in inside if path.startswith(places) or PATHS["own-modules"].search(path))
        return sorted({search.real(path) for path in own if PATHS["object"].search(path)})


def _framework(files: ImageFiles, sites: tuple[str, ...], there: list[installed.Distribution]) -> InstalledFramework:
    released = {(posixpath.dirname(one.folder), one.name): (one.name, one.version) for one in there if one.version}
    named = (released.get((f"/{site}", name)) for site in sites for name in tensorflow_install.DISTRIBUTIONS)
    package, version = next(filter(None, named), ("", ""))
    folders = tuple(f"{site}/tensorflow{name}" for site in sites for name in ("", "_core"))
    records = (files.content(f"{folder}/python/platform/build_info.py") or b"" for folder in folders)
    build = next(filter(None, (dict(_FACT.findall(decoding.lossy(record))) for record in records)), {})
    below = tuple(f"{folder}/" for folder in folders)
    binaries = ((path, entry.row.binary) for path, entry in files.paths.items() if path.startswith(below))
    objects = tuple(path for path, binary in binaries if binary is not None and binary.has_cuda_code)
    is_for_gpus = bool(objects) and any(PATHS["cudart"].search(path) for path in files.paths)
    settings = next(filter(None, (_configuration(files, site) for site in sites)), b"")
    release, python = _RELEASE.search(settings), python_of("".join(sites[:1]))
    return InstalledFramework(
        python=python if "." in python else "",
        package=package,
        version=version,
        build=build,
        sites=sites,
        folder=next((f"/{folder}" for folder in folders[::2] if folder in files.paths), ""),
        release=decoding.lossy(release[1]) if release else "",
        is_cuda_build=is_for_gpus or build.get("is_cuda_build") == "True",  # the shared objects outrank the record
        is_for_gpus=is_for_gpus,
        gpu_objects=objects,
    )


def _sites(files: ImageFiles, image: Image) -> tuple[str, ...]:
    """Return the folders that the Python with TensorFlow searches: of its virtual environment, or of its prefix."""
    folders = {path for path, entry in files.paths.items() if entry.row.kind == "folder" and PATHS["site"].search(path)}
    every = sorted({*folders, *(site_of(path) for path, _ in files.contents.items())} - {""})
    homes = [site for site in every if f"{site}/tensorflow" in files.paths]
    if not homes:
        return tuple(every)
    first = [folder.strip("/").rpartition("/")[0] for folder in image.env.get("PATH", "").split(":")]
    home = next((site for prefix in first for site in homes if prefix and site.startswith(f"{prefix}/lib/")), homes[0])
    settings = _configuration(files, home)
    if settings is not None and not SYSTEM_SITE.search(settings):
        return (home,)
    own = python_of(home)
    fitting = {python_of(site) for site in every} - {""} if own in ("", "3") else {"3", own}
    others = (site for site in every if site != home and "/.local/" not in site and python_of(site) in fitting)
    return (home, *(site for site in others if _configuration(files, site) is None))


def _configuration(files: ImageFiles, site: str) -> bytes | None:
    """Return the ``pyvenv.cfg`` of a site; None if its Python is not a virtual environment."""
    return files.content(posixpath.normpath(f"{site}/../../../pyvenv.cfg"))
