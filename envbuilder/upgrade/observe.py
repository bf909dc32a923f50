"""Ask and measure images: one closed container per question, whose answer is a typed value or a gap, and is cached."""

import base64
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from envbuilder.engine.port import FILES_AT, OWN_END_S, ContainerResult, ContainerSpec, Engine
from envbuilder.support import decoding
from envbuilder.support.console import Task
from envbuilder.upgrade import document
from envbuilder.upgrade.document import Observations, TimingSample
from envbuilder.upgrade.statistics import Samples
from envbuilder.workspace import content_key, packaged, packaged_in, read_document, write_atomically

PROBES = "probes"
_SHARED = "__init__ channel cuda_timeline elf host installed loader tensorflow_install watchdog"
SHARED = tuple(f"{name}.py" for name in _SHARED.split())
"""Files of the suite's folder that the upgrade probes use."""

_MAX_ANSWER = 64 << 20
_LIMIT_S = 900.0

_Value = TypeVar("_Value")


class NoAnswerError(ValueError):
    """A probe gave no answer, with the reason."""


@dataclass(frozen=True)
class ProbeTarget:
    """The image of a probe, its GPUs, and variables; the limits are the same for both images."""

    engine: Engine
    image: str
    gpus: str = "none"
    memory: int = 8 << 30


class Output(NamedTuple):
    """A container's output, and its failure in words ('' if it succeeded)."""

    stdout: bytes
    wrong: str


def run(engine: Engine, spec: ContainerSpec, most: int) -> tuple[ContainerResult, bytes, bytes]:
    """Run a container and return the last bytes of its output and of its errors, at most ``most`` of each."""
    printed = bytearray(), bytearray()

    def keep(kept: bytearray, data: bytes) -> None:
        kept.extend(data)
        del kept[:-most]

    ended = engine.run(spec, partial(keep, printed[0]), partial(keep, printed[1]))
    return ended, bytes(printed[0]), bytes(printed[1])


@cache
def probe_files() -> Mapping[str, bytes]:
    probes = resources.files("envbuilder") / "probes"
    own = [f"upgrade/{item.name}" for item in packaged_in(probes / "upgrade") if item.name.endswith(".py")]
    shared = [f"suite/{name}" for name in SHARED]
    return {f"{PROBES}/{path}": packaged(probes / path) for path in (*own, *shared)}


Files = Mapping[str, bytes]
Arguments = Mapping[str, object]


