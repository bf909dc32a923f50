"""How long checks may take by this run's own import, and when a run that hangs is over, however many hangs are in it.

Both the runner, which kills what is late, and the host, which stops a runner that says nothing, go by it.
"""

from __future__ import annotations

CHECK_S, CHECK_IMPORTS, CHECK_MOST_S = 10.0, 3.0, 40.0
"""What a paced check may take, where its own limit is not less: each takes less than one import on every host seen."""

LANE_S, LANE_IMPORTS, LANE_MOST_S = 30.0, 5.0, 50.0
"""What all paced checks of a group may take together, from the import on: they take less than two imports."""

REST_S, REST_IMPORTS, REST_MOST_S = 10.0, 2.0, 20.0
"""What is left of a run, whatever is at work in it, once a check has hung."""

IN_ANY_CASE = 2.0
"""So many imports are given past the bounds on a host where that is more: slow is not hung."""


def check_limit(own_s: float, import_s: float) -> float:
    """Say how many seconds a paced check may take, of its ``own_s`` at most."""
    return min(own_s, _bounded(CHECK_S, CHECK_IMPORTS, CHECK_MOST_S, import_s))


def lane_limit(import_s: float | None) -> float:
    """Say how many seconds a group's paced checks may take together; the most where no import was timed."""
    return LANE_MOST_S if import_s is None else _bounded(LANE_S, LANE_IMPORTS, LANE_MOST_S, import_s)


def rest_limit(import_s: float | None) -> float:
    """Say how many seconds are left to a run in which a check has hung."""
    return min(REST_S + REST_IMPORTS * (import_s or 0.0), REST_MOST_S)


def _bounded(base: float, imports: float, most: float, import_s: float) -> float:
    return min(base + imports * import_s, max(most, IN_ANY_CASE * import_s))
