"""Start an image as its users do, with its own user, entrypoint, PATH and folder, and let it compute."""

import operator
import re
import secrets
import shlex
import threading
import time
from dataclasses import replace
from typing import NamedTuple

import msgspec

from envbuilder.engine.port import ContainerResult, ContainerSpec, Engine, Image
from envbuilder.finding import Severity
from envbuilder.support import decoding, terminal_text
from envbuilder.validation.image_context import found, shell_line
from envbuilder.validation.suite_plan import Check
from envbuilder.verdict import CheckResult
from envbuilder.workspace import packaged_yaml

FRESH_USER = "1000730000:0"  # An unknown user with the root group, as Kubernetes and OpenShift use (`runAsUser`)
_SIZE, _INNER = 7, 2  # Such small products are exact in every float of TensorFlow, so only a wrong start changes them
_KEPT = 64 * 1024
_LIMIT = 32 * 1024 * 1024  # Bytes of the end of each output that are read, and bytes that a program may print in total
_MARK = b"envbuilder-user-start "


class _Texts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    program: str
    uses_network: str
    shows_usage: str
    fix: str
    ends: dict[str, dict[str, str]]


_TEXTS = packaged_yaml("validation/entrypoint_check.yaml", _Texts)


class _UserStart(msgspec.Struct, frozen=True):
    product: list[float] = []
    script: str = ""
    missing: list[str] = []


class _Start(NamedTuple):
    """A start: how it ended (a name in the texts, '' if right), the program's answer, the end of the output."""

    end: str
    result: ContainerResult
    answer: _UserStart
    printed: str


def check_entrypoint(engine: Engine, image: Image, check: Check, stopped: threading.Event) -> CheckResult:
    """Start the image's Python and compare its product with the right one. ``stopped`` ends it at once."""
    begun = time.monotonic()
    program, product = _drawn(image.entrypoint)
    user = FRESH_USER if check.arguments.get("user") == "fresh" else ""  # '' is the image's own
    spec = ContainerSpec(
        image.id, (), user=user, read_only=bool(user), time_limit=check.limit_s, output=_LIMIT, overdue=stopped.is_set
    )
    with_entrypoint, shell = replace(spec, entrypoint=True), _login_shell(image.command)
    own = _start(engine, image, with_entrypoint, program, product, shell)
    names, answer = [own.end], own.answer
    if own.end and shell and not stopped.is_set():
        direct = _start(engine, image, with_entrypoint, program, product)
        own, names = (direct, [direct.end]) if direct.end else (own, [own.end, "login"])
    if own.end and names[-1] != "login" and image.entrypoint and not stopped.is_set():
        without = _start(engine, image, spec, program, product)
        answer = without.answer
        is_root = not user and image.user.partition(":")[0] in ("", "0", "root")
        names += () if without.end else ("without", _cause(own, answer, is_root=is_root))
    severity = Severity.WARNING if {"service", "arguments", "network", "capabilities"} & {*names} else Severity.ERROR
    refusal, shown = (own.result.refusal or "").strip()[-500:], " ".join(image.entrypoint)[:200]
    text = "".join(_TEXTS.ends[name]["text"] for name in names if name)
    lines = own.printed.replace(program, "").splitlines()  # some programs repeat their arguments
    printed = ([line.strip() for line in lines if line.strip()] or ["nothing"])[-1][:200]
    about = {"refusal": refusal, "entrypoint": shown, "printed": printed, "limit": _LIMIT >> 20}
    wrong = terminal_text.line(text.format(result=own.result, answer=answer, **about))
    whose = f"user {user or image.user or 'root'}"
    fixes = [_TEXTS.fix, *(_TEXTS.ends[name]["fix"] for name in names if name and "fix" in _TEXTS.ends[name])]
    finding = found("user_start", severity, user=whose, wrong=wrong, errors=own.printed[-1000:], fix=fixes[-1])
    return check.result(
        "failed" if wrong and severity is Severity.ERROR else "passed",
        wrong or f"it does, as {whose}",
        duration_s=round(time.monotonic() - begun, 4),
        findings=(finding,) if wrong else (),
        log=own.printed[-6000:] if wrong else "",
    )


def _login_shell(command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words before the line of a login shell, whose /etc/profile sets PATH; () if the line sets its own."""
    options, line = shell_line(command)
    is_login = re.search(r" (?:--login|-\w*l)", options)
    return () if not is_login or re.search(r"/bin/|\bPATH=|\bconda\b", line) else command[:-1]


def _start(
    engine: Engine, image: Image, spec: ContainerSpec, program: str, product: list[int], shell: tuple[str, ...] = ()
) -> _Start:
    output, errors = bytearray(), bytearray()
    runs_python = spec.entrypoint and image.entrypoint and re.search(r"(?:\A|/)python[^/]*\Z", image.entrypoint[-1])
    for python in ("python", "python3"):  # it may be called python3 only
        words = ("-c", program) if runs_python else (python, "-c", program)
        command = (*shell, shlex.join(words)) if shell else words
        ended = engine.run(replace(spec, command=command), output.extend, errors.extend)
        if not ended.refusal:
            break
    end, answer = _end(ended, bytes(output[-_KEPT:]), product)
    return _Start(end, ended, answer, decoding.lossy(bytes((errors or output)[-_KEPT:])))


def _end(ended: ContainerResult, output: bytes, product: list[int]) -> tuple[str, _UserStart]:
    line = next((line for line in reversed(output.splitlines()) if line.startswith(_MARK)), b"")
    ends = {
        "refused": ended.refusal,
        "flooded": ended.flooded,
        "out_of_memory": ended.out_of_memory,
        "goes_on": ended.timed_out and line,
        "silent": ended.timed_out,
    }
    if end := next((name for name, holds in ends.items() if holds), ""):
        return end, _UserStart()
    try:
        answer = decoding.from_json(line.removeprefix(_MARK), _UserStart)
    except decoding.DamagedError:
        return "nothing", _UserStart()
    return "" if answer.product == product else "wrong", answer


def _cause(own: _Start, answer: _UserStart, *, is_root: bool) -> str:
    code = own.result.exit_code
    holds = {
        "service": own.end == "silent",
        "missing": answer.missing,
        "capabilities": is_root and re.search("(?i)operation not permitted", own.printed),
        "limit": re.search(r"\bulimit\b", answer.script),
        "crlf": re.match(r"#!.*\r", answer.script),
        "arguments": own.end == "nothing" and code and re.search(_TEXTS.shows_usage, own.printed),
        "swallows": own.end == "nothing" and not code,
        "network": re.search(_TEXTS.uses_network, answer.script + own.printed, re.VERBOSE),
    }
    return next((name for name, one in holds.items() if one), "")


def _drawn(entrypoint: tuple[str, ...]) -> tuple[str, list[int]]:
    left = [[secrets.randbelow(16) - 8 for _ in range(_INNER)] for _ in range(_SIZE)]
    right = [[secrets.randbelow(16) - 8 for _ in range(_SIZE)] for _ in range(_INNER)]
    product = [sum(map(operator.mul, row, column)) for row in left for column in zip(*right, strict=True)]
    return _TEXTS.program.format(left=left, right=right, mark=decoding.lossy(_MARK), words=list(entrypoint)), product
