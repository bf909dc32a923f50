"""Run the upgrade probes: one closed container per question; the answer is a typed value or a gap."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TypeVar

from envbuilder.engine.port import FILES_AT, OWN_END_S, ContainerSpec, Engine
from envbuilder.support import decoding
from envbuilder.support.console import Task
from envbuilder.upgrade.observed import Inventory, Numerics, Observations, Surface, WarningLines
from envbuilder.workspace import packaged, packaged_in

PROBES = "probes"
_SHARED = "__init__ channel cuda_timeline elf host installed loader tensorflow_install watchdog"
SHARED = tuple(f"{name}.py" for name in _SHARED.split())
"""Files of the suite's folder that the upgrade probes use."""

_STDERR_KEPT = 4000
_MAX_ANSWER = 64 << 20
_LIMIT_S = 900.0

_Answer = TypeVar("_Answer")


@dataclass(frozen=True)
class Gap:
    """The reason of a missing answer."""

    why: str


@dataclass(frozen=True)
class ProbeTarget:
    """The image of a probe, its GPUs, and variables; the limits are the same for both images."""

    engine: Engine
    image: str
    gpus: str = "none"
    memory: int = 8 << 30


@dataclass(frozen=True)
class Output:
    """A container's output, and its failure in words ('' if it succeeded)."""

    stdout: bytes
    stderr: str
    wrong: str


@cache
def probe_files() -> Mapping[str, bytes]:
    """Return the sources of the upgrade probes by path, with the shared ones of the suite."""
    probes = resources.files("envbuilder") / "probes"
    own = [f"upgrade/{item.name}" for item in packaged_in(probes / "upgrade") if item.name.endswith(".py")]
    shared = [f"suite/{name}" for name in SHARED]
    return {f"{PROBES}/{path}": packaged(probes / path) for path in (*own, *shared)}


def run_probe(
    place: ProbeTarget,
    probe: str,
    arguments: Mapping[str, object],
    *,
    files: Mapping[str, bytes] | None = None,
    limit_s: float = _LIMIT_S,
) -> Output:
    """Run one probe in a new container without network, and collect its output."""
    stdout, stderr = bytearray(), bytearray()
    spec = ContainerSpec(
        image=place.image,
        command=("python", f"{FILES_AT}/{PROBES}/upgrade", probe, json.dumps(arguments), f"{limit_s + OWN_END_S:.0f}"),
        env={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - inside the container
        files={**probe_files(), **(files or {})},
        gpus=place.gpus,
        memory=place.memory,
        time_limit=limit_s,
    )
    ended = place.engine.run(
        spec,
        lambda data: stdout.extend(data[: max(0, _MAX_ANSWER - len(stdout))]),
        lambda data: stderr.extend(data) if len(stderr) < _MAX_ANSWER else None,
    )
    text = stderr[-_STDERR_KEPT:].decode(errors="replace")
    if ended.flooded:
        wrong = "stopped: its output exceeded the limit"
    elif ended.timed_out:
        wrong = f"no answer within {limit_s:.0f} s"
    elif ended.out_of_memory:
        wrong = "the container ran out of memory"
    else:
        wrong = f"exit code {ended.exit_code}: {_last_line(text)}" if ended.exit_code else ""
    return Output(bytes(stdout), text, wrong)


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "nothing was printed"


def ask(
    place: ProbeTarget,
    probe: str,
    kind: type[_Answer],
    arguments: Mapping[str, object] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> _Answer | Gap:
    """Run a probe with input files, and decode its last line as ``kind``."""
    output = run_probe(place, probe, arguments or {}, files=files)
    lines = output.stdout.splitlines()
    if output.wrong or not lines:
        return Gap(output.wrong or "it printed no answer")
    try:
        return decoding.from_json(lines[-1], kind)
    except decoding.DamagedError as error:
        return Gap(f"its output is not an answer: {error}")


def observe(place: ProbeTarget, task: Task) -> Observations:
    """Run all probes with one answer: packages, interface, numerics, warnings."""
    gaps: list[str] = []

    def answer(what: str, probe: str, kind: type[_Answer]) -> _Answer | None:
        task.update(what)
        found = ask(place, probe, kind)
        if isinstance(found, Gap):
            gaps.append(f"{what}: {found.why}")
            return None
        return found

    inventory = answer("packages", "inventory", Inventory)
    surface = answer("public names", "surface", Surface)
    numerics = answer("numerics", "numerics", Numerics)
    printed = answer("warnings", "warning_lines", WarningLines)
    return Observations(inventory=inventory, surface=surface, numerics=numerics, printed=printed, gaps=tuple(gaps))
