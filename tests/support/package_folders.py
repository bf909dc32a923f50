"""Folders of `images/shared/packages` for tests, without an index."""

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipInfo

from made_images import row, zipped

from envbuilder.environment import Environment
from envbuilder.image.layers import PackageFolder, package_layers
from envbuilder.pypi.client import PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.workspace import Workspace, write_atomically

COMMITTED = Path(__file__).parents[2] / "images"


def package_folders(
    environment: Environment, lock: str, removed: Mapping[str, str] | None = None
) -> dict[str, PackageFolder]:
    """Make the folder of each step: 10 MB, of which a list (by the layer's name) removes 1 MB."""
    lists = removed or {}
    return {
        layer.folder: PackageFolder(
            layer.text(10_000_000, 1_000_000 * (layer.name in lists)), lists.get(layer.name, "")
        )
        for layer in package_layers(environment, lock)
    }


def store_packages(environment: Environment, lock: str, workspace: Workspace) -> None:
    for name, folder in package_folders(environment, lock).items():
        for path, text in folder.files(name).items():
            write_atomically(workspace.images / path, text.encode())


class MemoryIndex(PackageIndex):
    """A package index of wheels that are held in memory; it has no others."""

    def __init__(self, *wheels: tuple[str, Mapping[str, bytes]]) -> None:
        self.wheels = {filename: _packed(filename, files) for filename, files in wheels}

    def files(self, project: str) -> tuple[DistFile, ...]:
        return tuple(
            DistFile(project=project, filename=name, url=name, sha256=hashlib.sha256(content).hexdigest())
            for name, content in self.wheels.items()
            if name.partition("-")[0].replace("_", "-") == project
        )

    def members(self, file: DistFile) -> tuple[ZipInfo, ...]:
        return tuple(self._archive(file).infolist())

    def member(self, file: DistFile, name: str) -> bytes | None:
        archive = self._archive(file)
        return archive.read(name) if name in archive.namelist() else None

    def stream(self, file: DistFile, member: ZipInfo) -> Iterator[bytes]:
        yield self._archive(file).read(member)

    def _archive(self, file: DistFile) -> zipfile.ZipFile:
        return zipfile.ZipFile(io.BytesIO(self.wheels[file.filename]))


def _packed(filename: str, files: Mapping[str, bytes]) -> bytes:
    """Make a wheel of these files, with its RECORD."""
    record = "-".join(filename.split("-")[:2]) + ".dist-info/RECORD"
    return zipped({**files, record: "".join([*(row(*one) for one in files.items()), f"{record},,\n"]).encode()})
