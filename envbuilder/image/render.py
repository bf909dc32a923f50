"""Render an environment's build context from templates: deterministic text from facts, a matrix and a lock."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import msgspec

from envbuilder.engine.archive import MODIFIED
from envbuilder.environment import WHOLE, Additions, Environment
from envbuilder.errors import InputError, Problem
from envbuilder.image import lockfile, system_lock
from envbuilder.image.layers import DockerfileStep, PackageFolder, joined, steps_of
from envbuilder.image.names import BASES, TOOLS_SYSTEM
from envbuilder.image.system_lock import SYSTEM_LOCK
from envbuilder.support import terminal_text
from envbuilder.versions import major, minor

if TYPE_CHECKING:
    import jinja2

_ACCOUNT = "envbuilder"
"""The user of an image if the matrix names none."""

_MINOR_COMPATIBILITY_SINCE = 11
"""Minor-version compatibility came with CUDA 11: docs.nvidia.com/deploy/cuda-compatibility."""


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

    ``templates`` are texts by name, the matrix's own too; ``added`` the files that the matrix adds; ``packages`` the
    folders of the steps (a step without one has no size and removes nothing); ``system`` the system's locks.
    Raises ValueError if a value could end an instruction of the Dockerfile, InputError for a template of the user.
    """
    steps, system = steps_of(environment, lock, packages or {}), system or {}
    # Two matrices may choose one environment by other axes, and give its image other tags.
    nameless = msgspec.structs.replace(environment, chosen=(), tag=msgspec.UNSET)
    own = {
        "Dockerfile": _dockerfile(environment, lock, templates, steps, system),
        "environment.json": msgspec.json.format(msgspec.json.encode(nameless), indent=2).decode() + "\n",
        lockfile.LOCK: lock,
        **system,
    }
    files = {f"{environment.id}/{name}": text for name, text in own.items()}
    files |= {f"shared/{name}": text for name, text in templates.items() if name.startswith(("steps/", "host/"))}
    files |= {"shared/tools.lock": templates["tools.lock"]}
    for step in steps:
        files |= step.content.files(step.layer.folder)
    contents = {path: text.encode() for path, text in files.items()}
    contents |= {f"{environment.id}/files/{path}": content for path, content in (added or {}).items()}
    return dict(sorted(contents.items()))


def required_cuda(cuda: str) -> str:
    """Return the oldest driver CUDA that starts this toolkit's programs: since 11, any of the same major."""
    return f"{major(cuda)}.0" if major(cuda) >= _MINOR_COMPATIBILITY_SINCE else minor(cuda)


def _dockerfile(
    environment: Environment,
    lock: str,
    templates: Mapping[str, str],
    steps: tuple[DockerfileStep, ...],
    system: Mapping[str, str],
) -> str:
    import jinja2  # noqa: PLC0415 - 40 ms that only a written context pays

    added = environment.added
    removed = joined({step.layer.folder: step.content.removed for step in steps if not step.complete})
    pinned = system_lock.parse(system[SYSTEM_LOCK]) if SYSTEM_LOCK in system else ()
    values = {
        "environment": environment,
        "variant": environment.variant or WHOLE,
        "base": environment.on_registry_base,
        "added": added,
        "cuda": environment.packaged_cuda,
        "system_packages": [package.pin for package in pinned] if SYSTEM_LOCK in system else added.system_packages,
        "system_locks": tuple(system),
        "system_digest": system_lock.digest(system),
        "steps": steps,
        "fixed_time": MODIFIED,
        "loader_folders": environment.loader_folders,
        "removed_digest": lockfile.digest(removed),
        "account": added.user if added.user and not added.user[0].isdigit() else _ACCOUNT,
        "lock_digest": lockfile.digest(lock),
        "require_cuda": required_cuda(environment.cuda) if environment.cuda else "",
        "links_nvrtc": environment.needs_nvrtc_link,
        "tools_base": f"{BASES}:{TOOLS_SYSTEM}",
    }
    if added.template:
        check_template(added.template, templates)
    try:
        return _engine(tuple(templates.items())).get_template(added.template or "Dockerfile.j2").render(values)
    except jinja2.TemplateError as error:
        if not added.template:
            raise
        problem = Problem(added.template, 0, "", terminal_text.text(error.message or ""))
        raise InputError((problem,), hint=_HINT) from error


_MAIN = "Dockerfile.j2"
_FIELDS = {"environment": Environment, "added": Additions}
_HINT = 'begin it with {% extends "Dockerfile.j2" %}, and fill its blocks: docs/how-to/write-a-matrix.md'


