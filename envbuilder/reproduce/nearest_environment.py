"""The nearest environment that works: what changes, how to get it by hand, and the matrix that builds it."""

from __future__ import annotations

import json

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.runpath import EVERY
from envbuilder.compat.check import check
from envbuilder.compat.check_text import change_text, new_text
from envbuilder.compat.nearest import Near, nearest
from envbuilder.compat.question import Question
from envbuilder.compat.resolve import resolve
from envbuilder.compat.works import Installable
from envbuilder.environment import Change, Combination, Environment, Rejection
from envbuilder.finding import Code, Finding
from envbuilder.image.render import needs_nvrtc_link
from envbuilder.reproduce.dockerfiles import PUBLISHED, requirement, word
from envbuilder.reproduce.predict import FIRST_WITHOUT_WINDOWS_GPU
from envbuilder.reproduce.report.reported import Reported
from envbuilder.reproduce.reproduction import Nearest

MATRIX = "nearest"
_LINK_NVRTC = (
    "(cd \"$(python -c 'import nvidia.cublas; print(nvidia.cublas.__path__[0])')/lib\" && "
    "ln -s ../../cuda_nvrtc/lib/libnvrtc.so.11.2 libnvrtc.so)"
)
"""Gives NVRTC the name by which cuDNN 8 for CUDA 11 asks for it (see `envbuilder.image.render.needs_nvrtc_link`)."""


def mend(
    reported: Reported, question: Question | None, predicted: tuple[Finding, ...], catalog: Catalog
) -> tuple[Nearest, Environment | None] | None:
    """Find what works near a report; None where the catalogue knows nothing that does.

    The driver, the GPU and the system stay as they are. The environment is None where no wheels can make it.
    """
    if question is None:
        return None
    asked = _answerable(question, catalog)
    found = _found(reported, asked, predicted, catalog)
    if found is None:
        return None
    near, changes = found.wish, (*_system_change(reported, found.wish), *found.changes)
    wish = _wish(question, near, catalog)
    made = resolve(wish, catalog)
    environment = None if isinstance(made, Rejection) else made
    answer = check(near, catalog).environment
    return (
        Nearest(
            environment=answer,
            changes=tuple(map(change_text, changes)),
            predicate=found.predicate,
            diff=tuple(line for change in changes for line in _diff(change)),
            commands=_commands(question, near, environment, catalog),
            matrix=matrix_of(wish, environment) if environment is not None else "",
        ),
        environment,
    )


def _answerable(question: Question, catalog: Catalog) -> Question:
    """Leave out what the catalogue has no row for: it can say nothing about it, and changes nothing of it.

    What is built to prove an answer holds no forward-compatibility package, so that one cannot help either.
    """
    return msgspec.structs.replace(
        question,
        gpus=tuple(name for name in question.gpus if catalog.gpu(name) is not None),
        driver=question.driver if question.driver and catalog.branch(question.driver) else None,
        os=question.os if question.os and catalog.system(question.os) else None,
        cuda=question.cuda if question.cuda and catalog.toolkit(question.cuda) else None,
        cudnn=question.cudnn
        if question.cudnn and (not versions.names_line(question.cudnn) or catalog.cudnn_row(question.cudnn))
        else None,
        compat=False,
    )


_WAITING = frozenset({Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA})
"""What makes the first use slow: somebody's kernels have to be compiled from PTX."""


def _found(
    reported: Reported, question: Question, predicted: tuple[Finding, ...], catalog: Catalog
) -> Near[Question] | None:
    """Find what works; where the trouble is the waiting, first among what holds machine code for the GPU."""
    waits = reported.pauses and any(finding.code is Code.PTX_JIT for finding in predicted)
    faster = nearest(question, Installable(catalog, without=_WAITING)) if waits else None
    return faster or nearest(question, Installable(catalog))


def _system_change(reported: Reported, near: Question) -> tuple[Change, ...]:
    old = reported.os or reported.platform
    if old is None:
        return ()
    if reported.platform == "macos":
        return (Change("system", old, "Linux"),)
    if reported.platform == "windows" and versions.at_least(near.tensorflow, FIRST_WITHOUT_WINDOWS_GPU):
        return (Change("system", old, "Linux (WSL2)"),)
    return ()


