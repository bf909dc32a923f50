"""Start an image as its users do, with its own user, entrypoint, PATH and folder, and let it compute."""

from __future__ import annotations

import operator
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from envbuilder.engine.port import ContainerResult, ContainerSpec, Engine, Image
from envbuilder.finding import Code, Finding, Severity
from envbuilder.support import decoding, terminal_text
from envbuilder.validation.checks import Check
from envbuilder.verdict import CheckResult

FRESH_USER = "1000730000:0"
"""An unknown user with the root group, as Kubernetes and OpenShift use (``runAsUser``)."""

_SIZE, _INNER = 7, 2
"""Such small products are exact in every float of TensorFlow, so only a wrong start changes them."""

_KEPT = 64 * 1024
_LIMIT = 32 * 1024 * 1024
"""Bytes that a program may print in total."""

_MARK = b"envbuilder-user-start "
_PROGRAM = """
import json, os, sys
import tensorflow as tf
left, right = {left}, {right}
product = tf.matmul(tf.constant(left, tf.float32), tf.constant(right, tf.float32))
# A program of TensorFlow 1 computes in a session.
product = product.numpy() if hasattr(product, "numpy") else tf.compat.v1.Session().run(product)
product = product.ravel().tolist()
preload = [path for path in os.environ.get("LD_PRELOAD", "").replace(":", " ").split() if "/" in path]
answer = dict(product=product, absent=[path for path in preload if not os.path.exists(path)], unreadable=[], script="")
for path in filter(os.path.isfile, {words}):
    with open(path, errors="replace") as file:
        answer["script"] += file.read(8192)
root = os.path.dirname(os.path.dirname(os.path.abspath(tf.__file__)))
for folder, _, names in os.walk(root, onerror=lambda error: answer["unreadable"].append(error.filename)):
    answer["unreadable"] += [p for p in (os.path.join(folder, n) for n in names)
                           if p.endswith((".py", ".so")) and os.path.exists(p) and not os.access(p, os.R_OK)][:5]
print("\\n{mark}" + json.dumps(answer), flush=True)
os._exit(0)
"""


class _UserStart(msgspec.Struct, frozen=True):
    product: list[float]
    absent: list[str]
    unreadable: list[str]
    script: str = ""


_NETWORK = re.compile(
    r"/dev/tcp/|\b(?:curl|dig|dockerize|getent|mysqladmin|nc|ncat|nslookup|pg_isready|ping|redis-cli|telnet|wait-for(?:-it)?"
    r"|wget|https?://|[Nn]ame resolution|[Nn]etwork is unreachable|resolve host)\b"
)
"""What a script that waits for the network starts, or what its programs print. The suite's containers have none."""


@dataclass
class _Output:
    """The output of a container: its last bytes, and the number of all bytes."""

    stopped: threading.Event
    stdout: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    total: int = 0

    def take(self, kept: bytearray) -> Callable[[bytes], None]:
        """Return a callback that stores the end of a stream."""

        def keep(data: bytes) -> None:
            self.total += len(data)
            kept.extend(data[-_KEPT:])
            del kept[:-_KEPT]

        return keep

    def overdue(self) -> bool:
        """Return True if it must stop: too much output, or validation has ended."""
        return self.total > _LIMIT or self.stopped.is_set()


def check_entrypoint(engine: Engine, image: Image, check: Check, stopped: threading.Event) -> CheckResult:
    """Start the image's Python and compare its product with the right one. ``stopped`` ends it at once."""
    begun = time.monotonic()
    left = [[secrets.randbelow(16) - 8 for _ in range(_INNER)] for _ in range(_SIZE)]
    right = [[secrets.randbelow(16) - 8 for _ in range(_SIZE)] for _ in range(_INNER)]
    program = _PROGRAM.format(left=left, right=right, mark=decoding.lossy(_MARK), words=list(image.entrypoint))
    product = [sum(map(operator.mul, row, column)) for row in left for column in zip(*right, strict=True)]
    output = _Output(stopped)
    wrong = terminal_text.line(_wrong(_started(engine, image, check, program, output), output, product))
    entry, severity = " ".join(image.entrypoint)[:200], Severity.ERROR
    if wrong and image.entrypoint and not stopped.is_set():
        plain = _Output(stopped)
        ended = _started(engine, image, check, program, plain, own=False)
        if not _wrong(ended, plain, product):
            wrong += f"; without its entry point {terminal_text.line(entry)} it computes"
            if _NETWORK.search(_answer(plain).script + decoding.lossy(bytes(output.errors))):
                severity = Severity.WARNING
                wrong += ", and that uses the network, which this check does not give"
    return _result(image, check, wrong, severity, output, begun)


