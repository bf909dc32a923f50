"""Input and output of the checks that read an image's files on the host, and the texts of their findings."""

import contextlib
import posixpath
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import dropwhile

import msgspec

from envbuilder import finding
from envbuilder.engine.port import ContainerSpec, Image
from envbuilder.finding import TEXTS, Code, Finding, Severity
from envbuilder.image import lockfile
from envbuilder.image.lockfile import Locked
from envbuilder.image.system_lock import CUDNN_LOCK
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.support import decoding, terminal_text
from envbuilder.validation import image_loader
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.layer_scan import INSTRUCTION, FileRow, secrets_in
from envbuilder.validation.suite_plan import Facts
from envbuilder.verdict import Measurement
from envbuilder.workspace import packaged_yaml

SHOWN = 4  # Number of paths in a message before the rest is counted

# A shell with its options, and the line that it runs, as in the shell form of CMD.
_SHELL = re.compile(r"(?:/\S*/)?(?:ba|da|z)?sh( (?:.* )?-\w*c\w*)")

_MORE_THAN_ONE = re.compile(r"[;&|<>()`*?\n]")
# Words before a program that change neither its folder nor its words: POSIX's exec and env, and the init processes of
# containers (github.com/krallin/tini, github.com/Yelp/dumb-init, github.com/openSUSE/catatonit) with their flags.
_BEFORE = re.compile(
    r"exec|(?!PYTHON(?:PATH|HOME|SAFEPATH)=)\w+=.*|(?:\S*/)?(?:env|tini|dumb-init|catatonit)|--|-[gsvw]+", re.DOTALL
)

_STARTS = packaged_yaml("validation/start_lines.yaml", tuple[tuple[str, frozenset[str]], ...])  # The file explains them
SUITE_USER = int(ContainerSpec.user.partition(":")[0])


def may(row: FileRow, user: int | None, rights: str) -> bool:
    """Return True if a user has all ``rights`` (of ``rwx``) to a file or folder: as owner, or as one of any group.

    The suite's user is in no group of an image. Root (0, or None for an unknown user) needs ``x`` alone.
    """
    if not user:
        return row.kind == "folder" or "x" not in rights or bool(row.mode & 0o111)
    needed = sum(0o4 >> "rwx".index(right) for right in rights)
    shifts = {0, 0 if user == SUITE_USER else 3, 6 if row.uid == user else 0}
    return any(row.mode >> shift & needed == needed for shift in shifts)


