"""Turn a user's words into a question: one strict grammar a field, and a message that says how to write it."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date

import msgspec

from envbuilder import versions
from envbuilder.compat.driver_text import driver_meant
from envbuilder.compat.question import Install, Question
from envbuilder.errors import UsageError
from envbuilder.versions import DOTTED, RELEASE

_MAJOR_OF_A_DRIVER = 100
"""Drivers have had three digits since 1999 or so; CUDA never had more than two."""

_NEWEST_CUDA = 40
_INTEGER_CUDNN = 4
"""``CUDNN_VERSION`` as an integer has at least so many digits: 8907 is 8.9.7, 90300 is 9.3.0."""


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """A question as typed; every field is checked by `question`."""

    tensorflow: str
    package: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    install: Install | None = None
    base_image: str | None = None
    os: str | None = None
    arch: str | None = None
    packages: tuple[str, ...] = ()
    numpy: str | None = None
    protobuf: str | None = None
    avx: bool = True
    as_of: str | None = None


class _Grammar(msgspec.Struct, frozen=True):
    option: str
    pattern: str
    like: str


_GRAMMARS: dict[str, _Grammar] = {
    "tensorflow": _Grammar("--tensorflow", RELEASE, "a release such as 2.20.0"),
    "python": _Grammar("--python", r"[23]\.[0-9]{1,2}(?:\.[0-9]{1,3})?", "a Python such as 3.11"),
    "cuda": _Grammar("--cuda", DOTTED, "a toolkit such as 12.5"),
    "cudnn": _Grammar("--cudnn", DOTTED, "a version such as 9.3 or 8.9.7"),
    "driver": _Grammar("--driver", rf"[Rr]?{DOTTED}", "a Linux driver such as 535.104.05, or a branch such as 535"),
    "gpus": _Grammar("--gpu", r"[A-Za-z0-9|][ -~®™\u00d7]{0,299}", "a GPU such as H100"),
    "capabilities": _Grammar("--compute-capability", r"[0-9]{1,2}\.[0-9]", "a compute capability such as 9.0"),
    "base_image": _Grammar("--base-image", r"[a-z0-9][A-Za-z0-9._/:@-]{0,255}", "an image reference"),
    "os": _Grammar("--os", r"[a-z0-9][a-z0-9.-]{0,63}", "a system such as debian-bookworm"),
    "packages": _Grammar("--with", rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}=={RELEASE}", "a pin such as numpy==2.0.0"),
    "numpy": _Grammar("--numpy", RELEASE, "a version such as 2.0.0"),
    "protobuf": _Grammar("--protobuf", RELEASE, "a version such as 4.25.3"),
    "as_of": _Grammar("--as-of", r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a day such as 2026-11-20"),
}


def question(words: Words) -> Question:
    """Check every word and make a question of them. Raises UsageError for the first that is not what it should be."""
    words = msgspec.structs.replace(words, **{name: _bare(getattr(words, name)) for name in _VERSIONS})
    if words.driver is not None:
        words = msgspec.structs.replace(words, driver=driver_meant(words.driver))
    for field, grammar in _GRAMMARS.items():
        value = getattr(words, field)
        for text in value if isinstance(value, tuple) else (value,):
            if text is not None:
                _check(text, grammar)
    for wrong in _CHECKS:
        if problem := wrong(words):
            raise UsageError(problem[0], hint=problem[1])
    pins = [f"{name}=={text}" for name, text in (("numpy", words.numpy), ("protobuf", words.protobuf)) if text]
    return Question(
        tensorflow=words.tensorflow,
        package=words.package,
        python=versions.minor(words.python) if words.python else None,
        cuda=words.cuda,
        cudnn=words.cudnn,
        driver=words.driver,
        gpus=words.gpus,
        capabilities=words.capabilities,
        install=words.install,
        base_image=words.base_image,
        os=words.os,
        arch=words.arch,
        packages=(*words.packages, *pins),
        avx=words.avx,
        as_of=words.as_of,
    )


_VERSIONS = ("tensorflow", "python", "cuda", "cudnn", "numpy", "protobuf")


def _bare(text: str | None) -> str | None:
    """Take away what tags and tools write before a number: ``v2.18.1``, nvcc's ``V12.5.82``."""
    return re.sub(r"^[vV](?=[0-9])", "", text) if text is not None else None


def _check(text: str, grammar: _Grammar) -> None:
    if not re.fullmatch(grammar.pattern, text):
        raise UsageError(f"{grammar.option} {text!r} is not {grammar.like}", hint="see `envbuilder check --help`")


_Problem = tuple[str, str] | None


def _driver(words: Words) -> _Problem:
    if words.driver is None or versions.major(words.driver.lstrip("Rr")) >= _MAJOR_OF_A_DRIVER:
        return None
    hint = "nvidia-smi prints it as Driver Version; its CUDA Version is the newest CUDA that the driver brings"
    return f"--driver {words.driver} looks like a CUDA version, not like a driver", hint


def _cuda(words: Words) -> _Problem:
    if words.cuda is None or versions.major(words.cuda) <= _NEWEST_CUDA:
        return None
    return f"--cuda {words.cuda} looks like a driver, not like a toolkit", "give a driver with --driver"


def _cudnn(words: Words) -> _Problem:
    if words.cudnn is None or versions.names_line(words.cudnn) or len(words.cudnn) < _INTEGER_CUDNN:
        return None
    number = versions.major(words.cudnn)
    step = 10_000 if number >= 10 * 9_000 else 1_000
    dotted = f"{number // step}.{number % step // 100}.{number % 100}"
    return f"--cudnn {words.cudnn} is the library's integer", f"write --cudnn {dotted}"


def _as_of(words: Words) -> _Problem:
    if words.as_of is None:
        return None
    try:
        date.fromisoformat(words.as_of)
    except ValueError:
        return f"--as-of {words.as_of} is no day of the calendar", "write it as 2026-11-20"
    return None


_CHECKS: tuple[Callable[[Words], _Problem], ...] = (_driver, _cuda, _cudnn, _as_of)
"""Mistakes that a grammar lets through."""
