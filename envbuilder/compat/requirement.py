"""Requirements in the metadata of wheels: a name, bounds, and a marker."""

from functools import lru_cache

import msgspec
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


class Bound(msgspec.Struct, frozen=True):
    """One requirement: ``bounds`` are ``(operator, version)``; ``text`` is how the wheel writes them."""

    name: str
    bounds: tuple[tuple[str, str], ...]
    text: str
    marker: str = ""


@lru_cache(maxsize=8192)
def parse(text: str) -> Bound:
    """Read one requirement. Raises ValueError if it is invalid."""
    try:
        found = Requirement(text)
    except InvalidRequirement as wrong:
        raise ValueError(f"not a requirement: {text!r}") from wrong
    bounds = tuple(sorted((bound.operator, bound.version) for bound in found.specifier))
    words = ",".join(f"{operator}{version}" for operator, version in bounds)
    marker = "" if found.marker is None else str(found.marker)
    return Bound(name=canonicalize_name(found.name), bounds=bounds, text=words, marker=marker)


@lru_cache(maxsize=65_536)
def holds_for(text: str, python: str | None, arch: str = "x86_64") -> bool:
    """Return True if a requirement's marker admits this Python on Linux, or if no Python is given."""
    marker = Requirement(text).marker
    if marker is None or python is None:
        return True
    system = {"platform_system": "Linux", "sys_platform": "linux", "os_name": "posix"}
    here = {"python_version": python, "python_full_version": f"{python}.0", "platform_machine": arch}
    return marker.evaluate({**system, **here, "extra": "and-cuda"})


def exact_pin(text: str) -> tuple[str, str] | None:
    """Read ``numpy==2.0.0`` as a name and a version; None for anything that is not one exact version."""
    bound = parse(text)
    exact = [version for operator, version in bound.bounds if operator == "==" and "*" not in version]
    return (bound.name, exact[0]) if len(exact) == 1 else None


def exact_pins(texts: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    return tuple(pin for text in texts if (pin := exact_pin(text)) is not None)
