"""Check an image's variables and the settings of Keras without running the image, and its start-up requirement."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from typing import Literal

import msgspec

from envbuilder.compat.rules.driver import requirement_met
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image.render import required_cuda
from envbuilder.support import decoding
from envbuilder.validation.file_records import distributions
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, escaped, finding, warning
from envbuilder.validation.image_user import can_start, home, readable, scratch
from envbuilder.workspace import packaged_yaml


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table; the file documents its keys."""

    names: tuple[str, ...]
    severity: Literal["error", "warning", "managed"]
    message: str
    allowed: tuple[str, ...] = ()
    numbers: tuple[int, int] | None = None
    pattern: str = ""

    def applies(self, value: str) -> bool:
        if not value or value.lower() in self.allowed or not re.search(self.pattern, value):
            return False
        return self.numbers is None or not all(_is_number(one, *self.numbers) for one in value.split(","))


_RULES = packaged_yaml(resources.files("envbuilder.validation") / "image_settings.yaml", tuple[_Rule, ...])

_MOST_DIGITS = 12


def _is_number(text: str, least: int, most: int) -> bool:
    return text.isdecimal() and len(text) <= _MOST_DIGITS and least <= int(text) <= most


def configuration(subject: ImageContext) -> CheckOutput:
    """Find variables that break or redirect Python, the loader, CUDA or TensorFlow, and programs that cannot start."""
    env = subject.image.env
    findings = [one for check in (*_VARIABLES, *_OTHER) for one in check(subject, env)]
    unreadable, blamed = readable(subject)
    findings += unreadable
    observed = "; ".join(one.message for one in findings) or f"{len(env)} variables, none of which breaks anything"
    expected = "a configuration that leaves Python, loader and driver unchanged, and code that its user may read"
    return CheckOutput(tuple(findings), expected, observed, blamed=blamed)


def _bad(name: str, text: str, fix: str = "") -> Finding:
    return error(Code.IMAGE_CONFIGURATION, name, text, fix=fix or f"leave {name} out of the image")


def _odd(name: str, text: str) -> Finding:
    return warning(Code.IMAGE_CONFIGURATION, name, text, fix=f"leave {name} out of the image")


