"""The shape of a probe's answer: outcome, what was expected, what was seen, findings and measurements."""


def passed(expected="", observed="", **more):
    """Say that a check holds."""
    return _answer("passed", expected, observed, more)


def failed(expected="", observed="", **more):
    """Say that a check does not hold; give ``findings`` that name why."""
    return _answer("failed", expected, observed, more)


def skipped(reason, **more):
    """Say that a check could not be made here, and why; never a success."""
    return _answer("skipped", more.pop("expected", ""), reason, more)


def judged(findings, expected="", observed="", **more):
    """Fail where a finding is an error, pass otherwise."""
    wrong = any(found["severity"] == "error" for found in findings)
    return _answer("failed" if wrong else "passed", expected, observed, dict(more, findings=findings))


def finding(code, subject, message, requires="", found="", fix="", severity="error"):
    """Name one thing that is wrong, under a stable code."""
    return {
        "code": code,
        "severity": severity,
        "subject": str(subject)[:300],
        "message": str(message)[:2000],
        "requires": str(requires)[:500],
        "found": str(found)[:2000],
        "fix": str(fix)[:500],
    }


def measure(value, unit):
    """Give a quantity its unit: an SI symbol, ``B``, or ``1`` for counts and ratios."""
    return {"value": float(value), "unit": unit}


def phase(cold=(), warm=()):
    """Give the samples of one phase of start-up, in seconds, each from a fresh process."""
    return {"cold_s": [float(value) for value in cold], "warm_s": [float(value) for value in warm]}


def _answer(outcome, expected, observed, more):
    return {
        "outcome": outcome,
        "expected": str(expected)[:4000],
        "observed": str(observed)[:4000],
        "findings": list(more.get("findings", ())),
        "measurements": dict(more.get("measurements", {})),
        "phases": dict(more.get("phases", {})),
        "data": more.get("data"),
    }
