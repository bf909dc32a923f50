"""The expected contents of an image: from its environment and lock, or from the catalogue for a foreign image."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.engine.port import Image
from envbuilder.environment import WHOLE, Environment, Flavor
from envbuilder.finding import Code
from envbuilder.image import lockfile
from envbuilder.validation.checks import Profile
from envbuilder.validation.image_claims import (
    ENVIRONMENT_LABEL,
    FRAMEWORKS,
    LOCK_LABEL,
    brings_cuda,
    build_record,
    carried_lock,
)
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.image_loader import ImagePython
from envbuilder.validation.suite_plan import Facts


class InstalledFramework(msgspec.Struct, frozen=True, kw_only=True):
    """The TensorFlow that a Python would import, read from files.

    ``build`` is the build's own record. Of a Python of this host, there are also its package folders (``sites``),
    TensorFlow's folder, and its full version (``release``). ``is_for_gpus`` is True for a build with CUDA next to a
    CUDA runtime or a GPU.
    """

    python: str = ""
    package: str = ""
    version: str = ""
    build: Mapping[str, Any] = {}
    sites: tuple[str, ...] = ()
    folder: str = ""
    release: str = ""
    is_cuda_build: bool = False
    is_for_gpus: bool = False


def installed_framework(files: ImageFiles, image: Image, gpus: str) -> InstalledFramework:
    """Return the TensorFlow of an image; ``gpus`` are those of its container."""
    python, build, brings = ImagePython(files, image), build_record(files), brings_cuda(files)
    there = {(one.name, one.folder.rpartition("/")[0]): one.version for one in python.distributions()}
    named = ((name, there.get((name, f"/{site}"))) for site in python.sites for name in FRAMEWORKS)
    package, version = next(((name, version) for name, version in named if version), ("", ""))
    folder = re.search(r"/python(3\.\d+)/", "/".join(("", *python.sites[:1], "")))
    is_cuda_build = brings or build.get("is_cuda_build") == "True"  # the shared objects outrank the record
    return InstalledFramework(
        python=folder[1] if folder else "",
        package=package,
        version=version,
        build=build,
        is_cuda_build=is_cuda_build,
        is_for_gpus=brings or (is_cuda_build and gpus != "none"),
    )


def of_environment(environment: Environment, lock: str, image: Image, *, profile: Profile, simulated: bool) -> Facts:
    """Return the facts of a managed environment: all of its claims are checked."""
    return Facts(
        flavor=environment.flavor,
        tensorflow=environment.tensorflow,
        python=environment.python,
        package=environment.package,
        cuda=environment.cuda,
        cudnn=environment.cudnn,
        built_cuda=environment.built_cuda or environment.cuda,
        built_cudnn=environment.built_cudnn or environment.cudnn,
        minimum_driver=environment.minimum_driver,
        libraries=environment.libraries,
        cubins=environment.cubins,
        ptx=environment.ptx,
        form=environment.variant or WHOLE,
        locked=tuple((package.name, package.version) for package in lockfile.parse(lock)) if lock else (),
        environment=environment.id,
        lock=lockfile.digest(lock) if lock else "",
        labels=dict(image.labels),
        image_env=dict(image.env),
        profile=profile,
        simulated=simulated,
    )


def with_base(facts: Facts, environment: Environment | None) -> Facts:
    """Add whether the base, or its packages, was accepted without the tools of XLA."""
    if environment is None or not (environment.on_registry_base or environment.packaged_cuda):
        return facts
    known = any(finding.code is Code.XLA_TOOLS_MISSING for finding in environment.findings)
    return msgspec.structs.replace(facts, without_tools=known)


def of_claimed(facts: Facts, files: ImageFiles, image: Image) -> Facts:
    """Return a foreign image's facts with the claims of its labels, which are checked even without the documents.

    The engine reports the labels; files in the image cannot change them.
    """
    lock = carried_lock(files)
    return msgspec.structs.replace(
        facts,
        environment=image.labels.get(ENVIRONMENT_LABEL, "")[:200] or "(no label)",
        lock=image.labels.get(LOCK_LABEL, "")[:200],
        locked=tuple((package.name, package.version) for package in lockfile.parse(lock)),
    )


def of_foreign(
    installed: InstalledFramework, catalog: Catalog, image: Image | None, *, profile: Profile, simulated: bool
) -> Facts:
    """Return the facts of a foreign image, or of a Python of this host, from the build's own record.

    Missing values come from the catalogue's row of that release; without a row there is no claim.
    """
    row = _row(installed, catalog)
    flavor: Flavor = "gpu" if installed.is_for_gpus else "cpu"
    cuda = _dotted(installed.build.get("cuda_version")) or (row.cuda if row else None)
    cudnn = (row.cudnn if row else None) or _dotted(installed.build.get("cudnn_version"))
    toolkit = catalog.toolkit(cuda)
    return Facts(
        flavor=flavor,
        tensorflow=installed.version,
        python=installed.python,
        package=installed.package,
        cuda=cuda,
        cudnn=cudnn,
        built_cuda=cuda,
        built_cudnn=cudnn,
        minimum_driver=toolkit.minimum_driver if toolkit and flavor == "gpu" else None,
        libraries=row.libraries if row and flavor == "gpu" else (),
        cubins=row.cubins if row else (),
        ptx=row.ptx if row else (),
        labels=dict(image.labels) if image else {},
        image_env=dict(image.env) if image else {},
        profile=profile,
        simulated=simulated,
        place="container" if image else "here",
    )


def with_gpus(facts: Facts, gpus: str) -> Facts:
    """Add the number of GPUs of the container; ``all`` means at least one."""
    expected = 0 if gpus == "none" else 1 if gpus == "all" else len(gpus.split(","))
    return msgspec.structs.replace(facts, gpus_expected=expected)


def _row(installed: InstalledFramework, catalog: Catalog) -> TensorflowRelease | None:
    rows = catalog.distributions(installed.version)
    exact = [row for row in rows if row.package == installed.package]
    gpu = [row for row in rows if row.gpu and installed.is_cuda_build]
    return next(iter(exact or gpu), None)


def _dotted(value: object) -> str | None:
    found = re.match(r"[0-9]+(\.[0-9]+)*", str(value or ""))
    return found[0] if found else None
