"""The expected contents of an image: from its environment and lock, or from the catalogue for a foreign image."""

from __future__ import annotations

import re

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.engine.port import Image
from envbuilder.environment import WHOLE, Environment
from envbuilder.finding import Code
from envbuilder.image import lockfile
from envbuilder.validation.image_claims import ENVIRONMENT_LABEL, LOCK_LABEL, carried_lock
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.image_loader import ImagePython, InstalledFramework
from envbuilder.validation.suite_plan import Facts

_SHARED = set(Facts.__struct_fields__) & set(Environment.__struct_fields__)
"""Facts that an environment has under the same name."""


def installed_framework(files: ImageFiles, image: Image, gpus: str) -> InstalledFramework:
    found = ImagePython(files, image).framework
    is_for_gpus = found.is_for_gpus or (found.is_cuda_build and gpus != "none")
    return msgspec.structs.replace(found, is_for_gpus=is_for_gpus)


def of_environment(environment: Environment, lock: str, host: Environment | None) -> Facts:
    """Return an environment's facts. Only ``host``, this host's record of it, says that its base has no XLA tools."""
    shared = {name: getattr(environment, name) for name in _SHARED}
    shared["built_cuda"] = environment.built_cuda or environment.cuda
    shared["built_cudnn"] = environment.built_cudnn or environment.cudnn
    return Facts(
        **shared,
        form=environment.variant or WHOLE,
        locked=_pins(lock),
        environment=environment.id,
        lock=lockfile.digest(lock) if lock else "",
        without_tools=host is not None
        and bool(host.on_registry_base or host.packaged_cuda)
        and any(finding.code is Code.XLA_TOOLS_MISSING for finding in host.findings),
    )


def _pins(lock: str) -> tuple[tuple[str, str], ...]:
    return tuple((package.name, package.version) for package in lockfile.parse(lock))


def of_claimed(facts: Facts, files: ImageFiles, image: Image) -> Facts:
    """Return a foreign image's facts with the claims of its labels, which are checked even without the documents.

    The engine reports the labels; files in the image cannot change them.
    """
    return msgspec.structs.replace(
        facts,
        environment=image.labels.get(ENVIRONMENT_LABEL, "")[:200] or "(no label)",
        lock=image.labels.get(LOCK_LABEL, "")[:200],
        locked=_pins(carried_lock(files)),
    )


def of_foreign(installed: InstalledFramework, catalog: Catalog, image: Image | None) -> Facts:
    """Return the facts of a foreign image, or of a Python of this host, from the build's own record.

    Missing values come from the catalogue's row of that release; without a row there is no claim.
    """
    row = _row(installed, catalog)
    cuda = _dotted(installed.build.get("cuda_version")) or (row.cuda if row else None)
    cudnn = (row.cudnn if row else None) or _dotted(installed.build.get("cudnn_version"))
    toolkit = catalog.toolkit(cuda)
    for_gpus = installed.is_for_gpus
    return Facts(
        flavor="gpu" if for_gpus else "cpu",
        tensorflow=installed.version,
        python=installed.python,
        cuda=cuda,
        cudnn=cudnn,
        built_cuda=cuda,
        built_cudnn=cudnn,
        minimum_driver=toolkit.minimum_driver if toolkit and for_gpus else None,
        libraries=row.libraries if row and for_gpus else (),
        cubins=row.cubins if row else (),
        ptx=row.ptx if row else (),
        place="container" if image else "here",
    )


def _row(installed: InstalledFramework, catalog: Catalog) -> TensorflowRelease | None:
    rows = catalog.distributions(installed.version)
    exact = [row for row in rows if row.package == installed.package]
    gpu = [row for row in rows if row.gpu and installed.is_cuda_build]
    return next(iter(exact or gpu), None)


def _dotted(value: object) -> str | None:
    found = re.match(r"[0-9]+(\.[0-9]+)*", str(value or ""))
    return found[0] if found else None
