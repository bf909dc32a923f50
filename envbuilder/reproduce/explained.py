"""Does a cause explain what the report complains of? What does not is a remark: true perhaps, and not the answer."""

from __future__ import annotations

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.message import Symptom
from envbuilder.reproduce.messages.recognise import get
from envbuilder.reproduce.question_from_report import release_of
from envbuilder.reproduce.report.reported import Complaint, Reported
from envbuilder.versions import at_least

_OPENS_AT_USE = "1.14"
"""The first release that opens CUDA's libraries when a GPU is looked for, and imports without them."""

_LIBRARIES = frozenset(
    {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
)
_PACKAGES = frozenset(
    {Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.PACKAGE_CONFLICT, Code.API_MISMATCH}
)
_START = frozenset({Code.GLIBC_TOO_OLD, Code.CPU_FEATURE_MISSING, Code.NOT_INSTALLABLE, Code.PYTHON_UNSUPPORTED})
_HOST = frozenset(
    {Code.DRIVER_TOO_OLD, Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.GPU_NOT_VISIBLE, Code.CONTAINER_REQUIREMENT,
     Code.GPU_UNSUPPORTED_BY_DRIVER, Code.DRIVER_FORWARD_COMPAT, Code.IMAGE_CLAIM}
)  # fmt: skip
_KERNELS = frozenset(
    {Code.NO_KERNEL_IMAGE, Code.GPU_UNSUPPORTED_BY_CUDA, Code.GPU_UNSUPPORTED_BY_CUDNN, Code.PTX_TOO_NEW}
)
_TIME = frozenset({Code.PTX_JIT, Code.SLOW_PHASE, Code.STALLS, Code.XLA_TOOLS_MISSING, Code.GPU_UNSUPPORTED_BY_CUDA})

_EXPLAINED: dict[Complaint, frozenset[Code]] = {
    "invisible": _LIBRARIES | _HOST | _START | {Code.NOT_A_GPU_BUILD, Code.NO_KERNEL_IMAGE, Code.PACKAGE_CONFLICT},
    "slow": _TIME | _LIBRARIES | _HOST | {Code.NOT_A_GPU_BUILD, Code.GPU_MEMORY},
    "stuck": _TIME | _KERNELS | {Code.GPU_MEMORY, Code.CUDNN_MISMATCH, Code.DRIVER_TOO_OLD},
    "breaks": _LIBRARIES | _HOST | _KERNELS | _START | _PACKAGES
    | {Code.XLA_TOOLS_MISSING, Code.STALLS, Code.GPU_MEMORY, Code.GPU_ERRORS},
    "installing": _START | _PACKAGES,
    "import": _START | _PACKAGES | {Code.STUB_LIBCUDA},
    "building": frozenset(),
    "several": _TIME | {Code.GPU_MEMORY, Code.TWO_CUDA_STACKS},
}  # fmt: skip
"""What each complaint can come from. Whose build it is (`OTHER_BUILD`) bears on every one."""


def explains(code: Code, reported: Reported) -> bool:
    """Tell whether a cause can be what is complained of; anything can where the report does not say what that is."""
    if code in _LIBRARIES and reported.install == "conda":
        return False  # it may be conda's build, which opens the libraries that conda chose for it
    if not reported.complaints or code in {Code.OTHER_BUILD, Code.UNKNOWN}:
        return True
    wanted = frozenset[Code]().union(*(_EXPLAINED[complaint] for complaint in reported.complaints))
    return code in wanted or (code in _LIBRARIES and "import" in reported.complaints and _opens_at_import(reported))


def _opens_at_import(reported: Reported) -> bool:
    """Tell whether a missing CUDA stops the import: before 1.14, and where nobody knows which release it is."""
    return reported.tensorflow is None or not at_least(release_of(reported.tensorflow), _OPENS_AT_USE)


def as_remark(finding: Finding) -> Finding:
    """Keep a finding in sight that is not the answer."""
    return finding if finding.severity is Severity.INFO else msgspec.structs.replace(finding, severity=Severity.INFO)


_GOES_ON = frozenset({"library_not_loaded", "cuda_not_found", "cannot_dlopen", "cudnn_part_not_loaded"})
"""Messages after which TensorFlow goes on without the GPU: none of them stops an import."""


def _is_first(reported: Reported) -> bool:
    release = release_of(reported.tensorflow) if reported.tensorflow else ""
    return bool(release) and at_least(release, "1.4") and not at_least(release, "2.0")


def is_aside(symptom: Symptom, reported: Reported, *, stops: bool = False) -> bool:
    """Tell whether a line is about another matter: a GPU where only an import fails, or another TensorFlow.

    ``stops`` is true where another line shows what stops the import.
    """
    asked = set(reported.complaints)
    only = (stops and "invisible" not in asked) or (bool(asked) and asked <= {"import", "installing", "building"})
    if symptom.signature == "tf1_code" and _is_first(reported):
        return True  # 1.x has these names: another TensorFlow, that was tried too, said so
    return only and (symptom.signature in _GOES_ON or get(symptom.signature).layer == "symptom")
