"""Check an image's configuration without running it: variables, start-up requirement, entry point and user."""

from __future__ import annotations

import codecs
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping

from envbuilder.compat.container import requirement_met
from envbuilder.finding import Code, Finding
from envbuilder.image.render import required_cuda
from envbuilder.support import decoding
from envbuilder.validation.file_records import distributions
from envbuilder.validation.image_context import CheckOutput, ImageContext, error, listed, warning
from envbuilder.validation.image_loader import ImagePython
from envbuilder.validation.layer_scan import FileRow

_CONDITION = re.compile(r"(?:(?:cuda|driver|arch)(?:=|!=|<|<=|>|>=)\d+(?:\.\d+)*|brand(?:=|!=)\w+)\Z")
_BRANDS = ("tesla", "geforce", "quadro", "titan", "nvidia", "grid", "nvs", "quadrortx", "nvidiartx", "unknown")
_NEWEST = ("99.0", "999.0")
"""A host that is newer than any: an image that does not start there starts nowhere that is kept up to date."""


def configuration(subject: ImageContext) -> CheckOutput:
    """Find variables that break or redirect Python, the loader, CUDA or TensorFlow, and programs that are not there."""
    env = subject.image.env
    closed = unreadable(subject)
    findings = [finding for judged in _JUDGES for finding in judged(subject, env)]
    findings += refused(subject, closed)
    observed = "; ".join(one.message for one in findings) or f"{len(env)} variables, none of which breaks anything"
    expected = "a configuration that leaves Python, loader and driver as they are, and code that its user may read"
    return CheckOutput(tuple(findings), expected, observed, blamed=below(subject, closed) if closed else frozenset())


