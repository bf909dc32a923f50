"""Find the first bad version: the search as pure functions, then builds and runs, each answer stored immediately."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.resolve import resolve
from envbuilder.engine.port import ContainerSpec
from envbuilder.environment import Combination, Environment
from envbuilder.errors import BuildFailedError, UnsatisfiableError, UsageError
from envbuilder.support import terminal_text
from envbuilder.support.templates import rendered
from envbuilder.upgrade import observe
from envbuilder.upgrade.build import ImageBuilder
from envbuilder.upgrade.pairs import Axis, UpgradeOptions
from envbuilder.upgrade.text import wording, write
from envbuilder.verdict import CheckResult
from envbuilder.workspace import content_key, read_document, remove, write_document

Outcome = Literal["good", "bad", "other", "unbuildable", "unstable"]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one version.

    ``other`` fails, but differently from the bad end; ``unbuildable`` has no image; ``unstable`` ends differently in
    different runs. ``reason`` is the normalised last line of its output, or why there is no image; ``line`` the
    original. Of ``runs`` runs ``failed`` failed.
    """

    candidate: str
    outcome: Outcome
    exit_code: int = 0
    reason: str = ""
    line: str = ""
    runs: int = 1
    failed: int = 0

    @property
    def why(self) -> str:
        return write(wording().answers[self.outcome], self)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The last good version, the first bad version, and the undecided ones between them.

    ``doubt`` says why the result may be wrong (a bound ended differently in a further run), or is ''.
    """

    last_good: str
    first_bad: str
    between: tuple[str, ...] = ()
    doubt: str = ""


def advance(candidates: Sequence[str], answers: Sequence[Answer]) -> str | Result:
    """Return the next version or the result; only the answers matter, so an interrupted search can continue.

    ``candidates`` (at least two) lead from the good end to the bad end. A version that is unbuildable, or fails for
    another reason than the bad end, moves neither bound. Raises UsageError if an end contradicts its name.
    """
    known = {answer.candidate: answer for answer in answers}
    for end, wanted in ((0, "good"), (-1, "bad")):
        answer = known.get(candidates[end])
        if answer is None:
            return candidates[end]
        if answer.outcome != wanted:
            hint = "choose ends that differ in the command's success"
            raise UsageError(f"{answer.candidate}: said to be {wanted}, but {answer.why}", hint=hint)
    outcomes = [known[name].outcome if name in known else None for name in candidates]
    high = min(place for place, outcome in enumerate(outcomes) if outcome == "bad")
    low = max(place for place, outcome in enumerate(outcomes[:high]) if outcome == "good")
    open_places = [place for place in range(low + 1, high) if candidates[place] not in known]
    if not open_places:
        return Result(last_good=candidates[low], first_bad=candidates[high], between=tuple(candidates[low + 1 : high]))
    middle = (low + high) / 2
    return candidates[min(open_places, key=lambda place: (abs(place - middle), place))]


_NORMAL = {r"\. Did you mean:.*$": "", r"0x[0-9a-fA-F]+": "0x…", r"(?:/[\w.@+-]+)+/": "…/", r"\d+(?:\.\d+)*": "N"}


def normalised(line: str) -> str:
    """Remove numbers, addresses, folders and suggestions: they differ between versions and runs."""
    for pattern, text in _NORMAL.items():
        line = re.sub(pattern, text, line)
    return " ".join(line.split())[:300]


def most_images(candidates: int) -> int:
    return math.ceil(math.log2(candidates)) + 2


class BisectParameters(msgspec.Struct, frozen=True, kw_only=True):
    """The search parameters: axis, versions from good to bad, the fixed combination, and the command.

    ``files`` is the digest of the suite folder, ``lock`` that of the good end's committed lock ('' for none), ``gpus``
    the GPUs of the containers; each version runs ``repeat`` times.
    """

    axis: Axis
    candidates: tuple[str, ...]
    row: Combination
    command: tuple[str, ...]
    files: str = ""
    lock: str = ""
    gpus: str = "auto"
    repeat: int = 1


class BisectDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A search and its result (None while it runs); both the stored file and the command's answer."""

    schema: str = "envbuilder/bisect/v1"
    asked: BisectParameters
    answers: tuple[Answer, ...] = ()
    result: Result | None = None
    images: int = 0
    most_images: int = 0


