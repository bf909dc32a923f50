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
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import module_texts, omit, spoken
from .linked_in import Contents
from .shorten import WORTH, symbols_cut
from .suite.elf import Elf, NotElfError

COMPILERS, TESTS, UNIMPORTED, UNNAMED, SYMBOLS = "compilers", "tests", "unimported", "unnamed", "symbols"
"""Why something goes: read by compilers alone; a package's own tests; a distribution that no other one imports and
nobody asked for; an object that nothing needs, names or imports; symbol tables that no loader reads."""

_FOR_COMPILERS = re.compile(
    r"(?:^|/)include/(?:.*/)?[^/]+(?<!\.py)(?<!\.so)\Z|\.(?:h|hh|hpp|hxx|cuh|inc|inl|c|cc|cpp|cxx|cu|td|pxd|pyx|a|o|lib|la|pc)\Z"
)
_TEST = re.compile(r"(?:^|/)tests/|_test\.py\Z")
_MODULE = re.compile(r"\.(?:cpython-\w+(?:-[\w-]+)?|abi3)\.so\Z")
_REQUIRES = re.compile(r"^Requires-Dist:[ \t]*([A-Za-z0-9][\w.-]*)(?!.*;.*\bextra\b)", re.MULTILINE)
"""What a distribution requires, but for what one of its extras brings."""


class Dist(NamedTuple):
    """One distribution: its name, version, RECORD, and whether it starts by itself (programs, ``.pth``)."""

    name: str
    version: str
    rows: Dict[str, Tuple[str, str]]
    starts: bool


