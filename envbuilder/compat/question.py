"""A question about one combination, and the strict reading of the options that ask it."""

import re
from datetime import date
from typing import Literal

import msgspec

from envbuilder import versions
from envbuilder.errors import UsageError
from envbuilder.versions import DOTTED, RELEASE, SPEC

Install = Literal["and-cuda", "plain", "system"]


class Question(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One combination in the user's words; None is "choose for me".

    - ``tensorflow``: a version, ``latest``, a range such as ``~=2.19``; '' is the newest that works.
    - ``beside``: further distributions of TensorFlow that were installed before ``package``, in this order.
    - ``os``: a system of the catalogue, or ``windows``, ``wsl2``, ``macos``.
    - ``gpus``: names in any vendor form; ``capabilities``: compute capabilities (``"9.0"``) without a name.
    - ``install``: ``and-cuda`` (the extra, unpinned), ``plain`` (the package alone, unpinned), ``system`` (CUDA from
      the system); None: every package is pinned to the versions of the build.
    - ``packages``: exact pins such as ``numpy==2.0.0``; ``avx``: False for a processor without it.
    - ``as_of``: the day (``2026-11-20``) of the installation; ``driver``: a release, or a branch alone (``535``).
    - ``arch``: None is the architecture that the GPUs require, else x86_64; ``gpu``: False if no GPU is to be used.
    - ``compat``: False if CUDA's forward-compatibility package is not available, as in images built here.
    """

    tensorflow: str = ""
    package: str | None = None
    beside: tuple[str, ...] = ()
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
    avx: bool = True
    as_of: str | None = None
    gpu: bool = True
    compat: bool | None = None


class QuestionOptions(Question, frozen=True, kw_only=True):
    """A question as typed, with pins of two packages in options of their own; `question` checks every field."""

    numpy: str | None = None
    protobuf: str | None = None


_GRAMMARS: dict[str, tuple[str, str, str]] = {
    "tensorflow": ("--tensorflow", rf"|{SPEC}", "a release such as 2.20.0, latest, or a range such as ~=2.19"),
    "python": ("--python", r"[23]\.[0-9]{1,2}(?:\.[0-9]{1,3})?", "a Python such as 3.11"),
    "cuda": ("--cuda", DOTTED, "a toolkit such as 12.5"),
    "cudnn": ("--cudnn", DOTTED, "a version such as 9.3 or 8.9.7"),
    "driver": ("--driver", rf"[Rr]?{DOTTED}", "a Linux driver such as 535.104.05, or a branch such as 535"),
    "gpus": ("--gpu", r"[A-Za-z0-9|][ -~®™\u00d7]{0,299}", "a GPU such as H100"),
    "capabilities": ("--compute-capability", r"[0-9]{1,2}\.[0-9]", "a compute capability such as 9.0"),
    "base_image": ("--base-image", r"[a-z0-9][A-Za-z0-9._/:@-]{0,255}", "an image reference"),
    "os": ("--os", r"[a-z0-9][a-z0-9.-]{0,63}", "a system such as debian-bookworm"),
    "packages": ("--with", rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}=={RELEASE}", "a pin such as numpy==2.0.0"),
    "numpy": ("--numpy", RELEASE, "a version such as 2.0.0"),
    "protobuf": ("--protobuf", RELEASE, "a version such as 4.25.3"),
    "as_of": ("--as-of", r"[0-9]{4}-[0-9]{2}-[0-9]{2}", "a day such as 2026-11-20"),
}
"""Of each field its option, its expression and an example."""


def question(options: QuestionOptions) -> Question:
    """Check the options and make a question. Raises UsageError for the first wrong one."""
    versioned = {name: text for name in _VERSIONS if (text := getattr(options, name)) is not None}
    bare = {name: re.sub(r"^[vV](?=[0-9])", "", text) for name, text in versioned.items()}  # v2.18.1, nvcc's V12.5.82
    driver = driver_in(options.driver) if options.driver is not None else None
    options = msgspec.structs.replace(options, driver=driver, **bare)
    for field, (option, pattern, example) in _GRAMMARS.items():
        value = getattr(options, field)
        for text in value if isinstance(value, tuple) else (value,):
            if text is not None and not re.fullmatch(pattern, text):
                raise UsageError(f"{option} {text!r} is not {example}", hint="add --help for examples")
    if problem := _mistake(options):
        raise UsageError(problem[0], hint=problem[1])
    pins = (("numpy", options.numpy), ("protobuf", options.protobuf))
    fields = {name: getattr(options, name) for name in Question.__struct_fields__} | {
        "python": versions.minor(options.python) if options.python else None,
        "packages": (*options.packages, *(f"{name}=={version}" for name, version in pins if version)),
    }
    return Question(**fields)


_VERSIONS = ("tensorflow", "python", "cuda", "cudnn", "numpy", "protobuf")

_FIRST_DRIVER, _LAST_CUDA = 100, 40
"""Drivers have had three digits since about 1999; CUDA never had more than two."""


def _mistake(options: QuestionOptions) -> tuple[str, str] | None:
    """Return a mistake that the grammars admit, and a hint."""
    driver, cuda, cudnn, day = options.driver, options.cuda, options.cudnn, options.as_of
    if driver is not None and versions.major(driver.lstrip("Rr")) < _FIRST_DRIVER:
        hint = "nvidia-smi prints it as Driver Version; its CUDA Version is the newest CUDA that the driver supports"
        return f"--driver {driver} looks like a CUDA version, not like a driver", hint
    if cuda is not None and versions.major(cuda) > _LAST_CUDA:
        return f"--cuda {cuda} looks like a driver, not like a toolkit", "give a driver with --driver"
    if cudnn is not None and re.fullmatch("[0-9]{4,}", cudnn):
        return f"--cudnn {cudnn} is the library's integer", f"write --cudnn {cudnn_of_number(cudnn)}"
    try:
        date.fromisoformat(day or "2000-01-01")
    except ValueError:
        return f"--as-of {day} is not a valid date", "write it as 2026-11-20"
    return None


def cudnn_of_number(text: str) -> str:
    """Decode cuDNN's integer version: 8204 is 8.2.4, 90300 is 9.3.0."""
    number, big = int(text), 10_000
    factor = big if number >= big else 1_000
    return f"{number // factor}.{number % factor // 100}.{number % 100}"


_SMI = re.compile(r"driver version:?\s*(\d{3,4}\.[\d.]*\d)", re.IGNORECASE)
"""In the output of ``nvidia-smi``. The number before it is the program's own and may differ."""

_WINDOWS = re.compile(r"(?<![\d.])\d{2}\.\d{1,2}\.\d(\d)\.(\d{4})(?![\d.])")
"""Windows' own number: its last five digits are the driver's, so ``31.0.15.3742`` is 537.42."""

_RELEASE = re.compile(r"(?<![\d.])(\d{3,4}(?:\.\d{1,3}){1,2})(?!\.?\d)")
_BRANCH = re.compile(r"(?<![\d.Rr])[Rr]?(\d{3,4})(?:\.(?:x+|\*|xx\.xx)?)?(?![\d.])", re.IGNORECASE)


def driver_in(text: str) -> str:
    """Return the driver or branch that a text names; the text itself if it names none, or several.

    ``535.104.05``, ``R535``, ``nvidia-driver-535-server``, ``535.x``, ``535.104.05-0ubuntu1``, a line of nvidia-smi or
    of /proc/driver/nvidia/version.
    """
    printed = _SMI.search(text)
    if printed:
        return printed[1]
    windows = {f"{digits[:3]}.{digits[3:]}" for one in _WINDOWS.findall(text) if (digits := "".join(one))}
    named = windows or set(_RELEASE.findall(text)) or set(_BRANCH.findall(text))
    return named.pop() if len(named) == 1 else text
