"""What each reason of `verify` and `publish` means, and the next command for it."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import msgspec

from envbuilder.attest.requirements import Refusal
from envbuilder.errors import Reason
from envbuilder.publish.verification import Demanded
from envbuilder.registry.reference import Reference
from envbuilder.support import yaml_reader


class ReasonText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The meaning of a reason, and what to do next; the text has ``{fields}`` of the answer."""

    means: str
    next: str


@cache
def reason_texts() -> dict[Reason, ReasonText]:
    """Read reasons.yaml. Raises InfrastructureError if the installation lacks it."""
    return yaml_reader.read_yaml(Path(__file__).with_name("reasons.yaml"), dict[Reason, ReasonText])


def with_next(
    refusals: tuple[Refusal, ...], image: Reference, demanded: Demanded, host: str = ""
) -> tuple[Refusal, ...]:
    """Add the next command to refusals that have none. ``host`` is a GPU and driver, by default the required ones."""
    gpu = demanded.gpu or ("a GPU" if demanded.level in ("gpu", "multi-gpu") else "")
    wanted = " and ".join(filter(None, (gpu, demanded.driver and f"driver {demanded.driver}")))
    fields = {
        "image": str(image),
        "name": image.name,
        "host_name": image.host,
        "host": host or wanted or "any GPU or none",
        "level": demanded.level,
    }

    def text(one: Refusal) -> str:
        return reason_texts()[one.reason].next.format(**fields, statement=one.statement or "sha256:…")

    return tuple(one if one.next else msgspec.structs.replace(one, next=text(one)) for one in refusals)


def shown(step: str) -> str:
    """Write a next step for people without an answer: each field in capitals."""
    return re.sub(r"\{(\w+)\}", lambda found: found[1].upper(), step)
