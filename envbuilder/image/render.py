"""Render an environment's build context from templates: deterministic text from facts, wishes and a lock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING

import msgspec

from envbuilder.engine.archive import MODIFIED
from envbuilder.environment import Environment
from envbuilder.errors import InputError, Problem
from envbuilder.image import lockfile, omissions, system_lock
from envbuilder.image.names import BASES, TOOLS_SYSTEM
from envbuilder.image.parts import cuda_names, parts
from envbuilder.image.system_lock import SYSTEM_LOCK
from envbuilder.support import decoding, terminal_text
from envbuilder.versions import major, minor, pins
from envbuilder.workspace import packaged

if TYPE_CHECKING:
    import jinja2

_WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z")
_FOLDER = re.compile(r"^(?:\*|[a-z0-9_]+)\Z")

_HOST_README = """\
What the build host adds to the steps that reach the network, and to no layer of the image:
ca-certificates.crt (its certificate bundle), pip.conf and uv.toml (its package index).
`envbuilder build` fills these in; by hand, put your own here where you need them.
"""


_WITH_HOST = """\
--mount=type=bind,source=host,target=/run/host{cache} \\
    if [ -s /run/host/ca-certificates.crt ]; then \\
      export SSL_CERT_FILE=/run/host/ca-certificates.crt PIP_CERT=/run/host/ca-certificates.crt; fi; \\
    if [ -s /run/host/pip.conf ]; then export PIP_CONFIG_FILE=/run/host/pip.conf; fi; \\
    if [ -s /run/host/uv.toml ]; then export UV_CONFIG_FILE=/run/host/uv.toml; fi; \\"""


def with_host(cache: str = "") -> str:
    """Return what follows ``RUN`` in a step that reaches the network, up to the end of a line before its command.

    It gives the step, and no layer, what the build host adds (``host/`` of the context): its certificate bundle and its
    package index. ``cache`` names a folder below ``/root/.cache`` that is kept between builds.
    """
    return _WITH_HOST.format(cache=f" --mount=type=cache,target=/root/.cache/{_word(cache)}" if cache else "")


def render_context(
    environment: Environment,
    lock: str,
    templates: Mapping[str, str],
    added: Mapping[str, bytes] | None = None,
    *,
    left_out: str = "",
    system: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """Return every file of a build context, by its path in it.

    ``lock`` is the environment's lock; ``templates`` are the texts of ``templates/`` by name, and the matrix's own
    where it has one; ``added`` are the contents of the files that the matrix adds, by their path in the workspace;
    ``left_out`` is the list of what the image lacks, where its form is not ``devel``; ``system`` are the locks of what
    is asked of the system itself, by their names.
    Raises ValueError where a value could end an instruction of the Dockerfile: nothing unchecked is written into one.
    Raises InputError where a template of one's own cannot be rendered.
    """
    files = {
        "Dockerfile": _dockerfile(environment, lock, templates, left_out, system or {}),
        "environment.json": _document(environment),
        lockfile.LOCK: lock,
        "tools.lock": templates["tools.lock"],
        "host/README": _HOST_README,
        **(system or {}),
    }
    if environment.cuda_wheels and not environment.form:
        files["cuda.lock"] = lockfile.subset(lock, cuda_names(environment))
    if environment.form:
        files |= _leaving_out(environment, lock, left_out)
    whole = {path: text.encode() for path, text in files.items()}
    whole |= {f"files/{path}": content for path, content in (added or {}).items()}
    return dict(sorted(whole.items()))


def _leaving_out(environment: Environment, lock: str, left_out: str) -> dict[str, str]:
    """Return the list, the parts that its layers are made with, and the programs that its steps run."""
    listed, folder = omissions.parse(left_out), resources.files("envbuilder")
    files = {omissions.OMISSIONS: left_out, "mounts/etc/hosts": ""}
    for program in omissions.PROGRAMS:
        files[program] = decoding.text(packaged(folder.joinpath(program)))
    for part in parts(environment, lock, listed):
        files[f"{part.folder}/{part.lock}"] = lockfile.subset(lock, part.distributions)
        files[f"{part.folder}/{omissions.OMISSIONS}"] = omissions.write(listed.only(part.distributions))
    return files


def _document(environment: Environment) -> str:
    """Write an environment as JSON, without what differs between two matrices that wish for the same one."""
    same = msgspec.structs.replace(environment, chosen=())
    return msgspec.json.format(msgspec.json.encode(same), indent=2).decode() + "\n"


def required_cuda(cuda: str) -> str:
    """Return the oldest driver CUDA that starts this toolkit's programs: since 11, any of the same major."""
    return f"{major(cuda)}.0" if major(cuda) >= _MINOR_COMPATIBILITY_SINCE else minor(cuda)


def needs_nvrtc_link(environment: Environment) -> bool:
    """Tell whether cuDNN asks for ``libnvrtc.so``, which NVRTC's wheel holds as ``libnvrtc.so.11.2`` alone.

    So does the distribution's package. cuDNN 8 for CUDA 11 does, and aborts where the name is absent: its
    libcudnn_ops_infer looks in cuBLAS's folder, by RUNPATH. For CUDA 12 it asks for the wheel's own name.
    """
    packaged = environment.packaged_cuda
    return "nvidia-cuda-nvrtc-cu11" in pins(environment.cuda_wheels) or (
        packaged is not None and not _NVRTC_11.isdisjoint(packaged.packages)
    )


