"""OpenMetrics text, for a collector's file or a gateway: verdicts, sizes, times and ages of environments."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from envbuilder.report.formats.titles import name_of
from envbuilder.support import terminal_text
from envbuilder.verdict import LEVELS, Verdict

_WORDS = ("PASSED", "FAILED", "INCONCLUSIVE")
_OUTCOMES = ("passed", "failed", "skipped", "error", "timeout")
_UNIT = {"s": ("seconds", 1.0), "B": ("bytes", 1.0), "GB": ("bytes", 1e9), "1": ("ratio", 1.0), "": ("ratio", 1.0)}
_NAME = re.compile(r"[^a-zA-Z0-9]+")

Labels = tuple[tuple[str, str], ...]


@dataclass
class _Family:
    """A metric: its name (with its unit), what it means, and its samples."""

    name: str
    help: str
    kind: str = "gauge"
    unit: str = ""
    samples: list[tuple[Labels, float]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Write it; nothing where it has no samples."""
        if not self.samples:
            return
        yield f"# TYPE {self.name} {self.kind}"
        if self.unit:
            yield f"# UNIT {self.name} {self.unit}"
        yield f"# HELP {self.name} {_escaped(self.help)}"
        for labels, value in self.samples:
            inside = ",".join(f'{key}="{_escaped(terminal_text.line(text))}"' for key, text in labels)
            yield f"{self.name}{'_info' if self.kind == 'info' else ''}{{{inside}}} {_number(value)}"


def openmetrics(verdicts: tuple[Verdict, ...]) -> str:
    """Write the newest verdict of each environment as OpenMetrics 1.0; ends with ``# EOF`` as it must."""
    newest = {name_of(verdict): verdict for verdict in sorted(verdicts, key=lambda v: v.finished)}
    families = _families()
    for name, verdict in sorted(newest.items()):
        _add(families, (("environment", name),), verdict)
    lines = [line for family in families.values() for line in family.lines()]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _families() -> dict[str, _Family]:
    made = (
        _Family("envbuilder_environment", "What the verdict is about.", "info"),
        _Family("envbuilder_verdict", "The verdict: 1 for the one that holds.", "stateset"),
        _Family("envbuilder_level", "The highest level that passed: 0 none to 5 multi-gpu."),
        _Family("envbuilder_simulated", "1 where the driver was simulated."),
        _Family("envbuilder_checks", "Checks by outcome."),
        _Family("envbuilder_image_size_bytes", "The image's size.", unit="bytes"),
        _Family("envbuilder_verdict_timestamp_seconds", "When the verdict was reached.", unit="seconds"),
        _Family("envbuilder_start_seconds", "Median time of a phase of start-up.", unit="seconds"),
        _Family("envbuilder_measurement_seconds", "Times that checks measured.", unit="seconds"),
        _Family("envbuilder_measurement_bytes", "Sizes that checks measured.", unit="bytes"),
        _Family("envbuilder_measurement_ratio", "Counts and ratios that checks measured.", unit="ratio"),
    )
    return {family.name: family for family in made}


def _add(families: dict[str, _Family], labels: Labels, verdict: Verdict) -> None:
    def put(name: str, value: float | None, *more: tuple[str, str]) -> None:
        families[f"envbuilder_{name}"].samples += [((*labels, *more), value)] if value is not None else []

    put("environment", 1, ("digest", verdict.image.digest or ""), ("driver", verdict.host.driver or ""))
    for word in _WORDS:
        put("verdict", float(verdict.verdict == word), ("envbuilder_verdict", word))
    put("level", 0 if verdict.level == "none" else 1 + LEVELS.index(verdict.level))
    put("simulated", float(verdict.simulated))
    for outcome in _OUTCOMES:
        put("checks", sum(check.outcome == outcome for check in verdict.checks), ("outcome", outcome))
    put("image_size_bytes", verdict.image.size)
    put("verdict_timestamp_seconds", _seconds(verdict.finished))
    for phase in verdict.timeline:
        for caches, samples in (("cold", phase.cold_s), ("warm", phase.warm_s)):
            if samples:
                put("start_seconds", statistics.median(samples), ("phase", phase.phase), ("caches", caches))
    for check in verdict.checks:
        for name, measured in sorted(check.measurements.items()):
            unit, factor = _UNIT.get(measured.unit, (None, 1.0))
            if unit is not None:
                more = (("check", check.name), ("name", _NAME.sub("_", name).strip("_")))
                put(f"measurement_{unit}", measured.value * factor, *more)


def _seconds(time: str) -> float | None:
    """Return a time as seconds since 1970; None where it is none: a verdict may come from anywhere."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
