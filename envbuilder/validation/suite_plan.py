"""The plan of a run: the checks for one environment, the document for the probes, and the digest of the suite."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Literal

import msgspec

from envbuilder.environment import Flavor
from envbuilder.validation.checks import CHECKS, GROUPS, Check, Profile
from envbuilder.validation.code_text import code_only
from envbuilder.validation.older_python import without_annotations
from envbuilder.workspace import packaged, packaged_in

_HERE_TIMES = 2.0
"""Factor of all limits without a container: the files may be on the file server of a cluster."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the probes: the expected contents of the image, and the host; never the right answers.

    ``cuda`` and ``cudnn`` are the image's, ``built_cuda`` and ``built_cudnn`` what TensorFlow was compiled with.
    ``challenge`` is what this run's numbers are drawn from; the host computes the same ones by itself.
    ``left_out`` is what this host says that an image lacks of its locked wheels: distribution, and file or folder.
    ``form`` is '' if the host does not know which form an image should have.
    ``without_tools`` is whether the base was accepted although it has none of XLA's tools.
    """

    flavor: Flavor
    tensorflow: str = ""
    python: str = ""
    package: str = ""
    cuda: str | None = None
    cudnn: str | None = None
    built_cuda: str | None = None
    built_cudnn: str | None = None
    minimum_driver: str | None = None
    libraries: tuple[str, ...] = ()
    cubins: tuple[str, ...] = ()
    ptx: tuple[str, ...] = ()
    form: str = ""
    locked: tuple[tuple[str, str], ...] = ()
    left_out: tuple[tuple[str, str], ...] = ()
    environment: str = ""
    lock: str = ""
    gpus_expected: int = 0
    simulated: bool = False
    profile: Profile = "quick"
    place: Literal["container", "here"] = "container"
    scratch: str = "/tmp"  # noqa: S108 - a path inside the container
    samples: int = 5
    challenge: str = ""
    without_tools: bool = False


def select(facts: Facts) -> tuple[Check, ...]:
    """Return the checks of the profile that apply to an environment, in the order of the table."""
    made = (check for check in CHECKS if facts.profile == "full" or check.profile == "quick")
    return tuple(_placed(check, facts) for check in made if _applies(check, facts))


def _placed(check: Check, facts: Facts) -> Check:
    """Return the check for this place: without a container limits double."""
    times = _HERE_TIMES if facts.place == "here" else 1.0
    return msgspec.structs.replace(check, limit_s=times * check.limit_s)


def _applies(check: Check, facts: Facts) -> bool:
    if check.flavor not in ("any", facts.flavor):
        return False
    match check.only_with:
        case "":
            return True
        case "lock":
            return bool(facts.locked)
        case "environment":
            return bool(facts.environment)
        case "container":
            return facts.place == "container"
        case "tools":
            return not facts.without_tools


def plan(checks: tuple[Check, ...], facts: Facts) -> bytes:
    """Write the document that the runner in the image reads: groups in order, each with its checks, and the facts."""
    groups = [
        {
            "name": group.name,
            "lane": group.lane,
            "env": group.env,
            "checks": [_order(check) for check in checks if check.group == group.name],
        }
        for group in GROUPS
        if group.lane != "host" and any(check.group == group.name for check in checks)
    ]
    return msgspec.json.encode({"groups": groups, "facts": facts})


def _order(check: Check) -> dict[str, object]:
    return {
        "name": check.name,
        "group": check.group,
        "probe": check.probe,
        "limit_s": check.limit_s,
        "needs": check.needs,
        "quiet": check.quiet,
        "arguments": dict(check.arguments),
    }


@cache
def probe_files() -> Mapping[str, bytes]:
    """Return the probes by file name, in a form that every Python from 3.6 on can read."""
    sources = _probe_sources()
    return {name: without_annotations(data) if name.endswith(".py") else data for name, data in sources.items()}


@cache
def _probe_sources() -> Mapping[str, bytes]:
    """Return the probes' sources: the suite's folder, whole and alone."""
    folder = resources.files("envbuilder") / "probes" / "suite"
    return {item.name: packaged(item) for item in packaged_in(folder) if item.name.endswith((".py", ".sh"))}


@cache
def digest() -> str:
    """Return the digest of the suite (``sha256:…``), which every verdict names.

    Comments, docstrings and the sentence of each check do not count: rewording them invalidates no verdict.
    """
    return digest_of(CHECKS, {**_probe_sources(), **outside_files()})


@cache
def outside_files() -> Mapping[str, bytes]:
    """Return code and data of the checks that run on the host, sub-folders included; `CHECKS` is hashed as values."""
    return dict(_source_files(resources.files("envbuilder") / "validation", "host/"))


def _source_files(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for item in packaged_in(folder):
        if item.name.endswith((".py", ".yaml")) and item.name != "checks.yaml":
            yield prefix + item.name, packaged(item)
        elif item.is_dir() and item.name != "__pycache__":
            yield from _source_files(item, f"{prefix}{item.name}/")


def digest_of(checks: tuple[Check, ...], files: Mapping[str, bytes]) -> str:
    """Return the digest of a table of checks, its groups, and the code of the given files."""
    rows = [msgspec.structs.replace(check, proves="") for check in checks]
    hashed = hashlib.sha256(msgspec.json.encode((rows, GROUPS), order="sorted"))
    for name, content in sorted(files.items()):
        code = code_only(content) if name.endswith(".py") else content
        hashed.update(f"{len(name)}:{name}:{len(code)}:".encode())
        hashed.update(code)
    return f"sha256:{hashed.hexdigest()}"
