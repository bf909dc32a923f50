"""Start an image as its users do, with its own user, entrypoint, PATH and folder, and let it compute."""

from __future__ import annotations

import operator
import re
import secrets
import threading
import time

import msgspec

from envbuilder.engine.port import ContainerResult, ContainerSpec, Engine, Image
from envbuilder.finding import Severity
from envbuilder.support import decoding, terminal_text
from envbuilder.validation.checks import Check
from envbuilder.validation.image_context import found
from envbuilder.verdict import CheckResult
from envbuilder.workspace import packaged_yaml

FRESH_USER = "1000730000:0"
"""An unknown user with the root group, as Kubernetes and OpenShift use (``runAsUser``)."""

_SIZE, _INNER = 7, 2
"""Such small products are exact in every float of TensorFlow, so only a wrong start changes them."""

_KEPT = 64 * 1024
_LIMIT = 32 * 1024 * 1024
"""Bytes of the end of each output that are read, and bytes that a program may print in total."""

_MARK = b"envbuilder-user-start "
_SILENT = "it ran until the limit and did not start the command"
_TEXTS = packaged_yaml("validation/entrypoint_check.yaml", dict[str, str])


class _UserStart(msgspec.Struct, frozen=True):
    product: list[float]
    script: str = ""


def check_entrypoint(engine: Engine, image: Image, check: Check, stopped: threading.Event) -> CheckResult:
    """Start the image's Python and compare its product with the right one. ``stopped`` ends it at once."""
    begun = time.monotonic()
    program, product = _drawn(image.entrypoint)
    user = FRESH_USER if check.arguments.get("user") == "fresh" else ""  # '' is the image's own

    def start(*, own: bool) -> tuple[str, str, str]:
        runs_python = own and image.entrypoint and image.entrypoint[-1].rpartition("/")[2].startswith("python")
        output, errors = bytearray(), bytearray()
        for python in ("python", "python3"):  # it may be called python3 only
            spec = ContainerSpec(
                image=image.id,
                command=("-c", program) if runs_python else (python, "-c", program),
                entrypoint=own,
                user=user,
                read_only=bool(user),
                time_limit=check.limit_s,
                output=_LIMIT,
                overdue=stopped.is_set,
            )
            ended = engine.run(spec, output.extend, errors.extend)
            if not ended.refusal:
                break
        wrong, script = _wrong(ended, bytes(output[-_KEPT:]), product)
        return terminal_text.line(wrong), script, decoding.lossy(bytes(errors[-_KEPT:]))

    wrong, _, errors = start(own=True)
    severity = Severity.ERROR
    if wrong and image.entrypoint and not stopped.is_set():
        wrong_without, script, _ = start(own=False)
        if not wrong_without:
            wrong += f"; without its entry point {terminal_text.line(' '.join(image.entrypoint)[:200])} it computes"
            if re.match(r"#!.*\r", script):
                wrong += ", and its first line ends with CRLF: Linux looks for an interpreter of that name"
            if wrong.startswith(_SILENT):
                severity = Severity.WARNING
                wrong += ": it is a program that runs on, as services do, or it waits"
            elif re.search(_TEXTS["network"], script + errors, re.VERBOSE):
                severity = Severity.WARNING
                wrong += ", and that uses the network, which this check does not give"
    whose = f"user {user or image.user or 'root'}"
    finding = found("user_start", severity, user=whose, wrong=wrong, errors=errors[-1000:])
    return check.result(
        "failed" if wrong and severity is Severity.ERROR else "passed",
        wrong or f"it does, as {whose}",
        duration_s=round(time.monotonic() - begun, 4),
        expected=check.proves,
        findings=(finding,) if wrong else (),
        log=errors[-6000:] if wrong else "",
    )


def _drawn(entrypoint: tuple[str, ...]) -> tuple[str, list[int]]:
    left = [[secrets.randbelow(16) - 8 for _ in range(_INNER)] for _ in range(_SIZE)]
    right = [[secrets.randbelow(16) - 8 for _ in range(_SIZE)] for _ in range(_INNER)]
    product = [sum(map(operator.mul, row, column)) for row in left for column in zip(*right, strict=True)]
    return _TEXTS["program"].format(left=left, right=right, mark=decoding.lossy(_MARK), words=list(entrypoint)), product


def _wrong(ended: ContainerResult, output: bytes, product: list[int]) -> tuple[str, str]:
    """Describe what is wrong with a start, '' if nothing is; return that and the text of the entry point."""
    if ended.refusal:
        return f"it cannot start: {ended.refusal.strip()[-500:]}", ""
    if ended.flooded:
        return f"it was stopped: it printed more than {_LIMIT >> 20} MiB", ""
    if ended.out_of_memory:
        return "it ran out of memory", ""
    line = next((line for line in reversed(output.splitlines()) if line.startswith(_MARK)), b"")
    if ended.timed_out:
        return "it computed and did not end in time" if line else _SILENT, ""
    try:
        answer = decoding.from_json(line.removeprefix(_MARK), _UserStart)
    except decoding.DamagedError:
        return f"its python computed nothing with TensorFlow (exit code {ended.exit_code})", ""
    return "" if answer.product == product else "the product that it printed is wrong", answer.script
