"""The text of `check`: plain lines, most serious first."""

from envbuilder.compat.check import CheckDocument, EnvironmentAnswer
from envbuilder.environment import Change, Predicate
from envbuilder.finding import Code, Finding, compatible, is_condition, obstacle
from envbuilder.support.tables import folded
from envbuilder.support.templates import rendered

_WIDTH = 102


def as_text(document: CheckDocument) -> str:
    answer = document.environment
    return rendered(
        "jobs/check",
        document=document,
        answer=answer,
        driver=_driver(answer),
        conditional=CONDITIONAL,
        lines=finding_lines,
        near=lambda found: nearest_line(found.predicate, found.changes),
    )


_NEAREST: dict[Predicate, str] = {
    "installable": "nearest that works",
    "unhindered": "nearest that works, without a warning about the GPU",
    "buildable": "nearest that can be built here",
}


def nearest_line(predicate: Predicate, changes: tuple[Change, ...]) -> str:
    return f"{_NEAREST[predicate]}: {', '.join(map(change_text, changes))}"


def change_text(change: Change) -> str:
    """Write one difference: ``cuda 11.2 → 11.0``."""
    return f"{change.field} {change.old} → {new_text(change)}"


def new_text(change: Change) -> str:
    return change.new or _GONE.get(change.field, "left open")


_GONE = {"install": "pinned CUDA wheels", "base_image": "none (pinned CUDA wheels)"}


CONDITIONAL = "conditional: it will use the GPU on one condition"


def _driver(answer: EnvironmentAnswer) -> str | None:
    """Write the driver, and its branch if the number does not begin with it, as on Windows."""
    if answer.driver is None or answer.branch is None or answer.driver.lstrip("Rr").startswith(answer.branch):
        return answer.driver
    return f"{answer.driver} (Windows' number for branch {answer.branch})"


def finding_lines(finding: Finding) -> list[str]:
    fix = [f"fix: {finding.fix}"] if finding.fix else []
    body = [folded(text, "  ", "  ", most=_WIDTH) for text in (finding.message, *fix)]
    return [f"{finding.severity.value}  {finding.code.value}  {finding.subject}", *body]


def mark(findings: tuple[Finding, ...]) -> str:
    """Return ``yes``, ``slow`` (compiles its kernels first), ``no``, ``if`` (on a condition) or ``?``."""
    judged = compatible(findings)
    if judged is True:
        return "slow" if any(finding.code is Code.PTX_JIT for finding in findings) else "yes"
    found = obstacle(findings)
    return "no" if judged is False else "if" if found is not None and is_condition(found) else "?"
