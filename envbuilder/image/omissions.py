"""What a build context leaves out of its image: the list, as a build carries it out and as a judge reads it.

The list is made once for a lock and kept beside it (`image.derive`), so that a build is the same on every host, and
what is missing is known from outside of the image.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from envbuilder.errors import InputError, Problem
from envbuilder.image import lockfile
from envbuilder.support import decoding
from envbuilder.workspace import users_text

OMISSIONS = "omissions.json"
"""The list's name in a build context, and below ``/opt/envbuilder`` in an image."""

LABEL = "org.envbuilder.omissions"
"""The label of an image that names its list, by the list's digest."""

PROGRAMS = (
    "probes/__init__.py",
    "probes/omit.py",
    "probes/settle.py",
    "probes/shorten.py",
)
"""What the steps run that install and leave out: their places in the package, and in a build context."""

Reason = Literal["compilers", "tests", "unimported", "unnamed", "symbols"]
"""Read by compilers alone; a package's own tests; a distribution that nothing imports and nobody asked for; an object
that nothing needs, names or imports; symbol tables, which no loader reads."""


Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 50)]
"""Files or bytes: a list may come with an image, from anybody."""


class LeftOut(msgspec.Struct, frozen=True):
    """A file, or all of a distribution's files below a folder (``path`` ends with a slash), that is left out whole.

    ``path`` is as RECORD writes it, ``size`` in bytes; ``digest`` is of the paths and digests of all the files.
    """

    path: str
    files: Count
    size: Count
    digest: str
    reason: Reason


class Cut(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shared object without what no loader reads of it: bytes and digest before, and those that are left."""

    path: str
    size: Count
    digest: str
    left: Count
    becomes: str
    reason: Reason


class OfDistribution(msgspec.Struct, frozen=True):
    """What one distribution lacks; ``name`` is normalised."""

    name: str
    version: str
    left_out: tuple[LeftOut, ...] = ()
    cut: tuple[Cut, ...] = ()

    def sums(self) -> tuple[Omitted, ...]:
        """Add up by reason, in the order of the reasons' names."""
        return _sums((self,))


class Omitted(msgspec.Struct, frozen=True):
    """What went for one reason, in sum: how many files, how many bytes; of a file that was cut, the bytes cut off."""

    reason: Reason
    files: int
    size: int


class Omissions(msgspec.Struct, frozen=True, kw_only=True):
    """All that an image lacks of what its lock pins; ``lock`` is the digest of the lock that it was derived from.

    ``required`` names the distributions that TensorFlow requires, directly or not, where the list says so: what else
    an image has is there for what its matrix adds.
    """

    schema: str = "envbuilder/omissions/v1"
    lock: str = ""
    required: tuple[str, ...] = ()
    distributions: tuple[OfDistribution, ...] = ()

    def of(self, name: str, version: str) -> OfDistribution | None:
        """Return what a distribution lacks; None where it is whole."""
        return next((one for one in self.distributions if (one.name, one.version) == (name, version)), None)

    def only(self, names: Container[str]) -> Omissions:
        """Return the part about certain distributions, and not of which lock: a layer depends on its own alone."""
        return Omissions(distributions=tuple(one for one in self.distributions if one.name in names))

    def folders(self) -> frozenset[str]:
        """Name the folders of which everything of some distribution goes."""
        rows = (row for one in self.distributions for row in one.left_out)
        return frozenset(row.path for row in rows if row.path.endswith("/"))

    def sums(self) -> tuple[Omitted, ...]:
        """Add up by reason, in the order of the reasons' names."""
        return _sums(self.distributions)


def _sums(distributions: Iterable[OfDistribution]) -> tuple[Omitted, ...]:
    found: dict[Reason, tuple[int, int]] = {}
    for reason, more, bytes_ in (row for one in distributions for row in _each(one)):
        files, size = found.get(reason, (0, 0))
        found[reason] = (files + more, size + bytes_)
    return tuple(Omitted(reason, *found[reason]) for reason in sorted(found))


def _each(one: OfDistribution) -> Iterator[tuple[Reason, int, int]]:
    yield from ((row.reason, row.files, row.size) for row in one.left_out)
    yield from ((cut.reason, 1, cut.size - cut.left) for cut in one.cut)


def parse(text: str) -> Omissions:
    """Read a list. Raises DamagedError where it is none."""
    return decoding.from_json(text, Omissions, "not a list of omissions")


def write(omissions: Omissions) -> str:
    """Write a list as it lies in a context: the same list is the same bytes."""
    return msgspec.json.format(msgspec.json.encode(omissions), indent=1).decode() + "\n"


def of_context(context: Path) -> str:
    """Read the list of a build context; '' where there is none. Raises InputError where it is no list."""
    path = context / OMISSIONS
    if not path.is_file():
        return ""
    text = users_text(path)
    try:
        parse(text)
    except decoding.DamagedError as error:
        raise InputError(
            (Problem(str(path), 1, "", str(error)),), hint="remove it: the next build derives it"
        ) from error
    return text


def named(label: str, lock: str, text: str) -> str:
    """Return a list where it is the one that an image's label names, of the image's own lock; '' where it is not."""
    if not label or lockfile.digest(text) != label:
        return ""
    try:
        return text if parse(text).lock == lockfile.digest(lock) else ""
    except decoding.DamagedError:
        return ""
