"""The errors that users see: what happened, where, what to do next, and the exit code that follows."""

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """Exit codes of all commands."""

    DONE = 0
    FAILED = 1
    """A verdict FAILED, incompatible, stale, REJECT."""
    USAGE = 2
    NOTHING_SELECTED = 3
    UNSATISFIABLE = 4
    INFRASTRUCTURE = 5
    BUILD_FAILED = 6
    PUBLISH_FAILED = 7
    NO_CLAIM = 8
    """INCONCLUSIVE, UNDECIDED, or the catalogue makes no claim."""
    BUG = 70
    INTERRUPTED = 130


ORDER = (
    ExitCode.BUG,
    ExitCode.INFRASTRUCTURE,
    ExitCode.PUBLISH_FAILED,
    ExitCode.BUILD_FAILED,
    ExitCode.USAGE,
    ExitCode.UNSATISFIABLE,
    ExitCode.NOTHING_SELECTED,
    ExitCode.FAILED,
    ExitCode.NO_CLAIM,
)
"""If rows have different codes, the first of these counts, then any other code that is not 0, then 0."""


def most_severe(codes: Iterable[int]) -> int:
    """Return the exit code for several results. A code that is not 0 is never lost; no results give 0."""
    failed = set(codes) - {ExitCode.DONE}
    return min(failed, key=lambda code: (ORDER.index(code) if code in ORDER else len(ORDER), code), default=0)


_VERDICTS = {"PASSED": ExitCode.DONE, "FAILED": ExitCode.FAILED, "INCONCLUSIVE": ExitCode.NO_CLAIM}


def verdict_exit_code(word: str) -> int:
    return _VERDICTS[word]


class Reason(StrEnum):
    """Why a statement was not accepted, or why there is no answer; from UNREACHABLE on, faults of a registry."""

    KIND_MISSING = "KIND_MISSING"
    NO_IMAGE = "NO_IMAGE"
    NO_STATEMENT = "NO_STATEMENT"
    TAG_MOVED = "TAG_MOVED"
    AMBIGUOUS = "AMBIGUOUS"
    MANY_PLATFORMS = "MANY_PLATFORMS"
    OTHER_ENVIRONMENT = "OTHER_ENVIRONMENT"
    UNREADABLE = "UNREADABLE"
    NEWER_SCHEMA = "NEWER_SCHEMA"
    UNKNOWN_WORD = "UNKNOWN_WORD"
    INCONSISTENT = "INCONSISTENT"
    UNTRUSTED_KEY = "UNTRUSTED_KEY"
    EXPIRED_KEY = "EXPIRED_KEY"
    TOO_FEW_KEYS = "TOO_FEW_KEYS"
    BAD_SIGNATURE = "BAD_SIGNATURE"
    WRONG_SUBJECT = "WRONG_SUBJECT"
    SIMULATED = "SIMULATED"
    FAILED = "FAILED"
    WITHDRAWN = "WITHDRAWN"
    STATEMENT_MISSING = "STATEMENT_MISSING"
    INCONCLUSIVE = "INCONCLUSIVE"
    EXPIRED = "EXPIRED"
    LEVEL_TOO_LOW = "LEVEL_TOO_LOW"
    OTHER_DRIVER = "OTHER_DRIVER"
    OTHER_GPU = "OTHER_GPU"
    UNREACHABLE = "UNREACHABLE"
    TLS_FAILED = "TLS_FAILED"
    BAD_CERTIFICATE = "BAD_CERTIFICATE"
    SERVER_ERROR = "SERVER_ERROR"
    THROTTLED = "THROTTLED"
    TOO_SLOW = "TOO_SLOW"
    ACCESS_DENIED = "ACCESS_DENIED"
    NOT_THERE = "NOT_THERE"
    REJECTED = "REJECTED"
    BAD_ANSWER = "BAD_ANSWER"
    BAD_REDIRECT = "BAD_REDIRECT"
    BAD_LINK = "BAD_LINK"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY = "TOO_MANY"
    ALTERED = "ALTERED"


@dataclass(frozen=True, order=True)
class Problem:
    """One problem of a user's file: its place and a message.

    ``line`` counts from 1; 0 means that the file has no such place, for a missing key.
    """

    path: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


_TO_HOST = re.compile(r"(?<!\S)\S*(?=@(?!sha256:)[\w\[])")  # of a word: what stands before its last host
_LOGIN = re.compile(r"(?<![\w.+%:-])(?!(?<=//)[\w.-]+:[0-9]{1,5}/)[\w.+%-]+:(?!/)\S+\Z")


def redacted(text: str) -> str:
    """Replace user and password in every address of a text, and before a host without a scheme."""
    text = _TO_HOST.sub(lambda before: _LOGIN.sub("****", before[0]), text)
    return re.sub(r"(?<=:/)(/?)[^/?#\s@]+(?:@[^/?#\s@]+)*@(?=[^/?#\s@])", r"\1****@", text)


