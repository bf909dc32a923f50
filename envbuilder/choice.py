"""The input of a command: a matrix, its plan, the selected environments, and the hosts of a fleet."""

import itertools
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from envbuilder.catalog.base_facts import BaseFacts, as_system
from envbuilder.catalog.model import Catalog
from envbuilder.compat import unknown
from envbuilder.compat.fleet import Fleet, FleetHost
from envbuilder.compat.plan import Plan, plan
from envbuilder.compat.selectors import select
from envbuilder.environment import Environment
from envbuilder.errors import InputError, Problem, UnsatisfiableError, UsageError
from envbuilder.matrix import TEXTS, Matrix, MatrixAdditions, MatrixBase
from envbuilder.support import console, pem
from envbuilder.support.templates import shipped
from envbuilder.support.yaml_reader import FIX, read_yaml
from envbuilder.workspace import Workspace, read_document, read_users, settings_in, users_text

_Additions = TypeVar("_Additions", bound=MatrixAdditions)

VETTED = ("quickstart", "tensorflow", "notebook", "classic", "debian")
"""The shipped matrices whose contexts are committed in this project's ``images/``."""

SHIPPED = "shipped"
"""The name of all of them, for commands that take several matrices."""


def local_matrices(root: Path) -> tuple[str, ...]:
    """List a project's matrices: those of its settings, else ``matrix.yaml`` and ``matrices/*.yaml`` of the folder.

    Their paths are relative to the current folder if that is ``root``, else absolute.
    """
    folder, settings = Path() if root == Path.cwd() else root, settings_in(root)
    usual = (folder / "matrix.yaml", *sorted((folder / "matrices").glob("*.yaml")))
    given = [folder / name if (folder / name).is_file() else name for name in (settings.matrices if settings else ())]
    return tuple(map(str, given or filter(Path.is_file, usual)))


def find_matrix(name: str | None, root: Path) -> Path:
    """Find a matrix by path, or by the name of one that ships; None is the project's, or else the quickstart.

    Raises UsageError with the names of the shipped ones if there is no such file, and if the folder has several.
    """
    if name == "":
        raise UsageError(
            "the matrix is empty", hint="is a shell variable not set? Give the name of a matrix, or omit the option"
        )
    wanted = name or default_matrix(root)
    given = Path.cwd() / wanted
    if given.is_fifo() or given.is_char_device():  # ``<(command)`` or ``/dev/stdin``
        return given
    named = (folder / f"{wanted}.yaml" for folder in (root / "matrices", shipped("matrices")))
    for candidate in (given, root / wanted, *named):
        if candidate.is_file():
            return candidate
    if (shipped("matrices") / Path(wanted).name).is_file() and Path(wanted).parent.name == "matrices":
        return shipped("matrices") / Path(wanted).name
    ships = ", ".join(sorted(path.stem for path in shipped("matrices").glob("*.yaml")))
    raise UsageError(f"{wanted}: no such matrix", hint=f"give the path of a matrix file, or one of: {ships}")


def default_matrix(root: Path) -> str:
    local = local_matrices(root)
    settings = settings_in(root)
    if len(local) > 1 and not (settings and settings.matrices):
        raise UsageError(
            f"{root} has {len(local)} matrices: {', '.join(local)}",
            hint=f"name one, such as {local[0]}, or list them as `matrices` in envbuilder.toml, the default first",
        )
    if not local:
        console.complain(f"{root} has no matrix.yaml: this is the shipped matrix {VETTED[0]}")
    return local[0] if local else VETTED[0]


@dataclass(frozen=True)
class Choice:
    matrix: Matrix
    catalog: Catalog
    plan: Plan
    environments: tuple[Environment, ...]


def choose(matrix: str | None, selectors: Sequence[str], workspace: Workspace, catalog: Catalog) -> Choice:
    """Read a matrix, resolve it and select.

    Raises InputError for a bad matrix, UnsatisfiableError if every combination was rejected, NothingSelectedError if
    the selectors match nothing.
    """
    parsed, catalog = read_known(matrix, workspace.root, catalog)
    resolved = plan(parsed, catalog)
    if not resolved.environments:
        reasons = "\n".join(f"{rejection.id}: {rejection.sentence}" for rejection in resolved.rejections)
        command = f"envbuilder plan {matrix}" if matrix else "envbuilder plan"
        raise UnsatisfiableError(
            f"no combination of matrix {parsed.name} can work\n{reasons}", hint=f"`{command}` shows the nearest"
        )
    return Choice(parsed, catalog, resolved, select(resolved.environments, tuple(selectors)))


def read_matrix(path: Path) -> Matrix:
    """Read a matrix file. Raises InputError with all of its problems."""
    matrix = read_yaml(path, Matrix)
    if matrix.axes is None and not matrix.include:
        problem = Problem(str(path), 1, "axes", "a matrix needs axes, include rows, or both")
        raise InputError((problem,), hint='add a line, such as axes: {tensorflow: ["~=2.20.0"]}')
    return matrix


