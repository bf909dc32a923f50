"""What the wheels of a step hold, by their RECORDs on the index: installed sizes, and what runtime images remove."""

from __future__ import annotations

from envbuilder.catalog.model import Catalog
from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.image.layers import PackageFolder, PackageLayer
from envbuilder.image.lockfile import Locked
from envbuilder.image.removed_files import Wheel, cuts, removed
from envbuilder.probes.slimming.remove_files import Row, parse_row
from envbuilder.pypi.client import with_own
from envbuilder.pypi.package_index import DistFile, PackageIndex


class Wheels:
    """Reads the locked wheels of an environment on an index."""

    def __init__(self, index: PackageIndex, environment: Environment) -> None:
        self._index = with_own(index, environment.added.indexes) or index
        self._asked_for = frozenset(lockfile.names(environment.requirements)[1:])
        self._framework = environment.package

    def folder(self, layer: PackageLayer, catalog: Catalog, before: PackageFolder | None = None) -> PackageFolder:
        """Make the folder of a step. Raises IndexUnavailableError if the index does not answer.

        ``before`` is the folder of the same wheels that is stored: what is cut off of a wheel's objects stays the same.
        """
        size = 0
        rows = list[Row]()
        for package in lockfile.parse(layer.lock):
            wheel = self._wheel(package)
            if wheel is None:
                continue  # an sdist: its files are known only once it is built
            size += sum(one for _, one in wheel.files.values())
            gone = list(removed(wheel, catalog.leave_out, asked_for=self._asked_for))
            rows += gone
            if package.name == self._framework:
                paths = {row.path for row in gone}
                known = [parse_row(line) for line in before.removed.splitlines()] if before else ()
                rows += [row for row in known or cuts(wheel) if row.left and row.path not in paths]
        text = "".join(f"{row.line()}\n" for row in rows)
        return PackageFolder(layer.text(size, sum(row.size - int(row.left or 0) for row in rows)), text)

    def _wheel(self, package: Locked) -> Wheel | None:
        files = self._index.files(package.name)
        file = next((one for one in files if f"sha256:{one.sha256}" in package.hashes), None)
        if file is None or not file.filename.endswith(".whl"):
            return None
        folder = "-".join(file.filename.split("-")[:2]) + ".dist-info"
        record = self._index.member(file, f"{folder}/RECORD") or self._record(file)
        return Wheel(package, file, record, self._index) if record is not None else None

    def _record(self, file: DistFile) -> bytes | None:
        """Find the RECORD of a wheel whose folder is spelt in another way than the wheel."""
        names = (one.name for one in self._index.members(file) if one.name.endswith(".dist-info/RECORD"))
        name = next((one for one in names if one.count("/") == 1), None)
        return self._index.member(file, name) if name is not None else None
