"""Judge what an image's variables do to its Python: values that it refuses, or that lead it astray or slow it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping

from envbuilder.finding import Code, Finding
from envbuilder.validation.outside import Outside, error, warning

_ELSEWHERE = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE", "PYTHONUSERBASE")
_CHANGED = ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONVERBOSE", "PYTHONTRACEMALLOC")
_ALLOCATORS = frozenset(
    ("default", "debug", "malloc", "malloc_debug", "pymalloc", "pymalloc_debug", "mimalloc", "mimalloc_debug")
)
_LEAST_DIGITS = 640
"""The least limit on the digits of a number that Python takes, but for none at all."""


def bad(name: str, text: str, fix: str = "") -> Finding:
    """Return the finding that a variable, or what it names, breaks the image."""
    return error(Code.IMAGE_CONFIGURATION, name, text, fix=fix or f"leave {name} out of the image")


def odd(name: str, text: str) -> Finding:
    """Return the finding that a variable changes what every program of the image does, and breaks nothing."""
    return warning(Code.IMAGE_CONFIGURATION, name, text, fix=f"leave {name} out of the image")


def shown(text: str) -> str:
    """Write what an image says so that it fits a line of ours."""
    return text.encode("unicode_escape").decode()[:80]


def _number(value: str, least: int, most: int) -> bool:
    return value.isdecimal() and len(value) < 12 and least <= int(value) <= most  # noqa: PLR2004 - digits of 2^32, and more


def _encoding(value: str) -> bool:
    name = value.partition(":")[0]
    try:
        return not name or bool(codecs.lookup(name))
    except (LookupError, ValueError):
        return False


_TAKEN: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "PYTHONHASHSEED": (
        lambda value: value == "random" or _number(value, 0, (1 << 32) - 1),
        "neither random nor a number below 2^32",
    ),
    "PYTHONMALLOC": (lambda value: value in _ALLOCATORS, "no allocator of Python's"),
    "PYTHONUTF8": (lambda value: value in ("0", "1"), "neither 0 nor 1"),
    "PYTHONTRACEMALLOC": (lambda value: _number(value, 0, 65535), "no number of frames"),
    "PYTHONINTMAXSTRDIGITS": (
        lambda value: value == "0" or _number(value, _LEAST_DIGITS, (1 << 31) - 1),
        f"neither 0 nor a number from {_LEAST_DIGITS} on",
    ),
    "PYTHONIOENCODING": (_encoding, "no encoding"),
}
"""Variables whose value Python must take to start at all (tried with 3.11), and what any other value is."""


def python(subject: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find variables with which Python does not start, looks elsewhere for code, or runs otherwise than tried."""
    for name in _ELSEWHERE:
        if env.get(name):
            yield bad(name, f"{name} sends Python elsewhere for its own files")
    refused = {name for name, (takes, _) in _TAKEN.items() if env.get(name) and not takes(env[name])}
    for name in sorted(refused):
        yield bad(name, f"{name} is {_TAKEN[name][1]}: Python does not start")
    if re.search(r"(?:^|,)error(?::|,|$)", env.get("PYTHONWARNINGS", "")):
        yield bad("PYTHONWARNINGS", "PYTHONWARNINGS turns warnings into errors: TensorFlow's own imports warn")
    if env.get("PYTHONOPTIMIZE", "0") not in ("", "0", "1"):
        yield bad("PYTHONOPTIMIZE", "PYTHONOPTIMIZE takes the docstrings away: TensorFlow's own import needs them")
    elif env.get("PYTHONOPTIMIZE"):
        yield odd("PYTHONOPTIMIZE", "PYTHONOPTIMIZE changes how every Python of the image runs")
    for name in _CHANGED:
        if env.get(name) and name not in refused:
            yield odd(name, f"{name} changes how every Python of the image runs")
    yield from _byte_code(subject, env.get("PYTHONPYCACHEPREFIX", ""))


def _byte_code(subject: Outside, prefix: str) -> Iterator[Finding]:
    """Find byte code in the place of the sources': Python runs it wherever its header fits."""
    folder = subject.files.resolve(prefix) if prefix.startswith("/") else ""
    if folder and any(path.startswith(f"{folder}/") and path.endswith(".pyc") for path in subject.files.paths):
        text = f"PYTHONPYCACHEPREFIX has Python run the byte code in {shown(prefix)} in the place of its sources"
        yield bad("PYTHONPYCACHEPREFIX", text)
    elif prefix:
        yield odd("PYTHONPYCACHEPREFIX", f"PYTHONPYCACHEPREFIX has Python look for byte code in {shown(prefix)}")