class CommandResult(NamedTuple):
    exit_code: int
    line: str


CandidateRunner = Callable[[str], CommandResult]
"""Runs the command with one version, and returns its exit code and its last line.

Raises UnsatisfiableError or BuildFailedError if the version has no image; any other error decides nothing.
"""


def bisect(
    asked: BisectParameters, trial: CandidateRunner, folder: Path, say: Callable[[str], None], *, confirm: int = 0
) -> BisectDocument:
    """Search until there is a result; answers of an interrupted search are reused. Raises UsageError as `advance`.

    Both bounds run ``confirm`` times more; if one ends differently then, the result is in doubt.
    """
    path = folder / f"{content_key({'asked': msgspec.json.encode(asked)})[7:23]}.json"
    document = read_document(path, BisectDocument) or BisectDocument(
        asked=asked, most_images=most_images(len(asked.candidates))
    )
    if document.answers:
        say(f"continuing with {len(document.answers)} answers from {path}")
    while True:
        try:
            step = advance(asked.candidates, document.answers)
        except UsageError:
            remove(path)
            raise
        if isinstance(step, Result):
            if document.result is None:  # otherwise it was confirmed before
                doubt = _doubt(step, document, trial, confirm)
                document = msgspec.structs.replace(document, result=msgspec.structs.replace(step, doubt=doubt))
                write_document(path, document)
            return document
        answer = _run_candidate(step, document, trial)
        say(f"{answer.candidate}: {answer.outcome}{': ' + answer.line if answer.line else ''}")
        images = document.images + (answer.outcome != "unbuildable")
        document = msgspec.structs.replace(document, answers=(*document.answers, answer), images=images)
        write_document(path, document)


def _run_candidate(candidate: str, document: BisectDocument, trial: CandidateRunner) -> Answer:
    """Run one version the requested number of times: the common answer, or ``unstable``.

    One without an image is not tried again.
    """
    answers: list[Answer] = []
    while len(answers) < document.asked.repeat:
        answers.append(_once(candidate, document, trial))
        if answers[-1].outcome == "unbuildable":
            return answers[-1]
    failed = [answer for answer in answers if answer.exit_code]
    stable = len({answer.outcome for answer in answers}) == 1
    found = answers[0] if stable else msgspec.structs.replace(failed[0], outcome="unstable")
    return msgspec.structs.replace(found, runs=len(answers), failed=len(failed))


def _once(candidate: str, document: BisectDocument, trial: CandidateRunner) -> Answer:
    """Turn a run into an answer: bad only with the exit code and the last line of the bad end."""
    try:
        exit_code, line = trial(candidate)
    except (UnsatisfiableError, BuildFailedError) as error:
        return Answer(candidate=candidate, outcome="unbuildable", reason=error.message.splitlines()[0])
    if not exit_code:
        return Answer(candidate=candidate, outcome="good")
    end, reason = document.asked.candidates[-1], normalised(line)
    bad = next((answer for answer in document.answers if answer.candidate == end), None)
    same = bad is not None and (bad.exit_code, bad.reason) == (exit_code, reason)
    outcome: Outcome = "bad" if candidate == end or same else "other"
    return Answer(candidate=candidate, outcome=outcome, exit_code=exit_code, reason=reason, line=line)


def _doubt(result: Result, document: BisectDocument, trial: CandidateRunner, confirm: int) -> str:
    """Run both bounds again; return those with another result, or ''."""
    for candidate, wanted in ((result.last_good, "good"), (result.first_bad, "bad")):
        found = [_once(candidate, document, trial).outcome for _ in range(confirm)]
        others = sum(outcome != wanted for outcome in found)
        if others:
            return f"{candidate} was {wanted}, but not in {others} of {confirm} further runs (--repeat N)"
    return ""


def as_text(document: BisectDocument) -> str:
    return rendered("jobs/bisect", document=document, known={answer.candidate: answer for answer in document.answers})


def as_markdown(document: BisectDocument) -> str:
    command = terminal_text.code(" ".join(document.asked.command))
    return f"### Bisection over {document.asked.axis}\n\n{command}\n\n```\n{as_text(document)}\n```\n"


