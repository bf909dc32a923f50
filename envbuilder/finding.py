"""A finding: one statement about an environment, under a stable code that every command shares."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from typing import Any

import msgspec

from envbuilder.workspace import packaged_yaml


class Code(StrEnum):
    """The stable names of findings. Names may be added; none is renamed. What each means is in codes.yaml.

    Rules run, and their findings are shown, in this order: first what stops earliest.
    """

    NOT_A_GPU_BUILD = "NOT_A_GPU_BUILD"
    ARCH_MISMATCH = "ARCH_MISMATCH"
    NOT_INSTALLABLE = "NOT_INSTALLABLE"
    PYTHON_UNSUPPORTED = "PYTHON_UNSUPPORTED"
    GLIBC_TOO_OLD = "GLIBC_TOO_OLD"
    CPU_FEATURE_MISSING = "CPU_FEATURE_MISSING"
    CUDA_MISMATCH = "CUDA_MISMATCH"
    CUDNN_MISMATCH = "CUDNN_MISMATCH"
    LIBRARY_PATH = "LIBRARY_PATH"
    MISSING_LIBRARY = "MISSING_LIBRARY"
    DRIVER_TOO_OLD = "DRIVER_TOO_OLD"
    DRIVER_FORWARD_COMPAT = "DRIVER_FORWARD_COMPAT"
    DRIVER_BRANCH = "DRIVER_BRANCH"
    DRIVER_MINOR_COMPAT = "DRIVER_MINOR_COMPAT"
    GPU_UNSUPPORTED_BY_DRIVER = "GPU_UNSUPPORTED_BY_DRIVER"
    GPU_UNSUPPORTED_BY_CUDA = "GPU_UNSUPPORTED_BY_CUDA"
    GPU_UNSUPPORTED_BY_CUDNN = "GPU_UNSUPPORTED_BY_CUDNN"
    NO_KERNEL_IMAGE = "NO_KERNEL_IMAGE"
    PTX_TOO_NEW = "PTX_TOO_NEW"
    PTX_JIT = "PTX_JIT"
    PTX_JIT_GENERATED = "PTX_JIT_GENERATED"
    CONTAINER_REQUIREMENT = "CONTAINER_REQUIREMENT"
    TWO_CUDA_STACKS = "TWO_CUDA_STACKS"
    XLA_TOOLS_MISSING = "XLA_TOOLS_MISSING"
    NUMPY_ABI = "NUMPY_ABI"
    PROTOBUF_ABI = "PROTOBUF_ABI"
    KERAS_MISMATCH = "KERAS_MISMATCH"
    API_MISMATCH = "API_MISMATCH"
    PACKAGE_CONFLICT = "PACKAGE_CONFLICT"
    DRIVER_MISMATCH = "DRIVER_MISMATCH"
    GPU_NOT_VISIBLE = "GPU_NOT_VISIBLE"
    STUB_LIBCUDA = "STUB_LIBCUDA"
    LOCK_MISMATCH = "LOCK_MISMATCH"
    IMAGE_CLAIM = "IMAGE_CLAIM"
    FILES_DIFFER = "FILES_DIFFER"
    IMAGE_CONFIGURATION = "IMAGE_CONFIGURATION"
    SECRET_IN_IMAGE = "SECRET_IN_IMAGE"  # noqa: S105 - a code, not a password
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
    CATALOG_AGE = "CATALOG_AGE"
    UNREVIEWED = "UNREVIEWED"
    UNKNOWN = "UNKNOWN"


class Severity(StrEnum):
    """How much a finding matters: an error makes an environment incompatible."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
"""Findings are shown most serious first, in the order of the enumeration."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One statement about ``subject``: what is required, what was found instead, and the fix.

    ``fix`` is one sentence to follow; ``sources`` are the places that ``message`` rests on.
    """

    code: Code
    severity: Severity
    subject: str
    message: str
    requires: str = ""
    found: str = ""
    fix: str = ""
    sources: tuple[str, ...] = ()


TEXTS = ("subject", "message", "requires", "found", "fix")


class FindingText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A finding of codes.yaml. Its texts have named ``{fields}``."""

    severity: Severity
    subject: str
    message: str
    requires: str = ""
    found: str = ""
    fix: str = ""

    def filled(self, fields: Mapping[str, object]) -> dict[str, Any]:
        return {name: getattr(self, name).format_map(fields) for name in TEXTS}


class CodeText(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A code's row of codes.yaml: its meaning, causes and fix with their sources, and its findings by variant."""

    means: str
    cause: str
    fix: str
    sources: tuple[str, ...]
    findings: dict[str, FindingText] = {}


@cache
def code_texts() -> dict[Code, CodeText]:
    """Read codes.yaml. Raises InfrastructureError if the installation lacks it."""
    return packaged_yaml("codes.yaml", dict[Code, CodeText])


def written(code: Code, variant: str, sources: Iterable[str] = (), /, **fields: object) -> Finding:
    """Write a finding with the texts of codes.yaml. Raises KeyError for a missing variant or field."""
    text = code_texts()[code].findings[variant]
    return Finding(code=code, severity=text.severity, **text.filled(fields), sources=tuple(dict.fromkeys(sources)))


def worst_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings by severity, the most serious first; equal ones keep their order."""
    return tuple(sorted(findings, key=lambda finding: SEVERITY_RANK[finding.severity]))


def compatible(findings: tuple[Finding, ...]) -> bool | None:
    """Evaluate findings: False if one is an error, None without a claim or on a condition, True otherwise."""
    found = obstacle(findings)
    return True if found is None else False if found.severity is Severity.ERROR else None


def obstacle(findings: Iterable[Finding]) -> Finding | None:
    """Return the most serious finding that prevents the answer "compatible": an error, no claim, or a condition."""
    found = (f for f in findings if f.severity is Severity.ERROR or f.code is Code.UNKNOWN or is_condition(f))
    return min(found, key=lambda finding: SEVERITY_RANK[finding.severity], default=None)


def is_condition(finding: Finding) -> bool:
    """Return True if it works only with a package that images do not have: CUDA's forward compatibility."""
    return finding.code is Code.DRIVER_FORWARD_COMPAT and finding.severity is Severity.WARNING
