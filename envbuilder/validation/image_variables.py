"""Judge an image's configuration before anything of it runs: variables, start-up requirement, what it starts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

from envbuilder.compat.container import requirement_met
from envbuilder.finding import Code, Finding
from envbuilder.image.render import required_cuda
from envbuilder.validation.file_records import distributions
from envbuilder.validation.outside import Looked, Outside, error, warning
from envbuilder.validation.readable_files import below, refused, unreadable

_CONDITION = re.compile(r"(?:(?:cuda|driver|arch)(?:=|!=|<|<=|>|>=)\d+(?:\.\d+)*|brand(?:=|!=)\w+)\Z")
_BRANDS = ("tesla", "geforce", "quadro", "titan", "nvidia", "grid", "nvs", "quadrortx", "nvidiartx", "unknown")
_NEWEST = ("99.0", "999.0")
"""A host that is newer than any: an image that does not start there starts nowhere that is kept up to date."""


def configuration(subject: Outside) -> Looked:
    """Find variables that break or redirect Python, the loader, CUDA or TensorFlow, and programs that are not there."""
    env = subject.image.env
    closed = unreadable(subject)
    findings = [finding for judged in _JUDGES for finding in judged(subject, env)]
    findings += refused(subject, closed)
    observed = "; ".join(one.message for one in findings) or f"{len(env)} variables, none of which breaks anything"
    expected = "a configuration that leaves Python, loader and driver as they are, and code that its user may read"
    return Looked(tuple(findings), expected, observed, blamed=below(subject, closed) if closed else frozenset())


def _bad(name: str, text: str, fix: str = "") -> Finding:
    return error(Code.IMAGE_CONFIGURATION, name, text, fix=fix or f"leave {name} out of the image")


def _odd(name: str, text: str) -> Finding:
    return warning(Code.IMAGE_CONFIGURATION, name, text, fix=f"leave {name} out of the image")


def _python(_: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE", "PYTHONUSERBASE"):
        if env.get(name):
            yield _bad(name, f"{name} sends Python elsewhere for its own files")
    seed = env.get("PYTHONHASHSEED", "random")
    if seed not in ("random", "") and not (seed.isdecimal() and int(seed[:12]) < 1 << 32):
        yield _bad("PYTHONHASHSEED", "PYTHONHASHSEED is neither random nor a number below 2^32: Python does not start")
    if re.search(r"(?:^|,)error(?::|,|$)", env.get("PYTHONWARNINGS", "")):
        yield _bad("PYTHONWARNINGS", "PYTHONWARNINGS turns warnings into errors: TensorFlow's own imports warn")
    if env.get("PYTHONOPTIMIZE", "0") not in ("", "0", "1"):
        yield _bad("PYTHONOPTIMIZE", "PYTHONOPTIMIZE takes the docstrings away: TensorFlow's own import needs them")
    elif env.get("PYTHONOPTIMIZE"):
        yield _odd("PYTHONOPTIMIZE", "PYTHONOPTIMIZE changes how every Python of the image runs")
    for name in ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONVERBOSE"):
        if env.get(name):
            yield _odd(name, f"{name} changes how every Python of the image runs")


def _loader(subject: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        for path in re.split(r"[:\s]+", env.get(name, "").strip()):
            if not path:
                continue
            if "/" in path and subject.files.file(path) is None:
                yield _bad(name, f"{name} names {_shown(path)}, which is not in the image")
            elif subject.is_ours or name == "LD_AUDIT":
                yield _bad(name, f"{name} puts {_shown(path)} into every process")
            else:
                yield _odd(name, f"{name} puts {_shown(path)} into every process")
    if subject.files.file("etc/ld.so.preload") is not None and not subject.is_ours:
        yield _odd("/etc/ld.so.preload", "/etc/ld.so.preload puts libraries into every process")


def _tracing(subject: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("LD_DEBUG", "LD_BIND_NOT", "LD_SHOW_AUXV", "LD_PROFILE"):
        if env.get(name):
            yield _odd(name, f"{name} changes how every program of the image is loaded")
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CUDA_INJECTION64_PATH"):
        if env.get(name, "").startswith("/") and subject.files.file(env[name]) is None:
            yield _bad(name, f"{name} names {_shown(env[name])}, which is not in the image")


def _framework(subject: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    backend = env.get("KERAS_BACKEND", "")
    if backend not in ("", "tensorflow"):
        yield _bad("KERAS_BACKEND", f"KERAS_BACKEND={_shown(backend)}: Keras does not use TensorFlow")
    legacy = env.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    if legacy and not any(one.name == "tf-keras" for one in distributions(subject.files)):
        yield _bad("TF_USE_LEGACY_KERAS", "TF_USE_LEGACY_KERAS asks for tf-keras, which is not installed")
    for name, prefix in (("XLA_FLAGS", "--xla_"), ("TF_XLA_FLAGS", "--tf_")):
        yield from _flags(subject, name, prefix, env.get(name, ""))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS"):
        value = env.get(name, "")
        if value and not re.fullmatch(r"\d+(?:,\d+)*", value):
            yield _bad(name, f"{name}={_shown(value)} is no number of threads")
    for name in ("CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_DISABLE", "TF_CPP_VMODULE", "CUDA_FORCE_PTX_JIT"):
        if env.get(name, "0") not in ("", "0"):
            yield _odd(name, f"{name} slows every program of the image down")


def _flags(subject: Outside, name: str, prefix: str, value: str) -> Iterator[Finding]:
    option = "--xla_gpu_cuda_data_dir="
    for word in value.split():
        if word.startswith(option):
            folder = word.removeprefix(option)
            if subject.files.file(f"{folder}/nvvm/libdevice/libdevice.10.bc") is None:
                text = f"{name} sends XLA to {_shown(folder)} for libdevice, and there is none"
                fix = f"leave {option} out, or put CUDA's tools there"
                yield error(Code.XLA_TOOLS_MISSING, name, text, fix=fix)
        elif not word.startswith(prefix):
            yield _bad(name, f"{name} holds {_shown(word)}, which is no flag of XLA's: TensorFlow ends with an error")
        else:
            yield _odd(name, f"{name} holds {_shown(word)}, which changes what every program computes with")


def _gpus(subject: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find what hides every GPU from a GPU image."""
    if subject.facts.flavor != "gpu":
        return
    hidden: tuple[tuple[str, Callable[[str], bool]], ...] = (
        ("CUDA_VISIBLE_DEVICES", lambda value: value.strip().startswith("-") or value.strip().lower() in _NOTHING),
        ("NVIDIA_VISIBLE_DEVICES", lambda value: value.strip().lower() in _NOTHING),
        ("NVIDIA_DRIVER_CAPABILITIES", lambda value: not {"all", "compute"} & set(value.replace(" ", "").split(","))),
    )
    for name, hides in hidden:
        if name in env and hides(env[name]):
            text = f"{name}={_shown(env[name])} keeps every GPU from TensorFlow, on any host"
            yield error(Code.GPU_NOT_VISIBLE, name, text, found=env[name][:100], fix=f"leave {name} out, or name them")
        elif name == "CUDA_VISIBLE_DEVICES" and name in env:
            yield _odd(name, f"{name}={_shown(env[name])} hides the other GPUs of every host")