_LONGEST_LINE, _ITS_END = 2000, 300


def brief(text: str) -> str:
    """Remove the middle of each very long line: a message may repeat a value that fills a file."""
    return "\n".join(
        line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - _ITS_END]} … {line[-_ITS_END:]}"
        for line in text.split("\n")
    )


class EnvbuilderError(Exception):
    """A mistake or circumstance that the user can act on; never a bug.

    ``hint`` says what to do next. The command line prints both and exits with ``exit_code``. Both are printed and
    stored, so credentials in addresses and the middle of very long lines are removed.
    """

    exit_code: ClassVar[int] = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = brief(redacted(message)), brief(redacted(hint))
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message


class UsageError(EnvbuilderError):
    """The arguments of the command are wrong."""


class InputError(EnvbuilderError):
    """A file of the user is wrong; has every problem of it, not only the first."""

    def __init__(self, problems: tuple[Problem, ...], *, hint: str = "") -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(map(str, self.problems)), hint=hint)


def text_of(data: bytes, path: str) -> str:
    """Decode a text of the user. Raises InputError, with the line, if it is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        problem = Problem(path, data.count(b"\n", 0, error.start) + 1, "", "is not UTF-8 text")
        raise InputError((problem,), hint="write it again, or take it from version control") from error


class NothingSelectedError(EnvbuilderError):
    """A selector matches no environment."""

    exit_code = ExitCode.NOTHING_SELECTED


class UnsatisfiableError(EnvbuilderError):
    """No requested combination can work."""

    exit_code = ExitCode.UNSATISFIABLE


class InfrastructureError(EnvbuilderError):
    """The engine, the package index, the registry or the disk failed: not a statement about the image."""

    exit_code = ExitCode.INFRASTRUCTURE


class BaseUnavailableError(InfrastructureError):
    """A system's base is not here, and neither its registry nor its packages are available."""


_CLEAN = "free disk space; envbuilder clean --cache 5 frees what builds and controls left"
_NEXT = {
    errno.ENOSPC: _CLEAN,
    errno.EDQUOT: f"the user's quota is used up: {_CLEAN}",
    errno.EROFS: "work in a folder on a disk that can be written",
    errno.EACCES: "check its owner and permissions (ls -ld)",
    errno.EPERM: "check its owner and permissions (ls -ld)",
    errno.EISDIR: "a folder has the name of the file: move it away",
    errno.ENXIO: "a socket or a device has the name of the file: move it away",
    errno.ENOTDIR: "a file has the name of the folder: move it away",
    errno.EEXIST: "another file has its name: move it away",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "the host has too many files open: end other programs",
    errno.ENOMEM: "free memory, or give this host more",
    errno.EIO: "the disk is failing: look at the kernel's log",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f)",
    errno.ELOOP: "a symbolic link leads to itself: remove it",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.ESTALE: "the network file system lost the file: run the same command again",
    errno.ENOENT: "run the same command again, in a folder that is not removed meanwhile",
}
"""Next steps for errors of the machine, by errno."""


def of_system(error: OSError, doing: str = "", *, users: bool = False) -> EnvbuilderError:
    """Turn an OSError into an error for users: what failed, where, why and what to do next.

    ``doing`` is the action (``write out/x/build.log``); without it the message has the error's own path. A path that
    the user gave (``users``) is a UsageError, any other an InfrastructureError.
    """
    paths = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    what = f"cannot {doing}" if doing else " and ".join(paths) or "the system refused"
    reason = error.strerror or str(error) or type(error).__name__
    hint = _NEXT.get(error.errno or 0, "look at the kernel's log (dmesg), then run the same command again")
    if users:
        missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
        return UsageError(f"{what}: {reason}", hint="give the path of an existing file" if missing else hint)
    return InfrastructureError(f"{what}: {reason}", hint=hint)


def first_cause(error: BaseException) -> BaseException:
    """Return the first error of a failed request; the layers above quote the ones below as tuples."""
    causes = (error.__cause__, getattr(error, "reason", None), *error.args)
    return next((first_cause(one) for one in causes if isinstance(one, BaseException)), error)


def first_message(error: BaseException) -> str:
    """Return the message of a failed request's first error."""
    cause = first_cause(error)
    return getattr(cause, "strerror", "") or str(cause)


class BuildFailedError(EnvbuilderError):
    """A build step exited non-zero; ``step`` is the builder's name of it."""

    exit_code = ExitCode.BUILD_FAILED

    def __init__(self, message: str, *, hint: str = "", step: str = "") -> None:
        self.step = step
        super().__init__(message, hint=hint)


class PublishError(EnvbuilderError):
    """Publishing or verifying a verdict failed."""

    exit_code = ExitCode.PUBLISH_FAILED


class NoClaimError(EnvbuilderError):
    """The catalogue has no row that could answer."""

    exit_code = ExitCode.NO_CLAIM