def _started(
    engine: Engine, image: Image, check: Check, program: str, output: _Output, *, own: bool = True
) -> ContainerResult:
    """Run the program with the image's Python, which may be called ``python3`` only."""
    for python in ("python", "python3"):
        spec = _spec(image, check, python, program, output, own=own)
        ended = engine.run(spec, output.take(output.stdout), output.take(output.errors))
        if not ended.refusal:
            break
    return ended


def _result(image: Image, check: Check, wrong: str, severity: Severity, output: _Output, begun: float) -> CheckResult:
    finding = Finding(
        code=Code.USER_START,
        severity=severity,
        subject=_whose(image, check),
        message=wrong,
        requires="a product of TensorFlow",
        found=terminal_text.line(output.errors.decode(errors="replace")[-1000:]),
        fix="run the image's python -c 'import tensorflow' with docker run, and fix the error that it prints",
    )
    return CheckResult(
        name=check.name,
        level=check.level,
        outcome="failed" if wrong and severity is Severity.ERROR else "passed",
        duration_s=round(time.monotonic() - begun, 4),
        expected="TensorFlow computes when the image is started by its own entrypoint",
        observed=wrong or f"it does, as {_whose(image, check)}",
        findings=(finding,) if wrong else (),
        log=output.errors.decode(errors="replace")[-6000:] if wrong else "",
    )


def _is_fresh(check: Check) -> bool:
    return ("user", "fresh") in check.arguments


def _whose(image: Image, check: Check) -> str:
    return f"user {FRESH_USER}" if _is_fresh(check) else f"user {image.user or 'root'}"


def _spec(image: Image, check: Check, python: str, program: str, output: _Output, *, own: bool) -> ContainerSpec:
    """Describe the container: as restricted as the suite's, with the image's own start or with ``python`` alone."""
    interpreter = own and image.entrypoint[-1:] and image.entrypoint[-1].rpartition("/")[2].startswith("python")
    return ContainerSpec(
        image=image.id,
        command=("-c", program) if interpreter else (python, "-c", program),
        entrypoint=own,
        user=FRESH_USER if _is_fresh(check) else "",
        read_only=_is_fresh(check),
        time_limit=check.limit_s,
        overdue=output.overdue,
    )


def _wrong(ended: ContainerResult, output: _Output, product: list[int]) -> str:
    """Describe what is wrong with the start; '' if nothing is."""
    if ended.refusal:
        return f"it cannot start: {ended.refusal.strip()[-500:]}"
    stopped = (
        (ended.timed_out, "it did not answer in time"),
        (output.overdue() or ended.flooded, f"it was stopped: it printed more than {_LIMIT >> 20} MiB"),
        (ended.out_of_memory, "it ran out of memory"),
    )
    for holds, text in stopped:
        if holds:
            return text
    try:
        return _wrong_answer(_answer(output), product)
    except decoding.DamagedError:
        return f"its python computed nothing with TensorFlow (exit code {ended.exit_code})"


def _answer(output: _Output) -> _UserStart:
    """Return what the program printed. Raises DamagedError if it printed nothing."""
    line = next((line for line in reversed(bytes(output.stdout).splitlines()) if line.startswith(_MARK)), b"")
    return decoding.from_json(line.removeprefix(_MARK), _UserStart)


def _wrong_answer(answer: _UserStart, product: list[int]) -> str:
    if answer.product != product:
        return "the product that it printed is wrong"
    if answer.absent:
        return f"LD_PRELOAD names a missing file: {answer.absent[0][:200]}"
    if answer.unreadable:
        return f"its user may not read {answer.unreadable[0][:200]}, and {len(answer.unreadable) - 1} more"
    return ""