def read_known(matrix: str | None, root: Path, catalog: Catalog) -> tuple[Matrix, Catalog]:
    """Read a matrix with its ranges resolved, and add its bases to the catalogue, as `catalog inspect` recorded them.

    Raises InputError for a bad matrix, and for a base without a record or on which nothing can be built.
    """
    path = find_matrix(matrix, root)
    given = read_matrix(path)
    _check_files(given, path, root)
    parsed = _resolved(given, path, root, catalog)
    rows, problems, unseen = [], [], []
    for name, base in parsed.bases.items():
        found = read_document(Workspace(root).base(base.image.rpartition("@")[2]), BaseFacts)
        row = as_system(name, found, base.python, catalog.systems) if found is not None and not found.refused else None
        on_it = _given_on(parsed, name)
        if not on_it:
            console.warn(f"{path}: nothing is built on the base {name}: name it in the axis os")
        packages = tuple(dict.fromkeys(one for each in on_it for one in each.system_packages))
        asked = (*packages, *(one for each in on_it for one in each.certificates))
        if found is not None and found.packages != "apt" and asked:
            text = f"{', '.join(asked)} cannot be installed on it: it has {found.packages or 'nothing'} instead of apt"
        elif row is None or catalog.system(name) is not None:
            text = _why_not(name, found, base, catalog)
            unseen += [base.image] if found is None else []
        else:
            # By the name that the matrix gives: another registry may have the same image.
            rows.append(msgspec.structs.replace(row, image=base.image))
            if loose := [one for one in packages if "=" not in one]:
                text = f"{', '.join(loose)} on {name} without a version: each build takes what apt has on its day"
                console.warn(f"{text}; write {loose[0]}=VERSION")
            continue
        problems.append(_problem(path, rf"\b{re.escape(name)}[\"']?\s*:", f"bases.{name}", text))
    if problems:
        hint = "; ".join(f"envbuilder catalog inspect {image}" for image in unseen)
        raise InputError(tuple(problems), hint=hint or FIX)
    catalog = catalog.with_bases(rows) if rows else catalog
    _warn_of_unknown(parsed, path, catalog)
    return parsed, catalog


def _warn_of_unknown(parsed: Matrix, path: Path, catalog: Catalog) -> None:
    """Name the line of each value that the catalogue lacks: a plan's own answers name combinations."""
    lacking: dict[tuple[str, str], str] = {}
    for row, axis in itertools.product((parsed.axes, *parsed.include), ("os", "tensorflow", "python", "cuda", "cudnn")):
        given = getattr(row, axis, None) or ()
        for value in (given,) if isinstance(given, str) else given:
            lacking[axis, value] = _why_unknown(axis, value, catalog)
    for gpu in parsed.targets.gpus:
        lacking["gpus", gpu] = " ".join(one.message for one in unknown.find_devices((gpu,), (), catalog)[1])
    for (key, value), text in lacking.items():
        if text:
            console.warn(str(_problem(path, rf"(?<![\w.]){re.escape(value)}(?![\w.])", key, text)))


def _why_unknown(axis: str, value: str, catalog: Catalog) -> str:
    """Return why the catalogue does not know a value of an axis; '' if it does."""
    match axis:
        case "os" if catalog.system(value) is None:
            return unknown.no_system(value, catalog).message
        case "tensorflow" if not catalog.distributions(value):
            return unknown.no_release(value, None, catalog).message
        case "python" if not any(value in row.pythons for row in catalog.systems):
            return unknown.no_system_with(value, catalog).message
        case "cuda" if catalog.toolkit(value) is None:
            return f"The catalogue has no CUDA {value}: see `envbuilder catalog list cuda`"
        case "cudnn" if "." in value and catalog.cudnn_row(value) is None:
            return f"The catalogue has no cuDNN {value}: see `envbuilder catalog list cudnn`"
    return ""


def _check_files(parsed: Matrix, path: Path, root: Path) -> None:
    """Raise InputError for files that are missing or unfit, each with its line."""
    problems: dict[str, Problem] = {}
    for given in (parsed, *parsed.include):
        for name in (*given.files, *given.certificates, *filter(None, (given.requirements, given.template))):
            why = "" if (root / name).is_file() else f"no such file in {root}: its path begins there, without ./ and .."
            if not why and name in given.certificates:
                why = pem.why_not(read_users(root / name))
            if why:
                problems[name] = _problem(path, re.escape(name), name, why)
    if problems:
        raise InputError(tuple(problems.values()), hint=FIX)


def _resolved(parsed: Matrix, path: Path, root: Path, catalog: Catalog) -> Matrix:
    """Replace ranges by the newest release that they admit, and requirements files by what they hold."""

    def release(text: str) -> str:
        found = catalog.newest_in(text)
        if found is None:
            problem = _problem(path, re.escape(text), "tensorflow", f"the catalogue has no release in {text}")
            raise InputError((problem,), hint="envbuilder catalog list tensorflow")
        return found

    def read(given: _Additions, **more: object) -> _Additions:
        return msgspec.structs.replace(given, packages=_required(given, root), requirements=None, **more)

    axes = parsed.axes
    if axes is not None:
        axes = msgspec.structs.replace(axes, tensorflow=tuple(map(release, axes.tensorflow)))
    return read(
        parsed, axes=axes, include=tuple(read(row, tensorflow=release(row.tensorflow)) for row in parsed.include)
    )


