"""Static checks of the installed packages: exactly what was locked, and each one's requirements met."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from . import installed
from .result import Answer, Facts, Finding, finding, judged, measure, skipped

# Part of every virtual environment's own making; a lock does not name them, but one that does is believed.
UNLOCKED = {"pip", "setuptools", "wheel", "distribute"}


def as_locked(facts: Facts) -> Answer:
    """Compare every installed version with the lock: none missing, different or additional."""
    locked = facts.get("locked")
    if not locked:
        return skipped("no lock came with this image")
    return as_locked_in(locked, [(one.name, one.version) for one in installed.distributions()])


def as_locked_in(locked: Sequence[tuple[str, str]], found: Sequence[tuple[str, str]]) -> Answer:
    """Do the same for other pairs of name and version."""
    findings = compare(locked, found)
    observed = "; ".join(one["message"] for one in findings) or "the same {0} packages".format(len(locked))
    return judged(
        findings,
        "{0} packages as locked".format(len(locked)),
        observed,
        measurements={"packages": measure(len(found), "1")},
    )


def compare(locked: Iterable[tuple[str, str]], found: Iterable[tuple[str, str]]) -> list[Finding]:
    """Return a finding for each package that differs; both sides are pairs of name and version."""
    wanted = {installed.normalise(name): version for name, version in locked}
    there: dict[str, set[str]] = {}
    for name, version in found:
        there.setdefault(installed.normalise(name), set()).add(version)
    findings = []
    for name in sorted(set(wanted) | (set(there) - UNLOCKED)):
        versions = sorted(there.get(name, ()))
        if name not in wanted:
            findings.append(_differs(name, "not in the lock", ", ".join(versions)))
        elif versions != [wanted[name]]:
            findings.append(_differs(name, wanted[name], ", ".join(versions) or "absent"))
    return findings


def _differs(name: str, wanted: str, there: str) -> Finding:
    text = "{0}: locked {1}, installed {2}".format(name, wanted, there)
    return finding("LOCK_MISMATCH", name, text, wanted, there, "install from the lock with hashes, and nothing besides")


REQUIREMENT = re.compile(r"^\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
CLAUSE = re.compile(r"^\s*(===|==|~=|!=|<=|>=|<|>)\s*([^\s,]+)\s*$")
EXTRA = re.compile(r"\bextra\s*==")


def consistent(facts: Facts) -> Answer:
    """Check every installed package's requirements against what is installed, as ``pip check`` would."""
    return consistent_in(installed.distributions(), here())


def consistent_in(every: Sequence[installed.Distribution], values: Mapping[str, str]) -> Answer:
    """Do the same for other distributions; ``values`` are the values of markers."""
    there = {one.name: one.version for one in every}
    findings = []
    for one in every:
        for text in one.requires:
            problem, named = unmet(text, there, values), REQUIREMENT.match(text)
            if problem and named is not None:
                code = _code(installed.normalise(named.group(1)))
                message = "{0} {1} requires {2}, and {3}".format(one.name, one.version, text, problem)
                findings.append(finding(code, one.name, message, text, problem, "lock again with both in one solution"))
    observed = "; ".join(one["message"] for one in findings) or "{0} packages fit together".format(len(every))
    return judged(findings, "every requirement met", observed)


def _code(name: str) -> str:
    return {"numpy": "NUMPY_ABI", "protobuf": "PROTOBUF_ABI", "keras": "KERAS_MISMATCH"}.get(name, "PACKAGE_CONFLICT")


def unmet(text: str, there: Mapping[str, str], values: Mapping[str, str] | None = None) -> str:
    """Return why a requirement is not met; '' if it is met or does not apply to this Python."""
    found = REQUIREMENT.match(text)
    if found is None:
        return ""
    name, clauses, marker = installed.normalise(found.group(1)), found.group(2), found.group(3) or ""
    if EXTRA.search(marker) or not applies(marker, here() if values is None else values):
        return ""
    if name not in there:
        return "{0} is not installed".format(name)
    if not satisfied(there[name], clauses):
        return "{0} {1} is installed".format(name, there[name])
    return ""


def satisfied(version: str, clauses: str) -> bool:
    """Return True if a version meets comma-separated clauses (PEP 440, without details of local versions)."""
    for clause in filter(None, (part.strip() for part in clauses.split(","))):
        found = CLAUSE.match(clause)
        if found and not _holds(version, found.group(1), found.group(2)):
            return False
    return True


def _holds(version: str, operator: str, wanted: str) -> bool:
    if wanted.endswith(".*"):
        prefix = release(wanted[:-2])
        same = release(version)[: len(prefix)] == prefix
        return same if operator in ("==", "===") else not same
    if operator == "~=":
        prefix = release(wanted)[:-1]
        return key(version) >= key(wanted) and release(version)[: len(prefix)] == prefix
    left, right = key(version), key(wanted)
    if operator == "<" and left[0] == right[0] and left[1] < 0 == right[1]:
        return False  # PEP 440: <V leaves out pre-releases of V
    if operator == ">" and left[0] == right[0] and left[1] > 0 == right[1]:
        return False  # PEP 440: >V leaves out post-releases of V
    return {
        "==": left == right,
        "===": version == wanted,
        "!=": left != right,
        "<=": left <= right,
        ">=": left >= right,
        "<": left < right,
        ">": left > right,
    }[operator]


def release(version: str) -> tuple[int, ...]:
    """Return the release numbers of a version: ``"2.20.0rc1" -> (2, 20, 0)``."""
    found = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in found.group(1).split(".")) if found else (0,)


def key(version: str) -> tuple[tuple[int, ...], int, int]:
    """Return the sort key of a version: release without trailing zeros, then development, pre, final, post."""
    numbers = list(release(version))
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    public = version.partition("+")[0].lower()
    found = re.search(r"[.\-_]?(dev|alpha|a|beta|b|c|rc|post|pre)[.\-_]?(\d*)", public)
    kinds = {"dev": -4, "a": -3, "alpha": -3, "b": -2, "beta": -2, "c": -1, "rc": -1, "pre": -1, "post": 1}
    return (tuple(numbers), kinds[found.group(1)] if found else 0, int(found.group(2) or 0) if found else 0)


MARKER = re.compile(r"^\s*\(*\s*([\w.]+)\s*(===?|~=|!=|<=|>=|<|>|not in|in)\s*['\"]([^'\"]*)['\"]\s*\)*\s*$")


def applies(marker: str, values: Mapping[str, str]) -> bool:
    """Evaluate an environment marker (and/or of plain comparisons); False if it cannot be read."""
    if not marker.strip():
        return True
    parts = re.split(r"\bor\b", marker)
    return any(all(_true(term, values) for term in re.split(r"\band\b", part)) for part in parts)


def here() -> dict[str, str]:
    """Return the values of markers for this Python."""
    import os
    import platform
    import sys

    return {
        "python_version": ".".join(map(str, sys.version_info[:2])),
        "python_full_version": platform.python_version(),
        "sys_platform": sys.platform,
        "platform_system": platform.system(),
        "platform_machine": platform.machine(),
        "os_name": os.name,
        "implementation_name": sys.implementation.name,
        "platform_python_implementation": platform.python_implementation(),
    }


def _true(term: str, values: Mapping[str, str]) -> bool:
    found = MARKER.match(term)
    if found is None or found.group(1) not in values:
        return False
    value, operator, wanted = values[found.group(1)], found.group(2), found.group(3)
    if operator in ("in", "not in"):
        return (value in wanted) == (operator == "in")
    if found.group(1).startswith("python"):
        return _holds(value, operator, wanted)
    return (value == wanted) == (operator in ("==", "==="))
