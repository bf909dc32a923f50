"""The expected contents of an image: from its environment and lock, or from the catalogue for a foreign image."""

from __future__ import annotations

import re

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.engine.port import Image
from envbuilder.environment import WHOLE, Environment, Flavor
from envbuilder.finding import Code
from envbuilder.image import lockfile
from envbuilder.validation.checks import Profile
from envbuilder.validation.image_claims import ENVIRONMENT_LABEL, LOCK_LABEL, carried_lock
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.suite_plan import Facts
from envbuilder.validation.suite_session import Identity


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
    identity: Identity,
    catalog: Catalog,
    image: Image | None,
    *,
    profile: Profile,
    simulated: bool,
    for_gpus: bool = False,
) -> Facts:
    """Return the facts of a foreign image, or of a Python of this host, from the build's own record.

    ``for_gpus`` comes from its files, which outrank the record. Missing values come from the catalogue's row of that
    release; without a row there is no claim.
    """
    row = _row(identity, catalog, for_gpus=for_gpus)
    flavor: Flavor = "gpu" if for_gpus or identity.is_for_gpus else "cpu"
    cuda = _dotted(identity.build.get("cuda_version")) or (row.cuda if row else None)
    cudnn = (row.cudnn if row else None) or _dotted(identity.build.get("cudnn_version"))
    toolkit = catalog.toolkit(cuda)
    return Facts(
        flavor=flavor,
        tensorflow=identity.version or "",
        python=identity.python,
        package=identity.package or "",
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


def _row(identity: Identity, catalog: Catalog, *, for_gpus: bool) -> TensorflowRelease | None:
    rows = catalog.distributions(identity.version or "")
    exact = [row for row in rows if row.package == identity.package]
    gpu = [row for row in rows if row.gpu] if for_gpus or identity.is_cuda_build else []
    return next(iter(exact or gpu), None)


def _dotted(value: object) -> str | None:
    found = re.match(r"[0-9]+(\.[0-9]+)*", str(value or ""))
    return found[0] if found else None
