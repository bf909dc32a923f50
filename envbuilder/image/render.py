"""Render an environment's build context from templates: deterministic text from facts, wishes and a lock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec

from envbuilder.engine.archive import MODIFIED
from envbuilder.environment import WHOLE, Environment
from envbuilder.errors import InputError, Problem
from envbuilder.image import lockfile, system_lock
from envbuilder.image.layers import PackageFolder, PackageLayer, joined, package_layers
from envbuilder.image.names import BASES, TOOLS_SYSTEM
from envbuilder.image.system_lock import SYSTEM_LOCK
from envbuilder.support import terminal_text
from envbuilder.versions import major, minor, pins

if TYPE_CHECKING:
    import jinja2

_WORD = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z")
_FOLDER = re.compile(r"^(?:\*|[a-z0-9_]+)\Z")

_WITH_HOST = """\
--mount=type=bind,source={folder},target=/run/host{cache} \\
    if [ -s /run/host/ca-certificates.crt ]; then \\
      export SSL_CERT_FILE=/run/host/ca-certificates.crt PIP_CERT=/run/host/ca-certificates.crt; fi; \\
    if [ -s /run/host/pip.conf ]; then export PIP_CONFIG_FILE=/run/host/pip.conf; fi; \\
    if [ -s /run/host/uv.toml ]; then export UV_CONFIG_FILE=/run/host/uv.toml; fi; \\"""


def with_host(cache: str = "", *, folder: str = "host") -> str:
    """Return what follows ``RUN`` in a step that reaches the network, up to the end of a line before its command.

    The step, and no layer, gets what the build host adds in ``folder`` of the context: its certificate bundle and its
    package index. ``cache`` names a folder below ``/root/.cache`` that is kept between builds.
    """
    mount = f" --mount=type=cache,target=/root/.cache/{_word(cache)}" if cache else ""
    return _WITH_HOST.format(folder=folder, cache=mount)


_HOST_README = """\
What the build host adds to the steps that reach the network, and to no layer of the image:
ca-certificates.crt (its certificate bundle), pip.conf and uv.toml (its package index).
`envbuilder build` sends its own; in a build by hand, put yours here if you need them.
"""


def render_context(
    environment: Environment,
    lock: str,
    templates: Mapping[str, str],
    added: Mapping[str, bytes] | None = None,
    *,
    packages: Mapping[str, PackageFolder] | None = None,
    system: Mapping[str, str] | None = None,
) -> dict[str, bytes]:
    """Return every file that a build of an environment needs, by its path below ``images/``.

    ``lock`` is the environment's lock; ``templates`` are the texts of ``templates/`` by name, and the matrix's own
    if it has one; ``added`` are the contents of the files that the matrix adds, by their path in the workspace;
    ``packages`` are the folders of its steps, by name (a step without one has no size and removes nothing); ``system``
    are the locks of the packages of the system, by their names.
    Raises ValueError if a value could end an instruction of the Dockerfile: nothing unchecked is written into one.
    Raises InputError if a template of the user's cannot be rendered.
    """
    steps = tuple(_step(layer, packages or {}, environment) for layer in package_layers(environment, lock))
    own = {
        "Dockerfile": _dockerfile(environment, lock, templates, steps, system or {}),
        "environment.json": _document(environment),
        lockfile.LOCK: lock,
        **(system or {}),
    }
    files = {f"{environment.id}/{name}": text for name, text in own.items()} | shared_files(templates)
    for step in steps:
        files |= step.content.files(step.layer.folder)
    whole = {path: text.encode() for path, text in files.items()}
    whole |= {f"{environment.id}/files/{path}": content for path, content in (added or {}).items()}
    return dict(sorted(whole.items()))


def shared_files(templates: Mapping[str, str]) -> dict[str, str]:
    """Return the files that all environments share, by their path below ``images/``: build steps and the installer."""
    steps = {f"shared/{name}": text for name, text in templates.items() if name.startswith("steps/")}
    return {**steps, "shared/tools.lock": templates["tools.lock"], "shared/host/README": _HOST_README}


@dataclass(frozen=True)
class Step:
    """One step of a Dockerfile that installs packages; ``complete``: it keeps the files that a list names."""

    layer: PackageLayer
    content: PackageFolder
    complete: bool

    @property
    def megabytes(self) -> int:
        """What it installs, in MB; 0 if that is not known."""
        return self.content.megabytes(complete=self.complete)


def _step(layer: PackageLayer, packages: Mapping[str, PackageFolder], environment: Environment) -> Step:
    content = packages.get(layer.folder) or PackageFolder(layer.text(0, 0))
    asked_for = layer.name in lockfile.names(environment.requirements)
    return Step(layer, content, complete=bool(content.removed) and (not environment.variant or asked_for))


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
    environment: Environment,
    lock: str,
    templates: Mapping[str, str],
    steps: tuple[Step, ...],
    system: Mapping[str, str],
) -> str:
    own = environment.added.template
    with _readable(own):
        template = _engine(tuple(templates.items())).get_template(own or "Dockerfile.j2")
        return template.render(_values(environment, lock, steps, system))


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
    engine.filters["comment"] = _comment
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


def _values(
    environment: Environment, lock: str, steps: tuple[Step, ...], system: Mapping[str, str]
) -> dict[str, object]:
    """Return what templates may use."""
    added = environment.added
    removed = joined({step.layer.folder: step.content.removed for step in steps if not step.complete})
    return {
        "environment": environment,
        "variant": environment.variant or WHOLE,
        "base": environment.on_registry_base,
        "added": added,
        "cuda": environment.packaged_cuda,
        "system_packages": system_packages(environment, system),
        "system_locks": tuple(system),
        "system_digest": system_lock.digest(system),
        "steps": steps,
        "fixed_time": MODIFIED,
        "loader_folders": environment.loader_folders,
        "removed_digest": lockfile.digest(removed),
        "account": added.user if added.user and not added.user[0].isdigit() else _ACCOUNT,
        "with_host": partial(with_host, folder="shared/host"),
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


def _comment(value: str) -> str:
    """Return any text of one line."""
    if _CONTROL.search(value):
        raise ValueError(f"not fit for a Dockerfile: {value!r}")
    return value


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
