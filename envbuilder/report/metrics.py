"""Verdicts, sizes, times and ages of environments in Prometheus' text format, for node_exporter's text collector."""

import re
import statistics
from collections.abc import Iterator
from datetime import datetime

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric, StateSetMetricFamily
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from envbuilder.report.report_data import name_of
from envbuilder.support import decoding, terminal_text
from envbuilder.verdict import LEVELS, Verdict

_WORDS = ("PASSED", "FAILED", "INCONCLUSIVE")
_OUTCOMES = ("passed", "failed", "skipped", "error", "timeout")
_UNIT = {"s": ("seconds", 1.0), "B": ("bytes", 1.0), "GB": ("bytes", 1e9), "1": ("ratio", 1.0), "": ("ratio", 1.0)}
_NAME = re.compile(r"[^a-zA-Z0-9]+")


def prometheus(verdicts: tuple[Verdict, ...]) -> str:
    """Write the newest verdict of each environment."""
    return decoding.lossy(generate_latest(_Verdicts(verdicts)))


class _Verdicts(Collector):
    def __init__(self, verdicts: tuple[Verdict, ...]) -> None:
        ordered = sorted(verdicts, key=lambda one: (_seconds(one.finished) or 0.0, one.verdict != "PASSED"))
        newest = {terminal_text.line(name_of(verdict)): verdict for verdict in ordered}
        self._verdicts = sorted(newest.items())

    def collect(self) -> Iterator[Metric]:
        for family in filter(lambda one: one.samples, self._families()):
            # Two names may be one after cleaning, and a series that is there twice ends the whole file.
            family.samples = list({(one.name, *sorted(one.labels.items())): one for one in family.samples}.values())
            yield family

    def _families(self) -> tuple[Metric, ...]:
        info = InfoMetricFamily("envbuilder_environment", "Image and driver of the verdict.", labels=("environment",))
        words = StateSetMetricFamily("envbuilder_verdict", "1 for the current verdict.", labels=("environment",))
        level = _gauge("level", "The highest level that passed: 0 none to 5 multi-gpu.")
        simulated = _gauge("simulated", "1 if the driver was simulated.")
        checks = _gauge("checks", "Checks by outcome.", "outcome")
        size = _gauge("image_size", "Size of the image.", unit="bytes")
        finished = _gauge("verdict_timestamp", "When the verdict was reached.", unit="seconds")
        start = _gauge("start", "Median time of a phase of start-up.", "phase", "caches", unit="seconds")
        measured = {
            unit: _gauge("measurement", f"Measured by checks, in {unit}.", "check", "name", unit=unit)
            for unit in ("seconds", "bytes", "ratio")
        }
        for name, verdict in self._verdicts:
            place = {"digest": verdict.image.digest or "", "driver": verdict.host.driver or ""}
            info.add_metric((name,), {key: terminal_text.line(text) for key, text in place.items()})
            words.add_metric((name,), {word: verdict.verdict == word for word in _WORDS})
            level.add_metric((name,), 0 if verdict.level == "none" else 1 + LEVELS.index(verdict.level))
            simulated.add_metric((name,), float(verdict.simulated))
            size.add_metric((name,), verdict.image.size)
            for outcome in _OUTCOMES:
                checks.add_metric((name, outcome), sum(check.outcome == outcome for check in verdict.checks))
            if (seconds := _seconds(verdict.finished)) is not None:
                finished.add_metric((name,), seconds)
            for phase in verdict.timeline:
                for caches, samples in (("cold", phase.cold_s), ("warm", phase.warm_s)):
                    if samples:
                        start.add_metric((name, terminal_text.line(phase.phase), caches), statistics.median(samples))
            _add_measurements(measured, name, verdict)
        return (info, words, level, simulated, checks, size, finished, start, *measured.values())


def _gauge(name: str, text: str, *labels: str, unit: str = "") -> GaugeMetricFamily:
    full = f"envbuilder_{name}_{unit}" if unit else f"envbuilder_{name}"
    return GaugeMetricFamily(full, text, labels=("environment", *labels), unit=unit)


def _add_measurements(families: dict[str, GaugeMetricFamily], environment: str, verdict: Verdict) -> None:
    """Add what checks measured, in base units; a measurement in another unit is left out."""
    for check in verdict.checks:
        for name, measured in sorted(check.measurements.items()):
            unit, factor = _UNIT.get(measured.unit, ("", 1.0))
            if unit:
                labels = (environment, terminal_text.line(check.name), _NAME.sub("_", name).strip("_"))
                families[unit].add_metric(labels, measured.value * factor)


def _seconds(time: str) -> float | None:
    """Return a time as seconds since 1970; None if it is not a time: a verdict may come from anywhere."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError, OSError):
        return None