def run_probe(
    place: ProbeTarget, probe: str, arguments: Arguments, files: Files | None = None, limit_s: float = _LIMIT_S
) -> Output:
    spec = ContainerSpec(
        image=place.image,
        command=("python", f"{FILES_AT}/{PROBES}/upgrade", probe, json.dumps(arguments), f"{limit_s + OWN_END_S:.0f}"),
        env={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - inside the container
        files={**probe_files(), **(files or {})},
        gpus=place.gpus,
        memory=place.memory,
        time_limit=limit_s,
    )
    ended, stdout, stderr = run(place.engine, spec, _MAX_ANSWER)
    last = last_line(stderr)[:300] or "nothing was printed"
    failures = (
        (ended.flooded, "stopped: its output exceeded the limit"),
        (ended.timed_out, f"no answer within {limit_s:.0f} s"),
        (ended.out_of_memory, "the container ran out of memory"),
        (ended.exit_code, f"exit code {ended.exit_code}: {last}"),
    )
    wrong = next((text for is_so, text in failures if is_so), "")
    return Output(stdout, wrong)


def last_line(printed: bytes) -> str:
    lines = printed.decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def ask(
    place: ProbeTarget, probe: str, kind: type[_Value], arguments: Arguments | None = None, files: Files | None = None
) -> _Value:
    """Run a probe with input files, and decode its last line as ``kind``. Raises NoAnswerError."""
    output = run_probe(place, probe, arguments or {}, files=files)
    lines = output.stdout.splitlines()
    if output.wrong or not lines:
        raise NoAnswerError(output.wrong or "it printed no answer")
    try:
        return decoding.from_json(lines[-1], kind)
    except decoding.DamagedError as error:
        raise NoAnswerError(f"its output is not an answer: {error}") from error


ANSWERS = (
    ("inventory", "packages", "inventory", document.Inventory),
    ("surface", "public names", "surface", document.Surface),
    ("numerics", "numerics", "numerics", document.Numerics),
    ("printed", "warnings", "warning_lines", document.WarningLines),
)
"""Probes with one answer: its field, its name for people, the probe, and its type."""


def observe(place: ProbeTarget, task: Task) -> Observations:
    gaps: list[str] = []
    found: dict[str, Any] = {}
    for name, what, probe, kind in ANSWERS:
        task.update(what)
        try:
            found[name] = ask(place, probe, kind)
        except NoAnswerError as error:
            gaps.append(f"{what}: {error}")
    return msgspec.structs.replace(Observations(gaps=tuple(gaps)), **found)


def key_of(*places: ProbeTarget, more: Mapping[str, bytes] | None = None) -> str:
    """Name a question: images, GPUs, memory, probe sources, this machine, and further contents."""
    asked = [f"{place.image} {place.gpus} {place.memory}" for place in places]
    own = {"asked": "\n".join((platform.node(), *asked)).encode()}
    return content_key({**probe_files(), **own, **(more or {})})


@dataclass(frozen=True)
class AnswerCache:
    """Answers in a folder, by name and key of the question; ``fresh`` ignores them."""

    folder: Path
    fresh: bool = False

    def get(self, name: str, key: str, kind: type[_Value]) -> _Value | None:
        return None if self.fresh else read_document(self.folder / f"{name}-{key[7:23]}.json", kind)

    def put(self, name: str, key: str, value: object) -> None:
        write_atomically(self.folder / f"{name}-{key[7:23]}.json", msgspec.json.encode(value))

    def answer(
        self,
        name: str,
        key: str,
        kind: type[_Value],
        make: Callable[[], _Value],
        whole: Callable[[_Value], bool] = lambda _: True,
    ) -> _Value:
        """Return the cached answer, or compute it; only a ``whole`` (complete) answer is stored."""
        found = self.get(name, key, kind)
        if found is None:
            found = make()
            if whole(found):
                self.put(name, key, found)
        return found


Round = tuple[TimingSample, TimingSample]
"""A measurement of the old and of the new image, one directly after the other."""


def measure(
    old: ProbeTarget, new: ProbeTarget, rounds: int, task: Task, cache: AnswerCache
) -> tuple[tuple[Samples, ...], tuple[str, ...]]:
    """Measure both images ``rounds`` times; return samples and failures.

    A first round, which fills the page cache, does not count. The order alternates. The measurement ends if an image
    does not answer. Cached rounds are reused; a round is cached when both images have answered.
    """
    key = key_of(old, new)
    taken = cache.get("rounds", key, tuple[Round, ...]) or ()
    known = len(taken)
    if known:
        task.update(f"measured before (--fresh measures again): {min(known, rounds)} of {rounds} rounds")
    for round_ in range(known - 1, rounds) if known < rounds else ():
        task.update("measure", max(0, round_), rounds)
        answers: dict[str, TimingSample] = {}
        places = {"old": old, "new": new}
        for name in places if round_ % 2 == 0 else reversed(places):
            try:
                answers[name] = ask(places[name], "timing", TimingSample)
            except NoAnswerError as error:
                return (), (f"measurement of the {name} image: {error}",)
        if round_ >= known:
            taken = (*taken, (answers["old"], answers["new"]))
            cache.put("rounds", key, taken)
    return tuple(samples(taken[:rounds])), ()


def samples(rounds: Sequence[Round]) -> Iterator[Samples]:
    """Pair durations and memory peaks of both images by name; incomplete ones are omitted."""
    units: dict[Literal["s", "B"], str] = {"s": "seconds", "B": "bytes"}
    for unit, field in units.items():
        old, new = ([getattr(pair[image], field) for pair in rounds] for image in (0, 1))
        for name in old[0] if old else ():
            if all(name in values for values in (*old, *new)):
                before, after = (tuple(values[name] for values in each) for each in (old, new))
                yield Samples(name=name, unit=unit, old=before, new=after)


class ExchangedModels(NamedTuple):
    rows: tuple[document.ModelExchange, ...] | None
    gaps: tuple[str, ...]


def exchange(old: ProbeTarget, new: ProbeTarget) -> ExchangedModels:
    """Save on each image and load on the other; return the failures by format, and unanswered questions.

    A format that the saving image cannot load itself is omitted.
    """
    rows: list[document.ModelExchange] = []
    ways: tuple[tuple[ProbeTarget, ProbeTarget, document.SavedBy], ...] = ((old, new, "old"), (new, old, "new"))
    for writer, reader, saved_by in ways:
        try:
            failures = _failures(writer, reader)
        except (NoAnswerError, decoding.DamagedError) as error:
            return ExchangedModels(None, (f"models saved by the {saved_by} image: {error}",))
        rows += [document.ModelExchange(name=name, saved_by=saved_by, wrong=wrong) for name, wrong in failures.items()]
    return ExchangedModels(tuple(rows), ())


def _failures(writer: ProbeTarget, reader: ProbeTarget) -> dict[str, str]:
    saved = ask(writer, "models", document.SavedModels)
    formats = {name: str(number) for number, name in enumerate(saved.saved)}
    order: dict[str, object] = {"folder": f"{FILES_AT}/models", "formats": formats}
    files: dict[str, bytes] = {}
    with decoding.damaged("its answer contains other values than files"):
        for name, path, text in ((name, *file) for name, paths in saved.saved.items() for file in paths.items()):
            if not {"", ".", ".."}.isdisjoint(path.split("/")):
                # One image wrote this path, and the file is copied into the other image, next to the probes.
                raise decoding.DamagedError(f"{path} leads out of its folder")
            with decoding.damaged(f"{path} is not base64"):
                files[f"models/{formats[name]}/{path}"] = base64.b64decode(text, validate=True)
    own, other = (ask(place, "models", document.LoadOutcomes, order, files).loaded for place in (writer, reader))
    return {name: other.get(name, "no answer") for name in formats if not own.get(name)}
