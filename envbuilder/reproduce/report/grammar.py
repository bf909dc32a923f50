"""Strict grammars for all values that are taken from a report."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from envbuilder.reproduce.report.gpu_names import MAKER
from envbuilder.versions import line, major, numbers

RELEASE = (
    r"[0-3]\.[0-9]{1,3}(?:\.[0-9]{1,3})?"
    r"(?:[-._]?(?:rc|alpha|beta|dev|post|a|b)[-.]?[0-9]{0,10})?(?:\+[a-z0-9]{1,8}(?:\.[0-9]{1,4}){0,2})?"
    r"(?![0-9A-Za-z])(?!\.[0-9])"
)
"""A TensorFlow release without the leading v."""

TOOLKIT = r"(?:[4-9]|1[0-5])\.[0-9]{1,2}(?:\.[0-9]{1,3})?(?![0-9])"
CUDNN = r"[4-9]\.[0-9]{1,2}(?:\.[0-9]{1,2}){0,2}(?![0-9])"
PYTHON = r"(?:2\.[67]|3\.[0-9]{1,2})(?:\.[0-9]{1,2})?(?![0-9])"
DRIVER = r"[2-9][0-9]{2}(?:\.[0-9]{1,3}){1,2}(?![0-9.])"
PACKAGE = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
VERSION = r"[0-9][A-Za-z0-9]{0,12}(?:[.+!_-][A-Za-z0-9]{1,24}){0,7}"

_FIELDS: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern + r"\Z", re.ASCII)
    for name, pattern in {
        "tensorflow": RELEASE,
        "distribution": r"(?:tensorflow|tf)[a-z0-9-]{0,30}",
        "build": r"gpu|cpu",
        "python": PYTHON,
        "cuda": r"(?:[4-9]|1[0-5])(?:\.[0-9]{1,3}){0,2}",
        "cudnn": r"[4-9](?:\.[0-9]{1,3}){0,3}",
        "driver": r"[2-9][0-9]{2}(?:\.[0-9]{1,3}){0,2}",
        "driver_cuda": r"(?:[4-9]|1[0-5])\.[0-9]{1,2}",
        "gpus": r"[A-Za-z0-9][A-Za-z0-9 .+()/-]{0,63}",
        "compute_capabilities": r"[1-9][0-9]?\.[0-9]",
        "os": r"[A-Za-z0-9][A-Za-z0-9 .,+!_()/-]{0,79}",
        "platform": r"linux|windows|macos",
        "arch": r"x86_64|aarch64|arm64|ppc64le|i686|armv7l",
        "install": r"pip|conda|docker|source",
        "origin": r"tfjs|jetson|nvidia|conda|source|library|jax|third-party",
        "image": r"[a-z0-9][a-z0-9._/-]{0,99}:[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}",
    }.items()
}
_PACKAGE = re.compile(PACKAGE + r"\Z", re.ASCII)
_VERSION = re.compile(VERSION + r"\Z", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z0-9_=.,:;/~+ -]{0,1000}\Z", re.ASCII)

VARIABLES = (
    "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_DISABLE_REQUIRE",
    "LD_LIBRARY_PATH", "CUDA_CACHE_PATH", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_DISABLE", "CUDA_MODULE_LOADING",
    "CUDA_FORCE_PTX_JIT", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_GPU_ALLOCATOR", "TF_CUDNN_USE_AUTOTUNE", "TF_XLA_FLAGS",
    "XLA_FLAGS", "TF_USE_LEGACY_KERAS", "TF_ENABLE_ONEDNN_OPTS", "TF_CPP_MIN_LOG_LEVEL", "TF_CPP_MAX_VLOG_LEVEL",
    "HERMETIC_CUDA_VERSION", "HERMETIC_CUDNN_VERSION",
)  # fmt: skip
"""Environment variables that affect which libraries TensorFlow finds, and what it compiles or allocates."""


@lru_cache(maxsize=16_384)
def fits(field: str, value: str) -> bool:
    """Return True if a value is valid for this field."""
    kind, _, name = field.partition(".")
    if kind == "packages":
        return _PACKAGE.match(name) is not None and _VERSION.match(value) is not None
    if kind == "environment":
        return name in VARIABLES and _VARIABLE.match(value) is not None
    if kind == "built":
        return name in {"cuda", "cudnn"} and _FIELDS[name].match(value) is not None
    return _FIELDS[kind].match(value) is not None and _plausible(kind, value)


def _plausible(kind: str, value: str) -> bool:
    """Reject well-formed versions that were never released, such as Python 3.68."""
    newest_python_minor = 20
    return kind != "python" or numbers(value)[:1] != (3,) or numbers(value)[1:2] <= (newest_python_minor,)


def _cudnn_of_number(text: str) -> str:
    """Decode cuDNN's integer version: 8204 is 8.2.4, 90300 is 9.3.0."""
    number, big = int(text), 10_000
    factor = big if number >= big else 1_000
    return f"{number // factor}.{number % factor // 100}.{number % 100}"


