"""The document that `verify` prints, its text for people, and what each reason means and the next command for it."""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec

from envbuilder.attest.requirements import Refusal, Refusals, Requirement
from envbuilder.errors import InfrastructureError, Reason
from envbuilder.registry.errors import RegistryFailedError, RegistryRefusedError
from envbuilder.registry.reference import Reference
from envbuilder.support import terminal_text, yaml_reader
from envbuilder.verdict import HostClassState, Level, Word

_SHOWN, _WIDTH = 12, 600  # reasons in the text, and characters of each; the document has all of them


class Demanded(msgspec.Struct, frozen=True, kw_only=True):
    level: Level = "cpu"
    driver: str | None = None
    gpu: str | None = None
    max_age_s: float = 90 * 86_400.0
    environment: str | None = None
    tensorflow: str | None = None


def demanded(wanted: Requirement) -> Demanded:
    gpu, name = (str(one) if one else None for one in (wanted.gpu, wanted.environment))
    given = Demanded(level=wanted.level, driver=wanted.driver, max_age_s=wanted.max_age_s, tensorflow=wanted.tensorflow)
    return msgspec.structs.replace(given, gpu=gpu, environment=name)


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `verify`: accepted because of a verdict, or every reason why not.

    ``notes`` are refusals that changed nothing: a FAILED of other hosts, statements of unknown signers.
    ``unanswered``: refused because the registry failed. ``kinds``: each required host class; ``level``, ``finished``
    and ``age_s`` (seconds) are then those of the weakest verdict, and the fields of one host are empty.
    """

    schema: str = "envbuilder/verify/v1"
    image: str
    digest: str = ""
    accepted: bool
    demanded: Demanded
    verdict: Word | None = None
    level: Level | None = None
    environment: str = ""
    tensorflow: str = ""
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    cpu: str = ""
    kernel: str = ""
    finished: str = ""
    age_s: float | None = None
    signed_by: str = ""
    signers: tuple[str, ...] = ()
    refusals: Refusals = ()
    notes: Refusals = ()
    unanswered: bool = False
    kinds: tuple[HostClassState, ...] = ()


def as_text(found: Verification) -> str:
    """Write the answer for people: the verdict if the image is accepted, host classes, and a line for each reason.

    Anybody can write parts of the reasons: control characters and line ends are removed.
    """
    head = f"{'ACCEPTED' if found.accepted else 'REFUSED'} {found.image}{f' ({found.digest})' if found.digest else ''}"
    lines = [f"{kind.kind}: {_standing(kind)}" for kind in found.kinds]
    if found.accepted:
        what = found.environment or "no environment of envbuilder"
        lines = [f"{what}: {found.verdict} at level {found.level}", *(lines or _host(found))]
    notes = found.notes if found.accepted or found.kinds else ()
    clean = [terminal_text.line(head), *(f"  {terminal_text.line(line)}" for line in lines)]
    return "\n".join([*clean, *_listed("  ", found.refusals), *_listed("  ignored: ", notes)])


def _host(found: Verification) -> tuple[str, str]:
    kernel = f"Linux {found.kernel}" if found.kernel else ""
    host = ", ".join(filter(None, (f"driver {found.driver or 'none'}", *found.gpus, found.cpu, kernel)))
    when = terminal_text.in_words(found.age_s or 0.0)
    return f"on {found.finished} ({when} ago) on a host with {host}", _signed(found.signers or (found.signed_by,))


def _signed(signers: tuple[str, ...]) -> str:
    """Name the first signer of the shown verdict, then those who signed it too or one of another host and time."""
    first, *others = signers
    return f"signed by {first}" + f"; this verdict or another that counts: {', '.join(others)}" * bool(others)


def _standing(kind: HostClassState) -> str:
    if kind.state != "passed":
        return kind.state
    age = terminal_text.in_words(kind.age_s or 0.0)
    return f"passed at level {kind.level} {age} ago on driver {kind.ran_on}, {_signed(kind.signers)}"


def _listed(indent: str, refusals: Refusals) -> list[str]:
    counted = Counter((one.reason, one.message) for one in refusals)
    steps = {(one.reason, one.message): one.next for one in reversed(refusals)}
    lines: dict[str, None] = {}  # a next step that several reasons share is written once
    for (reason, message), count in list(counted.items())[:_SHOWN]:
        text = terminal_text.line(message)
        text = text if len(text) <= _WIDTH else f"{text[:_WIDTH]}…"
        lines[f"{indent}{reason}: {text}" + (f" ({count} times)" if count > 1 else "")] = None
        if step := steps[reason, message]:
            lines[f"{indent}  next: {terminal_text.line(step)}"] = None
    more = len(counted) - _SHOWN
    return [*lines, f"{indent}… and {more} more reasons: --format json has them all"] if more > 0 else [*lines]


class ReasonText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a reason, and what to do next; the text has ``{fields}`` of the answer."""

    means: str
    next: str


@cache
def reason_texts() -> dict[Reason, ReasonText]:
    """Read reasons.yaml. Raises InfrastructureError if the installation lacks it."""
    return yaml_reader.read_yaml(Path(__file__).with_name("reasons.yaml"), dict[Reason, ReasonText])


def with_next(refusals: Refusals, image: Reference, demanded: Demanded, host: str = "") -> Refusals:
    """Add the next command to refusals that have none. ``host`` is a GPU and driver, by default the required ones."""
    gpu = demanded.gpu or ("a GPU" if demanded.level in ("gpu", "multi-gpu") else "")
    wanted = " and ".join(filter(None, (gpu, demanded.driver and f"driver {demanded.driver}")))
    fields = {"image": str(image), "name": image.name, "host_name": image.host, "level": demanded.level}
    fields["address"] = f"{'http' if image.loopback else 'https'}://{image.host}/v2/"
    fields["host"] = host or wanted or "any GPU or none"

    def text(one: Refusal) -> str:
        return reason_texts()[one.reason].next.format(**fields, statement=one.statement or "sha256:…")

    return tuple(one if one.next else msgspec.structs.replace(one, next=text(one)) for one in refusals)


@contextmanager
def advising(image: Reference) -> Iterator[None]:
    """Add a next step to an error that names none: that of its reason to an error of the registry."""
    try:
        yield
    except (RegistryFailedError, RegistryRefusedError) as error:
        (advised,) = with_next((Refusal(reason=error.fault, message="", next=error.hint),), image, Demanded())
        error.hint = advised.next
        raise
    except InfrastructureError as error:  # the engine's, which pushes and pulls: its answers have no codes
        error.hint = error.hint or f"run the command again; if access was denied: docker login {image.host}"
        raise


def shown(step: str) -> str:
    """Write a next step for people without an answer: each field in capitals."""
    return re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), step)