_NOTHING = ("", "void", "none", "nodevfiles", "-1")


def _started(subject: Outside, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find an entry point, command or user that is not there, and a ``python`` that is not the environment's."""
    image = subject.image
    words = image.entrypoint or image.command
    if words and _program(subject, env, words[0]) is None and len(subject.files.paths) > 1:
        kind = "entry point" if image.entrypoint else "command"
        text = f"the {kind} {_shown(words[0])} is not in the image: it cannot start"
        yield _bad(kind, text, "name a program that is in the image")
    name = image.user.partition(":")[0]
    accounts = subject.files.content("etc/passwd")
    if name and not name.isdecimal() and accounts is not None and f"{name}:".encode() not in accounts:
        yield _bad("USER", f"the user {_shown(name)} is not in /etc/passwd: it cannot start", "add the user")
    python = _program(subject, env, "python") or _program(subject, env, "python3")
    if subject.is_ours and subject.facts.python and len(subject.files.paths) > 1:
        site = posixpath.normpath(f"{python or ''}/../../lib/python{subject.facts.python}/site-packages/tensorflow")
        somewhere = any("-packages/tensorflow/" in f"{path}/" for path in subject.files.paths)
        if somewhere and (python is None or subject.files.paths.get(site.strip("/")) is None):
            where = f"is /{python}" if python else "is nowhere"
            text = f"the python of the image's PATH {where}, and not the one that has TensorFlow"
            yield _bad("PATH", text, "put the environment's bin folder first in PATH")


def _program(subject: Outside, env: Mapping[str, str], word: str) -> str | None:
    """Find the program that a word starts; its path before links are followed."""
    places = [word] if "/" in word else [f"{folder}/{word}" for folder in env.get("PATH", "/usr/bin:/bin").split(":")]
    for place in places:
        path = place if place.startswith("/") else f"{subject.image.workdir}/{place}"
        found = subject.files.file(path)
        if found is not None and found.row.mode & 0o111:
            return posixpath.normpath(path).strip("/")
    return None


def _shown(text: str) -> str:
    return text.encode("unicode_escape").decode()[:80]


_JUDGES: tuple[Callable[[Outside, Mapping[str, str]], Iterator[Finding]], ...] = (
    _python,
    _loader,
    _tracing,
    _framework,
    _gpus,
    _started,
)


def requirement(subject: Outside) -> Looked:
    """Read the image's start-up requirement as the container runtime does, and judge whom it admits."""
    env, built = subject.image.env, subject.facts.cuda or ""
    given = {name: value for name, value in env.items() if name.startswith("NVIDIA_REQUIRE_")}
    findings = [finding for name, value in sorted(given.items()) for finding in _requirement(name, value, built)]
    if subject.is_ours and not any(value.strip() for value in given.values()):
        text = "the image asks nothing of a host: a driver that is too old is found out by TensorFlow, or not at all"
        fix = f"set it to cuda>={required_cuda(built)}" if built else "set it to the image's own CUDA: cuda>=12.0"
        findings.append(error(Code.CONTAINER_REQUIREMENT, "NVIDIA_REQUIRE_CUDA", text, fix=fix))
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in ("", "0", "false"):
        text = "NVIDIA_DISABLE_REQUIRE is set: a driver that is too old is found out by TensorFlow, or not at all"
        findings.append(warning(Code.CONTAINER_REQUIREMENT, "NVIDIA_DISABLE_REQUIRE", text))
    observed = "; ".join(f"{name}={_shown(value)}" for name, value in sorted(given.items())) or "no requirement"
    return Looked(tuple(findings), "a requirement that admits the drivers that work", observed)


def _requirement(name: str, value: str, built: str) -> Iterator[Finding]:
    def wrong(text: str, requires: str = "") -> Finding:
        fix = "ask for the image's own CUDA" if requires else "write it as cuda>=12.0"
        return error(Code.CONTAINER_REQUIREMENT, name, text, requires=requires, found=_shown(value), fix=fix)

    unread = [term for word in value.split() for term in word.split(",") if not _CONDITION.match(term)]
    if unread:
        yield wrong(f"{name} cannot be read at {_shown(unread[0])}: the container will not start")
        return
    brands = {brand: _admits(value, _NEWEST[0], _NEWEST[1], brand) for brand in _BRANDS}
    if not any(brands.values()):
        yield wrong(f"{name}={_shown(value)} refuses every host with a driver of today, and a newer one always works")
        return
    if not all(brands.values()):
        admitted = ", ".join(brand for brand, starts in brands.items() if starts)
        text = f"{name} admits only GPUs of the brands {admitted}"
        yield warning(Code.CONTAINER_REQUIREMENT, name, text, found=_shown(value))
    if not built or not value.strip():
        return
    least = required_cuda(built)
    if all(_admits(value, built, None, brand) is False for brand in _BRANDS):
        text = f"{name}={_shown(value)} asks for more than CUDA {built}, which is what is in the image"
        yield wrong(text, f"cuda>={built}")
    elif least != built and _admits(value, least, None, None) is False:
        text = f"{name}={_shown(value)} refuses drivers that minor-version compatibility admits"
        yield warning(Code.CONTAINER_REQUIREMENT, name, text, requires=f"cuda>={least}", found=_shown(value))


def _admits(value: str, cuda: str, driver: str | None, brand: str | None) -> bool | None:
    return requirement_met(value, cuda=cuda, driver=driver, brand=brand, capability=None)
