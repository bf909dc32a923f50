"""The errors that users see: what happened, where, what to do next, and the exit code that follows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from envbuilder.exits import ExitCode


@dataclass(frozen=True, order=True)
class Problem:
    """One thing wrong with a user's file: where it stands and what is wrong there.

    ``line`` counts from 1; 0 means that the file has no such place (a missing key, say).
    """

    path: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else self.path
        return f"{place}: {self.key}: {self.message}" if self.key else f"{place}: {self.message}"


def redacted(text: str) -> str:
    """Replace user and password in every address of a text."""
    return re.sub(r"(?<=://)[^/?#\s@]+(?:@[^/?#\s@]+)*@(?=[^/?#\s@])", "****@", text)


class EnvbuilderError(Exception):
    """A mistake or circumstance that the user can act on; never a bug.

    ``hint`` says what to do next. The command line prints both and exits with ``exit_code``. Credentials in an address
    are left out of both, whoever wrote the text: messages are printed, logged and kept.
    """

    exit_code: ClassVar[int] = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message, self.hint = redacted(message), redacted(hint)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.hint}" if self.hint else self.message


class UsageError(EnvbuilderError):
    """The command's words do not fit together."""


class InputError(EnvbuilderError):
    """A file from the user is not what it should be; holds every problem found in it, not the first alone."""

    def __init__(self, problems: tuple[Problem, ...], *, hint: str = "") -> None:
        self.problems = tuple(sorted(problems))
        super().__init__("\n".join(map(str, self.problems)), hint=hint)


class NothingSelectedError(EnvbuilderError):
    """A selector matches no environment."""

    exit_code = ExitCode.NOTHING_SELECTED


class UnsatisfiableError(EnvbuilderError):
    """No combination that was asked for can work."""

    exit_code = ExitCode.UNSATISFIABLE


class InfrastructureError(EnvbuilderError):
    """The engine, the package index, the registry or the disk failed: not a statement about the image."""

    exit_code = ExitCode.INFRASTRUCTURE


class BuildFailedError(EnvbuilderError):
    """A build step exited non-zero."""

    exit_code = ExitCode.BUILD_FAILED


class PublishError(EnvbuilderError):
    """Publishing or verifying a verdict failed."""

    exit_code = ExitCode.PUBLISH_FAILED


class NoClaimError(EnvbuilderError):
    """The catalogue has no row that could answer."""

    exit_code = ExitCode.NO_CLAIM
