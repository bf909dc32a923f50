"""Read the values that stand after labels: each kind of field has its own small grammar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from envbuilder.reproduce.report.gpu_names import GPU_IN_FIELD, count_around, systems
from envbuilder.reproduce.report.grammar import CUDNN, DRIVER, PYTHON, RELEASE, VERSION, tidy_gpu
from envbuilder.versions import major, numbers

_SOURCES = {"conda": "conda", "pip": "pip", "docker": "docker", "source": "source", "container": "docker"}
_ASIDE = re.compile(r"\([^)]{0,120}\)")

Found = Iterator[tuple[str, str, int]]
"""Fields, values, and how many of them are said to be there."""


def _plain(pattern: str, *, aside: bool = True) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.])v?({pattern})" if aside else pattern, re.ASCII | re.IGNORECASE)


_RELEASE, _PYTHON = _plain(RELEASE), _plain(PYTHON)
_PREFIXED_RELEASE = re.compile(rf"(?<![\w.])(?:r|v|tf|tensorflow)?v?[ -]?({RELEASE})", re.ASCII | re.IGNORECASE)
_ORIGIN = re.compile(rf"g[0-9a-f]{{7,12}}\S{{0,3}} ['\"]?({RELEASE})", re.ASCII)
_DESCRIBED = re.compile(r"\s{0,4}v[0-9.]{3,9}(?:-rc[0-9])?-[0-9]{1,7}-g[0-9a-f]{7,12}\s{0,4}\Z", re.ASCII)
"""What Git calls a build: after which release it was made, and not which it is."""

_DRIVER = _plain(DRIVER + r"|[2-9][0-9]{2}(?![0-9.])")
_NUMBER = re.compile(
    r"(?<![\w.+-])(?:v|V)?([0-9]{1,3}(?:\.[0-9]{1,3}){0,3})(?![0-9]|\.[0-9])(?! ?GB)(?:-[0-9])?", re.ASCII
)
_NAMED_CUDNN = re.compile(
    r"cu ?dnn[^0-9/]{0,16}([4-9](?:\.[0-9]{1,2}){0,3})(?![0-9]|\.[0-9])", re.IGNORECASE | re.ASCII
)
_NAMED_CUDA = re.compile(
    r"cuda(?!/)[^0-9/,;]{0,16}((?:[4-9]|1[0-5])(?:\.[0-9]{1,3}){0,2})(?![0-9]|\.[0-9])", re.IGNORECASE | re.ASCII
)
_BUILT_FOR = re.compile(r"\+cuda[0-9.]{2,6}")


def _tensorflow(_: str, value: str) -> Found:
    found = _ORIGIN.search(value) or (None if _DESCRIBED.match(value) else _PREFIXED_RELEASE.search(value))
    if found is not None:
        yield "tensorflow", found[1], 1


def _python(_: str, value: str) -> Found:
    found = _PYTHON.search(value)
    if found is not None:
        yield "python", found[1], 1


def _cuda(_: str, value: str) -> Found:
    yield from (row for row in _toolkit("cuda", value) if row[0] != "cudnn" or "dnn" in value.lower())


def _toolkit(_: str, value: str) -> Found:
    """Read "11.2/8.1", "CUDA 11.2, cuDNN 8.1", "10.2 and 7.6.5" or one number of either."""
    text = _ASIDE.sub(" ", _BUILT_FOR.sub("", value))
    named = {
        name: match[1]
        for name, match in (("cuda", _NAMED_CUDA.search(text)), ("cudnn", _NAMED_CUDNN.search(text)))
        if match
    }
    if named:
        yield from ((name, number, 1) for name, number in named.items())
        rest = [n for n in _NUMBER.findall(text) if n not in named.values()]
        other = "cudnn" if "cuda" in named else "cuda"
        if len(named) == 1 and rest and "/" in text and _looks(rest[0]) == other:
            yield other, rest[0], 1
        return
    numbers = _NUMBER.findall(text)[:2]
    kinds = [_looks(number) for number in numbers]
    if kinds and kinds[0] == "driver":
        yield "driver", numbers[0], 1
        return
    apart = bool({"/", ",", ";", "|", "&", "+"} & set(text)) or " and " in text
    if len(numbers) > 1 and apart:
        first, second = numbers
        swapped = major(first) < 10 <= major(second)  # noqa: PLR2004 - cuDNN has one digit
        yield "cuda", second if swapped else first, 1
        yield "cudnn", first if swapped else second, 1
    elif numbers:
        yield kinds[0], numbers[0], 1


def _looks(number: str) -> str:
    """Tell a lone number's kind by its shape: 7.6.5 and 8.4.1.50 are cuDNN's, 9.0.176 CUDA's, 460.32.03 a driver's."""
    parts = numbers(number)
    first_driver, cudnn_majors, smallest_cuda_build, parts_of_a_build = 200, range(5, 10), 27, 3
    if parts[0] >= first_driver:
        return "driver"
    if len(parts) > parts_of_a_build:
        return "cudnn"
    triple = len(parts) == parts_of_a_build and parts[0] in cudnn_majors
    return "cudnn" if triple and parts[2] < smallest_cuda_build else "cuda"


def _cudnn(_: str, value: str) -> Found:
    found = re.search(rf"(?<![\w.])v?({CUDNN}|[5-9](?![0-9.]))", _ASIDE.sub(" ", value), re.ASCII)
    if found is not None:
        yield "cudnn", found[1], 1


def _driver(_: str, value: str) -> Found:
    found = _DRIVER.search(value)
    if found is not None:
        yield "driver", found[1], 1


def _gpus(_: str, value: str) -> Found:
    for match in GPU_IN_FIELD.finditer(value[:200]):
        yield "gpus", tidy_gpu(match[0]), count_around(value, match.start(), match.end())


_KERNELS = {"linux": "linux", "windows": "windows", "darwin": "macos"}


def _os(_: str, value: str) -> Found:
    kernel = _KERNELS.get(value.strip(" \"',").lower())
    if kernel is not None or "linux" in value.lower():
        yield "platform", kernel or "linux", 1
    listed = value.startswith("(")
    system = systems(" ".join(re.sub(r"[('\",)]+", " ", value).split()) if listed else value)
    if system is not None:
        yield "os", system, 1


def _install(_: str, value: str) -> Found:
    lowered = value.lower()
    positions = {word: lowered.find(word) for word in _SOURCES if word in lowered}
    if positions:
        yield "install", _SOURCES[min(positions, key=lambda word: (word == "source", positions[word]))], 1
    yield from (row for row in _tensorflow("", value) if "tensorflow" in lowered)


def _image(_: str, value: str) -> Found:
    found = re.search(r"([a-z0-9][a-z0-9._/-]{2,80}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,80})", value, re.ASCII)
    if found is not None:
        yield "image", found[1], 1


def _arch(_: str, value: str) -> Found:
    found = re.search(r"\b(x86_64|aarch64|arm64|ppc64le)\b", value, re.ASCII)
    if found is not None:
        yield "arch", found[1], 1


def _capability(_: str, value: str) -> Found:
    found = re.search(r"(?<![\w.])([1-9][0-9]?\.[0-9])(?![0-9.])", value, re.ASCII)
    if found is not None:
        yield "compute_capabilities", found[1], 1


def _bazel(_: str, value: str) -> Found:
    """Who names the tool that builds TensorFlow may have built it."""
    if re.search(r"[0-9]\.[0-9]", value):
        yield "origin", "source", 1


def _package(target: str, value: str) -> Found:
    found = re.search(rf"(?<![\w.])({VERSION})", value, re.ASCII)
    if found is not None:
        yield target, found[1], 1


READERS: dict[str, Callable[[str, str], Found]] = {
    "tensorflow": _tensorflow, "python": _python, "cuda and cudnn": _toolkit, "cuda": _cuda, "cudnn": _cudnn,
    "driver": _driver, "gpus": _gpus, "os": _os, "install": _install, "image": _image, "arch": _arch,
    "compute_capabilities": _capability, "origin": _bazel, "packages": _package,
}  # fmt: skip