def _cuda_of_soname(text: str) -> str:
    """Return the CUDA version of a libcudart file name: 10.1 is exact, 11.0 is any 11, 12 any 12."""
    names_the_major_from = 11
    return str(major(text)) if major(text) >= names_the_major_from else line(text)


def _cuda_of_dll(text: str) -> str:
    """Decode the suffix of DLLs: 101 is CUDA 10.1, 110 is any 11, 12 any 12."""
    two_digits = 2
    if len(text) <= two_digits:
        return f"{text[0]}.{text[1]}" if text[0] != "1" else text
    return "11" if text.startswith("11") else f"{text[:-1]}.{text[-1]}"


def _python_of_digits(text: str) -> str:
    """Decode a Python tag: 38 is 3.8, 311 is 3.11."""
    return f"{text[0]}.{text[1:]}"


def _gpu(text: str) -> str:
    return tidy_gpu(text)


CONVERSIONS: dict[str, tuple[str, Callable[[str], str]]] = {
    "cudnn_number": ("cudnn", _cudnn_of_number),
    "cuda_soname": ("cuda", _cuda_of_soname),
    "cuda_dll": ("cuda", _cuda_of_dll),
    "python_digits": ("python", _python_of_digits),
    "python_parts": ("python", lambda text: ".".join(re.findall(r"[0-9]+", text))),
    "built_cuda": ("built.cuda", str),
    "built_cudnn": ("built.cudnn", str),
    "built_dll": ("built.cuda", lambda text: f"{text[:-1]}.{text[-1]}"),
    "capability": ("compute_capabilities", str),
    "capability_parts": ("compute_capabilities", lambda text: ".".join(re.findall(r"[0-9]+", text))),
    "numpy": ("packages.numpy", str),
    "protobuf": ("packages.protobuf", str),
    "keras": ("packages.keras", str),
    "gpu": ("gpus", _gpu),
    "installer": ("install", str.lower),
    "win": ("platform", lambda _: "windows"),
    "mac": ("platform", lambda _: "macos"),
    "lin": ("platform", lambda _: "linux"),
}
"""Expression groups that are not fields: the field, and its conversion."""

_SPELLINGS = (
    (re.compile(rf"^(?:{MAKER}|Graphics Card)[ :-]+", re.IGNORECASE), ""),
    (re.compile(r"geforce[ -]?", re.IGNORECASE), "GeForce "),
    (re.compile(r"\b(RTX|GTX|GT|MX)[ -]?(?=[0-9])", re.IGNORECASE), lambda m: m[1].upper() + " "),
    (re.compile(r"(?<=[0-9]) ?ti\b", re.IGNORECASE), " Ti"),
    (re.compile(r"(?<=[0-9i]) ?super\b", re.IGNORECASE), " SUPER"),
    (re.compile(r"\btesla[ -]", re.IGNORECASE), "Tesla "),
    (re.compile(r"\btitan\b", re.IGNORECASE), "TITAN"),
    (re.compile(r"\bquadro[ -]", re.IGNORECASE), "Quadro "),
    (re.compile(r" {2,}"), " "),
)


@lru_cache(maxsize=4_096)
def tidy_gpu(text: str) -> str:
    """Normalise a GPU name: ``nvidia rtx3090ti`` becomes ``RTX 3090 Ti``."""
    text = text.strip(" ,;|")
    text = text if text.endswith("...") else text.rstrip(".")
    for pattern, replacement in _SPELLINGS:
        text = pattern.sub(replacement, text)
    short = re.fullmatch(r"(?:[ahlvpktb][0-9]{1,3}[a-z]?)", text.strip())
    return (text.upper() if short else text).strip()
