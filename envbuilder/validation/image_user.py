"""Check that an image starts and that its user may read its code: entry point, user, PATH, modes and owners."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from envbuilder.finding import Finding
from envbuilder.support import decoding
from envbuilder.validation.image_context import ImageContext, escaped, found
from envbuilder.validation.image_files import StackedFile

_COMPLETE = 1000
"""An image with fewer files has no system."""

ENVIRONMENT = "opt/venv"
"""Folder in which every build makes its environment."""

_LIST_IN_QUOTES = re.compile(r"\['[^']*'\s*[,\]]")
"""The result of ``CMD ['python', 'app.py']``: one text for a shell, whose first word is not a program."""


def _account(subject: ImageContext) -> list[str]:
    user = subject.image.user.partition(":")[0] or "root"
    return [*next((row for row in _accounts(subject) if user in (row[0], row[2])), []), *[""] * 7][:7]


def _accounts(subject: ImageContext) -> list[list[str]]:
    lines = decoding.lossy(subject.files.content("etc/passwd") or b"").splitlines()
    return [line.split(":") for line in lines if line.count(":") >= 2]  # noqa: PLR2004 - name and number


def home(subject: ImageContext) -> str:
    return _account(subject)[5]


def user_number(subject: ImageContext) -> int | None:
    """Return the image's user by number; None if it is unknown, 0 for root."""
    name = subject.image.user.partition(":")[0]
    if name.isdecimal() or not name:
        return int(name or 0)
    number = _account(subject)[2]
    return int(number) if number.isdecimal() else None


def can_start(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    image, count = subject.image, len(subject.files.paths)
    words = image.entrypoint or image.command
    kind = "entry point" if image.entrypoint else "command"
    if words and _program(subject, env, words[0]) is None and count > 1:
        yield found("no_such_program", kind=kind, word=escaped(words[0]))
    if words and _LIST_IN_QUOTES.match(words[-1]) and words[0].endswith("sh"):
        yield found("list_in_quotes", kind=kind)
    name, accounts = image.user.partition(":")[0], [row[0] for row in _accounts(subject)]
    if name and not name.isdecimal() and name not in accounts and (accounts or count > _COMPLETE):
        yield found("no_such_user", name=escaped(name))
    yield from _python(subject, env)


def _python(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    own, paths = _program(subject, env, "python") or _program(subject, env, "python3"), subject.files.paths
    program = subject.files.file(own) if own else None
    if program is not None and program.row.has_capabilities:
        yield found("python_with_capabilities", path=own)
    if not (
        subject.is_managed and subject.facts.python and any("-packages/tensorflow/" in f"{path}/" for path in paths)
    ):
        return
    prefix = posixpath.dirname(posixpath.dirname(own or ""))  # as Python does, which follows no link of its folder
    site = subject.files.resolve(f"{prefix}/lib/python{subject.facts.python}/site-packages")
    if own is None or f"{site}/tensorflow" not in paths:
        yield found("other_python_in_path", found_at=f"/{own}" if own else "not found")
    if own and not own.startswith(ENVIRONMENT) and f"{ENVIRONMENT}/bin/python" not in paths:
        yield found("environment_moved", folder=f"/{ENVIRONMENT}")


def _program(subject: ImageContext, env: Mapping[str, str], word: str) -> str | None:
    places = [word] if "/" in word else [f"{folder}/{word}" for folder in env.get("PATH", "/usr/bin:/bin").split(":")]
    for place in places:
        path = place if place.startswith("/") else f"{subject.image.workdir}/{place}"
        found = subject.files.file(path)
        if found is not None and found.row.mode & 0o111:
            return posixpath.normpath(path).strip("/")
    return None


def scratch(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    user = user_number(subject)
    if len(subject.files.paths) < _COMPLETE:
        return
    roots = [row[0] for row in _accounts(subject) if row[2] == "0" and row[0] != "root"]
    if roots:
        yield found("accounts_of_root", names=escaped(", ".join(roots)))
    if user and not _may_write(subject.files.paths.get(subject.files.resolve("tmp")), user):
        yield found("closed_tmp", user=escaped(subject.image.user))
    own = subject.files.resolve(env.get("HOME") or home(subject)) if user and subject.is_managed else ""
    if user and own and not _may_write(subject.files.paths.get(own), user):
        yield found("closed_home", user=escaped(subject.image.user), number=user, path=f"/{escaped(own)}")


def _may_write(entry: StackedFile | None, user: int) -> bool:
    if entry is None or entry.row.kind != "folder":
        return False
    return bool(entry.row.mode & 0o002 or (entry.row.uid == user and entry.row.mode & 0o200))
