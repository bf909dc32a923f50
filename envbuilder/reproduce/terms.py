"""Facts and commands of a report that texts name in braces, in the reporter's own terms (terms.yaml)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import DISTRIBUTIONS, Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.binding import distributions
from envbuilder.compat.findings import span
from envbuilder.compat.question import cudnn_of_number
from envbuilder.compat.requirement import parse
from envbuilder.reproduce.grammar import GRAMMAR, old_release
from envbuilder.reproduce.messages.catalog import MessageMatch, Text
from envbuilder.reproduce.question import Case, gpus_of, release_of
from envbuilder.workspace import packaged_yaml

_UPPER = frozenset({"<", "<=", "==", "~="})


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How people with one way of running TensorFlow do three things; the file explains the fields."""

    shown_by: str = ""
    gpu: str
    set: str
    run: str


class _Settings:
    """Writes ``{set[NAME=value]}``: the command that sets a variable."""

    def __init__(self, template: str) -> None:
        self.template = template

    def __getitem__(self, setting: str) -> str:
        name, _, value = setting.partition("=")
        return self.template.replace("{name}", name).replace("{value}", value)


@cache
def _table() -> dict[str, Terms]:
    return packaged_yaml(resources.files("envbuilder.reproduce") / "terms.yaml", dict[str, Terms])


def place_of(case: Case) -> str:
    """Return how the reporter runs TensorFlow: a container system that the text names, an installer, or a system."""
    named = {row.signature for row in case.messages}
    shown = next((name for name, row in _table().items() if row.shown_by and row.shown_by in named), None)
    installer = case.reported.install if case.reported.install in {"conda", "docker"} else None
    return shown or installer or ("windows" if case.reported.platform == "windows" else "pip")


Facts = Mapping[str, object]


def in_place(place: str, image: str | None, command: str) -> str:
    return f"{_table()[place].run.replace('{image}', image or 'IMAGE')} {command}".lstrip()


def terms(case: Case) -> Facts:
    """List what texts may name; a fact that the report does not decide is absent."""
    reported, catalog = case.reported, case.catalog
    release = case.release if reported.origin is None else None  # another build has another CUDA
    words = _table()[place_of(case)]
    image = reported.image or "IMAGE"
    version = release_of(reported.tensorflow) if reported.tensorflow and case.version else None
    old = old_release(version)
    row = release or next(iter(distributions(version or "", None, None, catalog)), None)
    toolkit = catalog.toolkit(release.cuda) if release is not None else None
    wanted = f"'{row.package}=={row.version}'" if row is not None else "tensorflow"
    python = row.pythons[-1] if row is not None and row.pythons else None
    newest = catalog.distributions(catalog.final_versions[-1])[0]
    own = versions.minor(reported.python) if reported.python is not None else ""
    gpu = next(iter(gpus_of(reported)), None)
    device = catalog.gpu(gpu) if gpu is not None else None
    capability = device.compute_capability if device is not None else next(iter(reported.compute_capabilities), None)
    mac = any(row.signature == "runs_on_a_mac" for row in case.messages)
    stated = catalog.toolkit(reported.cuda)
    found: dict[str, object | None] = {
        "if_mac": "" if mac else None,
        "if_linux": "" if reported.platform != "windows" and not mac else None,
        "installed_floor": stated.driver if stated is not None else None,
        "nvcc": _nvcc(release.cuda, place_of(case)) if release is not None and release.cuda is not None else None,
        "served_by": span(catalog.with_code_for(capability)) or None if capability is not None else None,
        "release": version,
        "cuda": release.cuda if release else old.cuda if old else None,
        "cudnn": release.cudnn if release else old.cudnn if old else None,
        "floor": toolkit.driver if toolkit else None,
        "driver": reported.driver,
        "gpu": gpu,
        "installed": reported.cuda,
        "python": reported.python,
        "pythons": f"{row.pythons[0]} to {row.pythons[-1]}" if row is not None and row.pythons else None,
        "fresh": f"uv venv --seed --python {python} tf && . tf/bin/activate && pip install {wanted}"
        if python
        else None,
        "python_fits": own if row is not None and own in row.pythons else None,
        "newest_here": next(
            (text for text in reversed(catalog.final_versions) if own in _pythons(text, catalog)), None
        ),
        "show_python": GRAMMAR.ask["python"],
        "newest": newest.version,
        "newest_pythons": f"{newest.pythons[0]} to {newest.pythons[-1]}",
        "reinstall": f"pip uninstall -y {' '.join(DISTRIBUTIONS)} tensorflow-intel && pip install {wanted}",
        "give_gpu": words.gpu.replace("{image}", image),
        "set": _Settings(words.set.replace("{image}", image)),
    }
    for name in ("numpy", "protobuf", "keras"):
        found[name] = bounds(name, row) if row is not None else None
    return {name: value for name, value in found.items() if value is not None}


def _pythons(version: str, catalog: Catalog) -> tuple[str, ...]:
    return next((row.pythons for row in catalog.distributions(version) if row.package == "tensorflow"), ())


def _nvcc(cuda: str, place: str) -> str:
    if place == "conda" or versions.major(cuda) < 11:  # noqa: PLR2004 - the first CUDA with wheels
        return f"conda install -c conda-forge cudatoolkit-dev={cuda}"
    return f"pip install nvidia-cuda-nvcc-cu{versions.major(cuda)}=={cuda}.*"


def with_values(row: MessageMatch, facts: Facts) -> Facts:
    """Add the named parts of a message, and the lines of its two cuDNNs, of which one may be an integer."""
    own = {name: row.values[name] for name in ("runtime", "compiled") if name in row.values}
    plain = {name: cudnn_of_number(text) if text.isdigit() else text for name, text in own.items()}
    lines = {f"{name}_line": versions.line(text) for name, text in plain.items()}
    return {**facts, **row.values, **lines, **_of_file(row.values.get("library", ""))}


def _of_file(name: str) -> dict[str, str]:
    """Return what the file name of a CUDA library says about releases before the catalogue: libcublas.so.9.0."""
    dll = re.search(r"64_([0-9])([0-9])\.dll$", name)
    number = f"{dll[1]}.{dll[2]}" if dll is not None else name.rpartition(".so.")[2]
    old = next((row for row in GRAMMAR.before_catalogue if row.cuda == number and "cudnn" not in name), None)
    return {"library_cuda": old.cuda, "library_cudnn": old.cudnn, "library_tag": old.tag} if old is not None else {}


def filled(text: Text, facts: Facts) -> str:
    """Return the first of some texts of which every name is known."""
    for one in (text,) if isinstance(text, str) else text:
        try:
            return one.format_map(facts)
        except KeyError:
            continue
    raise KeyError(text)


def bounds(name: str, release: TensorflowRelease) -> str | None:
    """Return the bounds with an upper end, a cap before the wheel's own metadata; None if neither has one."""
    for row in map(parse, (*release.caps, *release.requires)):
        if row.name == name and not row.marker and any(operator in _UPPER for operator, _ in row.bounds):
            return name + ",".join(f"{operator}{version}" for operator, version in row.bounds if operator != "!=")
    return None