@dataclass(frozen=True, eq=False)
class ImageContext:
    """An image as the engine describes it, its files, its expected contents, and the source of wheel records.

    ``lock`` is the text of its lock ('' for a foreign image), ``removed`` this host's list of its removed files.
    ``is_built_here``: a build on this host made this image of that lock. ``lock_is_carried``: the image itself brought
    its locks, so that other evidence is needed; ``system`` are those of system packages by name. ``declared`` are the
    files that the matrix adds, ``authorities`` its certificates. ``local`` is a Python of this host, without an image.
    The others are numbers of lowest layers, 0 if unknown: ``of_base`` belong to a registry's base; above
    ``locked_above`` only packages of the system locks may be installed; ``own_layers`` are the environment's, all above
    are additions; ``proven`` are those that an image's record proves, ``base_layers`` those of its base on this host.
    """

    image: Image
    files: ImageFiles
    facts: Facts
    lock: str
    wheels: WheelRecords
    removed: str = ""
    is_built_here: bool = False
    of_base: int = 0
    lock_is_carried: bool = False
    system: Mapping[str, str] = field(default_factory=dict)
    locked_above: int = 0
    own_layers: int = 0
    proven: int = 0
    base_layers: int = 0
    declared: frozenset[str] = frozenset()
    authorities: frozenset[bytes] = frozenset()
    local: image_loader.LocalPython | None = None

    @cached_property
    def search(self) -> image_loader.LocalSearch:
        return image_loader.ImageSearch(self.files, self.image) if self.local is None else image_loader.LocalSearch()

    @cached_property
    def python(self) -> image_loader.LocalPython:
        return self.local or image_loader.ImagePython(self.files, self.image)

    def lines(self, path: str) -> list[str]:
        return decoding.lossy(self.files.content(path) or b"").splitlines()

    @cached_property
    def accounts(self) -> list[list[str]]:
        """The rows of the image's accounts, of seven fields each."""
        lines = self.lines("etc/passwd")
        return [[*line.split(":"), *[""] * 5][:7] for line in lines if line.count(":") >= 2]  # noqa: PLR2004 - name and number

    @cached_property
    def _account(self) -> list[str]:
        user = self.image.user.partition(":")[0] or "root"
        return next((row for row in self.accounts if user in (row[0], row[2])), [""] * 7)

    @property
    def home(self) -> str:
        return self.image.env.get("HOME") or self._account[5]

    @property
    def user(self) -> int | None:
        """The image's user by number; None if it is unknown, 0 for root."""
        name = self.image.user.partition(":")[0]
        number = name if name.isdecimal() else "0" if name in ("", "root") else self._account[2]
        return int(number) if number.isdecimal() else None

    @property
    def is_managed(self) -> bool:
        return bool(self.facts.environment)

    @property
    def severity(self) -> Severity:
        return Severity.ERROR if self.is_managed else Severity.WARNING

    def entries(self, variable: str) -> list[str]:
        """Return the folders of a variable; relative and empty ones are relative to the image's working folder."""
        value, start = self.image.env.get(variable, ""), self.image.workdir or "/"
        parts = re.split(r"[:;]", value) if value else []
        return [posixpath.normpath(posixpath.join(start, part)).strip("/") for part in parts]

    def places(self, word: str) -> list[str]:
        """Return the paths at which a program is looked up: from the working folder, or by PATH."""
        folders = [self.image.workdir] if "/" in word else self.entries("PATH") or ["usr/bin", "bin"]
        return [posixpath.normpath(posixpath.join("/", folder, word)).strip("/") for folder in folders]

    @property
    def interpreter(self) -> str:
        """The Python next to TensorFlow's packages, else the first one of PATH; '' for none."""
        own = (f"{image_loader.prefix_of(site)}/bin/python3" for site in self.python.sites[:1])
        return next((f"/{path}" for path in (*own, *self.places("python3")) if self.files.file(path)), "")

    def programs(self, word: str) -> dict[str, FileRow]:
        return {path: entry.row for path in self.places(word) if (entry := self.files.file(path)) is not None}

    @cached_property
    def started(self) -> tuple[str, Mapping[str, str]]:
        """The program that starts, behind ``env`` and a shell of one command, and what its line names, by kind."""
        words = (*self.image.entrypoint, *self.image.command)
        options, line = shell_line(words)
        with contextlib.suppress(ValueError):  # an open quote
            words = tuple(shlex.split(line)) if options and not _MORE_THAN_ONE.search(line) else words
        program, *others = (*dropwhile(_BEFORE.fullmatch, words), "")
        line = shlex.join((posixpath.basename(program), *others[:-1]))
        there = {*self.image.env, *self.search.names(self.image.workdir or "/")}
        rows = (re.match(beginning, line) for beginning, unless in _STARTS if unless.isdisjoint(there))
        return program, {name: text for row in rows if row for name, text in row.groupdict().items() if text}

    @cached_property
    def commands(self) -> frozenset[str]:
        """Every file that ENTRYPOINT and CMD name, also as a word of a shell's line."""
        words = [piece for word in (*self.image.entrypoint, *self.image.command) for piece in word.split()]
        named = (posixpath.join("/", self.image.workdir, word) for word in words)
        first = (path for program in words[:1] for path in self.programs(program))
        return frozenset(map(self.files.resolve, (*named, *first)))

    @cached_property
    def loader_folders(self) -> Mapping[str, str]:
        """The folders in which the loader looks, and the file or variable that names each; '' for its own."""
        cached = (posixpath.dirname(path) for paths in self.search.cache.values() for path in paths)
        found = dict.fromkeys((*self.search.defaults, *cached), "")
        told = ((path, text) for path, text in self.files.contents.items() if path.startswith("etc/ld.so.conf"))
        lines = ((path, line.strip()) for path, text in told for line in decoding.lossy(text).splitlines())
        found |= {line: f"/{path}" for path, line in lines if line.startswith("/")}
        found |= dict.fromkeys(self.entries("LD_LIBRARY_PATH"), "LD_LIBRARY_PATH")
        return {self.files.resolve(folder): by for folder, by in found.items()}

    def is_of_system(self, path: str) -> bool:
        return path in self.files.system.layers

    def origin(self, paths: Iterable[str]) -> str:
        """Return the layer that brought or deleted the first of some paths, and its instruction without credentials."""
        path = min(paths)
        entry = self.files.paths.get(path)
        number = self.files.gone.get(path, len(self.image.layers)) if entry is None else entry.layer
        if number >= len(self.image.layers):
            return ""
        made = instruction(self.image.layers[number].created_by)
        shown = "…" if secrets_in(INSTRUCTION, made.encode()) else escaped(made)
        return f" (layer {number + 1}: {shown})" if made else f" (layer {number + 1})"  # an import has no instruction

    def is_later(self, path: str) -> bool:
        entry = self.files.paths.get(path)
        return entry is not None and 0 < self.own_layers <= entry.layer

    def is_added(self, path: str) -> bool:
        """Return True if such a layer brought it where no lower layer had anything."""
        before = self.files.hidden.get(path, ())[:1]
        return self.is_later(path) and all(one.layer >= self.own_layers for one in before)

    @cached_property
    def unproven(self) -> frozenset[str]:
        """Every path that a layer above the proven ones brought, replaced or deleted."""
        brought = (path for path, entry in self.files.paths.items() if entry.layer >= self.proven)
        return frozenset((*brought, *(path for path, layer in self.files.gone.items() if layer >= self.proven)))

    @cached_property
    def added(self) -> tuple[image_loader.InstalledPackage, ...]:
        """Packages that came whole in such layers, and that the lock does not name for the Python with TensorFlow."""
        if not self.own_layers:
            return ()
        locked = {package.name for package in lockfile.parse(self.lock)}
        return tuple(
            one
            for one in image_loader.distributions(self.files)
            if one.rows is not None and not (one.name in locked and one.site in self.python.sites)
            if self.is_added(f"{one.site}/{one.folder}/METADATA") and self.is_added(f"{one.site}/{one.folder}/RECORD")
        )

    @property
    def cudnn(self) -> tuple[tuple[image_loader.InstalledPackage, Locked | None], ...]:
        """Packages of cuDNN's folder on a system whose packages bring CUDA, with their rows of the lock."""
        if CUDNN_LOCK not in self.system:
            return ()
        locked = {package.name: package for package in lockfile.parse(self.system[CUDNN_LOCK])}
        return tuple((one, locked.get(one.name)) for one in image_loader.distributions(self.files, "opt/cudnn"))