def derive(site: str, wished: Iterable[str], libraries: Iterable[str], framework: str) -> Dict[str, Any]:
    """List what can go from the distributions in ``site``.

    ``wished`` are the distributions that were asked for by name: of these, and of everything that they import, every
    module stays. ``libraries`` are the sonames that the framework opens under names that it puts together itself.
    Symbol tables are cut off the objects of the distribution ``framework`` alone: others' files go whole or stay whole.
    """
    every = list(distributions(site))
    plan = _Needs(site, every, {omit.normal(name) for name in wished}, set(libraries))
    listed = []
    for dist in every:
        gone = plan.gone(dist)
        cut = list(_cuts(site, dist, gone)) if omit.normal(dist.name) == omit.normal(framework) else []
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
        self._names = {path: spoken.names(path, self._contents.functions(elf)) for path, elf in self._objects.items()}
        self._texts = {dist.name: self._read(dist) for dist in every}
        self._tests = self._used_tests(every)
        self._dists = self._imported(every, wished)
        self._words = {word for name in self._dists for word in self._texts[name].words}
        self._searched = {folder for path, elf in self._objects.items() for folder in self._folders(path, elf)}
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
        return TESTS if _TEST.search(path) and path not in self._tests else ""

    def _used_tests(self, every: Sequence[Dist]) -> Set[str]:
        """Find what stays of packages' tests: modules that are imported from elsewhere, and what these import and name.

        With a module stay the ``__init__.py`` on the way to it; what these say counts as any other module's text.
        """
        through = {word for texts in self._texts.values() for word in texts.through("tests")}
        words = {word for texts in self._texts.values() for word in texts.words}
        tests = {path: dist for dist in every for path in dist.rows if _TEST.search(path)}
        modules = (path for path in sorted(tests) if path.endswith(".py"))
        waiting = [path for path in modules if module_texts.module(path) in (through if "tests/" in path else words)]
        found = set(waiting)
        while waiting:
            path = waiting.pop()
            texts = self._texts[tests[path].name]
            said = self._body(path)
            named = texts.add(said)
            top = _TEST.split(path)[0]
            beside = [one for one in tests if one not in found and _TEST.split(one)[0] == top]
            new = {
                one
                for one in beside
                if one.endswith(".py") and (module_texts.module(one) in named or module_texts.is_above(one, path))
            }
            new |= {one for one in beside if not one.endswith(".py") and module_texts.is_mentioned(one, said)}
            found |= new
            waiting += sorted(one for one in new if one.endswith(".py"))
        return found

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

    def _read(self, dist: Dist) -> module_texts.Texts:
        texts = module_texts.Texts(set(), set(), [])
        for path in dist.rows:
            if not path.endswith(".py") or _TEST.search(path):
                continue
            texts.add(self._body(path))
        return texts

    def _body(self, path: str) -> bytes:
        with open(os.path.join(self._site, path), "rb") as stream:
            return stream.read()

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
        kept |= {path for path in self._objects if path not in kept and self._is_in_text(path)}
        every = frozenset(one for mine in self._names.values() for one in mine.pieces | mine.functions)
        patterns: Set[str] = set()
        said: Dict[str, FrozenSet[bytes]] = {}
        while True:
            for path in sorted(kept - said.keys()):
                said[path] = spoken.words(self._objects[path], every)
                patterns |= spoken.patterns(self._objects[path])
            left, together = self._objects.keys() - kept, frozenset().union(*said.values())
            new = {path for path in left if self._is_wanted(path, said, together) or spoken.is_like(path, patterns)}
            if not new:
                return kept
            kept |= new

    def _is_in_text(self, path: str) -> bool:
        """Tell whether a module that stays names an object (another's with ``.so``), or lists its folder."""
        names, owner = self._names[path], self._owner[path]
        for name in sorted(self._dists):
            if self._texts[name].names_object(names.stem if name == owner else names.stem + b".so", names.bare):
                return True
        folder = os.path.dirname(path)
        return any(self._texts[name].lists(folder) for name in sorted(self._dists))

    def _is_wanted(self, path: str, said: Dict[str, FrozenSet[bytes]], together: FrozenSet[bytes]) -> bool:
        """Tell whether anything that stays needs an object, or names it and could find it.

        ``said`` are the words of each object that stays, ``together`` those of all.
        Its name in full is enough. A name that may be put together is a weak word, of a library that offers functions,
        and so is a function's name, which may be another library's or be linked in: of these it takes both.
        """
        elf, names = self._objects[path], self._names[path]
        if any({elf.soname, os.path.basename(path)} & set(self._objects[one].needed) for one in said):
            return True
        if any(names.stem in words and self._is_found(path, one) for one, words in said.items()):
            return True
        if not names.can_be_made_of(together):
            return False
        if names.functions:
            callers = (one for one, words in said.items() if names.functions & words and self._is_found(path, one))
            return any(not self._is_linked_in(elf, self._closure(one)) for one in callers)
        namers = [one for one, words in said.items() if names.pieces & words and self._is_found(path, one)]
        others = [one for place, one in self._objects.items() if self._owner[place] in self._dists and place != path]
        return bool(namers) and not self._is_linked_in(elf, others)

    def _is_linked_in(self, library: Elf, objects: Iterable[Elf]) -> bool:
        return any(self._contents.is_linked_in(library, one) for one in objects)

    def _is_found(self, other: str, path: str) -> bool:
        """Tell whether an object that names a library could find it: beside it, where an object searches, by folder.

        A loader that is given a bare name looks in the folders of RUNPATH and RPATH and in its own; who puts a path
        together has the folder's name. A program is found in ways of its own.
        """
        folder = os.path.dirname(other)
        if ".so" not in os.path.basename(other) or self._owner[other] == self._owner[path]:
            return True
        if folder == os.path.dirname(path) or folder in self._searched:
            return True
        return spoken.has(self._objects[path], os.path.basename(folder))

    def _folders(self, path: str, elf: Elf) -> Iterator[str]:
        """Yield the folders of the site in which an object lets the loader look."""
        here = os.path.dirname(path)
        for one in elf.rpath + elf.runpath:
            yield os.path.normpath(re.sub(r"\$(?:ORIGIN|\{ORIGIN\})", here, one))

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


def _cuts(site: str, dist: Dist, gone: Dict[str, str]) -> Iterator[Dict[str, Any]]:
    for path, (digest, _) in sorted(dist.rows.items()):
        place = os.path.join(site, path)
        if path in gone or not re.search(r"\.so(?:\.[\d.]+)?\Z", path) or os.path.getsize(place) < WORTH:
            continue
        with open(place, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as image:
            edit = symbols_cut(image)
            if edit is not None:
                yield {
                    "path": path,
                    "size": len(image),
                    "digest": digest,
                    "left": edit.size,
                    "becomes": edit.digest(image),
                    "reason": SYMBOLS,
                }


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
    print(json.dumps(derive(plan["site"], plan["wished"], plan["libraries"], plan["framework"])))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
