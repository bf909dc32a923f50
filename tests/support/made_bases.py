"""Bases of one's own as `catalog inspect` would have found them: a plain one, and one that brings CUDA."""

from pathlib import Path

import msgspec

from envbuilder.catalog.base_facts import BaseFacts, FoundLibrary, FoundPython
from envbuilder.workspace import Workspace, write_document

DIGEST = "sha256:" + "b" * 64
IMAGE = f"registry.example.org:5000/hardened/ubuntu@{DIGEST}"
PLAIN = BaseFacts(
    image=IMAGE,
    digest=DIGEST,
    architecture="amd64",
    system="ubuntu",
    release="22.04",
    libc="glibc",
    libc_version="2.35",
    packages="apt",
    pythons=(FoundPython(version="3.10", path="/usr/bin/python3.10", venv=True),),
)
SONAMES = [
    *("libcudart.so.11.0", "libcublas.so.11", "libcublasLt.so.11", "libcufft.so.10", "libcurand.so.10"),
    *("libcusolver.so.11", "libcusparse.so.11", "libcudnn.so.8"),
]
WITH_CUDA = msgspec.structs.replace(
    PLAIN,
    cuda="11.8",
    cudnn="8.6.0",
    libraries=tuple(FoundLibrary(soname=name, path=f"/usr/lib/{name}") for name in SONAMES),
    require_cuda="cuda>=11.8",
)


def keep(root: Path, facts: BaseFacts) -> Workspace:
    """Keep facts as `catalog inspect` does."""
    workspace = Workspace(root)
    write_document(workspace.base(DIGEST), facts)
    return workspace
