"""A root file system of a few megabytes, made from this host's own programs: real containers without a download."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from envbuilder.engine import archive

PROGRAMS = ("sh", "sleep", "cat", "id", "ls", "touch", "dd")


def write_tiny_root(target: Path, programs: Iterable[str] = PROGRAMS) -> None:
    """Write a tar that holds a shell, a few programs, and the libraries that they load."""
    paths = [Path(found) for found in map(shutil.which, programs) if found]
    entries: dict[str, archive.Source] = {f"bin/{path.name}": path.resolve() for path in paths}
    for path in paths:
        listed = subprocess.run(["ldd", str(path)], capture_output=True, text=True, check=True).stdout
        for library in re.findall(r"(/[^ ]+\.so[^ ]*) ", listed):
            entries[library.lstrip("/")] = Path(library).resolve()
    entries["etc/passwd"] = b"root:x:0:0:root:/:/bin/sh\n"
    with target.open("wb") as file:
        for chunk in archive.stream(entries):
            file.write(chunk)
