"""Predict what goes wrong in a reported environment: by the rules, by its own messages, by its pauses."""

from __future__ import annotations

from envbuilder.catalog.model import Catalog
from envbuilder.compat.check import findings_of
from envbuilder.compat.rules import ordered
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.message import Signature, Symptom
from envbuilder.reproduce.messages.recognise import get
from envbuilder.reproduce.question_from_report import question_of
from envbuilder.reproduce.report.reported import Reported
from envbuilder.reproduce.slow_start import causes
from envbuilder.versions import at_least

FIRST_WITHOUT_WINDOWS_GPU = "2.11"

_AT_IMPORT = frozenset(
    {
        Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.GLIBC_TOO_OLD, Code.CPU_FEATURE_MISSING,
        Code.PYTHON_UNSUPPORTED, Code.NOT_INSTALLABLE,
    }
)  # fmt: skip
"""What stops TensorFlow before it can look at a GPU: a log that goes further refutes it."""

_OF_PACKAGES = {
    Code.NUMPY_ABI: {"numpy"},
    Code.PROTOBUF_ABI: {"protobuf"},
    Code.KERAS_MISMATCH: {"keras", "tf-keras"},
}

_AFTER_IMPORT = (
    "gpu_device.cc", "cuda_driver.cc", "cuda_dnn.cc", "cuda_diagnostics.cc", "Found device", "cuInit", "Loaded cuDNN",
    "XLA service",
)  # fmt: skip

_FOLLOW_UPS = frozenset(
    {"cannot_dlopen", "skipping_gpus", "cuda_not_found", "gpu_list_empty", "dnn_not_found", "invalid_handle",
     "runtime_not_loaded", "cudnn_driver_hint", "requirement_brand"}
)  # fmt: skip
"""Messages that follow from another cause, and say nothing where that one is known."""

_OF_LIBRARIES = frozenset(
    {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
)


def predict(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """List what must go wrong, most serious first: the rules' findings, then what only the report's lines show."""
    question = question_of(reported, symptoms, catalog)
    other = _other_system(reported)
    ruled = () if question is None or _elsewhere(reported) else findings_of(question, catalog)
    ruled = tuple(finding for finding in ruled if not _refuted(finding, reported, symptoms))
    shown = tuple(_shown(row, get(row.signature)) for row in symptoms if _adds(row, (*ruled, *other)))
    by_code = tuple({(finding.code, finding.subject): finding for finding in shown}.values())
    known = (*other, *ruled, *by_code)
    return ordered((*known, *causes(reported, symptoms, known)))


def _elsewhere(reported: Reported) -> bool:
    """Tell whether the rules, which know Linux wheels, have nothing to say."""
    return reported.platform in {"windows", "macos"} or reported.arch in {"ppc64le", "i686", "armv7l"}


def _other_system(reported: Reported) -> tuple[Finding, ...]:
    """Say what holds on systems other than Linux on x86-64."""
    release = reported.tensorflow
    if reported.platform == "macos":
        return (_no_gpu(f"TensorFlow {release or ''} on macOS", "no macOS wheel has CUDA", reported.os),)
    if reported.platform == "windows" and release and at_least(release, FIRST_WITHOUT_WINDOWS_GPU):
        subject = f"TensorFlow {release} on Windows"
        return (_no_gpu(subject, "Windows wheels have had no CUDA since 2.11", reported.os),)
    if reported.arch in {"ppc64le", "i686", "armv7l"}:
        return (
            Finding(
                code=Code.UNKNOWN,
                severity=Severity.INFO,
                subject=reported.arch,
                message=f"No wheel on the package index is for {reported.arch}, so this build is the reporter's own.",
                fix="Compare with an x86-64 machine, or ask whoever made the build.",
            ),
        )
    return ()


def _no_gpu(subject: str, why: str, found: str | None) -> Finding:
    return Finding(
        code=Code.NOT_A_GPU_BUILD,
        severity=Severity.ERROR,
        subject=" ".join(subject.split()),
        message=f"It cannot use the GPU: {why}.",
        requires="Linux (WSL2 on Windows)",
        found=found or "",
        fix="Use Linux or WSL2, or on Windows TensorFlow 2.10.",
    )


def _refuted(finding: Finding, reported: Reported, symptoms: tuple[Symptom, ...]) -> bool:
    """Tell whether the report's own log went further than this finding allows."""
    if finding.code not in _AT_IMPORT or any(get(row.signature).code is finding.code for row in symptoms):
        return False
    if finding.code in _OF_PACKAGES and not _OF_PACKAGES[finding.code] & reported.packages.keys():
        return True  # true of an unpinned installation made today; the report does not say that it is one
    texts = (*(row.text for row in reported.evidence), *(row.text for row in symptoms))
    return any(mark in text for text in texts for mark in _AFTER_IMPORT)


def _adds(symptom: Symptom, known: tuple[Finding, ...]) -> bool:
    """Tell whether a message says something that the rules did not."""
    signature = get(symptom.signature)
    if signature.code is None or signature.severity is Severity.INFO:
        return False
    codes = {finding.code for finding in known}
    if signature.code in codes:
        return False
    if signature.id in _FOLLOW_UPS and any(finding.severity is Severity.ERROR for finding in known):
        return False
    return not (signature.code is Code.MISSING_LIBRARY and codes & _OF_LIBRARIES)


def _shown(symptom: Symptom, signature: Signature) -> Finding:
    """Make a finding of what a reported line proves."""
    assert signature.code is not None  # noqa: S101 - `_adds` looked
    value = next(iter(symptom.values.values()), "")
    return Finding(
        code=signature.code,
        severity=signature.severity,
        subject=value or signature.id.replace("_", " "),
        message=f"Line {symptom.line} shows it. {signature.cause}",
        found=symptom.text[:200],
        fix=signature.fix,
        sources=signature.sources,
    )
