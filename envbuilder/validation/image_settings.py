"""Check an image's variables and the settings of Keras without running the image, and its start-up requirement."""

from __future__ import annotations

import codecs
import fnmatch
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from envbuilder.compat.rules.driver import requirement_met
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image.render import required_cuda
from envbuilder.support import decoding
from envbuilder.validation.file_records import distributions
from envbuilder.validation.image_claims import document
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, escaped, finding, warning
from envbuilder.validation.image_user import can_start, home, readable, scratch
from envbuilder.workspace import packaged_yaml

_Effect = Literal["breaks", "code", "numbers", "slow", "prints", "devices", "unknown"]
_Weight = Literal["error", "warning", "managed"]


class _EffectRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    severity: _Weight
    follow: tuple[Code, ...]


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table; the file documents its keys. Without an effect it only names known variables."""

    source: str
    names: tuple[str, ...]
    effect: _Effect | None = None
    message: str = ""
    severity: _Weight | None = None
    allowed: tuple[str, ...] = ()
    numbers: tuple[int, int] | None = None
    pattern: str = ""
    absent: bool = False
    below: str = ""
    holds: str = ""
    lacks: str = ""
    empty: bool = False
    gpu: bool = False

    def applies(self, value: str) -> bool:
        if not (value or self.empty) or value.lower() in self.allowed or not re.search(self.pattern, value):
            return False
        return self.numbers is None or not all(_is_number(one, *self.numbers) for one in value.split(","))


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effects: dict[_Effect, _EffectRow]
    prefixes: tuple[str, ...]
    unknown_message: str
    variables: tuple[_Rule, ...]
    files: dict[str, str]
    template: dict[str, str]
    template_gpu: dict[str, str]


@cache
def _table() -> _Table:
    return packaged_yaml(resources.files("envbuilder.validation") / "image_settings.yaml", _Table)


@cache
def _by_name() -> Mapping[str, tuple[_Rule, ...]]:
    rules = _table().variables
    return {name: tuple(rule for rule in rules if name in rule.names) for rule in rules for name in rule.names}


@cache
def _known() -> re.Pattern[str]:
    return re.compile("|".join(map(fnmatch.translate, _by_name())))


_MOST_DIGITS = 12


def _is_number(text: str, least: int, most: int) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS and least <= int(text) <= most


@dataclass(frozen=True)
class _Setting:
    """A finding about a setting, and the kind of its effect ('' if no probe can show it)."""

    finding: Finding
    effect: _Effect | None = "breaks"


def configuration(subject: ImageContext) -> CheckOutput:
    """Find variables that break or redirect Python, the loader, CUDA or TensorFlow, and programs that cannot start."""
    env = subject.image.env
    settings = [*_by_table(subject, env), *_in_files(subject), *keras_settings(subject, env)]
    settings += [_Setting(one) for check in _CHECKS for one in check(subject, env)]
    unreadable, blamed = readable(subject)
    findings = (*(one.finding for one in settings), *unreadable)
    observed = "; ".join(one.message for one in findings) or f"{len(env)} variables, none of which breaks anything"
    if differences := ", ".join(_differences(subject, env)):
        observed += f"; differs from what the template sets: {differences}"
    expected = "a configuration that leaves Python, loader and driver unchanged, and code that its user may read"
    follow = {
        one.finding.subject: frozenset(_table().effects[one.effect].follow)
        for one in settings
        if one.effect is not None
    }
    return CheckOutput(findings, expected, observed, blamed=blamed, follow=follow)


def _bad(name: str, text: str, fix: str = "") -> Finding:
    return error(Code.IMAGE_CONFIGURATION, name, text, fix=fix or f"leave {name} out of the image")


def _odd(name: str, text: str) -> Finding:
    return warning(Code.IMAGE_CONFIGURATION, name, text, fix=f"leave {name} out of the image")


def _by_table(subject: ImageContext, env: Mapping[str, str]) -> Iterator[_Setting]:
    for name, value in env.items():
        rule = next((rule for rule in _rules(name) if _applies(subject, rule, value)), None)
        if rule is not None and rule.effect is not None:
            weight = rule.severity or _table().effects[rule.effect].severity
            text = rule.message.format(name=escaped(name), value=escaped(value))
            yield _setting(subject, rule.effect, weight, escaped(name), text)
        elif name.startswith(_table().prefixes) and not _known().match(name):
            yield _setting(
                subject, "unknown", "warning", escaped(name), _table().unknown_message.format(name=escaped(name))
            )


def _rules(name: str) -> Iterator[_Rule]:
    for rule in _by_name().get(name) or (one for one in _table().variables if one.effect):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in rule.names):
            yield rule


def _applies(subject: ImageContext, rule: _Rule, value: str) -> bool:
    if rule.effect is None or not rule.applies(value) or (rule.gpu and subject.facts.flavor != "gpu"):
        return False
    files, places = subject.files, [one for one in re.split(r"[:\s]+", value) if "/" in one]
    if rule.absent:
        return any(files.resolve(f"{rule.below}/{one}") not in files.paths for one in places) and len(files.paths) > 1
    if rule.holds:
        folders = tuple(f"{files.resolve(one)}/" for one in places)
        return any(path.startswith(folders) and path.endswith(rule.holds) for path in files.paths)
    return not rule.lacks or all(one.name != rule.lacks for one in distributions(files))


def _setting(subject: ImageContext, effect: _Effect, weight: _Weight, name: str, text: str) -> _Setting:
    severity = subject.severity if weight == "managed" else Severity(weight)
    code = Code.GPU_NOT_VISIBLE if effect == "devices" and weight == "error" else Code.IMAGE_CONFIGURATION
    return _Setting(finding(severity, code, name, text, fix=f"leave {name} out of the image"), effect)


_ASSIGNED = re.compile(r"""(\w+)=("[^"]*"|'[^']*'|\S*)""")


