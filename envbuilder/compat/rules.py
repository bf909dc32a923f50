"""The ordered table of compatibility rules, and the one function that asks them all."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.compat import container, cuda_libraries, hardware, kernels, library_path, software
from envbuilder.compat.candidate import Candidate
from envbuilder.finding import SEVERITY_RANK, Code, Finding

Side = Literal["host", "gpu"]


class Rule(msgspec.Struct, frozen=True):
    """One rule: the codes that it may give, and the side of a candidate that it reads.

    A rule of the side ``host`` reads the Python, the system, the processor and the packages; one of the side ``gpu``
    reads CUDA, cuDNN, the driver, the GPUs and the image. Both read the release and how it is installed. No rule
    reads both sides, so that the two can be judged, and remembered, apart.
    """

    side: Side
    codes: tuple[Code, ...]
    find: Callable[[Candidate, Catalog], Iterator[Finding]]


RULES: tuple[Rule, ...] = (
    Rule("gpu", (Code.NOT_A_GPU_BUILD,), cuda_libraries.gpu_build),
    Rule("host", (Code.NOT_INSTALLABLE,), software.installable),
    Rule("host", (Code.PYTHON_UNSUPPORTED,), software.python_supported),
    Rule("host", (Code.GLIBC_TOO_OLD,), software.glibc_new_enough),
    Rule("host", (Code.CPU_FEATURE_MISSING,), software.cpu_features),
    Rule("gpu", (Code.CUDA_MISMATCH,), cuda_libraries.cuda_loads),
    Rule("gpu", (Code.CUDNN_MISMATCH,), cuda_libraries.cudnn_loads),
    Rule("gpu", (Code.LIBRARY_PATH, Code.MISSING_LIBRARY), library_path.libraries_found),
    Rule("gpu", (Code.DRIVER_TOO_OLD, Code.DRIVER_FORWARD_COMPAT, Code.DRIVER_MINOR_COMPAT), hardware.driver_runs_cuda),
    Rule("gpu", (Code.GPU_UNSUPPORTED_BY_DRIVER,), hardware.driver_knows_gpu),
    Rule("gpu", (Code.GPU_UNSUPPORTED_BY_CUDA,), hardware.cuda_knows_gpu),
    Rule("gpu", (Code.GPU_UNSUPPORTED_BY_CUDNN,), hardware.cudnn_knows_gpu),
    Rule(
        "gpu",
        (Code.NO_KERNEL_IMAGE, Code.PTX_TOO_NEW, Code.PTX_JIT, Code.PTX_JIT_GENERATED, Code.UNKNOWN),
        kernels.own_kernels,
    ),
    Rule("gpu", (Code.CONTAINER_REQUIREMENT,), container.container_starts),
    Rule("gpu", (Code.TWO_CUDA_STACKS,), cuda_libraries.one_stack),
    Rule("gpu", (Code.XLA_TOOLS_MISSING,), cuda_libraries.xla_tools),
    Rule(
        "host",
        (Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.PACKAGE_CONFLICT),
        software.packages_fit,
    ),
    Rule("host", (Code.NUMPY_ABI, Code.PROTOBUF_ABI), software.uncapped),
)
"""Every rule, from what stops earliest to what costs least; findings are shown in this order."""

_PLACE = {code: place for place, rule in reversed(list(enumerate(RULES))) for code in rule.codes} | {Code.UNKNOWN: 99}


def judge(candidate: Candidate, catalog: Catalog, sides: tuple[Side, ...] = ("host", "gpu")) -> tuple[Finding, ...]:
    """Ask every rule of these sides; the findings come in the order of `ordered`."""
    return ordered(finding for rule in RULES if rule.side in sides for finding in rule.find(candidate, catalog))


def ordered(findings: Iterator[Finding] | tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Sort findings, each once: errors first, then by the table's order, then by what they are about."""
    return tuple(sorted(dict.fromkeys(findings), key=_rank))


def joined(*sides: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Join findings that are in order and have none in common, such as those of the two sides."""
    given = [side for side in sides if side]
    return given[0] if len(given) == 1 else tuple(sorted(itertools.chain(*given), key=_rank))


def _rank(finding: Finding) -> tuple[int, int, str, str]:
    return SEVERITY_RANK[finding.severity], _PLACE.get(finding.code, 98), finding.subject, finding.message
