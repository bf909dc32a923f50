"""A driver as the host's own system numbers it: Windows (and WSL 2, which shows Windows' driver) counts otherwise."""

from __future__ import annotations

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit
from envbuilder.compat.candidate import Candidate


def reaches_minimum(candidate: Candidate, toolkit: CudaToolkit) -> bool:
    """Tell whether the driver is not below a toolkit's minimum, minor-version compatibility counted.

    A branch that was named alone is judged as its newest release for Linux, whatever it was called.
    """
    wanted = toolkit.minimum_driver
    if candidate.windows and not candidate.branch_named:
        wanted = toolkit.windows_minimum_driver or wanted
    return candidate.driver is not None and versions.at_least(candidate.driver, wanted)


def minimum(candidate: Candidate, toolkit: CudaToolkit, catalog: Catalog) -> str:
    """Name a toolkit's minimum driver: ``525.60.13``; ``528.33 (Windows)`` for a host with Windows' numbers."""
    return _named(candidate, toolkit.minimum_driver, toolkit.windows_minimum_driver, catalog)


def own(candidate: Candidate, toolkit: CudaToolkit, catalog: Catalog) -> str | None:
    """Name a toolkit's own driver, from which on its PTX is compiled; None where no source names it."""
    return _named(candidate, toolkit.driver, toolkit.windows_driver, catalog) if toolkit.driver else None


def same(candidate: Candidate, driver: str, catalog: Catalog) -> str:
    """Name any driver for Linux: for a host with Windows' numbers what came with the same toolkit, or its branch."""
    windows = next(
        (row.windows_driver for row in catalog.cuda if row.driver and versions.same(row.driver, driver)), None
    )
    return _named(candidate, driver, windows, catalog)


def _named(candidate: Candidate, linux: str, windows: str | None, catalog: Catalog) -> str:
    if not candidate.windows:
        return linux
    if windows is not None:
        return f"{windows} (Windows)"
    branch = catalog.branch(linux)
    if branch is None:
        return f"{linux} (Linux)"
    if not branch.windows:
        return f"branch {branch.branch}"
    return f"{branch.windows[0]} (Windows' first number for branch {branch.branch})"
