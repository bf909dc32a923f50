"""Commands that install the closest compatible environment."""

from __future__ import annotations

from envbuilder import versions
from envbuilder.catalog.library_search import LINK_NVRTC, loader_folders, loader_path
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.question import Question
from envbuilder.environment import Environment
from envbuilder.reproduce.libraries import PUBLISHED_TAGS
from envbuilder.reproduce.question import Case
from envbuilder.reproduce.rebuild import PUBLISHED, requirement, word

_WSL = "wsl --install -d Ubuntu"
_LAST_WINDOWS_GPU = "2.10"


def install_commands(case: Case, near: Question, environment: Environment | None) -> tuple[str, ...]:
    """Write the commands from the reported environment to the closest one; each word satisfies a grammar.

    ``environment`` is None if no CUDA wheels exist for it: CUDA then comes from NVIDIA's installer or from the
    published image, if a tag is known.
    """
    reported, question, catalog = case.reported, case.question or near, case.catalog
    version = catalog.version(near.tensorflow) or near.tensorflow
    release = _release(near, version, catalog)
    native = reported.platform == "windows" and not versions.at_least(version, f"{_LAST_WINDOWS_GPU}.99")
    lines = [_WSL] if reported.platform == "windows" and not native and near.gpu else []
    if near.python and near.python != question.python:
        lines += [f"uv venv --seed --python {word(near.python)} tf && . tf/bin/activate"]
    wanted = _requirements(question, near, None if native else environment, release, fresh=bool(lines))
    if not wanted and environment is None and not native:
        wanted = _cudnn_alone(question, near, release, catalog)
    if wanted:
        lines.append(f"pip install {' '.join(dict.fromkeys(wanted))}")
    if environment is not None and not native and any("nvidia-" in text or "and-cuda" in text for text in wanted):
        lines += [LINK_NVRTC] if environment.needs_nvrtc_link else []
        folders = loader_folders(release) if release is not None else ()  # not needed without a GPU
        lines += [loader_path(folders)] if folders else []
    tag = PUBLISHED_TAGS.get(versions.minor(version))
    other = near.cuda != question.cuda or (near.cuda is None and near.tensorflow != question.tensorflow)
    if environment is None and near.gpu and other and not native and tag is not None:
        lines.append(f"docker run --rm --gpus all -it {word(f'{PUBLISHED}:{tag}')}")
    return tuple(lines)


def _release(near: Question, version: str, catalog: Catalog) -> TensorflowRelease | None:
    """Return the distribution to install: the named one, or the one with GPU support if a GPU is meant."""
    if near.package is not None:
        return catalog.release(version, near.package)
    rows = catalog.distributions(version)
    fit = (row for row in rows if row.gpu or not near.gpu)
    return next(fit, None) or next(iter(rows), None)


def _requirements(
    question: Question,
    near: Question,
    environment: Environment | None,
    release: TensorflowRelease | None,
    *,
    fresh: bool,
) -> list[str]:
    """List the requirements for pip: TensorFlow if it changes, CUDA if it comes from wheels, changed packages."""
    package = release.package if release is not None else near.package or "tensorflow"
    version = release.version if release is not None else near.tensorflow
    other = fresh or near.tensorflow != question.tensorflow or near.package != question.package
    stack = other or near.install != question.install or near.cuda != question.cuda or near.cudnn != question.cudnn
    findable = release is not None and release.and_cuda and release.finds_cuda == "wheels"
    python = near.python or (environment.python if environment is not None else None)
    extra = bool(findable and release and python not in release.extra_fails_on and near.gpu and environment)
    wanted: list[str] = []
    if other or (stack and extra):
        wanted.append(f"'{word(package)}{'[and-cuda]' if extra else ''}=={word(version)}'")
    if other and release is not None:
        named = {text.partition("=")[0] for text in near.packages}
        wanted += [requirement(cap) for cap in release.caps if cap.partition("<")[0] not in named]
    wanted += [requirement(text) for text in near.packages if text not in question.packages]
    if environment is not None and stack:
        pins = environment.cuda_wheels
        mine = near.cudnn != question.cudnn and not other and near.install == question.install is None
        chosen = [pin for pin in pins if pin.startswith("nvidia-cudnn")] if mine or extra else pins
        wanted += [requirement(pin) for pin in chosen if not extra or near.cudnn != question.cudnn]
    return wanted


def _cudnn_alone(question: Question, near: Question, release: TensorflowRelease | None, catalog: Catalog) -> list[str]:
    """Name the cuDNN wheel if only cuDNN changes and TensorFlow loads it from a wheel."""
    line = next((name for name in versions.pins(release.cuda_wheels if release else ()) if "cudnn" in name), None)
    if line is None or release is None or release.finds_cuda != "wheels" or near.cudnn in {None, question.cudnn}:
        return []
    found = catalog.newest_wheel(line, (("==", f"{near.cudnn}.*"),))
    return [requirement(f"{line}=={found}")] if found else []
