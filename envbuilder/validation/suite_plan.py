"""The checks of the suite (`checks.yaml`); the plan of a run, the files of the probes, and the suite's digest."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from envbuilder.environment import Flavor
from envbuilder.finding import Code
from envbuilder.support import decoding
from envbuilder.support.python_source import code_only, for_python36
from envbuilder.verdict import CheckLevel, CheckResult, Outcome
from envbuilder.workspace import content_key, packaged, packaged_yaml

Profile = Literal["quick", "full"]

_HERE_TIMES = 2.0  # Factor of all limits without a container: the files may be on the file server of a cluster
_SENT = ("name", "group", "probe", "limit_s", "needs", "quiet", "arguments")  # What the runner reads of a check

# A comment, or a text of a finding, in a YAML file: on lines of its own, or in braces.
_SENTENCE = re.compile(
    rb"(?m)^ *#.*\n|^ +(?:message|requires|found|fix): .*\n(?: {4,}\S.*\n)*"
    rb"|\b(?:text|fix): (?:&\w+ )?(?:'(?:[^'\n]|'')*'|\"[^\"\n]*\"|[^,}\n'\"]+)"
)


class CheckGroup(msgspec.Struct, frozen=True):
    """Checks that share a process. Lanes run in parallel, groups of a lane in turn; ``host`` has no process."""

    name: str
    lane: Literal["main", "side", "host"]
    env: dict[str, str] = {}


class Check(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One check.

    ``probe`` is ``module:function``, of the suite in the image or, in the group ``host``, of this package. It is killed
    after ``limit_s``, and skipped without success of all ``needs``. ``quiet`` checks are timed, so nothing runs at the
    same time. ``proves`` is the meaning of a pass, ``codes`` are its possible findings. ``at_least`` has the seconds
    below which a measurement is impossible.
    """

    name: str
    level: CheckLevel
    group: str
    probe: str
    proves: str
    codes: tuple[Code, ...]
    limit_s: float = 60.0
    profile: Profile = "quick"
    flavor: Literal["any", "cpu", "gpu"] = "any"
    only_with: Literal["", "lock", "environment", "container", "tools"] = ""
    needs: tuple[str, ...] = ()
    quiet: bool = False
    arguments: dict[str, str] = {}
    at_least: dict[str, float] = {}

    def result(self, outcome: Outcome, observed: str = "", **more: Any) -> CheckResult:  # noqa: ANN401 - as CheckResult
        more = {"expected": self.proves, **more}
        return CheckResult(name=self.name, level=self.level, outcome=outcome, observed=observed, **more)


_TABLE = packaged_yaml("validation/checks.yaml", dict[str, tuple[dict[str, Any], ...]])
_ROWS = [{**heading, **row} for heading in _TABLE["checks"] for row in heading.pop("checks")]
GROUPS = decoding.converted(_TABLE["groups"], tuple[CheckGroup, ...], "checks.yaml is damaged")
CHECKS = decoding.converted(_ROWS, tuple[Check, ...], "checks.yaml is damaged")
HOST_GROUPS = frozenset(group.name for group in GROUPS if group.lane == "host")  # Their checks are the host's


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """The input of the probes: the expected contents of the image, and the host; never the right answers.

    ``cuda`` is the image's, ``built_cuda`` and ``built_cudnn`` are TensorFlow's. ``challenge``: what this run's numbers
    are drawn from. ``left_out``: what the image lacks of its locked wheels (distribution, and file or folder). ``form``
    is '' if it is unknown. ``without_tools`` is True if the base was accepted without XLA's tools.
    """

    flavor: Flavor
    tensorflow: str = ""
    python: str = ""
    cuda: str | None = None
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
    challenge: str = ""
    without_tools: bool = False


def select(facts: Facts) -> tuple[Check, ...]:
    applies = {
        "": True,
        "lock": bool(facts.locked),
        "environment": bool(facts.environment),
        "container": facts.place == "container",
        "tools": not facts.without_tools,
    }
    times = _HERE_TIMES if facts.place == "here" else 1.0
    return tuple(
        msgspec.structs.replace(check, limit_s=times * check.limit_s)
        for check in CHECKS
        if applies[check.only_with]
        and check.flavor in ("any", facts.flavor)
        and check.profile in ("quick", facts.profile)
    )


def plan(checks: tuple[Check, ...], facts: Facts) -> bytes:
    groups = []
    for group in (one for one in GROUPS if one.lane != "host"):
        own = [{key: getattr(check, key) for key in _SENT} for check in checks if check.group == group.name]
        groups += [{**msgspec.structs.asdict(group), "checks": own}] if own else []
    return msgspec.json.encode({"groups": groups, "facts": facts})


@cache
def probe_files() -> Mapping[str, bytes]:
    """Return the probes by file name, in a form that every Python from 3.6 on can read."""
    sources = _sources("probes/suite", ".py", ".sh")
    return {name: for_python36(data) if name.endswith(".py") else data for name, data in sources.items()}


def outside_files() -> Mapping[str, bytes]:
    """Return code and data of the checks that run on the host; `CHECKS` is hashed as values."""
    sources = _sources("validation", ".py", ".yaml")
    return {f"host/{name}": data for name, data in sources.items() if name != "checks.yaml"}


def _sources(folder: str, *endings: str) -> Mapping[str, bytes]:
    root = Path(__file__).parents[1] / folder
    paths = (path for path in sorted(root.rglob("*")) if path.suffix in endings)
    return {path.relative_to(root).as_posix(): packaged(path) for path in paths}


@cache
def digest() -> str:
    """Return the digest of the suite (``sha256:…``), which every verdict names; prose does not count."""
    return digest_of(CHECKS, {**_sources("probes/suite", ".py", ".sh"), **outside_files()})


def digest_of(checks: tuple[Check, ...], files: Mapping[str, bytes]) -> str:
    rows = [msgspec.structs.replace(check, proves="") for check in checks]
    code = {name: code_only(data) if name.endswith(".py") else _SENTENCE.sub(b"", data) for name, data in files.items()}
    return content_key({"checks": msgspec.json.encode((rows, GROUPS), order="sorted"), **code})
