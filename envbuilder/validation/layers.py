"""Search an image's layers on the host: what a later layer deletes is still in the image that is pushed."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from envbuilder.engine.port import Engine
from envbuilder.errors import InfrastructureError
from envbuilder.finding import Finding, Severity
from envbuilder.validation.checks.specification import Check
from envbuilder.validation.checks.suite_plan import probe_files
from envbuilder.verdict import CheckResult, Measurement


class _Searched(msgspec.Struct, frozen=True, kw_only=True):
    findings: tuple[Finding, ...]
    layers: int
    files: int


def check_layers(engine: Engine, image: str, check: Check) -> CheckResult:
    """Stream the image through the search and return the check's result. Raises InfrastructureError where it cannot."""
    begun = time.monotonic()
    searched = _search(engine, image)
    failed = any(finding.severity is Severity.ERROR for finding in searched.findings)
    said = "; ".join(finding.message for finding in searched.findings)
    return CheckResult(
        name=check.name,
        tier=check.tier,
        outcome="failed" if failed else "passed",
        duration_s=round(time.monotonic() - begun, 3),
        expected="no secret in any layer",
        observed=said or f"none in {searched.files} files of {searched.layers} layers",
        findings=searched.findings,
        measurements={"layers": Measurement(searched.layers, "1"), "files": Measurement(searched.files, "1")},
    )


def _search(engine: Engine, image: str) -> _Searched:
    with tempfile.TemporaryDirectory(prefix="envbuilder-") as folder:
        for name, content in probe_files().items():
            (Path(folder) / name).write_bytes(content)
        output = Path(folder) / "found.json"
        with output.open("wb") as found:
            command = [sys.executable, folder, "--layers"]
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=found, stderr=subprocess.PIPE) as process:
                assert process.stdin is not None  # noqa: S101 - asked for above
                try:
                    with engine.export(image) as chunks:
                        for chunk in chunks:
                            process.stdin.write(chunk)
                except BrokenPipeError:
                    pass  # the search has ended; its exit code says how
                _, errors = process.communicate()
        try:
            return msgspec.json.decode(output.read_bytes(), type=_Searched)
        except msgspec.MsgspecError as error:
            text = (errors or b"").decode(errors="replace")[-1000:]
            raise InfrastructureError(f"{image}: its layers cannot be read: {text}", hint="see the engine") from error
