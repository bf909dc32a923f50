"""A package index of files: real wheels, and a page for each project that names them with their hashes."""

import hashlib
from collections.abc import Mapping
from pathlib import Path

from index_server import wheel


def add(
    root: Path, project: str, version: str, members: Mapping[str, bytes], head: str = "", python: str = "py3-none"
) -> None:
    """Put a wheel into an index; ``head`` are further lines of its METADATA, ``python`` its first tags."""
    folder = root / project
    folder.mkdir(parents=True, exist_ok=True)
    name = project.replace("-", "_")
    platform = "any" if project == "cuda-toolkit" else "manylinux2014_x86_64"
    (folder / f"{name}-{version}-{python}-{platform}.whl").write_bytes(wheel(name, version, dict(members), head))
    links = (
        f'<a href="{path.name}#sha256={hashlib.sha256(path.read_bytes()).hexdigest()}">{path.name}</a>'
        for path in sorted(folder.glob("*.whl"))
    )
    (folder / "index.html").write_text("\n".join(links))