def ordered(candidates: Sequence[str], good: str, bad: str) -> tuple[str, ...]:
    """Return the versions from the good end to the bad end, both included, in either direction.

    Raises UsageError if they are the same.
    """
    every = {versions.key(name): name for name in (*candidates, good, bad)}
    low, high = sorted((versions.key(good), versions.key(bad)))
    if low == high:
        raise UsageError(f"{good} and {bad} are the same version", hint="give two ends")
    inside = [every[place] for place in sorted(every) if low <= place <= high]
    return tuple(inside if versions.key(good) == low else reversed(inside))


_KEPT, _OUTPUT = 64_000, 1 << 30
"""Bytes of a user's command that are kept, its last ones; and limit of its output, in bytes and in lines."""
_LIMIT_S = 1800.0
_TITLES = {"cuda": "CUDA", "cudnn": "cuDNN"}


@dataclass(frozen=True)
class ImageRunner:
    """Builds the image of a candidate and runs the command in it, or, with a check, reads its validation.

    The good end's lock is reused, and other versions are locked close to it.
    """

    maker: ImageBuilder
    row: Combination
    options: UpgradeOptions
    files: Mapping[str, bytes] = field(default_factory=dict)

    def __call__(self, candidate: str) -> CommandResult:
        good, check = self.options.old, self.options.check
        end, wanted = (resolved(self.row, self.options.axis, each, self.maker.catalog) for each in (good, candidate))
        locked = self.maker.lock_old(end)
        if candidate != good:
            locked = self.maker.lock_new(wanted, locked)
        built = self.maker.build(locked)
        if check is None:
            return self._run(built.record.image)
        return result_of_check(self.maker.validate(locked, built, self.options).checks, check)

    def _run(self, image: str) -> CommandResult:
        spec = ContainerSpec(
            image=image,
            command=self.options.command,
            env={"HOME": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108 - inside the container
            files={f"suite/{name}": data for name, data in self.files.items()},
            gpus="none" if self.options.gpus == "auto" else self.options.gpus,
            time_limit=_LIMIT_S,
            output=_OUTPUT,
            lines=_OUTPUT,
        )
        ended, stdout, stderr = observe.run(self.maker.engine, spec, _KEPT)
        line = observe.last_line(stderr) or observe.last_line(stdout)
        return CommandResult(124 if ended.timed_out else ended.exit_code, line)  # 124: as in timeout(1)


def result_of_check(checks: Sequence[CheckResult], name: str) -> CommandResult:
    """Convert a check's outcome: passed is 0, skipped decides nothing, anything else is a failure."""
    found = next((check for check in checks if check.name == name), None)
    if found is None or found.outcome == "skipped":
        raise UnsatisfiableError(f"{name} was not run: {found.observed if found else 'it is not for this image'}")
    reason = "; ".join(sorted({finding.code for finding in found.findings})) or found.observed
    return CommandResult(0, "") if found.outcome == "passed" else CommandResult(1, f"{found.outcome}: {reason}")


def resolved(row: Combination, axis: Axis, version: str, catalog: Catalog) -> Environment:
    """Resolve the combination with one version of the axis.

    A CUDA or cuDNN that does not fit is built as well: the search looks for the first such version. A version without
    wheels is not built, nor replaced: it raises UnsatisfiableError.
    """
    changed = msgspec.structs.replace(row, **{axis: version})
    found = resolve(changed, catalog, as_reported=axis != "tensorflow")
    if not isinstance(found, Environment):
        raise UnsatisfiableError(found.sentence)
    if axis != "tensorflow" and not versions.is_prefix(version, getattr(found, axis) or ""):
        part = f"{_TITLES[axis]} {version}"
        raise UnsatisfiableError(f"no wheels of {part} are known for {found.package} {found.tensorflow}")
    return found


def candidates(axis: Axis, row: Combination, catalog: Catalog) -> tuple[str, ...]:
    """List the versions in the catalogue: final releases, CUDA lines, cuDNN lines with wheels."""
    match axis:
        case "tensorflow":
            rows = catalog.releases(row.package or "tensorflow")
            return tuple(release.version for release in rows if versions.is_final(release.version))
        case "cuda":
            return tuple(toolkit.version for toolkit in catalog.cuda)
        case "cudnn":
            release = catalog.release(row.tensorflow, row.package or "tensorflow")
            cuda = row.cuda or (release and release.cuda)
            line = f"nvidia-cudnn-cu{versions.major(cuda)}" if cuda else ""
            return tuple(dict.fromkeys(map(versions.minor, catalog.wheel_versions(line))))
