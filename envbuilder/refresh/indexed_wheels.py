"""The Linux wheels of projects on an index, by version."""

from __future__ import annotations

from collections.abc import Iterable

from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from envbuilder import versions
from envbuilder.pypi.client import PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import artefact
from envbuilder.support.threads import in_parallel


class IndexedWheels:
    """The wheels of some projects; a project's page is read once."""

    def __init__(self, index: PackageIndex, projects: Iterable[str] = ()) -> None:
        self.index = index
        self._answers: dict[tuple[str, str], bool] = {}
        self._sources: dict[str, set[str]] = {}
        self._wheels = dict(in_parallel(lambda project: (project, self._read(project)), projects))

    def wheels(self, project: str, version: str) -> tuple[tuple[artefact.WheelName, DistFile], ...]:
        return tuple(self._of(project).get(version, ()))

    def newest_python(self, project: str, version: str) -> DistFile | None:
        """Choose the wheel that represents a release: the newest Python's for x86-64."""
        fitting = [pair for pair in self.wheels(project, version) if pair[0].arch == "x86_64"]
        return max(fitting, key=lambda pair: versions.order(pair[0].python), default=(None, None))[1]

    def versions(self, project: str) -> tuple[str, ...]:
        """Return every version with Linux wheels, oldest first."""
        return tuple(self._of(project))

    def finals(self, project: str) -> tuple[str, ...]:
        return tuple(text for text in self.versions(project) if versions.is_final(text))

    def first_day(self, project: str, version: str) -> str:
        """Return the upload day of a version's first wheel (``2025-06-05``), or ''."""
        return min((file.uploaded for _, file in self.wheels(project, version) if file.uploaded), default="")

    def can_install(self, requirement: str, python: str) -> bool:
        """Return True if a file, or a source distribution, meets a requirement on x86-64 Linux with this Python."""
        key = (requirement, python)
        if key not in self._answers:
            wanted = Requirement(requirement)
            self._answers[key] = any(
                name.python in ("", python) and name.arch == "x86_64" and _admits(file.requires_python, python)
                for version in wanted.specifier.filter(self.versions(wanted.name))
                for name, file in self.wheels(wanted.name, version)
            ) or any(wanted.specifier.filter(self._sources.get(wanted.name, ())))
        return self._answers[key]

    def _of(self, project: str) -> _Wheels:
        if project not in self._wheels:
            self._wheels[project] = self._read(project)
        return self._wheels[project]

    def _read(self, project: str) -> _Wheels:
        found: _Wheels = {}
        for file in self.index.files(project):
            name = artefact.wheel_name(file.filename)
            if name is not None and not file.yanked:
                found.setdefault(name.version, []).append((name, file))
            elif source := artefact.source_version(file.filename):
                self._sources.setdefault(project, set()).add(source)
        return {version: found[version] for version in sorted(found, key=versions.key)}


_Wheels = dict[str, list[tuple[artefact.WheelName, DistFile]]]


def _admits(requires_python: str, python: str) -> bool:
    try:
        return SpecifierSet(requires_python).contains(f"{python}.99")
    except InvalidSpecifier:
        return True
