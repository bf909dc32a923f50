"""Which environment runs on which host: the rules, asked for every pair."""

from __future__ import annotations

from typing import Annotated

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat import phrases
from envbuilder.compat.question import Candidate, Question
from envbuilder.compat.rules import judge, ordered
from envbuilder.compat.settle import find_devices, settle
from envbuilder.environment import Environment
from envbuilder.finding import Code, Finding, Severity, compatible
from envbuilder.matrix import DottedText, GpuText

HostName = Annotated[
    str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}\Z", description="a host's name, such as trainer-1")
]


class FleetHost(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One host of a fleet file; without a driver it runs CPU environments only."""

    name: HostName
    driver: DottedText | None = None
    gpus: tuple[GpuText, ...] = ()


Fleet = tuple[FleetHost, ...]
"""A fleet file."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One environment on one host. ``compatible`` null is "no claim"; ``why`` is a sentence where it is not true."""

    host: str
    environment: str
    compatible: bool | None
    findings: tuple[Finding, ...]
    why: str = ""


class Newest(msgspec.Struct, frozen=True, kw_only=True):
    """The newest TensorFlow for a host, and why the next newer one is not it.

    Where none works, ``tensorflow`` is None and ``newer`` the newest release of all.
    """

    host: str
    tensorflow: str | None
    package: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    findings: tuple[Finding, ...] = ()
    newer: str | None = None
    why_not_newer: str = ""


def place(environments: tuple[Environment, ...], hosts: tuple[FleetHost, ...], catalog: Catalog) -> tuple[Cell, ...]:
    """Judge every environment on every host, environment by environment."""
    return tuple(_cell(environment, host, catalog) for environment in environments for host in hosts)


def _cell(environment: Environment, host: FleetHost, catalog: Catalog) -> Cell:
    found = findings_on(environment, host.driver, host.gpus, catalog)
    judged = compatible(found)
    first = next((row for row in found if row.severity is Severity.ERROR or row.code is Code.UNKNOWN), None)
    return Cell(
        host=host.name,
        environment=environment.id,
        compatible=judged,
        findings=found,
        why=first.message if first is not None and judged is not True else "",
    )


def findings_on(
    environment: Environment, driver: str | None, gpus: tuple[str, ...], catalog: Catalog
) -> tuple[Finding, ...]:
    """Predict what an environment will run into on a host with this driver and these GPUs.

    The environments that are built here hold no forward-compatibility package, so that one cannot help.
    """
    if environment.flavor == "cpu":
        return ()
    if driver is None or not gpus:
        return (_no_gpu(environment),)
    known = catalog
    release = known.release(environment.tensorflow, environment.package)
    if release is None:
        return (phrases.unknown(environment.id, f"The catalogue has no row for TensorFlow {environment.tensorflow}."),)
    devices, missing = find_devices(Question(tensorflow=release.version, gpus=gpus), known)
    candidate = Candidate(
        release=release,
        arch=environment.arch,
        cuda=environment.cuda,
        cudnn=environment.cudnn,
        toolkit=known.toolkit(environment.cuda),
        built=known.toolkit(release.cuda),
        cudnn_row=known.cudnn_row(environment.cudnn),
        driver=driver,
        branch=known.branch(driver),
        devices=devices,
        compat=False,
    )
    return ordered((*judge(candidate, known, ("gpu",)), *missing, *_silent(candidate)))


def _silent(candidate: Candidate) -> tuple[Finding, ...]:
    if candidate.driver is None or candidate.branch is not None:
        return ()
    branch = versions.major(candidate.driver)
    return (phrases.unknown(f"driver {candidate.driver}", f"The catalogue has no driver branch {branch}."),)


def _no_gpu(environment: Environment) -> Finding:
    return phrases.error(
        Code.GPU_NOT_VISIBLE,
        environment.id,
        "This host has no NVIDIA driver with a GPU, and the environment is built for one.",
        requires="an NVIDIA driver and a GPU",
        found="none",
        fix="Use a CPU environment here.",
    )


def newest(host: FleetHost, catalog: Catalog) -> Newest:
    """Find the newest final TensorFlow that uses a host's GPUs, with its libraries as it was built with them."""
    known = catalog
    if host.driver is None or not host.gpus:
        return Newest(host=host.name, tensorflow=None, why_not_newer="This host has no NVIDIA driver with a GPU.")
    refused: list[tuple[str, str]] = []
    for version in reversed(known.versions):
        if versions.key(version)[1] < 0:
            continue
        settled = settle(Question(tensorflow=version, driver=host.driver, gpus=host.gpus), known)
        candidate = settled.candidate
        if candidate is None:
            continue
        found = ordered((*judge(_without_compat(candidate), known), *settled.unknown))
        if compatible(found) is True:
            return _newest(host, candidate, found, refused)
        refused.append((version, found[0].message))
    if not refused:
        return Newest(host=host.name, tensorflow=None, why_not_newer="The catalogue has no release.")
    return Newest(host=host.name, tensorflow=None, newer=refused[0][0], why_not_newer=refused[0][1])


def _without_compat(candidate: Candidate) -> Candidate:
    return msgspec.structs.replace(candidate, compat=False)


def _newest(
    host: FleetHost, candidate: Candidate, found: tuple[Finding, ...], refused: list[tuple[str, str]]
) -> Newest:
    return Newest(
        host=host.name,
        tensorflow=candidate.release.version,
        package=candidate.release.package,
        cuda=candidate.cuda,
        cudnn=candidate.cudnn,
        findings=found,
        newer=refused[-1][0] if refused else None,
        why_not_newer=refused[-1][1] if refused else "",
    )
