"""Evaluate an image's ``NVIDIA_REQUIRE_CUDA`` as the container runtime does: spaces are OR, commas are AND."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.rule import Rule
from envbuilder.finding import Code, Finding

_CONDITION = re.compile(r"^(cuda|driver|arch|brand)(>=|<=|!=|=|<|>)([A-Za-z0-9.]+)$")

Truth = bool | None


def requirement_met(
    text: str, *, cuda: str | None, driver: str | None, brand: str | None, capability: str | None
) -> Truth:
    """Evaluate a requirement for one GPU; None where a value that decides is not known.

    Raises ValueError for a text that is no requirement.
    """
    known = {"cuda": cuda, "driver": driver, "brand": brand, "arch": capability}
    any_of: list[Truth] = []
    for alternative in text.split():
        every = [_condition(part, known) for part in alternative.split(",")]
        any_of.append(False if False in every else None if None in every else True)
    if True in any_of or not any_of:
        return True
    return None if None in any_of else False


def _condition(text: str, known: dict[str, str | None]) -> Truth:
    found = _CONDITION.match(text)
    if found is None:
        raise ValueError(f"not a condition of NVIDIA_REQUIRE_CUDA: {text!r}")
    name, operator, wanted = found.groups()
    value = known[name]
    if value is None:
        return None
    if name == "brand":
        return (value == wanted) is (operator == "=")
    ours, theirs = versions.key(value), versions.key(wanted)
    return {
        ">=": ours >= theirs,
        "<=": ours <= theirs,
        "<": ours < theirs,
        ">": ours > theirs,
        "=": ours == theirs,
        "!=": ours != theirs,
    }[operator]


def container_starts(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """CONTAINER_REQUIREMENT: the runtime refuses to start the image on this driver and GPU."""
    image, driver, branch = candidate.image, candidate.driver, candidate.branch
    if image is None or driver is None or not image.require_cuda or not candidate.gpu:
        return
    for device in candidate.devices or (None,):
        row = device.row if device is not None else None
        met = requirement_met(
            image.require_cuda,
            cuda=branch.cuda if branch is not None else None,
            driver=driver,
            brand=row.brand if row is not None else None,
            capability=device.capability if device is not None else None,
        )
        if met is not False:
            continue
        of = f" and {device.name} (brand {row.brand})" if device is not None and row is not None else ""
        yield phrases.error(
            Code.CONTAINER_REQUIREMENT,
            image.name,
            f"{image.name} refuses to start with driver {driver}{of}: its NVIDIA_REQUIRE_CUDA asks for CUDA "
            f"{image.cuda}, and the driver brings CUDA {branch.cuda if branch else 'unknown'}.",
            requires=image.require_cuda.split()[0],
            found=f"CUDA {branch.cuda if branch else 'unknown'}, driver {driver}",
            fix="Update the driver, take an image of an older CUDA, or set NVIDIA_DISABLE_REQUIRE=1 where "
            "minor-version compatibility is enough.",
            rows=(image, branch),
        )


RULES: tuple[Rule, ...] = (Rule("gpu", (Code.CONTAINER_REQUIREMENT,), container_starts),)