def _by_table(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    reported: set[str] = set()
    severities = {"error": Severity.ERROR, "warning": Severity.WARNING, "managed": subject.severity}
    for rule in _RULES:
        for name in rule.names:
            if name not in reported and rule.applies(env.get(name, "")):
                reported.add(name)
                text = rule.message.format(name=name, value=escaped(env[name]))
                fix = f"leave {name} out of the image"
                yield finding(severities[rule.severity], Code.IMAGE_CONFIGURATION, name, text, fix=fix)


def _python(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find an unknown encoding, and byte code that Python runs instead of the sources."""
    encoding = env.get("PYTHONIOENCODING", "").partition(":")[0]
    if encoding and not _is_encoding(encoding):
        yield _bad("PYTHONIOENCODING", "PYTHONIOENCODING does not name an encoding: Python does not start")
    prefix = env.get("PYTHONPYCACHEPREFIX", "")
    folder = subject.files.resolve(prefix) if prefix.startswith("/") else ""
    if folder and any(path.startswith(f"{folder}/") and path.endswith(".pyc") for path in subject.files.paths):
        text = f"PYTHONPYCACHEPREFIX makes Python run the byte code in {escaped(prefix)} instead of its sources"
        yield _bad("PYTHONPYCACHEPREFIX", text)
    elif prefix:
        yield _odd("PYTHONPYCACHEPREFIX", f"PYTHONPYCACHEPREFIX makes Python look for byte code in {escaped(prefix)}")


def _is_encoding(name: str) -> bool:
    try:
        return bool(codecs.lookup(name))
    except (LookupError, ValueError):
        return False


def _preloaded(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        for path in filter(None, re.split(r"[:\s]+", env.get(name, "").strip())):
            if "/" in path and subject.files.file(path) is None:
                yield _bad(name, f"{name} names {escaped(path)}, which is not in the image")
            else:
                is_error = subject.is_managed or name == "LD_AUDIT"
                yield (_bad if is_error else _odd)(name, f"{name} loads {escaped(path)} into every process")
    if subject.files.file("etc/ld.so.preload") is not None and not subject.is_managed:
        yield _odd("/etc/ld.so.preload", "/etc/ld.so.preload loads libraries into every process")


_FUNCTION = re.compile(r"BASH_FUNC_(.+?)(?:%%|\(\))\Z")


def _shell_functions(_: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find functions that a shell runs instead of a program; nearly everything is started through a shell."""
    for name in sorted(env):
        if (found := _FUNCTION.match(name)) and env[name].startswith("()"):
            text = f"{escaped(name)} is run by a shell of the image instead of {escaped(found[1])}"
            yield _bad(escaped(name), text)


_CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE"),
    *("GIT_SSL_CAINFO", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS"),
)
_ZONE = re.compile(r"[A-Za-z]+/[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)?\Z")


def _paths(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find certificates and time zones that are not in the image."""
    for name in _CERTIFICATES:
        place = env.get(name, "")
        if place.startswith("/") and subject.files.resolve(place) not in subject.files.paths:
            yield _bad(name, f"{name} names {escaped(place)}, which is not in the image")
    zone = env.get("TZ", "").removeprefix(":")
    known = subject.files.resolve(f"usr/share/zoneinfo/{zone}") in subject.files.paths
    if _ZONE.match(zone) and not known and len(subject.files.paths) > 1:
        yield _odd("TZ", f"TZ names {escaped(zone)}, which is not in the image: the C library silently uses UTC")


def _framework(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    legacy = env.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    if legacy and not any(one.name == "tf-keras" for one in distributions(subject.files)):
        yield _bad("TF_USE_LEGACY_KERAS", "TF_USE_LEGACY_KERAS needs tf-keras, which is not installed")
    for name, prefix in (("XLA_FLAGS", "--xla_"), ("TF_XLA_FLAGS", "--tf_")):
        yield from _xla_flags(subject, name, prefix, env.get(name, ""))
    name = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
    if path := env.get(name, ""):
        is_error = subject.is_managed or subject.files.file(path) is None
        yield (_bad if is_error else _odd)(name, f"{name} makes TensorFlow load {escaped(path)} at its import")


def _xla_flags(subject: ImageContext, name: str, prefix: str, value: str) -> Iterator[Finding]:
    option = "--xla_gpu_cuda_data_dir="
    if value.strip() and not value.strip().startswith("-"):
        yield _bad(name, f"{name} names the file {escaped(value)}: its flags are unknown")
        return
    for word in value.split():
        if word.startswith(option):
            folder = word.removeprefix(option)
            if subject.files.file(f"{folder}/nvvm/libdevice/libdevice.10.bc") is None:
                text = f"{name} sends XLA to {escaped(folder)} for libdevice, which is not there"
                fix = f"leave {option} out, or put CUDA's tools there"
                yield error(Code.XLA_TOOLS_MISSING, name, text, fix=fix)
        elif not word.startswith(prefix):
            yield _bad(name, f"{name} contains {escaped(word)}, which XLA does not know: TensorFlow ends with an error")
        else:
            yield _odd(name, f"{name} contains {escaped(word)}, which changes how every program computes")


_NO_GPU = ("", "void", "none", "nodevfiles", "-1")
_EVERY_GPU: Mapping[str, tuple[str, ...]] = {"CUDA_VISIBLE_DEVICES": (), "NVIDIA_VISIBLE_DEVICES": ("all",)}
"""Values that do not name single GPUs of one host."""


def _gpus(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    if subject.facts.flavor != "gpu":
        return
    hidden: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("CUDA_VISIBLE_DEVICES", lambda value: value.startswith("-") or value in _NO_GPU),
        ("NVIDIA_VISIBLE_DEVICES", lambda value: value in _NO_GPU),
        ("NVIDIA_DRIVER_CAPABILITIES", lambda value: not {"all", "compute"} & set(value.replace(" ", "").split(","))),
    )
    for name, hides in hidden:
        value = env.get(name, "").strip().lower()
        if name in env and hides(value):
            text = f"{name}={escaped(env[name])} hides every GPU from TensorFlow, on any host"
            yield error(Code.GPU_NOT_VISIBLE, name, text, found=env[name][:100], fix=f"leave {name} out, or name them")
        elif name in env and value not in _EVERY_GPU.get(name, (value,)):
            yield _odd(name, f"{name}={escaped(env[name])} hides the other GPUs of every host")


KERAS_FILE = "keras.json"
_MOST_SETTINGS = 1 << 20
"""Bytes of the settings of Keras that are read; Keras writes a hundred."""

_USUAL = {"floatx": "float32", "image_data_format": "channels_last"}


def keras_settings(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find a backend other than TensorFlow, and other number types, in the settings file of Keras."""
    folder = env.get("KERAS_HOME") or f"{env.get('HOME') or home(subject)}/.keras"
    path = f"{folder}/{KERAS_FILE}".strip("/")
    if subject.files.file(path) is None:
        return
    shown, content = f"/{escaped(path)}", subject.files.content(path)
    if content is None or len(content) > _MOST_SETTINGS:
        yield _odd(KERAS_FILE, f"{shown} is too large to be read: its settings are unknown")
        return
    try:
        settings = decoding.from_loose_json(content)
    except decoding.DamagedError as damage:
        yield _odd(KERAS_FILE, f"{shown} is not JSON, so Keras ignores it: {escaped(str(damage))}")
        return
    if not isinstance(settings, dict):
        yield _bad(KERAS_FILE, f"{shown} contains no settings: the import of Keras fails")
        return
    backend = settings.get("backend") or "tensorflow"
    if backend != "tensorflow" and not env.get("KERAS_BACKEND"):
        yield _bad(KERAS_FILE, f"{shown} makes Keras use {escaped(str(backend))} instead of TensorFlow")
    for name, usual in _USUAL.items():
        value = settings.get(name) or usual
        if value != usual:
            yield _odd(KERAS_FILE, f"{shown} makes Keras compute with {name}={escaped(str(value))} instead of {usual}")


_VARIABLES = (_by_table, _python, _preloaded, _shell_functions, _paths, _framework, _gpus)
_OTHER: tuple[Callable[[ImageContext, Mapping[str, str]], Iterator[Finding]], ...] = (
    keras_settings,
    can_start,
    scratch,
)

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
