"""The grammar of reports (grammar.yaml): how values are written, how each is checked, and its normal form."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache

import msgspec

from envbuilder.compat.question import Install, cudnn_of_number
from envbuilder.versions import at_least, is_prefix, key_or_none, line, minor, numbers, same_major
from envbuilder.workspace import packaged_yaml


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    field: str
    begins: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()


class OldRelease(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Releases before the catalogue: what they were built with, and a published image of the last one."""

    first: str
    last: str
    cuda: str
    cudnn: str
    capability: str
    driver: str
    python: str
    tag: str
    pythons: str
    wheels: tuple[str, ...]

    def wheel(self, version: str) -> str:
        """Return the release of the index that a version means: itself, or the newest of its minor line."""
        of_line = [one for one in self.wheels if minor(one) == minor(version)]
        return version if version in of_line else of_line[0]

    @property
    def newest(self) -> str:
        return self.tag.partition("-")[0]

    def image_tag(self, version: str, python: str | None) -> str:
        tag = self.tag if version == self.newest else f"{minor(version)}.0-gpu-py3"
        return tag.removesuffix("-py3") if is_prefix("2", python or "3") else tag


class OpenQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    missing: str | tuple[str, ...]
    ask: tuple[str, ...]
    fix: str | tuple[str, ...] = ""