def _given_on(parsed: Matrix, base: str) -> tuple[MatrixAdditions, ...]:
    """Return the additions of a matrix and its rows to environments on a base."""
    rows = tuple(row for row in parsed.include if row.os == base)
    on_it = rows or (parsed.axes is not None and base in parsed.axes.os)
    return (*((parsed,) if on_it else ()), *rows)


def _required(given: MatrixAdditions, root: Path) -> tuple[str, ...]:
    """Return the packages of a matrix or row. Raises InputError for lines of its file that are not requirements."""
    if given.requirements is None:
        return given.packages
    path, wanted = root / given.requirements, TEXTS["requirement"]
    lines = [(number, line.partition("#")[0].strip()) for number, line in enumerate(users_text(path).splitlines(), 1)]
    requirements = [(number, line, line.replace(" ", "")) for number, line in lines if line]
    problems = tuple(
        Problem(str(path), number, "", f"{line!r} is not {wanted.description}")
        for number, line, requirement in requirements
        if not re.match(wanted.pattern or "", requirement)
    )
    if problems:
        raise InputError(
            problems, hint="write one package per line, with its versions; addresses and options are not supported"
        )
    return tuple(dict.fromkeys((*given.packages, *(requirement for _, _, requirement in requirements))))


def _why_not(name: str, found: BaseFacts | None, base: MatrixBase, catalog: Catalog) -> str:
    if catalog.system(name) is not None:
        return f"{name} is the name of a system of the catalogue: give the base another name"
    if found is None:
        return f"{base.image} has not been inspected yet"
    if found.refused:
        return f"nothing can be built on it: {found.refused}"
    held = ", ".join(python.version for python in found.pythons if python.venv) or "none"
    return f"it has no Python {base.python or 'that its packages are known to bring'} with venv; it holds {held}"


def choose_all(matrices: Sequence[str], selectors: Sequence[str], root: Path, catalog: Catalog) -> tuple[Choice, ...]:
    """Choose from several matrices, by default the project's; an environment of two belongs to the first."""
    workspace = Workspace(root)
    given = matrices or local_matrices(root) or VETTED[:1]
    names = dict.fromkeys(name for one in given for name in (VETTED if one == SHIPPED else (one,)))
    choices = [choose(name, (), workspace, catalog) for name in names]
    every: dict[str, Environment] = {}
    for choice in choices:
        for environment in choice.environments:
            every.setdefault(environment.id, environment)
    wanted = {environment.id for environment in select(tuple(every.values()), tuple(selectors))}
    result = []
    for choice in choices:
        own = tuple(e for e in choice.environments if e.id in wanted)
        wanted -= {environment.id for environment in own}
        result.append(Choice(choice.matrix, choice.catalog, choice.plan, own))
    return tuple(result)


def read_fleet(path: Path, catalog: Catalog | None = None) -> tuple[FleetHost, ...]:
    """Read a list of hosts from YAML. Raises InputError with all of its problems.

    With a catalogue, a GPU that it does not have is a problem: no host can ever belong to its class.
    """
    hosts: tuple[FleetHost, ...] = read_yaml(path, Fleet)
    problems = []
    for name, times in Counter(host.name for host in hosts).items():
        if times > 1:
            text = f"{times} hosts have the name {name}: join them with count, or give each its own"
            problems.append(_problem(path, _named(name), "name", text))
    for host in hosts:
        if bool(host.gpus) != bool(host.driver):
            has, lacks = ("GPUs", "driver") if host.gpus else ("a driver", "gpus")
            text = f"{host.name} has {has}: give its {lacks} too, such as {'535' if host.gpus else '[A100]'}"
            problems.append(_problem(path, _named(host.name), lacks, text))
        for gpu in dict.fromkeys(host.gpus):
            if catalog is not None and catalog.gpu_model(gpu) is None:
                known = [row.name for row in catalog.possible_gpus(gpu) or unknown.near_gpus(gpu, catalog)]
                near = f"; did you mean {' or '.join(known[:3])}?" if known else "; see envbuilder catalog list gpus"
                text = f"{host.name}: {gpu} is not the name of one GPU of the catalogue{near}"
                problems.append(_problem(path, re.escape(gpu), "gpus", text))
    if problems:
        raise InputError(tuple(problems), hint=FIX)
    return hosts


def _named(host: str) -> str:
    return rf"name:\s*[\"']?{re.escape(host)}[\"']?\s*(?:[,}}]|\Z)"


def _problem(path: Path, pattern: str, key: str, text: str) -> Problem:
    """Return a problem with the number of the first line that fits a pattern, from 1; 0 if there is none."""
    lines = users_text(path).splitlines() if path.is_file() else []
    line = next((number for number, line in enumerate(lines, 1) if re.search(pattern, line)), 0)
    return Problem(str(path), line, key, text)