def _in_files(subject: ImageContext) -> Iterator[_Setting]:
    """Judge the variables of files that logins and NCCL read, and those that ONBUILD sets, at most as warnings."""
    texts = {f"/{path}": decoding.lossy(subject.files.content(path) or b"") for path in _table().files}
    onbuild = subject.image.settings.get("on_build")
    words = [str(one).partition(" ") for one in onbuild] if isinstance(onbuild, list | tuple) else []
    texts["ONBUILD"] = "\n".join(rest for instruction, _, rest in words if instruction.upper() == "ENV")
    for place, text in texts.items():
        env = {name: value.strip("\"'") for name, value in _ASSIGNED.findall(re.sub(r"(?m)^\s*#.*", "", text))}
        for one in _by_table(subject, env):
            name, message = f"{place}: {one.finding.subject}", f"{place}: {one.finding.message}"
            yield _Setting(warning(Code.IMAGE_CONFIGURATION, name, message, fix=f"leave it out of {place}"), one.effect)


def _differences(subject: ImageContext, env: Mapping[str, str]) -> Iterator[str]:
    """Name what differs from the template in an image of envbuilder; the table says which of it is a finding."""
    declared = document(subject.files) if subject.is_managed else None
    if declared is None:
        return
    added, image, settings = declared.added, subject.image, subject.image.settings
    expected = {**_table().template, **(_table().template_gpu if declared.flavor == "gpu" else {}), **dict(added.env)}
    if not declared.base:
        known = {*expected, "NVIDIA_REQUIRE_CUDA"}  # the check `start-up-requirement` judges that one
        yield from (f"ENV {escaped(name)}" for name in env if name not in known)
    yield from (f"ENV {name}" for name, value in expected.items() if not env.get(name, "").startswith(value))
    account = added.user or "envbuilder"
    rows: tuple[tuple[str, object, object], ...] = (
        ("USER", image.user, account),
        ("WORKDIR", image.workdir, added.workdir or f"/home/{account}"),
        ("ENTRYPOINT", image.entrypoint, added.entrypoint),
        ("CMD", image.command, ("python",)),
    )
    yield from (f"{name} {escaped(str(actual))}" for name, actual, wanted in rows if actual != wanted)
    yield from (name for name in _NOT_SET if settings.get(name))


