"""Read the GPU code of a whole wheel from the index: every shared object in it, piece by piece, none of it kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, Member, PackageIndex
from envbuilder.refresh.device_code import LibraryCode, groups

_LIBRARY = re.compile(r"\.so(?:\.\d+)*$")


def read(
    file: DistFile,
    index: PackageIndex,
    progress: Callable[[str], None] = lambda _: None,
    watch: Callable[[Member, Iterator[bytes]], Iterator[bytes]] = lambda _, pieces: pieces,
) -> tuple[LibraryCode, ...]:
    """Say what each shared object of a wheel holds; those without GPU code are left out.

    ``watch`` may look at an object's pieces as they go by, and passes them on.
    Reads up to 0.6 GB. Raises IndexUnavailableError where the index fails or an object is not as it should be.
    """
    found = []
    for member in index.members(file):
        if not _LIBRARY.search(member.name):
            continue
        progress(f"{file.filename}: {member.name} ({member.packed / 1e6:.0f} MB)")
        try:
            held = groups(watch(member, index.stream(file, member)))
        except ValueError as error:
            raise IndexUnavailableError(f"{file.filename}: {member.name}: {error}") from error
        if held:
            found.append(LibraryCode(member.name, held))
    return tuple(found)
