"""A finding: one statement about an environment, under a stable code that every command shares."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Severity(StrEnum):
    """How much a finding matters: an error makes an environment incompatible."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
"""Where a severity stands: findings are shown most serious first, in the order of the enumeration."""


class Code(StrEnum):
    """The stable names of findings; `compat/explanations` holds what each means. More may be added; none is renamed."""

    PYTHON_UNSUPPORTED = "PYTHON_UNSUPPORTED"
    CUDA_MISMATCH = "CUDA_MISMATCH"
    CUDNN_MISMATCH = "CUDNN_MISMATCH"
    DRIVER_TOO_OLD = "DRIVER_TOO_OLD"
    DRIVER_FORWARD_COMPAT = "DRIVER_FORWARD_COMPAT"
    DRIVER_MINOR_COMPAT = "DRIVER_MINOR_COMPAT"
    DRIVER_MISMATCH = "DRIVER_MISMATCH"
    GPU_UNSUPPORTED_BY_DRIVER = "GPU_UNSUPPORTED_BY_DRIVER"
    GPU_UNSUPPORTED_BY_CUDA = "GPU_UNSUPPORTED_BY_CUDA"
    GPU_UNSUPPORTED_BY_CUDNN = "GPU_UNSUPPORTED_BY_CUDNN"
    GPU_NOT_VISIBLE = "GPU_NOT_VISIBLE"
    NO_KERNEL_IMAGE = "NO_KERNEL_IMAGE"
    PTX_TOO_NEW = "PTX_TOO_NEW"
    PTX_JIT = "PTX_JIT"
    PTX_JIT_GENERATED = "PTX_JIT_GENERATED"
    TWO_CUDA_STACKS = "TWO_CUDA_STACKS"
    STUB_LIBCUDA = "STUB_LIBCUDA"
    MISSING_LIBRARY = "MISSING_LIBRARY"
    LIBRARY_PATH = "LIBRARY_PATH"
    XLA_TOOLS_MISSING = "XLA_TOOLS_MISSING"
    NUMPY_ABI = "NUMPY_ABI"
    PROTOBUF_ABI = "PROTOBUF_ABI"
    KERAS_MISMATCH = "KERAS_MISMATCH"
    GLIBC_TOO_OLD = "GLIBC_TOO_OLD"
    CPU_FEATURE_MISSING = "CPU_FEATURE_MISSING"
    CONTAINER_REQUIREMENT = "CONTAINER_REQUIREMENT"
    NOT_INSTALLABLE = "NOT_INSTALLABLE"
    NOT_A_GPU_BUILD = "NOT_A_GPU_BUILD"
    LOCK_MISMATCH = "LOCK_MISMATCH"
    PACKAGE_CONFLICT = "PACKAGE_CONFLICT"
    IMAGE_CLAIM = "IMAGE_CLAIM"
    FILES_DIFFER = "FILES_DIFFER"
    IMAGE_CONFIGURATION = "IMAGE_CONFIGURATION"
    SECRET_IN_IMAGE = "SECRET_IN_IMAGE"  # noqa: S105 - the name of a finding
    WRONG_NUMBERS = "WRONG_NUMBERS"
    GPU_ERRORS = "GPU_ERRORS"
    GPU_MEMORY = "GPU_MEMORY"
    PROBE_CRASHED = "PROBE_CRASHED"
    PROBE_TIMEOUT = "PROBE_TIMEOUT"
    PROTOCOL_VIOLATION = "PROTOCOL_VIOLATION"
    USER_START = "USER_START"
    OTHER_BUILD = "OTHER_BUILD"
    SLOW_PHASE = "SLOW_PHASE"
    STALLS = "STALLS"
    BUDGET_EXCEEDED = "BUDGET_EXCEEDED"
    UNKNOWN = "UNKNOWN"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """What was found about ``subject``: what is required, what is there instead, and what mends it.

    ``fix`` is one sentence that a person can follow; ``sources`` are the places that ``message`` rests on.
    """

    code: Code
    severity: Severity
    subject: str
    message: str
    requires: str = ""
    found: str = ""
    fix: str = ""
    sources: tuple[str, ...] = ()


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, the most serious first; those of one severity keep their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITY_RANK[finding.severity]))


def compatible(findings: tuple[Finding, ...]) -> bool | None:
    """Judge findings: False where one is an error, None where the catalogue is silent, True otherwise."""
    if any(f.severity is Severity.ERROR for f in findings):
        return False
    if any(f.code is Code.UNKNOWN for f in findings):
        return None
    return True