@dataclass(frozen=True)
class CheckOutput:
    """The result of one check on the host, or of several as the cause of others.

    ``blamed`` are the names (without folders) of all files that its errors are about. ``follow`` are the codes that a
    probe gives if a finding with this subject is its cause. ``undecided``: why a check without an error does not pass.
    ``owners`` are the packages of Python's modules (`image_loader.owners`).
    """

    findings: tuple[Finding, ...] = ()
    observed: str = ""
    measurements: dict[str, Measurement] = field(default_factory=dict)
    blamed: frozenset[str] = frozenset()
    follow: Mapping[str, frozenset[Code]] = field(default_factory=dict)
    undecided: str = ""
    owners: Mapping[str, str] = field(default_factory=dict)


def instruction(created_by: str) -> str:
    """Return what a layer's instruction does, without the words that an engine puts around it."""
    return re.sub(r"\A(?:RUN )?(?:\|\d+ .*?)??/bin/sh -c (?:#\(nop\)\s+)?| # buildkit\Z", "", created_by)


class FindingText(finding.FindingText, frozen=True, forbid_unknown_fields=True, kw_only=True):
    code: Code
    severity: Severity = Severity.ERROR


def found(name: str, severity: Severity | None = None, /, **fields: object) -> Finding:
    text = packaged_yaml("validation/check_findings.yaml", dict[str, FindingText])[name]
    return one_line(Finding(code=text.code, severity=severity or text.severity, **text.filled(fields)))


def one_line(one: Finding) -> Finding:
    """Return a finding with every text on one line, so that an image's text starts no line of a report."""
    return msgspec.structs.replace(one, **{name: terminal_text.line(getattr(one, name)) for name in TEXTS})


def output(findings: Iterable[Finding], observed: str, **counts: int) -> CheckOutput:
    told = tuple(findings)
    measured = {name: Measurement(count, "1") for name, count in counts.items()}
    return CheckOutput(told, "; ".join(one.message for one in told) or observed, measured)


def shell_line(command: Sequence[str]) -> tuple[str, str]:
    """Return the options of the shell in a command, and the line that it runs; '' twice without a shell."""
    *shell, line = command or ("",)
    found = _SHELL.fullmatch(" ".join(shell))
    return (found[1], line) if found is not None else ("", "")


def escaped(text: str, most: int = 80) -> str:
    """Return text of an image for a message: control characters escaped, ``most`` characters at most."""
    shown = text.encode("unicode_escape").decode()
    return shown if len(shown) <= most else f"{shown[: most - 1]}…"


def listed(paths: list[str]) -> str:
    """Write the first paths and the number of others, each safe to print on one line."""
    return some([f"/{escaped(path, 200)}" for path in sorted(paths)])


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def some(texts: Sequence[str]) -> str:
    return ", ".join(texts[:SHOWN]) + (f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")