def _wish(question: Question, near: Question, catalog: Catalog) -> Combination:
    """Ask for the environment; bounds that the release sets itself hold without being asked for."""
    version = catalog.version(near.tensorflow) or near.tensorflow
    release = next((row for row in catalog.distributions(version) if row.gpu), None)
    gpu = near.gpu and release is not None
    return Combination(
        tensorflow=version,
        package=near.package or (None if gpu else "tensorflow"),
        python=near.python,
        flavor="gpu" if gpu else "cpu",
        cuda=versions.minor(near.cuda) if gpu and near.cuda and versions.names_line(near.cuda) else None,
        cudnn=near.cudnn if gpu and near.cudnn and versions.names_line(near.cudnn) else None,
        packages=tuple(text for text in near.packages if text in question.packages),
    )


def _diff(change: Change) -> tuple[str, str]:
    return f"- {change.field} {change.old}", f"+ {change.field} {new_text(change)}"


def _commands(question: Question, near: Question, environment: Environment | None, catalog: Catalog) -> tuple[str, ...]:
    """Write the commands that mend an installation by hand; each word satisfies a grammar."""
    version = catalog.version(near.tensorflow) or near.tensorflow
    release = catalog.release(version, near.package or "tensorflow")
    wanted: list[str] = []
    findable = release is not None and release.and_cuda and release.finds_cuda == "wheels"
    installable = release is None or near.python not in release.extra_fails_on
    extra = "[and-cuda]" if findable and installable and near.gpu else ""
    other = near.tensorflow != question.tensorflow or near.package != question.package
    if other or (near.install != question.install and extra):
        wanted.append(f"'{word(near.package or 'tensorflow')}{extra}=={word(version)}'")
    wanted += [requirement(text) for text in near.packages if text not in question.packages]
    if environment is not None and near.cudnn != question.cudnn:
        wanted += [requirement(pin) for pin in environment.cuda_wheels if pin.startswith("nvidia-cudnn")]
    if environment is not None and not extra and (other or near.install != question.install):
        wanted += [requirement(pin) for pin in environment.cuda_wheels]
    lines = [f"pip install {' '.join(dict.fromkeys(wanted))}"] if wanted else []
    if wanted and environment is not None and environment.cuda_wheels:
        lines += [_LINK_NVRTC] if needs_nvrtc_link(environment) else []
        lines += [_tell_loader(environment.loader_folders)] if environment.loader_folders else []
    if environment is None and near.gpu and near.cuda != question.cuda:
        lines.append(f"docker run --rm --gpus all -it {word(f'{PUBLISHED}:{version}-gpu')}")
    return tuple(lines)


def _tell_loader(folders: tuple[str, ...]) -> str:
    """Name the wheels' folders to the loader; where several are not found by themselves, all of them."""
    folder = word(folders[0]) if len(folders) == 1 and folders[0] != EVERY else EVERY
    code = f'import glob, nvidia; print(":".join(glob.glob(nvidia.__path__[0] + "/{folder}/lib")))'
    return f"export LD_LIBRARY_PATH=\"$(python -c '{code}')\""


def matrix_of(wish: Combination, environment: Environment) -> str:
    """Write a matrix file with the one environment, for ``envbuilder run``."""
    rows = {
        "tensorflow": environment.tensorflow,
        "package": wish.package,
        "python": environment.python,
        "os": environment.os,
        "flavor": environment.flavor,
        "cuda": wish.cuda,
        "cudnn": wish.cudnn,
        "packages": list(wish.packages),
    }
    lines = [f"name: {MATRIX}", "description: The nearest environment that works for a report.", "include:"]
    body = [f"{name}: {json.dumps(value)}" for name, value in rows.items() if value]
    lines += [f"  {'  ' if index else '- '}{text}" for index, text in enumerate(body)]
    return "\n".join(lines) + "\n"
