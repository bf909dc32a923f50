"""Where the time of TensorFlow's start goes in a Python of this host: the suite's phases, and what shortens them."""

import msgspec

from envbuilder.finding import Finding, Severity
from envbuilder.reproduce.grammar import GRAMMAR
from envbuilder.validation import suite_plan, suite_session
from envbuilder.verdict import Phase

_PROBES = {"startup:import_tensorflow", *(f"startup_timing:{name}" for name in ("loading", "measured", "cuda_level"))}


def timed(python: str) -> tuple[tuple[Phase, ...], tuple[Finding, ...]]:
    """Time starts in fresh processes; the findings name slow phases. Raises InfrastructureError if none can start."""
    facts = suite_plan.Facts(flavor="gpu", profile="full", place="here")
    checks = tuple(check for check in suite_plan.select(facts) if check.probe in _PROBES)
    session = suite_session.Session(checks, lambda _: None)
    why = suite_session.here(python, suite_plan.plan(checks, facts), session)
    found = (row for result in session.results(why) for row in result.findings)
    slow = (row for row in found if row.severity is Severity.WARNING)  # an error is not a slow phase
    fixes = ((row, GRAMMAR.startup_commands.get(row.subject)) for row in slow)
    fixed = (msgspec.structs.replace(row, fix=f"{row.fix}: `{how}`") if how is not None else row for row, how in fixes)
    return session.timeline(), tuple(fixed)
