"""``envbuilder diagnose``: name the first thing that keeps a GPU from computing in an environment, and its fix."""

import re
import sys

import msgspec

from envbuilder.cli.options import declared

_ENGINES = frozenset({"docker", "podman"})
_IMAGE = re.compile(r"[a-z0-9][A-Za-z0-9._/:@-]*")


@declared("diagnose")
def command(python: str, captured: str | None, *, startup: bool, form: str) -> None:
    from envbuilder.catalog.store import load
    from envbuilder.cli.capture_command import capture, words_of
    from envbuilder.cli.output import finish
    from envbuilder.errors import InputError, Problem, UsageError
    from envbuilder.reproduce.faults import as_text, diagnose_captured
    from envbuilder.reproduce.report.reported import parse
    from envbuilder.reproduce.transcript import read_report

    words = words_of(python)
    if startup and (captured or len(words) > 1):
        raise UsageError("--startup times a Python of this host", hint="give --python PATH, and omit --captured")
    text = read_report(captured) if captured else capture(python)
    document = parse(text)
    if document is None:
        problem = Problem(captured or python, 0, "", "is not the output of envbuilder capture")
        raise InputError((problem,), hint="envbuilder capture --script > capture.py; python capture.py > FILE")
    container = not captured and words[0] in _ENGINES
    image = next((word for word in reversed(words[2:-1]) if _IMAGE.fullmatch(word)), None) if container else None
    own = python if not captured and len(words) == 1 and python != sys.executable else ""
    found = diagnose_captured(text, document, load(), python=own, image=image)
    if startup:
        from envbuilder.jobs.startup import timed

        phases, slow = timed(python)
        found = msgspec.structs.replace(found, startup=phases, slow=slow)
    finish(found, form, as_text)