def check_template(name: str, templates: Mapping[str, str]) -> None:
    """Check the template of a matrix without rendering it. Raises InputError with the lines of all problems."""
    import jinja2  # noqa: PLC0415 - see above
    from jinja2 import meta, nodes  # noqa: PLC0415

    engine = _engine(tuple(templates.items()))
    problems: list[Problem] = []

    def problem(line: int, key: str, text: str, near: Collection[str] = ()) -> None:
        close = difflib.get_close_matches(key, near, n=1, cutoff=0.5)
        known = f"; did you mean {close[0]}?" if close else f"; there are: {', '.join(sorted(near))}" if near else ""
        problems.append(Problem(name, line, key, f"{text}{known}"))

    try:
        tree = engine.parse(templates[name])
        engine.compile(tree)  # knows filters and tests
    except jinja2.TemplateSyntaxError as error:
        found = Problem(name, error.lineno, "", terminal_text.text(error.message or ""))
        raise InputError((found,), hint=_HINT) from error
    main = engine.parse(templates[_MAIN])
    names, blocks = {one.name for one in main.find_all(nodes.Name)}, {one.name for one in main.find_all(nodes.Block)}
    if not any(isinstance(one.template, nodes.Const) for one in tree.find_all(nodes.Extends)):
        raise InputError((Problem(name, 1, "", f"it does not extend {_MAIN}, so it has no TensorFlow"),), hint=_HINT)
    other: Any
    for other in tree.find_all((nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport)):
        if isinstance(other.template, nodes.Const) and other.template.value not in templates:
            problem(other.lineno, str(other.template.value), "no such template", [_MAIN])
    for one in tree.body:
        if isinstance(one, nodes.Block) and one.name not in blocks:
            problem(one.lineno, one.name, "the parent has no such block: it would be left out", blocks)
    loose = [part for one in tree.body if isinstance(one, nodes.Output) for part in one.nodes]
    for part in tree.find_all(nodes.TemplateData):
        if text := re.search(r"\S.*" if part in loose else r"^[ \t]*FROM\s.*", part.data, re.MULTILINE):
            why = "is outside of the blocks: it would be left out" if part in loose else "begins another image"
            problem(part.lineno + part.data[: text.start()].count("\n"), "", f"{text[0].strip()[:60]!r} {why}")
    for use in tree.find_all(nodes.Getattr):
        kind = _FIELDS.get(use.node.name) if isinstance(use.node, nodes.Name) else None
        if kind and not hasattr(kind, use.attr):
            problem(use.lineno, use.attr, "no such field", [field for field in dir(kind) if not field.startswith("_")])
    for unknown in sorted(meta.find_undeclared_variables(tree) - names - {"self", "super"} - engine.globals.keys()):
        line = next((one.lineno for one in tree.find_all(nodes.Name) if one.name == unknown), 0)
        problem(line, unknown, "no such name", names)
    if problems:
        raise InputError(tuple(problems), hint=_HINT)


@lru_cache(maxsize=4)
def _engine(templates: tuple[tuple[str, str], ...]) -> jinja2.Environment:
    """Return one reader of templates for all contexts of a matrix: it compiles each template once."""
    import jinja2  # noqa: PLC0415 - see above
    from jinja2.sandbox import SandboxedEnvironment  # noqa: PLC0415

    engine = SandboxedEnvironment(
        loader=jinja2.DictLoader(dict(templates)),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )
    engine.filters |= {kind: partial(_checked, kind) for kind in _FORMS}
    engine.filters |= {"quoted": _quoted, "words": _words}
    return engine


_FORMS = {
    "word": re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]*"),
    "folder": re.compile(r"\*|[a-z0-9_]+"),  # of CUDA wheels, * for every one
    "package": re.compile(r"[a-z0-9][a-z0-9+.-]*(?:=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?"),  # of the system
    "place": re.compile(r"(?:/[A-Za-z0-9][A-Za-z0-9._-]*)+"),  # an absolute path of plain names
    "comment": re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]*"),  # any text of one line
}
"""Filters of templates: each refuses a value that has another form."""


def _checked(form: str, value: str) -> str:
    if not _FORMS[form].fullmatch(value):
        raise ValueError(f"not fit for a Dockerfile: {value!r}")
    return value


def _quoted(value: str) -> str:
    """Return a text of one line in quotes, with nothing in it that a Dockerfile expands."""
    return '"' + re.sub(r'([\\"$])', r"\\\1", _checked("comment", value)) + '"'


def _words(values: Sequence[str]) -> str:
    return msgspec.json.encode([_checked("comment", value) for value in values]).decode()
