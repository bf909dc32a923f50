"""Which of an image's packages its own user may not read: told from modes and owners, before anything runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding
from envbuilder.validation.image_loader import ImagePython
from envbuilder.validation.layer_scan import FileRow
from envbuilder.validation.outside import Outside, error, listed

_READ, _ENTER = 0o4, 0o5
_CODE = re.compile(r"\.(?:py|so(?:\.[\w.]+)?)\Z")


def unreadable(subject: Outside) -> list[str]:
    """List files and folders of packages that are closed to the image's user, the outermost ones; none for root.

    What a group may read counts as readable: of which groups a user is, the image's files do not say for sure.
    """
    user = user_number(subject)
    if not user:
        return []
    sites = ImagePython(subject.files, subject.image).sites
    closed: list[str] = []
    for path in sorted({*_above(sites), *_inside(subject, sites)}):
        seen = subject.files.paths.get(path)
        last = f"{closed[-1]}/" if closed else "/"
        if seen is not None and not path.startswith(last) and _is_closed(seen.row, user):
            closed.append(path)
    return closed


def below(subject: Outside, closed: list[str]) -> frozenset[str]:
    """Name every file that is closed, or lies below what is."""
    folders = tuple(f"{path}/" for path in closed)
    return frozenset(
        path.rpartition("/")[2] for path in subject.files.paths if path in closed or path.startswith(folders)
    )


def refused(subject: Outside, closed: list[str]) -> Iterator[Finding]:
    """Say so under the code that a start by that user would end with."""
    if closed:
        text = f"its user {subject.image.user[:80]} may not read {listed(closed)}"
        fix = "chmod -R a+rX, or copy it with --chown"
        yield error(Code.USER_START, f"user {subject.image.user[:80]}", text, found=listed(closed), fix=fix)


def user_number(subject: Outside) -> int | None:
    """Return the image's user by number; None where it is not known, 0 for root."""
    name = subject.image.user.partition(":")[0]
    if name.isdecimal() or not name:
        return int(name or 0)
    accounts = (subject.files.content("etc/passwd") or b"").decode("utf-8", "replace").splitlines()
    fields = next((line.split(":") for line in accounts if line.startswith(f"{name}:")), [])
    return int(fields[2]) if len(fields) > 2 and fields[2].isdecimal() else None  # noqa: PLR2004 - passwd(5)


def _above(sites: tuple[str, ...]) -> Iterator[str]:
    for site in sites:
        parts = site.split("/")
        yield from ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _inside(subject: Outside, sites: tuple[str, ...]) -> Iterator[str]:
    places = tuple(f"{site}/" for site in sites)
    for path, seen in subject.files.paths.items():
        if path.startswith(places) and (seen.row.kind == "folder" or _CODE.search(path)):
            yield path


def _is_closed(row: FileRow, user: int) -> bool:
    if row.kind not in ("file", "folder"):
        return False
    need = _ENTER if row.kind == "folder" else _READ
    owner = row.uid == user and row.mode >> 6 & need == need
    return not owner and all(row.mode >> shift & need != need for shift in (0, 3))
