"""Find what of an installation nothing can load, open or run: which whole files an image for running can do without.

Everything is read from files; nothing of the installation is imported. What is kept errs on the side of keeping: a
name in any text or object that stays keeps what has that name. ``derive`` gives a list that ``omit`` carries out.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import sys
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import omit
from .linked_in import Contents
from .shorten import WORTH, symbols_cut
from .suite.elf import Elf, NotElfError
from .thin import thinned

COMPILERS, TESTS, UNIMPORTED, UNNAMED, SYMBOLS = "compilers", "tests", "unimported", "unnamed", "symbols"
"""Why something goes: read by compilers alone; a package's own tests; a distribution that no other one imports and
nobody asked for; an object that nothing needs, names or imports; symbol tables that no loader reads."""

_FOR_COMPILERS = re.compile(
    r"(?:^|/)include/(?:.*/)?[^/]+(?<!\.py)(?<!\.so)\Z|\.(?:h|hh|hpp|hxx|cuh|inc|inl|c|cc|cpp|cxx|cu|td|pxd|pyx|a|o|lib|la|pc)\Z"
)
_TEST = re.compile(r"(?:^|/)tests/|_test\.py\Z")
_MODULE = re.compile(r"\.(?:cpython-\w+(?:-[\w-]+)?|abi3)\.so\Z")
_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n;#]+)", re.MULTILINE)
_BY_NAME = re.compile(rb"""(?:import_module|__import__|find_spec|LazyLoader)\([^()]*?['"]([\w.]+)['"]\s*[,)]""")
_DOTTED = re.compile(rb"""['"]((?:\w+\.)+\w+)['"]""")
_WORD = re.compile(rb"\w+")
_REQUIRES = re.compile(r"^Requires-Dist:[ \t]*([A-Za-z0-9][\w.-]*)(?!.*;.*\bextra\b)", re.MULTILINE)
"""What a distribution requires, but for what one of its extras brings."""

_TOKEN = re.compile(rb"[A-Za-z_][\w.+-]{2,79}?(?=\0|%|\.so)")
"""A word that ends a string of a program, or stands before ``.so`` or a place for a number in it."""

_SKIPPED = re.compile(
    r"\.(?:nv_fatbin|text|eh_frame(?:_hdr)?|gcc_except_table|symtab|strtab|dynsym|dynstr|gnu\.\w+|rela?\..*|debug_.*)\Z|__nv_relfatbin\Z"
)
"""Sections that hold no names of files: code for either processor, tables of addresses, what debuggers read."""


class Dist(NamedTuple):
    """One distribution: its name, version, RECORD, and whether it starts by itself (programs, ``.pth``)."""

    name: str
    version: str
    rows: Dict[str, Tuple[str, str]]
    starts: bool


class Texts(NamedTuple):
    """What modules say together: top-level names that they import, every word of their imports, and their text."""

    tops: Set[str]
    words: Set[str]
    bodies: List[bytes]


def derive(
    site: str, wished: Iterable[str], libraries: Iterable[str], framework: str, gpus: Sequence[str] = ()
) -> Dict[str, Any]:
    """List what can go from the distributions in ``site``.

    ``wished`` are the distributions that were asked for by name: of these, and of everything that they import, every
    module stays. ``libraries`` are the sonames that the framework opens under names that it puts together itself.
    Symbol tables are cut off the objects of the distribution ``framework`` alone: others' files go whole or stay whole.
    So is machine code for other GPUs than those of the capabilities ``gpus`` (``"8.6"``), where some are named.
    """
    every = list(distributions(site))
    plan = _Needs(site, every, {omit.normal(name) for name in wished}, set(libraries))
    listed = []
    for dist in every:
        gone = plan.gone(dist)
        cut = list(_cuts(site, dist, gone, gpus)) if omit.normal(dist.name) == omit.normal(framework) else []
        if gone or cut:
            rows = list(_folded(dist, gone))
            listed.append({"name": omit.normal(dist.name), "version": dist.version, "left_out": rows, "cut": cut})
    return {
        "required": _required(site, every, omit.normal(framework)),
        "distributions": sorted(listed, key=lambda one: str(one["name"])),
    }


def distributions(site: str) -> Iterator[Dist]:
    """Yield every installed distribution with its RECORD."""
    for folder in sorted(os.listdir(site)):
        record = os.path.join(site, folder, "RECORD")
        if not folder.endswith(".dist-info") or not os.path.exists(record):
            continue
        name, _, version = folder[: -len(".dist-info")].partition("-")
        rows = {
            path: row
            for path, row in omit.read_record(record).items()
            if not path.endswith(".pyc") and os.path.exists(os.path.join(site, path))
        }
        starts = any(path.endswith((".pth", "entry_points.txt")) for path in rows)
        yield Dist(name, version, rows, starts)


class _Needs:
    """What is reached from what was asked for: distributions by imports, objects by needs and names."""

    def __init__(self, site: str, every: Sequence[Dist], wished: Set[str], libraries: Set[str]) -> None:
        self._site = site
        self._owner = {path: dist.name for dist in every for path in dist.rows}
        self._shared = {path for dist in every for path in dist.rows if self._owner[path] != dist.name}
        self._libraries = libraries
        self._contents = Contents()
        self._objects = {path: elf for path in self._owner for elf in [self._elf(path)] if elf is not None}
        self._texts = {dist.name: self._read(dist) for dist in every}
        self._dists = self._imported(every, wished)
        self._words = {word for name in self._dists for word in self._texts[name].words}
        self._kept = self._reached()
        self._dists |= {self._owner[path] for path in self._kept}

    def gone(self, dist: Dist) -> Dict[str, str]:
        """Say of a distribution's files which go, and why."""
        found = {}
        for path in dist.rows:
            if path.split("/")[0].endswith(".dist-info") or ".." in path or path in self._shared:
                continue
            why = UNIMPORTED if dist.name not in self._dists else self._why(path)
            if why:
                found[path] = why
        return found

    def _why(self, path: str) -> str:
        if path in self._objects:
            return "" if path in self._kept else UNNAMED
        if _FOR_COMPILERS.search(path):
            return COMPILERS
        return TESTS if self._is_test(path) else ""

    def _is_test(self, path: str) -> bool:
        """Tell a test that no module of the distribution itself imports; and what lies beside tests alone."""
        if not _TEST.search(path):
            return False
        folder, name = os.path.split(path)
        stem = os.path.basename(folder) if name == "__init__.py" else name.partition(".")[0]
        return stem not in self._words and not self._is_used(path)

    def _is_used(self, path: str) -> bool:
        """Tell whether a module in the same folder of tests is imported from outside: the folder stays then."""
        top = path.partition("tests/")[0] + "tests/"
        if not path.startswith(top):
            return False
        beside = (one for one in self._owner if one.startswith(top) and one.endswith(".py"))
        return any(os.path.basename(one)[:-3] in self._words - _EVERYWHERE for one in beside)

    def _elf(self, path: str) -> Optional[Elf]:
        place = os.path.join(self._site, path)
        if os.path.islink(place) or os.path.getsize(place) < 64:
            return None
        with open(place, "rb") as stream:
            if stream.read(4) != b"\x7fELF":
                return None
        try:
            return Elf(place)
        except NotElfError:
            return None

    def _read(self, dist: Dist) -> Texts:
        texts = Texts(set(), set(), [])
        for path in dist.rows:
            if not path.endswith(".py") or _TEST.search(path):
                continue
            with open(os.path.join(self._site, path), "rb") as stream:
                body = stream.read()
            texts.bodies.append(body)
            for named in _named(body):
                texts.words.update(word.decode() for word in _WORD.findall(named))
                if not named.startswith(b"."):
                    texts.tops.add(named.split(b".")[0].decode())
        return texts

    def _imported(self, every: Sequence[Dist], wished: Set[str]) -> Set[str]:
        tops: Dict[str, Set[str]] = {}
        for dist in every:
            for path in dist.rows:
                tops.setdefault(path.split("/")[0].partition(".")[0], set()).add(dist.name)
        waiting = [dist.name for dist in every if dist.starts or omit.normal(dist.name) in wished]
        found = set(waiting)
        while waiting:
            for top in self._texts[waiting.pop()].tops:
                new = tops.get(top, set()) - found
                found |= new
                waiting += new
        return found

    def _reached(self) -> Set[str]:
        """Follow needs and names from the modules that stay, and from the libraries that the framework opens."""
        kept = {path for path, elf in self._objects.items() if self._is_first(path, elf)}
        waiting = sorted(kept | {path for path in self._objects if path not in kept and self._is_in_text(path)})
        kept |= set(waiting)
        while waiting:
            path = waiting.pop()
            new = self._of_object(path, kept)
            kept |= new
            waiting += sorted(new)
        return kept

    def _is_in_text(self, path: str) -> bool:
        """Tell whether a module that stays names an object: of another distribution, with its ``.so``."""
        stem, owner = _stem(path), self._owner[path]
        for name in sorted(self._dists):
            wanted = stem if name == owner else stem + b".so"
            pattern = re.compile(rb"(?<![\w-])" + re.escape(wanted) + rb"(?![\w-])")
            if any(wanted in body and pattern.search(body) for body in self._texts[name].bodies):
                return True
        return False

    def _of_object(self, path: str, kept: Set[str]) -> Set[str]:
        """Find what an object needs, what it names, and what exports a function that it names."""
        elf = self._objects[path]
        left = {other: one for other, one in self._objects.items() if other not in kept}
        found = {other for other, one in left.items() if {one.soname, os.path.basename(other)} & set(elf.needed)}
        if not left.keys() - found:
            return found
        with open(elf.path, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            spans = list(_spans(elf, len(image)))
            words = {word for start, end in spans for word in _TOKEN.findall(image, start, end)}
        for other in left.keys() - found:
            if self._is_named(other, path, words):
                found.add(other)
        return found

    def _is_named(self, other: str, path: str, words: Set[bytes]) -> bool:
        """Tell whether the words of an object may open a library: its name, or functions that only it has.

        A library that is linked into an object is not opened by it for its functions, and its name without ``lib`` says
        nothing then: collectives, options and profiles are called after it.
        """
        stem, library = _stem(other), self._objects[other]
        if stem in words:
            return True
        if self._contents.functions(library) & words:
            return not any(self._contents.is_linked_in(library, one) for one in self._closure(path))
        others = (one for place, one in self._objects.items() if self._owner[place] in self._dists and place != other)
        bare = stem.startswith(b"lib") and stem[3:] in words
        return bare and not any(self._contents.is_linked_in(library, one) for one in others)

    def _closure(self, path: str) -> List[Elf]:
        """List an object and those that it needs, directly or not."""
        found, waiting = {path}, [path]
        while waiting:
            needed = set(self._objects[waiting.pop()].needed)
            new = {place for place, one in self._objects.items() if one.soname in needed} - found
            found |= new
            waiting += sorted(new)
        return [self._objects[place] for place in sorted(found)]

    def _is_first(self, path: str, elf: Elf) -> bool:
        if self._owner[path] not in self._dists and not self._libraries & {elf.soname or "", os.path.basename(path)}:
            return False
        if self._libraries & {elf.soname or "", os.path.basename(path)}:
            return True
        if _TEST.search(path):
            return False
        return _MODULE.search(path) is not None or os.path.basename(path).partition(".")[0] in self._words


_EVERYWHERE = {"__init__", "common", "util", "utils", "data", "conftest"}
"""Names that so many modules have that one in an import says nothing of a folder of tests."""


def _named(body: bytes) -> Iterator[bytes]:
    """Yield what a module's text imports, and every dotted name in it that may be a module's."""
    for source, what in _IMPORT.findall(body):
        if source:
            yield source
            for word in _WORD.findall(what):
                yield b"." + word
        else:
            yield from (part.strip().partition(b" ")[0] for part in what.split(b","))
    yield from _BY_NAME.findall(body)
    yield from _DOTTED.findall(body)


def _stem(path: str) -> bytes:
    """Return an object's name as others write it: up to ``.so``, or as it is for a program."""
    return re.split(r"\.(?:cpython-[\w-]+\.|abi3\.)?so\b", os.path.basename(path))[0].encode()


def _spans(elf: Elf, size: int) -> Iterator[Tuple[int, int]]:
    """Yield where in an object names may stand; all of it where it has no table of sections."""
    if not elf.sections:
        yield 0, size
    for name, (start, length) in elf.sections.items():
        if name and not _SKIPPED.match(name) and start + length <= size:
            yield start, start + length


def _cuts(site: str, dist: Dist, gone: Dict[str, str], gpus: Sequence[str]) -> Iterator[Dict[str, Any]]:
    for path, (digest, _) in sorted(dist.rows.items()):
        place = os.path.join(site, path)
        if path in gone or not re.search(r"\.so(?:\.[\d.]+)?\Z", path) or os.path.getsize(place) < WORTH:
            continue
        with open(place, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            thin, plain = thinned(image, gpus) if gpus else None, symbols_cut(image)
            edit = thin or plain
            if edit is not None:
                row = {
                    "path": path,
                    "size": len(image),
                    "digest": digest,
                    "left": edit.size,
                    "becomes": edit.digest(image),
                    "reason": SYMBOLS,
                }
                if thin is not None:
                    # Also where no byte goes: generated kernels leave zeros.
                    row["kernels"] = (plain.size if plain is not None else len(image)) - thin.size
                    row["gpus"] = list(gpus)
                yield row


def _folded(dist: Dist, gone: Dict[str, str]) -> Iterator[Dict[str, Any]]:
    """Write whole folders that go for one reason as one row each, the topmost such."""
    inside: Dict[str, Set[str]] = {}
    for path in dist.rows:
        why = gone.get(path, "")
        parts = path.split("/")
        for depth in range(1, len(parts)):
            inside.setdefault("/".join(parts[:depth]) + "/", set()).add(why)
    found: Dict[str, List[str]] = {}
    for path in sorted(gone):
        parts = path.split("/")
        folders = ("/".join(parts[:depth]) + "/" for depth in range(1, len(parts)))
        found.setdefault(next((one for one in folders if inside[one] == {gone[path]}), path), []).append(path)
    for top, paths in sorted(found.items()):
        yield {
            "path": top,
            "files": len(paths),
            "size": sum(int(dist.rows[path][1] or 0) for path in paths),
            "digest": omit.digest_of_rows((path, dist.rows[path][0]) for path in paths),
            "reason": gone[paths[0]],
        }


def _required(site: str, every: Sequence[Dist], framework: str) -> List[str]:
    """Name the installed distributions that the framework requires, directly or not, on any system, without extras."""
    needed = {}
    for dist in every:
        folder = omit.info_folder(site, dist.name, dist.version)
        with open(os.path.join(folder or "", "METADATA"), encoding="utf-8", errors="replace") as stream:
            head = stream.read().partition("\n\n")[0]
        needed[omit.normal(dist.name)] = {omit.normal(name) for name in _REQUIRES.findall(head)}
    found: Set[str] = set()
    waiting = [framework]
    while waiting:
        new = (needed.get(waiting.pop(), set()) & needed.keys()) - found
        found |= new
        waiting += sorted(new)
    return sorted(found - {framework})


def main(arguments: List[str]) -> int:
    """Print the list for the plan on the command line, as JSON."""
    plan = json.loads(arguments[0])
    print(json.dumps(derive(plan["site"], plan["wished"], plan["libraries"], plan["framework"], plan["gpus"])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
