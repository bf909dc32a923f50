"""Put the cause first: of all that was found, what explains the rest and what a line proves."""

from __future__ import annotations

from envbuilder.finding import SEVERITY_RANK, Code, Finding, Severity

_TIERS: tuple[frozenset[Code], ...] = (
    frozenset(
        {Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.CONTAINER_REQUIREMENT, Code.IMAGE_CLAIM, Code.DRIVER_TOO_OLD,
         Code.GPU_UNSUPPORTED_BY_DRIVER}
    ),
    frozenset(
        {Code.PYTHON_UNSUPPORTED, Code.NOT_INSTALLABLE, Code.PACKAGE_CONFLICT, Code.GLIBC_TOO_OLD,
         Code.CPU_FEATURE_MISSING, Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.API_MISMATCH}
    ),
    frozenset({Code.GPU_NOT_VISIBLE}),
    frozenset({Code.NOT_A_GPU_BUILD}),
    frozenset({Code.OTHER_BUILD}),
    frozenset(
        {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
    ),
    frozenset(
        {Code.NO_KERNEL_IMAGE, Code.GPU_UNSUPPORTED_BY_CUDA, Code.PTX_JIT, Code.PTX_TOO_NEW,
         Code.GPU_UNSUPPORTED_BY_CUDNN}
    ),
    frozenset({Code.XLA_TOOLS_MISSING}),
    frozenset({Code.STALLS, Code.GPU_MEMORY, Code.SLOW_PHASE}),
)  # fmt: skip
"""Codes in the order in which they explain each other: nothing behind a stub libcuda is worth a look."""

_BEFORE_BUILDS = frozenset(
    {Code.CUDNN_MISMATCH, Code.NO_KERNEL_IMAGE, Code.PTX_JIT, Code.XLA_TOOLS_MISSING, Code.STALLS}
)
"""What a line proves of any build; whose build it is comes after it, and before libraries that it alone opens."""

_BUILD_TIER = next(tier for tier, codes in enumerate(_TIERS) if Code.OTHER_BUILD in codes)
_TIER = {code: tier for tier, codes in enumerate(_TIERS) for code in codes}


def by_cause(findings: tuple[Finding, ...], proved: set[Code]) -> tuple[Finding, ...]:
    """Sort findings, each once: the cause first, what it explains after it, remarks and what is unknown last.

    ``proved`` are the codes that a line of the report shows; a rule's forecast gives way to them.
    """
    return tuple(sorted(dict.fromkeys(findings), key=lambda row: _key(row, proved)))


def _key(finding: Finding, proved: set[Code]) -> tuple[bool, bool, float, int, str, str]:
    code = finding.code
    tier: float = _TIER.get(code, len(_TIERS))
    if code in proved & _BEFORE_BUILDS:
        tier = _BUILD_TIER - 0.5
    elif proved and code not in proved and tier == 1:
        tier = len(_TIERS) - 1.5  # a forecast of what would stop it at its import, and a line shows something else
    if Code.SLOW_PHASE in proved and code in {Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA}:
        tier = -1  # it runs, and waits: what is compiled at each start explains that
    remark = finding.severity is Severity.INFO
    return remark, code is Code.UNKNOWN, tier, SEVERITY_RANK[finding.severity], finding.subject, finding.message