_NOT_SET = ("volumes", "healthcheck", "on_build", "stop_signal", "shell", "exposed_ports")
"""Settings that the template leaves out, as the engine calls them."""


def _instructions(subject: ImageContext, _: Mapping[str, str]) -> Iterator[Finding]:
    """Find a volume that hides installed files, and a health check, which runs in every container."""
    volumes = subject.image.settings.get("volumes")
    for volume in volumes if isinstance(volumes, dict) else ():
        folder = f"{subject.files.resolve(str(volume))}/"
        if any("-packages/" in path and path.startswith(folder) for path in subject.files.paths):
            yield _odd(
                "VOLUME", f"the volume {escaped(str(volume))} holds the installed packages: an old one hides them"
            )
    if subject.files.file("etc/ld.so.preload") is not None and not subject.is_managed:
        yield _odd("/etc/ld.so.preload", "/etc/ld.so.preload loads libraries into every process")
    if check := subject.image.settings.get("healthcheck"):
        text = f"every container runs the health check {escaped(str(check))}"
        yield finding(Severity.INFO, Code.IMAGE_CONFIGURATION, "HEALTHCHECK", text)


def _python(_: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    encoding = env.get("PYTHONIOENCODING", "").partition(":")[0]
    if encoding and not _is_encoding(encoding):
        yield _bad("PYTHONIOENCODING", "PYTHONIOENCODING does not name an encoding: Python does not start")


def _is_encoding(name: str) -> bool:
    try:
        return bool(codecs.lookup(name))
    except (LookupError, ValueError):
        return False


def _xla_tools(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    for folder in re.findall(r"--xla_gpu_cuda_data_dir=(\S*)", env.get("XLA_FLAGS", "")):
        if subject.files.file(f"{folder}/nvvm/libdevice/libdevice.10.bc") is None:
            text = f"XLA_FLAGS sends XLA to {escaped(folder)} for libdevice, which is not there"
            fix = "leave --xla_gpu_cuda_data_dir out, or put CUDA's tools there"
            yield error(Code.XLA_TOOLS_MISSING, "XLA_FLAGS", text, fix=fix)


KERAS_FILE = "keras.json"
_MOST_SETTINGS = 1 << 20
"""Bytes of the settings of Keras that are read; Keras writes a hundred."""


def keras_settings(subject: ImageContext, env: Mapping[str, str]) -> Iterator[_Setting]:
    """Judge the settings file of Keras: each setting is a row of the table, with the file's name before its own."""
    folder = env.get("KERAS_HOME") or f"{env.get('HOME') or home(subject)}/.keras"
    path = f"{folder}/{KERAS_FILE}".strip("/")
    if subject.files.file(path) is None:
        return
    shown, content = f"/{escaped(path)}", subject.files.content(path)
    if content is None or len(content) > _MOST_SETTINGS:
        yield _Setting(_odd(KERAS_FILE, f"{shown} is too large to be read: its settings are unknown"))
        return
    try:
        settings = decoding.from_loose_json(content)
    except decoding.DamagedError as damage:
        yield _Setting(_odd(KERAS_FILE, f"{shown} is not JSON, so Keras ignores it: {escaped(str(damage))}"))
        return
    if not isinstance(settings, dict):
        yield _Setting(_bad(KERAS_FILE, f"{shown} contains no settings: the import of Keras fails"))
        return
    values = {f"{KERAS_FILE} {name}": str(value) for name, value in settings.items()}
    values.pop(f"{KERAS_FILE} backend" if env.get("KERAS_BACKEND") else "", None)
    for one in _by_table(subject, values):
        yield _Setting(msgspec.structs.replace(one.finding, subject=KERAS_FILE, fix=f"correct {shown}"), one.effect)


_Check = Callable[[ImageContext, Mapping[str, str]], Iterator[Finding]]
_CHECKS: tuple[_Check, ...] = (_python, _xla_tools, _instructions, can_start, scratch)

_CONDITION = re.compile(r"(?:(?:cuda|driver|arch)(?:=|!=|<|<=|>|>=)\d+(?:\.\d+)*|brand(?:=|!=)\w+)\Z")
_BRANDS = ("tesla", "geforce", "quadro", "titan", "nvidia", "grid", "nvs", "quadrortx", "nvidiartx", "unknown")
_NEWEST = ("99.0", "999.0")
"""A host newer than any: an image that does not start there starts on no up-to-date host."""

_LATE = "TensorFlow reports a driver that is too old, or nothing does"


def requirement(subject: ImageContext) -> CheckOutput:
    """Read the image's start-up requirement as the container runtime does, and check which hosts it admits."""
    env, built = subject.image.env, subject.facts.cuda or ""
    given = {name: value for name, value in sorted(env.items()) if name.startswith("NVIDIA_REQUIRE_")}
    findings = [one for name, value in given.items() for one in _requirement(name, value, built)]
    if subject.is_managed and not any(value.strip() for value in given.values()):
        text = f"the image requires nothing of a host: {_LATE}"
        fix = f"set it to cuda>={required_cuda(built)}" if built else "set it to the image's own CUDA: cuda>=12.0"
        findings.append(error(Code.CONTAINER_REQUIREMENT, "NVIDIA_REQUIRE_CUDA", text, fix=fix))
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in ("", "0", "false"):
        text = f"NVIDIA_DISABLE_REQUIRE is set: {_LATE}"
        findings.append(warning(Code.CONTAINER_REQUIREMENT, "NVIDIA_DISABLE_REQUIRE", text))
    observed = "; ".join(f"{name}={escaped(value)}" for name, value in given.items()) or "no requirement"
    return CheckOutput(tuple(findings), "a requirement that admits the drivers that work", observed)


def _requirement(name: str, value: str, built: str) -> Iterator[Finding]:
    def wrong(text: str, requires: str = "") -> Finding:
        fix = "ask for the image's own CUDA" if requires else "write it as cuda>=12.0"
        return error(Code.CONTAINER_REQUIREMENT, name, text, requires=requires, found=escaped(value), fix=fix)

    invalid = [term for word in value.split() for term in word.split(",") if not _CONDITION.match(term)]
    if invalid:
        yield wrong(f"{name} is not valid at {escaped(invalid[0])}: the container will not start")
        return
    brands = {brand: _admits(value, _NEWEST[0], _NEWEST[1], brand) for brand in _BRANDS}
    if not any(brands.values()):
        yield wrong(f"{name}={escaped(value)} refuses every host with a current driver; a newer driver always works")
        return
    if not all(brands.values()):
        admitted = ", ".join(brand for brand, starts in brands.items() if starts)
        text = f"{name} admits only GPUs of the brands {admitted}"
        yield warning(Code.CONTAINER_REQUIREMENT, name, text, found=escaped(value))
    if not built or not value.strip():
        return
    least = required_cuda(built)
    if all(_admits(value, built, None, brand) is False for brand in _BRANDS):
        text = f"{name}={escaped(value)} requires more than CUDA {built}, the version in the image"
        yield wrong(text, f"cuda>={built}")
    elif least != built and _admits(value, least, None, None) is False:
        text = f"{name}={escaped(value)} refuses drivers that minor-version compatibility admits"
        yield warning(Code.CONTAINER_REQUIREMENT, name, text, requires=f"cuda>={least}", found=escaped(value))


def _admits(value: str, cuda: str, driver: str | None, brand: str | None) -> bool | None:
    return requirement_met(value, cuda=cuda, driver=driver, brand=brand, capability=None)
