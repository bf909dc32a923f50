"""The catalogue, indexed for the rules: rows by the words that people use for them."""

from __future__ import annotations

from functools import cache, lru_cache

from envbuilder import versions
from envbuilder.catalog import lookup
from envbuilder.catalog.model import (
    BaseImage,
    Catalog,
    CudaToolkit,
    Cudnn,
    DriverBranch,
    FieldReport,
    Gpu,
    OperatingSystem,
    TensorflowRelease,
)

PACKAGES = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu")
"""The distributions, in the order in which one is chosen for a GPU."""


class Facts:
    """A catalogue and what the rules ask of it; `facts` makes one for each catalogue."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self.versions = tuple(sorted({row.version for row in catalog.tensorflow}, key=versions.key))
        # Each answer is kept: a plan and a fleet ask the same few things very often.
        self.version = cache(self._version)
        self.release = cache(self._release)
        self.toolkit = cache(self._toolkit)
        self.cudnn = cache(self._cudnn)
        self.branch = cache(self._branch)
        self.gpu = cache(self._gpu)
        self.newest_wheel = cache(self._newest_wheel)
        self.wheel_kinds = cache(self._wheel_kinds)
        self.donors = tuple(row for row in catalog.tensorflow if row.cuda_wheels and row.cuda and _final(row.version))
        """The releases whose set of CUDA wheels others may borrow."""
        self.floors: dict[str, str] = {}
        for row in catalog.gpus:
            if row.minimum_driver:
                known = self.floors.setdefault(row.compute_capability, row.minimum_driver)
                self.floors[row.compute_capability] = min(known, row.minimum_driver, key=versions.key)

    def _version(self, text: str) -> str | None:
        """Return the full version that ``text`` means: itself, or the newest final one that it abbreviates."""
        if len(versions.numbers(text)) > 2:  # noqa: PLR2004 - a whole version has three numbers
            wanted = versions.key(text)
            return next((known for known in self.versions if versions.key(known) == wanted), None)
        longer = [known for known in self.versions if versions.is_prefix(text, known)]
        final = [known for known in longer if versions.key(known)[1] >= 0]
        known = final or longer
        return known[-1] if known else None

    def _release(self, package: str, version: str) -> TensorflowRelease | None:
        """Find one distribution's release."""
        return lookup.release(self.catalog, version, package)

    def releases(self, version: str) -> tuple[TensorflowRelease, ...]:
        """List the distributions of a version in the order of `PACKAGES`."""
        found = (self.release(package, version) for package in PACKAGES)
        return tuple(row for row in found if row is not None)

    def _toolkit(self, text: str | None) -> CudaToolkit | None:
        """Find the row of a CUDA version; ``12.5.1`` is in the row ``12.5``."""
        return None if text is None else lookup.cuda_toolkit(self.catalog, text)

    def newest_toolkit(self, major: int) -> CudaToolkit | None:
        """Return the newest toolkit of a major line."""
        rows = [row for row in self.catalog.cuda if versions.major(row.version) == major]
        return max(rows, key=lambda row: versions.key(row.version), default=None)

    def _cudnn(self, text: str | None) -> Cudnn | None:
        """Find the row that describes a cuDNN; None for a major alone, which says too little."""
        if text is None or len(versions.numbers(text)) < 2:  # noqa: PLR2004 - see above
            return None
        return lookup.cudnn(self.catalog, text)

    def _branch(self, driver: str | None) -> DriverBranch | None:
        """Find the branch of a driver version."""
        return None if driver is None else lookup.branch_of(self.catalog, driver)

    def image(self, name: str) -> BaseImage | None:
        """Find a base image by its reference."""
        return lookup.base_image(self.catalog, name)

    def systems(self, name: str | None = None) -> tuple[OperatingSystem, ...]:
        """List the systems: the one of that name (``debian-bookworm`` or ``bookworm``), or all."""
        if name is None:
            return self.catalog.systems
        found = lookup.system(self.catalog, name)
        return () if found is None else (found,)

    def _gpu(self, name: str) -> Gpu | None:
        """Find a GPU by any of its names, however it is written."""
        return lookup.gpu(self.catalog, name)

    def report(self, release: TensorflowRelease, capability: str) -> FieldReport | None:
        """Find what users report of a release on a compute capability."""
        wanted = versions.key(release.version)
        for row in self.catalog.reports:
            inside = versions.key(row.first) <= wanted <= versions.key(row.last)
            if inside and capability in row.capabilities:
                return row
        return None

    def _newest_wheel(self, package: str, bounds: tuple[tuple[str, str], ...]) -> str | None:
        """Return the newest version of a CUDA wheel that the index held and that the bounds admit."""
        row = lookup.cudnn_wheels(self.catalog, package)
        inside = [text for text in row.versions if admits(bounds, text)] if row is not None else []
        return max(inside, key=versions.key, default=None)

    def _wheel_kinds(self, package: str, bounds: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
        """Return the newest wheel inside the bounds for each range of GPUs that cuDNN's rows tell apart."""
        row = lookup.cudnn_wheels(self.catalog, package)
        kinds: dict[object, str] = {}
        for text in sorted(row.versions if row is not None else (), key=versions.key):
            if admits(bounds, text):
                found = self.cudnn(text)
                kinds[(found.first_capability, found.last_capability) if found is not None else None] = text
        return tuple(reversed(kinds.values()))

    def wheel_versions(self, package: str) -> tuple[str, ...]:
        """List the versions of a cuDNN wheel that the index held."""
        row = lookup.cudnn_wheels(self.catalog, package)
        return row.versions if row is not None else ()

    def wheels_seen(self, package: str) -> str:
        """Return the day on which the index was read for a CUDA wheel (``2026-11-20``), '' where it was not."""
        row = lookup.cudnn_wheels(self.catalog, package)
        return row.verified[:10] if row is not None else ""


def _final(version: str) -> bool:
    return versions.key(version)[1] >= 0


def admits(bounds: tuple[tuple[str, str], ...], version: str) -> bool:
    """Tell whether every bound ``(operator, version)`` admits a version."""
    return all(_admits(operator, bound, version) for operator, bound in bounds)


def _admits(operator: str, bound: str, version: str) -> bool:
    if bound.endswith(".*"):
        same = versions.is_prefix(bound.removesuffix(".*"), version)
        return same if operator == "==" else not same
    if operator == "~=":
        line = ".".join(map(str, versions.numbers(bound)[:-1]))
        return versions.at_least(version, bound) and versions.is_prefix(line, version)
    ours, theirs = versions.key(version), versions.key(bound)
    return {
        "==": ours == theirs,
        "!=": ours != theirs,
        ">=": ours >= theirs,
        "<=": ours <= theirs,
        ">": ours > theirs,
        "<": ours < theirs,
    }[operator]


class _Same:
    """A catalogue as a cache key: the same object, not an equal one (hashing a whole catalogue is slow)."""

    __slots__ = ("catalog",)

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    def __hash__(self) -> int:
        return id(self.catalog)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.catalog is self.catalog


@lru_cache(maxsize=8)
def _indexed(same: _Same) -> Facts:
    return Facts(same.catalog)


def facts(catalog: Catalog) -> Facts:
    """Index a catalogue, once for each catalogue."""
    return _indexed(_Same(catalog))