class Grammar(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    parts: dict[str, str | tuple[str, ...]]
    fields: dict[str, str]
    conversions: dict[str, tuple[str, str]]
    spellings: dict[str, tuple[tuple[str, str], ...]]
    cleaning: dict[str, tuple[tuple[str, str], ...]]
    labels: tuple[Label, ...]
    titles: dict[str, str]
    answers: dict[str, tuple[str, ...]]
    complaints: dict[str, tuple[str, ...]]
    translations: dict[str, str]
    mentions: dict[str, tuple[str, ...]]
    phrases: dict[str, tuple[str, ...]]
    traces: dict[str, str]
    distributions: dict[str, tuple[str, ...]]
    labelled_packages: tuple[str, ...]
    shared_packages: tuple[str, ...]
    known_packages: tuple[str, ...]
    log_lines: dict[str, tuple[str, str]]
    before_catalogue: tuple[OldRelease, ...]
    old_toolkits: dict[str, str]
    went_on: dict[str, tuple[str, ...]]
    starting: tuple[str, ...]
    of_environments: tuple[str, ...]
    published_tags: dict[str, str]
    images: dict[str, str]
    companions: dict[str, dict[str, str]]
    toolkit_paths: dict[str, str]
    open_questions: dict[str, OpenQuestion]
    ask: dict[str, str]
    facts: dict[str, tuple[str, ...]]
    startup_commands: dict[str, str]
    forms: dict[str, str]
    not_asked: dict[str, tuple[str, ...]]
    told_apart: tuple[str, ...]
    installs: dict[str, Install | None]
    means: dict[str, tuple[str, ...]]
    other_complaints: dict[str, dict[str, str]]
    not_served: tuple[str, ...]
    contradicted: dict[str, tuple[str, ...]]
    needs: dict[str, str]
    openings: dict[str, str]

    def open_question(self, complaints: tuple[str, ...]) -> OpenQuestion:
        return next((row for name, row in self.open_questions.items() if name in complaints or not name))


GRAMMAR = packaged_yaml("reproduce/grammar.yaml", Grammar)


def old_release(version: str | None) -> OldRelease | None:
    if version is None or key_or_none(version) is None:
        return None
    rows = GRAMMAR.before_catalogue
    return next((row for row in rows if at_least(version, row.first) and at_least(row.last, version)), None)


def old_by(*, cuda: str | None = None, cudnn: str | None = None) -> OldRelease | None:
    """Return the newest releases before the catalogue that open this CUDA or cuDNN; of one CUDA, those of the cuDNN."""
    rows = [row for row in GRAMMAR.before_catalogue if cuda is None or is_prefix(line(cuda), row.cuda)]
    same = [row for row in rows if cudnn is not None and same_major(row.cudnn, cudnn)]
    return next(iter(same or (rows if cuda is not None else ())), None)


_CUDA_FILE = re.compile(r"cudart|cublas|cufft|curand|cusolver|cusparse")


def old_by_files(names: list[str], cudnn: str | None = None) -> OldRelease | None:
    """Return the newest releases before the catalogue that open files of these names, as no other releases do."""
    by_cudnn = next((number_of_file(name) for name in names if "cudnn" in name), "")
    by_cudnn = by_cudnn if by_cudnn[:1] in {"5", "6"} else ""  # no release of the catalogue opens these
    by_cuda = next((number_of_file(name) for name in names if _CUDA_FILE.search(name)), "")
    if by_cuda:
        return old_by(cuda=by_cuda, cudnn=by_cudnn or cudnn) if "." in by_cuda else None
    return old_by(cudnn=by_cudnn) if by_cudnn else None


def number_of_file(name: str) -> str:
    """Return the version in a library's file name: ``libcublas.so.9.0`` and ``cublas64_90.dll`` are 9.0."""
    number = respelt(name, "file")
    return number if key_or_none(number) is not None else ""


_NAME = re.compile(r"%([A-Z_]+)%")


def expression(text: str) -> str:
    """Replace every %NAME% by its expression. Raises KeyError for an unknown name."""
    while match := _NAME.search(text):
        part = GRAMMAR.parts[match[1]]
        text = text.replace(match[0], part if isinstance(part, str) else "|".join(part))
    return text


@cache
def pattern(text: str, *, any_case: bool = False) -> re.Pattern[str]:
    return re.compile(expression(text), re.ASCII | (re.IGNORECASE if any_case else 0))


@cache
def phrase(name: str) -> re.Pattern[str]:
    return re.compile("|".join(GRAMMAR.phrases[name]), re.IGNORECASE)


RELEASE, VERSION = expression("%RELEASE%"), expression("%VERSION%")
_GPUS = {"prose": pattern("%GPU%", any_case=True), "field": pattern("%GPU_IN_FIELD%", any_case=True)}


@lru_cache(maxsize=16_384)
def fits(field: str, value: str) -> bool:
    kind, _, name = field.partition(".")
    if kind == "packages" and re.fullmatch(expression("%PACKAGE%"), name, re.ASCII) is None:
        return False
    known = {"environment": GRAMMAR.parts["VARIABLE"], "built": ("cuda", "cudnn")}.get(kind, (name,))
    if name not in known:
        return False
    expected = GRAMMAR.fields[name if kind == "built" else kind]
    if pattern(f"(?:{expected})\\Z").match(value) is None:
        return False
    return kind != "python" or numbers(value)[:2] <= (3, 20)  # Python 3.68 was never released


_UPPER = re.compile(r"\A[ahlvpktb][0-9]{1,3}[a-z]?\Z|\b(?i:rtx|gtx|gt|mx)\b(?= [0-9])", re.ASCII)


@lru_cache(maxsize=4_096)
def respelt(text: str, spelling: str) -> str:
    for found, replacement in GRAMMAR.spellings[spelling]:
        text = pattern(found, any_case=True).sub(replacement, text)
    return text


def tidy_gpu(text: str) -> str:
    """Normalise a GPU name: ``nvidia rtx3090ti`` becomes ``RTX 3090 Ti``."""
    text = text.strip(" ,;|")
    text = text if text.endswith("...") else text.rstrip(".")
    return _UPPER.sub(lambda name: name[0].upper(), respelt(text, "gpu").strip())


_FUNCTIONS: dict[str, Callable[[str], str]] = {
    "": str, "lower case": str.lower, "number": cudnn_of_number, "gpu": tidy_gpu,
}  # fmt: skip


def converted(group: str, text: str) -> tuple[str, str]:
    """Return the field of a group and its value: a function's, respelt, or the same for every text."""
    field, how = GRAMMAR.conversions.get(group, (group, ""))
    if how in _FUNCTIONS:
        return field, _FUNCTIONS[how](text)
    return field, respelt(text, how) if how in GRAMMAR.spellings else how


_BEFORE = re.compile(r"(?:\b([2-9]|1[0-6]) ?[x\u00d7*] {0,3}|\b(dual|two) )$", re.IGNORECASE)
_AFTER = re.compile(r"^ ?[*x\u00d7] ?([2-9]|1[0-6])\b", re.IGNORECASE | re.ASCII)


def gpus_in(text: str, where: str = "prose") -> Iterator[tuple[re.Match[str], str, int]]:
    """Yield each GPU of a text with its normal name and count: ``2x RTX 3080``, ``2080ti * 4``, ``dual GTX 780``."""
    for match in _GPUS[where].finditer(text):
        before = _BEFORE.search(text[max(0, match.start() - 10) : match.start()])
        after = _AFTER.match(text[match.end() : match.end() + 6])
        count = int(before[1] or 2) if before else int(after[1]) if after else 1
        yield match, tidy_gpu(match[0]), count


def system_in(text: str, *, mentioned: bool = False) -> str | None:
    """Return the operating systems in a value (``Windows 11 + WSL2``), from the first name to the last.

    ``mentioned`` requires a version number: "on Windows" in a sentence may be about another machine.
    """
    found = list(pattern("%OS%", any_case=True).finditer(text[:200]))
    if mentioned:
        found = [match for match in found if re.search(r"[0-9]|arch|wsl", match[0], re.IGNORECASE)]
    if not found:
        return None
    near, span = 60, text[found[0].start() : found[-1].end()]
    numbered = next((match[0] for match in found if any(letter.isdigit() for letter in match[0])), found[0][0])
    name = " ".join((span if len(span) <= near else numbered).split())
    spaced = re.sub(r"(?<=[a-z])(?:[ -]|:)?(?=[0-9]{2}\.)", " ", name)
    return spaced[:1].upper() + spaced[1:] if spaced[:6] in {"ubuntu", "debian", "centos", "fedora"} else spaced


def platform_of(system: str) -> str:
    lowered = system.lower()
    if "wsl" in lowered:
        return "linux"
    if lowered.startswith("win"):
        return "windows"
    return "macos" if lowered.startswith(("mac", "os x", "osx")) else "linux"