_NVRTC_11 = frozenset({"libnvrtc11.2", *(f"cuda-nvrtc-11-{minor_}" for minor_ in range(2, 9))})
"""Packages whose NVRTC has the soname of CUDA 11.2 to 11.8, Debian's name and NVIDIA's own."""

_MINOR_COMPATIBILITY_SINCE = 11
"""Minor-version compatibility came with CUDA 11: docs.nvidia.com/deploy/cuda-compatibility."""


def _dockerfile(
    environment: Environment, lock: str, templates: Mapping[str, str], left_out: str, system: Mapping[str, str]
) -> str:
    added = environment.added
    with _readable(added.template):
        template = _engine(tuple(templates.items())).get_template(added.template or "Dockerfile.j2")
        return template.render(_values(environment, lock, left_out, system))


@lru_cache(maxsize=4)
def _engine(templates: tuple[tuple[str, str], ...]) -> jinja2.Environment:
    """Return what reads templates: one for the contexts of a matrix, which compiles each template once."""
    import jinja2  # noqa: PLC0415 - 40 ms that only a written context pays
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

    engine = SandboxedEnvironment(
        loader=jinja2.DictLoader(dict(templates)),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    engine.filters["word"] = _word
    engine.filters["folder"] = _folder
    engine.filters["package"] = _package
    engine.filters["place"] = _place
    engine.filters["quoted"] = _quoted
    engine.filters["words"] = _words
    return engine


@contextmanager
def _readable(template: str) -> Iterator[None]:
    """Turn what a template of a user's own ends in into a problem at its line; in one of ours it is a fault."""
    import jinja2  # noqa: PLC0415 - see above

    try:
        yield
    except jinja2.TemplateError as error:
        if not template:
            raise
        line = error.lineno if isinstance(error, jinja2.TemplateSyntaxError) else 0
        hint = 'begin it with {% extends "Dockerfile.j2" %}, and fill its blocks: docs/how-to/custom-bases.md'
        raise InputError((Problem(template, line, "", terminal_text.text(error.message or "")),), hint=hint) from error


def _values(environment: Environment, lock: str, left_out: str, system: Mapping[str, str]) -> dict[str, object]:
    """Return what templates may use."""
    listed = omissions.parse(left_out) if environment.form else omissions.Omissions()
    gone = listed.folders()
    added = environment.added
    return {
        "environment": environment,
        "base": environment.on_registry_base,
        "added": added,
        "cuda": environment.packaged_cuda,
        "system_packages": system_packages(environment, system),
        "system_locks": tuple(system),
        "system_digest": system_lock.digest(system),
        "parts": parts(environment, lock, listed) if environment.form else (),
        "settled": _SETTLED,
        "settled_at": MODIFIED,
        "loader_folders": tuple(
            folder for folder in environment.loader_folders if not {"nvidia/", f"nvidia/{folder}/"} & gone
        ),
        "omissions_digest": lockfile.digest(left_out),
        "account": added.user if added.user and not added.user[0].isdigit() else _ACCOUNT,
        "with_host": with_host,
        "lock_digest": lockfile.digest(lock),
        "require_cuda": required_cuda(environment.cuda) if environment.cuda else "",
        "links_nvrtc": needs_nvrtc_link(environment),
        "tools_base": f"{BASES}:{TOOLS_SYSTEM}",
    }


def system_packages(environment: Environment, system: Mapping[str, str]) -> tuple[str, ...]:
    """List what apt installs: each package of the lock at its version, or as the matrix asks where there is no lock."""
    if SYSTEM_LOCK in system:
        return tuple(package.pin for package in system_lock.parse(system[SYSTEM_LOCK]))
    return environment.added.system_packages


_SETTLED = ("/etc", "/opt", "/root", "/root/.cache", "/run", "/tmp")  # noqa: S108 - folders of an image
"""Folders that an installing step may leave a trace in by their time alone, beside what it installs."""

_ACCOUNT = "envbuilder"
"""The user that an image has where nobody asks for another."""

_PACKAGE = re.compile(r"^[a-z0-9][a-z0-9+.-]*(?:=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def _package(value: str) -> str:
    """Return a package of the system, with its version where one is given; refuse everything else."""
    if not _PACKAGE.match(value):
        raise ValueError(f"not fit for a Dockerfile: {value!r}")
    return value


def _quoted(value: str) -> str:
    """Return any text of one line in quotes, with nothing in it that a Dockerfile expands."""
    if _CONTROL.search(value):
        raise ValueError(f"not fit for a Dockerfile: {value!r}")
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def _words(values: Sequence[str]) -> str:
    """Return words in the form that no shell reads (JSON)."""
    if any(_CONTROL.search(value) for value in values):
        raise ValueError(f"not fit for a Dockerfile: {values!r}")
    return msgspec.json.encode(list(values)).decode()


def _word(value: str) -> str:
    """Return a value that is one plain word; refuse everything else."""
    if not _WORD.match(value):
        raise ValueError(f"not fit for a Dockerfile: {value!r}")
    return value


_PLACE = re.compile(r"^(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+\Z")


def _place(value: str) -> str:
    """Return an absolute path of plain names; refuse everything else."""
    if not _PLACE.match(value):
        raise ValueError(f"not fit for a Dockerfile: {value!r}")
    return value


def _folder(value: str) -> str:
    """Return the name of a folder of CUDA wheels, or the ``*`` that stands for every one; refuse everything else."""
    if not _FOLDER.match(value):
        raise ValueError(f"not fit for a Dockerfile: {value!r}")
    return value