def _loader(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("LD_PRELOAD", "LD_AUDIT"):
        for path in re.split(r"[:\s]+", env.get(name, "").strip()):
            if not path:
                continue
            if "/" in path and subject.files.file(path) is None:
                yield bad(name, f"{name} names {shown(path)}, which is not in the image")
            elif subject.is_managed or name == "LD_AUDIT":
                yield bad(name, f"{name} puts {shown(path)} into every process")
            else:
                yield odd(name, f"{name} puts {shown(path)} into every process")
    told = bad if subject.is_managed else odd
    if "$" in env.get("LD_LIBRARY_PATH", ""):
        yield told(
            "LD_LIBRARY_PATH",
            "LD_LIBRARY_PATH holds a word that the loader replaces: it leads to no folder named there",
        )
    for name in _INJECTED:
        if env.get(name):
            yield told(name, f"{name} has CUDA load {shown(env[name])} into the programs that use it")
    if subject.files.file("etc/ld.so.preload") is not None and not subject.is_managed:
        yield odd("/etc/ld.so.preload", "/etc/ld.so.preload puts libraries into every process")


_INJECTED = (
    *("CUDA_INJECTION32_PATH", "CUDA_INJECTION64_PATH", "NVTX_INJECTION32_PATH", "NVTX_INJECTION64_PATH"),
    *("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN"),
)
"""Variables by which CUDA, its markers and NCCL load a library that nobody linked."""

_CHANGES_PROGRAMS = (
    *("LD_DEBUG", "LD_BIND_NOT", "LD_SHOW_AUXV", "LD_PROFILE", "LD_HWCAP_MASK", "GLIBC_TUNABLES"),
    *("MALLOC_CHECK_", "MALLOC_PERTURB_", "GCONV_PATH", "LOCPATH"),
    *("OPENSSL_CONF", "OPENSSL_MODULES", "OPENSSL_ENGINES"),
)


_FUNCTION = re.compile(r"BASH_FUNC_(.+?)(?:%%|\(\))\Z")
_BY_SHELLS = ("BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS")


def _shell(_: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find what a shell runs in the place of programs, or before any: nearly everything is started through one."""
    for name in sorted(env):
        if (found := _FUNCTION.match(name)) and env[name].startswith("()"):
            text = f"{shown(name)} is what a shell of the image runs in the place of {shown(found[1])}"
            yield bad(shown(name), text)
    for name in _BY_SHELLS:
        if env.get(name):
            yield odd(name, f"{name} changes what every shell of the image does")


def _tracing(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    for name in _CHANGES_PROGRAMS:
        if env.get(name):
            yield odd(name, f"{name} changes how every program of the image is loaded, or takes memory")
    for name in _CERTIFICATES:
        place = env.get(name, "")
        if place.startswith("/") and subject.files.resolve(place) not in subject.files.paths:
            yield bad(name, f"{name} names {shown(place)}, which is not in the image")
    zone = env.get("TZ", "").removeprefix(":")
    known = subject.files.resolve(f"usr/share/zoneinfo/{zone}") in subject.files.paths
    if _ZONE.match(zone) and not known and len(subject.files.paths) > 1:
        yield odd("TZ", f"TZ names {shown(zone)}, which is not in the image: the C library takes UTC, and says nothing")


_CERTIFICATES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT", "AWS_CA_BUNDLE"),
    *("GIT_SSL_CAINFO", "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "HTTPLIB2_CA_CERTS"),
)
"""Variables that name the certificates by which others are trusted: a file, or a folder of them."""

_ZONE = re.compile(r"[A-Za-z]+/[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)?\Z")

_INTRA, _PTX = "TF_NUM_INTRAOP_THREADS", "CUDA_FORCE_PTX_JIT"


def _framework(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    backend = env.get("KERAS_BACKEND", "")
    if backend not in ("", "tensorflow"):
        yield bad("KERAS_BACKEND", f"KERAS_BACKEND={shown(backend)}: Keras does not use TensorFlow")
    legacy = env.get("TF_USE_LEGACY_KERAS", "").lower() in ("1", "true")
    if legacy and not any(one.name == "tf-keras" for one in distributions(subject.files)):
        yield bad("TF_USE_LEGACY_KERAS", "TF_USE_LEGACY_KERAS asks for tf-keras, which is not installed")
    yield from _switches(env)
    for name, prefix in (("XLA_FLAGS", "--xla_"), ("TF_XLA_FLAGS", "--tf_")):
        yield from _flags(subject, name, prefix, env.get(name, ""))
    for name, least in (("OMP_NUM_THREADS", 1), ("MKL_NUM_THREADS", 1), ("TF_NUM_INTEROP_THREADS", 0), (_INTRA, 0)):
        value = env.get(name, "")
        if value and not all(one.isdecimal() and int(one[:9]) >= least for one in value.split(",")):
            yield bad(name, f"{name}={shown(value)} is no number of threads")
    yield from _plugins(subject, env)
    yield from keras_settings(subject, env)
    for name in ("CUDA_LAUNCH_BLOCKING", "CUDA_CACHE_DISABLE", "TF_CPP_VMODULE", "TF_CPP_MAX_VLOG_LEVEL", _PTX):
        if env.get(name, "0") not in ("", "0"):
            yield odd(name, f"{name} slows every program of the image down")


_UNASKED: Mapping[str, str] = {
    "TF_CONFIG": "names the hosts of one cluster: whoever asks TensorFlow for a strategy waits for them",
    "NVIDIA_TF32_OVERRIDE": "has every library of CUDA's compute with TF32, or without, whatever a program says",
}
"""Variables that change, for every program, what that did not ask for."""


def _switches(env: Mapping[str, str]) -> Iterator[Finding]:
    for name in ("TF_DETERMINISTIC_OPS", "TF_CUDNN_DETERMINISTIC"):
        if env.get(name, "").lower() not in ("", "0", "1", "true", "false"):
            yield bad(name, f"{name}={shown(env[name])} is neither true nor false: TensorFlow ends with an error")
    for name, does in _UNASKED.items():
        if env.get(name):
            yield odd(name, f"{name}={shown(env[name])} {does}")
    if env.get("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "upb") not in ("", "upb", "cpp"):
        name = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
        yield odd(name, f"{name}={shown(env[name])} has protobuf do in Python what it does in C: many times slower")
    if env.get("CUDA_DISABLE_PTX_JIT", "0") not in ("", "0"):
        yield odd(
            "CUDA_DISABLE_PTX_JIT", "CUDA_DISABLE_PTX_JIT keeps every GPU that the build has no code for from use"
        )


def _plugins(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find what TensorFlow loads at its import because a variable says so."""
    name = "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"
    if path := env.get(name, ""):
        text = f"{name} has TensorFlow load {shown(path)} at its import"
        yield bad(name, text) if subject.is_managed or subject.files.file(path) is None else odd(name, text)


def _flags(subject: ImageContext, name: str, prefix: str, value: str) -> Iterator[Finding]:
    option = "--xla_gpu_cuda_data_dir="
    if value.strip() and not value.strip().startswith("-"):
        yield bad(name, f"{name} names the file {shown(value)}: what it has TensorFlow do, no variable shows")
        return
    for word in value.split():
        if word.startswith(option):
            folder = word.removeprefix(option)
            if subject.files.file(f"{folder}/nvvm/libdevice/libdevice.10.bc") is None:
                text = f"{name} sends XLA to {shown(folder)} for libdevice, and there is none"
                fix = f"leave {option} out, or put CUDA's tools there"
                yield error(Code.XLA_TOOLS_MISSING, name, text, fix=fix)
        elif not word.startswith(prefix):
            yield bad(name, f"{name} holds {shown(word)}, which is no flag of XLA's: TensorFlow ends with an error")
        else:
            yield odd(name, f"{name} holds {shown(word)}, which changes what every program computes with")


def _gpus(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
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
            text = f"{name}={shown(env[name])} keeps every GPU from TensorFlow, on any host"
            yield error(Code.GPU_NOT_VISIBLE, name, text, found=env[name][:100], fix=f"leave {name} out, or name them")
        elif name in env and env[name].strip().lower() not in _EVERY.get(name, (env[name].strip().lower(),)):
            yield odd(name, f"{name}={shown(env[name])} hides the other GPUs of every host")


_EVERY: Mapping[str, tuple[str, ...]] = {"CUDA_VISIBLE_DEVICES": (), "NVIDIA_VISIBLE_DEVICES": ("all",)}
"""Values that name no GPU of one host; other variables name none."""
_NOTHING = ("", "void", "none", "nodevfiles", "-1")


_LIST_IN_QUOTES = re.compile(r"\['[^']*'\s*[,\]]")
"""What a Dockerfile's ``CMD ['python', 'app.py']`` becomes: one text for a shell, whose first word is no program."""


def _started(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find an entry point, command or user that is not there, and a ``python`` that is not the environment's."""
    image = subject.image
    words = image.entrypoint or image.command
    if words and _program(subject, env, words[0]) is None and len(subject.files.paths) > 1:
        kind = "entry point" if image.entrypoint else "command"
        text = f"the {kind} {shown(words[0])} is not in the image: it cannot start"
        yield bad(kind, text, "name a program that is in the image")
    if words and _LIST_IN_QUOTES.match(words[-1]) and words[0].endswith("sh"):
        kind = "entry point" if image.entrypoint else "command"
        text = f"the {kind} is a list in single quotes: a shell takes it for words"
        yield bad(kind, text, "write it as JSON, in double quotes")
    name = image.user.partition(":")[0]
    whole = len(subject.files.paths) > _WHOLE_IMAGE
    accounts = subject.files.content("etc/passwd") or (b"" if whole else None)
    if name and not name.isdecimal() and accounts is not None and f"\n{name}:".encode() not in b"\n" + accounts:
        yield bad("USER", f"the user {shown(name)} is not in /etc/passwd: it cannot start", "add the user")
    own = _program(subject, env, "python") or _program(subject, env, "python3")
    found = subject.files.file(own) if own else None
    if found is not None and found.row.has_capabilities:
        text = f"/{own} has capabilities of its own: it starts in no container that does not grant them"
        yield bad("python", text, "setcap -r it, and give a container the capabilities that it needs")
    if subject.is_managed and subject.facts.python and len(subject.files.paths) > 1:
        folder = subject.files.resolve(posixpath.dirname(own or ""))
        site = posixpath.normpath(f"{folder}/../lib/python{subject.facts.python}/site-packages/tensorflow")
        somewhere = any("-packages/tensorflow/" in f"{path}/" for path in subject.files.paths)
        if somewhere and (own is None or subject.files.paths.get(site.strip("/")) is None):
            where = f"is /{own}" if own else "is nowhere"
            text = f"the python of the image's PATH {where}, and not the one that has TensorFlow"
            yield bad("PATH", text, "put the environment's bin folder first in PATH")


def _scratch(subject: ImageContext, _: Mapping[str, str]) -> Iterator[Finding]:
    """Find a /tmp that the image's user may not write to: much of what uses TensorFlow fails there."""
    user = user_number(subject)
    seen = subject.files.paths.get(subject.files.resolve("tmp"))
    if not user or len(subject.files.paths) < _WHOLE_IMAGE:
        return
    if seen is None or seen.row.kind != "folder" or not (seen.row.mode & 0o002 or seen.row.uid == user):
        text = f"its user {shown(subject.image.user)} may not write to /tmp"
        yield bad("/tmp", text, "mkdir -p /tmp && chmod 1777 /tmp")  # noqa: S108 - the image's


_WHOLE_IMAGE = 1000
"""An image of fewer files than this has no system of its own."""


def _program(subject: ImageContext, env: Mapping[str, str], word: str) -> str | None:
    """Find the program that a word starts; its path before links are followed."""
    places = [word] if "/" in word else [f"{folder}/{word}" for folder in env.get("PATH", "/usr/bin:/bin").split(":")]
    for place in places:
        path = place if place.startswith("/") else f"{subject.image.workdir}/{place}"
        found = subject.files.file(path)
        if found is not None and found.row.mode & 0o111:
            return posixpath.normpath(path).strip("/")
    return None


def requirement(subject: ImageContext) -> CheckOutput:
    """Read the image's start-up requirement as the container runtime does, and judge whom it admits."""
    env, built = subject.image.env, subject.facts.cuda or ""
    given = {name: value for name, value in env.items() if name.startswith("NVIDIA_REQUIRE_")}
    findings = [finding for name, value in sorted(given.items()) for finding in _requirement(name, value, built)]
    if subject.is_managed and not any(value.strip() for value in given.values()):
        text = "the image asks nothing of a host: a driver that is too old is found out by TensorFlow, or not at all"
        fix = f"set it to cuda>={required_cuda(built)}" if built else "set it to the image's own CUDA: cuda>=12.0"
        findings.append(error(Code.CONTAINER_REQUIREMENT, "NVIDIA_REQUIRE_CUDA", text, fix=fix))
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in ("", "0", "false"):
        text = "NVIDIA_DISABLE_REQUIRE is set: a driver that is too old is found out by TensorFlow, or not at all"
        findings.append(warning(Code.CONTAINER_REQUIREMENT, "NVIDIA_DISABLE_REQUIRE", text))
    observed = "; ".join(f"{name}={shown(value)}" for name, value in sorted(given.items())) or "no requirement"
    return CheckOutput(tuple(findings), "a requirement that admits the drivers that work", observed)


def _requirement(name: str, value: str, built: str) -> Iterator[Finding]:
    def wrong(text: str, requires: str = "") -> Finding:
        fix = "ask for the image's own CUDA" if requires else "write it as cuda>=12.0"
        return error(Code.CONTAINER_REQUIREMENT, name, text, requires=requires, found=shown(value), fix=fix)

    unread = [term for word in value.split() for term in word.split(",") if not _CONDITION.match(term)]
    if unread:
        yield wrong(f"{name} cannot be read at {shown(unread[0])}: the container will not start")
        return
    brands = {brand: _admits(value, _NEWEST[0], _NEWEST[1], brand) for brand in _BRANDS}
    if not any(brands.values()):
        yield wrong(f"{name}={shown(value)} refuses every host with a driver of today, and a newer one always works")
        return
    if not all(brands.values()):
        admitted = ", ".join(brand for brand, starts in brands.items() if starts)
        text = f"{name} admits only GPUs of the brands {admitted}"
        yield warning(Code.CONTAINER_REQUIREMENT, name, text, found=shown(value))
    if not built or not value.strip():
        return
    least = required_cuda(built)
    if all(_admits(value, built, None, brand) is False for brand in _BRANDS):
        text = f"{name}={shown(value)} asks for more than CUDA {built}, which is what is in the image"
        yield wrong(text, f"cuda>={built}")
    elif least != built and _admits(value, least, None, None) is False:
        text = f"{name}={shown(value)} refuses drivers that minor-version compatibility admits"
        yield warning(Code.CONTAINER_REQUIREMENT, name, text, requires=f"cuda>={least}", found=shown(value))


def _admits(value: str, cuda: str, driver: str | None, brand: str | None) -> bool | None:
    return requirement_met(value, cuda=cuda, driver=driver, brand=brand, capability=None)


_ELSEWHERE = ("PYTHONHOME", "PYTHONPLATLIBDIR", "PYTHONEXECUTABLE", "PYTHONUSERBASE")
_CHANGED = ("PYTHONINSPECT", "PYTHONSTARTUP", "PYTHONMALLOC", "PYTHONDEVMODE", "PYTHONVERBOSE", "PYTHONTRACEMALLOC")
_ALLOCATORS = frozenset(
    ("default", "debug", "malloc", "malloc_debug", "pymalloc", "pymalloc_debug", "mimalloc", "mimalloc_debug")
)
_LEAST_DIGITS = 640
"""The least limit on the digits of a number that Python takes, but for none at all."""


def bad(name: str, text: str, fix: str = "") -> Finding:
    """Return the finding that a variable, or what it names, breaks the image."""
    return error(Code.IMAGE_CONFIGURATION, name, text, fix=fix or f"leave {name} out of the image")


def odd(name: str, text: str) -> Finding:
    """Return the finding that a variable changes what every program of the image does, and breaks nothing."""
    return warning(Code.IMAGE_CONFIGURATION, name, text, fix=f"leave {name} out of the image")


def shown(text: str) -> str:
    """Write what an image says so that it fits a line of ours."""
    return text.encode("unicode_escape").decode()[:80]


def _number(value: str, least: int, most: int) -> bool:
    return value.isdecimal() and len(value) < 12 and least <= int(value) <= most  # noqa: PLR2004 - digits of 2^32, and more


def _encoding(value: str) -> bool:
    name = value.partition(":")[0]
    try:
        return not name or bool(codecs.lookup(name))
    except (LookupError, ValueError):
        return False


_TAKEN: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "PYTHONHASHSEED": (
        lambda value: value == "random" or _number(value, 0, (1 << 32) - 1),
        "neither random nor a number below 2^32",
    ),
    "PYTHONMALLOC": (lambda value: value in _ALLOCATORS, "no allocator of Python's"),
    "PYTHONUTF8": (lambda value: value in ("0", "1"), "neither 0 nor 1"),
    "PYTHONTRACEMALLOC": (lambda value: _number(value, 0, 65535), "no number of frames"),
    "PYTHONINTMAXSTRDIGITS": (
        lambda value: value == "0" or _number(value, _LEAST_DIGITS, (1 << 31) - 1),
        f"neither 0 nor a number from {_LEAST_DIGITS} on",
    ),
    "PYTHONIOENCODING": (_encoding, "no encoding"),
}
"""Variables whose value Python must take to start at all (tried with 3.11), and what any other value is."""


def python(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find variables with which Python does not start, looks elsewhere for code, or runs otherwise than tried."""
    for name in _ELSEWHERE:
        if env.get(name):
            yield bad(name, f"{name} sends Python elsewhere for its own files")
    refused = {name for name, (takes, _) in _TAKEN.items() if env.get(name) and not takes(env[name])}
    for name in sorted(refused):
        yield bad(name, f"{name} is {_TAKEN[name][1]}: Python does not start")
    if re.search(r"(?:^|,)error(?::|,|$)", env.get("PYTHONWARNINGS", "")):
        yield bad("PYTHONWARNINGS", "PYTHONWARNINGS turns warnings into errors: TensorFlow's own imports warn")
    if env.get("PYTHONOPTIMIZE", "0") not in ("", "0", "1"):
        yield bad("PYTHONOPTIMIZE", "PYTHONOPTIMIZE takes the docstrings away: TensorFlow's own import needs them")
    elif env.get("PYTHONOPTIMIZE"):
        yield odd("PYTHONOPTIMIZE", "PYTHONOPTIMIZE changes how every Python of the image runs")
    for name in _CHANGED:
        if env.get(name) and name not in refused:
            yield odd(name, f"{name} changes how every Python of the image runs")
    yield from _byte_code(subject, env.get("PYTHONPYCACHEPREFIX", ""))


def _byte_code(subject: ImageContext, prefix: str) -> Iterator[Finding]:
    """Find byte code in the place of the sources': Python runs it wherever its header fits."""
    folder = subject.files.resolve(prefix) if prefix.startswith("/") else ""
    if folder and any(path.startswith(f"{folder}/") and path.endswith(".pyc") for path in subject.files.paths):
        text = f"PYTHONPYCACHEPREFIX has Python run the byte code in {shown(prefix)} in the place of its sources"
        yield bad("PYTHONPYCACHEPREFIX", text)
    elif prefix:
        yield odd("PYTHONPYCACHEPREFIX", f"PYTHONPYCACHEPREFIX has Python look for byte code in {shown(prefix)}")


SUBJECT = "keras.json"
"""What such findings are about: what a start shows of it follows from them."""

_FIX = "leave keras.json out of the image"


_USUAL = {"floatx": "float32", "image_data_format": "channels_last"}


def keras_settings(subject: ImageContext, env: Mapping[str, str]) -> Iterator[Finding]:
    """Find a backend that is not TensorFlow, and other numbers than Keras computes with by itself."""
    path = _path(subject, env)
    if subject.files.file(path) is None:
        return
    content = subject.files.content(path)
    if content is None or len(content) > _MOST:
        yield odd(SUBJECT, f"/{shown(path)} is there, and was not read: what Keras takes from it is unknown")
        return
    try:
        told = decoding.from_loose_json(content)
    except decoding.DamagedError as error:
        yield odd(SUBJECT, f"/{shown(path)} is no JSON, and Keras passes over it: {shown(str(error))}")
        return
    if not isinstance(told, dict):
        yield bad(SUBJECT, f"/{shown(path)} holds no settings: whoever imports Keras fails", _FIX)
        return
    yield from _judged(told, f"/{shown(path)}", env)


def _judged(told: Mapping[str, object], path: str, env: Mapping[str, str]) -> Iterator[Finding]:
    backend = told.get("backend") or "tensorflow"
    if backend != "tensorflow" and not env.get("KERAS_BACKEND"):
        yield bad(SUBJECT, f"{path} has Keras use {shown(str(backend))}, not TensorFlow", _FIX)
    for name, usual in _USUAL.items():
        value = told.get(name) or usual
        if value != usual:
            yield odd(SUBJECT, f"{path} has Keras compute with {name}={shown(str(value))}, not {usual}")


_MOST = 1 << 20
"""Bytes of such a file that are read: Keras writes a hundred."""


def _path(subject: ImageContext, env: Mapping[str, str]) -> str:
    """Name the file, no slash in front: below KERAS_HOME, else the home of the image's user."""
    if folder := env.get("KERAS_HOME"):
        return f"{folder}/keras.json".strip("/")
    return f"{env.get('HOME') or _home(subject)}/.keras/keras.json".strip("/")


def _home(subject: ImageContext) -> str:
    user = subject.image.user.partition(":")[0] or "root"
    accounts = (subject.files.content("etc/passwd") or b"").decode("utf-8", "replace").splitlines()
    rows = (line.split(":") for line in accounts if line.count(":") > _HOME)
    return next((row[_HOME] for row in rows if user in (row[0], row[2])), "")


_HOME = 5
"""The number of the field in passwd(5)."""


_READ, _ENTER = 0o4, 0o5
_CODE = re.compile(r"\.(?:py|so(?:\.[\w.]+)?)\Z")


def unreadable(subject: ImageContext) -> list[str]:
    """List files and folders of packages that are closed to the image's user, the outermost ones; none for root.

    What a group may read counts as readable: of which groups a user is, the image's files do not say for sure.
    """
    user = user_number(subject)
    if not user:
        return []
    sites = ImagePython(subject.files, subject.image).sites
    closed: list[str] = []
    for path in sorted({*_above(sites), *_inside(subject, sites)}):
        seen = subject.files.paths.get(path)
        last = f"{closed[-1]}/" if closed else "/"
        if seen is not None and not path.startswith(last) and _is_closed(seen.row, user):
            closed.append(path)
    return closed


def below(subject: ImageContext, closed: list[str]) -> frozenset[str]:
    """Name every file that is closed, or lies below what is."""
    folders = tuple(f"{path}/" for path in closed)
    return frozenset(
        path.rpartition("/")[2] for path in subject.files.paths if path in closed or path.startswith(folders)
    )


def refused(subject: ImageContext, closed: list[str]) -> Iterator[Finding]:
    """Say so under the code that a start by that user would end with."""
    if closed:
        text = f"its user {subject.image.user[:80]} may not read {listed(closed)}"
        fix = "chmod -R a+rX, or copy it with --chown"
        yield error(Code.USER_START, f"user {subject.image.user[:80]}", text, found=listed(closed), fix=fix)


def user_number(subject: ImageContext) -> int | None:
    """Return the image's user by number; None where it is not known, 0 for root."""
    name = subject.image.user.partition(":")[0]
    if name.isdecimal() or not name:
        return int(name or 0)
    accounts = (subject.files.content("etc/passwd") or b"").decode("utf-8", "replace").splitlines()
    fields = next((line.split(":") for line in accounts if line.startswith(f"{name}:")), [])
    return int(fields[2]) if len(fields) > 2 and fields[2].isdecimal() else None  # noqa: PLR2004 - passwd(5)


def _above(sites: tuple[str, ...]) -> Iterator[str]:
    for site in sites:
        parts = site.split("/")
        yield from ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _inside(subject: ImageContext, sites: tuple[str, ...]) -> Iterator[str]:
    places = tuple(f"{site}/" for site in sites)
    for path, seen in subject.files.paths.items():
        if path.startswith(places) and (seen.row.kind == "folder" or _CODE.search(path)):
            yield path


def _is_closed(row: FileRow, user: int) -> bool:
    if row.kind not in ("file", "folder"):
        return False
    need = _ENTER if row.kind == "folder" else _READ
    owner = row.uid == user and row.mode >> 6 & need == need
    return not owner and all(row.mode >> shift & need != need for shift in (0, 3))


_JUDGES: tuple[Callable[[ImageContext, Mapping[str, str]], Iterator[Finding]], ...] = (
    python,
    _loader,
    _shell,
    _tracing,
    _framework,
    _gpus,
    _started,
    _scratch,
)
