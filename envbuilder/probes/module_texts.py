"""What Python's modules say of other modules: every import in their texts, lazy ones and names among them.

Texts are read, never run. What may be an import counts as one.
"""

from __future__ import annotations

import os
import re
from typing import Iterator, List, NamedTuple, Set

_IMPORT = re.compile(rb"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+)?import[ \t]+(\([^)]*\)|[^\n;#]+)", re.MULTILINE)
_BY_NAME = re.compile(rb"""(?:import_module|__import__|find_spec|LazyLoader)\([^()]*?['"]([\w.]+)['"]\s*[,)]""")
_DOTTED = re.compile(rb"""['"]((?:\w+\.)+\w+)['"]""")
_WORD = re.compile(rb"\w+")
_LISTING = re.compile(rb"\b(?:listdir|scandir|iterdir|r?glob|walk|load_library|ListDirectory)\b")
"""How a module finds what is in a folder without its name."""
_OPENING = re.compile(rb"\b(?:CDLL|PyDLL|LoadLibrary|cdll|dlopen)\b")
"""How a module opens a shared object, whose name it may have put together."""


class Texts(NamedTuple):
    """What modules say together: top-level names that they import, every word of their imports, and their text."""

    tops: Set[str]
    words: Set[str]
    bodies: List[bytes]

    def add(self, body: bytes) -> Set[str]:
        """Add what a module says; return the words of its imports."""
        self.bodies.append(body)
        words: Set[str] = set()
        for named in _named(body):
            words.update(word.decode() for word in _WORD.findall(named))
            if not named.startswith(b"."):
                self.tops.add(named.split(b".")[0].decode())
        self.words.update(words)
        return words

    def names_object(self, name: bytes, bare: bytes) -> bool:
        """Tell whether a module has a shared object's ``name``, or its ``bare`` one where it opens such itself."""
        whole = re.compile(rb"(?<![\w-])" + re.escape(name) + rb"(?![\w-])")
        quoted = re.compile(rb"""['"]""" + re.escape(bare) + rb"""['"]""")
        return any(
            (name in body and whole.search(body)) or (bare in body and quoted.search(body) and _OPENING.search(body))
            for body in self.bodies
        )

    def lists(self, folder: str) -> bool:
        """Tell whether a module lists folders and has the last two parts of this one's path, joined or to be joined."""
        parts = [part.encode() for part in folder.split("/")[-2:]]
        joined = rb"""['"]?[\s,/]{1,8}['"]?""".join(map(re.escape, parts))
        path = re.compile(rb"""['"/]""" + joined + rb"""/?['"]""")
        return any(parts[-1] in body and path.search(body) and _LISTING.search(body) for body in self.bodies)

    def through(self, folder: str) -> Set[str]:
        """Return the words of imports, and of dotted names, that lead through a folder of that name."""
        bodies = (body for body in self.bodies if folder.encode() in body)
        return {word for body in bodies for words in _sentences(body) if folder in words for word in words}


def _sentences(body: bytes) -> Iterator[Set[str]]:
    """Yield the words of each import of a module, and of every dotted name in it that may be a module's."""
    imports = (source + b"." + what for source, what in _IMPORT.findall(body))
    for text in (*imports, *_BY_NAME.findall(body), *_DOTTED.findall(body)):
        yield {word.decode() for word in _WORD.findall(text)}


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


def module(path: str) -> str:
    """Return what an import calls a file: its own name, or its folder's for what begins a package."""
    folder, name = os.path.split(path)
    return os.path.basename(folder) if name == "__init__.py" else name.partition(".")[0]


def is_above(path: str, other: str) -> bool:
    """Tell whether a file begins a package on the way to another."""
    folder, name = os.path.split(path)
    return name == "__init__.py" and other.startswith(folder + "/")


def is_mentioned(path: str, body: bytes) -> bool:
    """Tell whether a module's text has the name of a file, or of the folder that it lies in."""
    folder, name = os.path.split(path)
    words = {name.partition(".")[0].encode(), os.path.basename(folder).encode()}
    return any(re.search(rb"(?<!\w)" + re.escape(word) + rb"(?!\w)", body) for word in words if word)
