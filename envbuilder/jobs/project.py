"""Write the files of a project: its matrix, and files for CI, Compose, development containers and Kubernetes."""

import os
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from envbuilder import __version__
from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice, choose
from envbuilder.compat.question import Question
from envbuilder.environment import WHOLE, Environment, Flavor, Variant
from envbuilder.errors import UnsatisfiableError, UsageError
from envbuilder.image.host_settings import REPOSITORY, repository
from envbuilder.image.names import reference
from envbuilder.jobs.choose import as_text, choose_environment
from envbuilder.matrix import Matrix
from envbuilder.support import decoding
from envbuilder.support.templates import text_template
from envbuilder.workspace import Workspace, temporary_folder, users_text, write_atomically

FILES = {
    "compose": ("compose.yaml", "compose.yaml"),
    "devcontainer": ("devcontainer.json", ".devcontainer/devcontainer.json"),
    "kubernetes": ("kubernetes.yaml", "kubernetes.yaml"),
    "github": ("github.yml", ".github/workflows/environments.yml"),
    "gitlab": ("gitlab.yml", ".gitlab-ci.yml"),
}
"""Forms of `export`: their template, and their place in a project."""

MATRIX, SCHEMA = "matrix.yaml", "matrix.schema.json"


class InitOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The host or versions to choose an environment for, further packages, and the forms of files to add."""

    question: Question
    flavor: Flavor | None = None
    variant: Variant = "runtime"
    packages: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()


def export_project(form: str, matrix: str, choices: Iterable[Choice]) -> str:
    """Write a form of `FILES` for the selected environments. Raises UsageError for several if it takes one."""
    rows = [environment for choice in choices for environment in choice.environments]
    if form == "devcontainer" and len(rows) != 1:
        raise UsageError(
            f"a development container has one image, and {len(rows)} are selected", hint="select one: -s ID"
        )
    if form == "kubernetes" and not re.match(r"(?:[^/]*[.:][^/]*|localhost)/", repository()):
        hint = "name yours: --repository registry.example.org/team/tensorflow"
        raise UsageError(f"a cluster pulls its images from a registry, and {repository()} names none", hint=hint)
    return _render(FILES[form][0], matrix=matrix, environments=rows, row=rows[0], repository=repository())


def init(folder: Path, options: InitOptions, catalog: Catalog) -> tuple[Path, ...]:
    """Write a matrix for the chosen environment, its schema, and further files; return their paths.

    Raises UsageError if a file exists or a package is not a requirement, UnsatisfiableError if nothing works.
    """
    found = choose_environment(options.question, options.flavor, options.variant, folder, catalog)
    if found.environment is None:
        command = next(iter(found.next.values()), "envbuilder choose")
        text = as_text(msgspec.structs.replace(found, next={}))
        raise UnsatisfiableError(text, hint=f"`{command}` shows what works")
    environment = found.environment
    gpu = environment.flavor == "gpu"
    targets = {"drivers": [found.driver] if gpu and found.driver else [], "gpus": list(found.gpus) if gpu else []}
    ignored = folder / ".gitignore"
    kept = users_text(ignored).splitlines() if ignored.exists() else []
    texts = {
        MATRIX: _render(
            "matrix.yaml",
            name=re.sub(r"[^a-z0-9.-]+", "-", folder.absolute().name.lower()).strip("-.")[:63] or "project",
            form=environment.variant or WHOLE,
            packages=options.packages,
            targets=targets,
            **{name: getattr(environment, name) for name in ("tensorflow", "python", "os", "flavor")},
        ),
        SCHEMA: decoding.to_json(msgspec.json.schema(Matrix)).decode() + "\n",
        **({} if "/out/" in kept else {ignored.name: "\n".join([*kept, _render("gitignore")])}),
        **({"envbuilder.toml": f'repository = "{repository()}"\n'} if os.environ.get(REPOSITORY) else {}),
    }
    names = (*texts, *(FILES[form][1] for form in options.forms))
    if there := [name for name in names if (folder / name).exists() and name != ignored.name]:
        text = f"{folder.absolute()} has {', '.join(there)} already"
        raise UsageError(text, hint="name another folder: envbuilder init DIR")
    with temporary_folder("init") as draft:
        write_atomically(draft / MATRIX, texts[MATRIX].encode())
        try:
            choice = choose(str(draft / MATRIX), (), Workspace(draft), catalog)
        except UnsatisfiableError as error:  # its hint names the draft
            raise UnsatisfiableError(error.message, hint="change the packages, then run it again") from error
    texts |= {FILES[form][1]: export_project(form, MATRIX, (choice,)) for form in options.forms}
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return tuple(folder / name for name in texts)


def _service(environment: Environment) -> str:
    """Name an environment where dots and underscores are not allowed."""
    return re.sub(r"[^a-z0-9-]+", "-", environment.image_tag.lower()).strip("-")[:63].rstrip("-")


def _render(template: str, /, **values: object) -> str:
    # Delimiters of their own: CI files have expressions in braces.
    delimiters = {
        "block_start_string": "[%",
        "block_end_string": "%]",
        "variable_start_string": "[[",
        "variable_end_string": "]]",
    }
    filters: dict[str, Any] = {"quote": shlex.quote, "service": _service, "image": lambda one: reference(one.image_tag)}
    return text_template(f"project/{template}.j2", filters, **delimiters).render(version=__version__, **values)
