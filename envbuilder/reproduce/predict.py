"""Predict what goes wrong in a reported environment: by the rules, by its own messages, by its pauses."""

from __future__ import annotations

from envbuilder.catalog.model import Catalog
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.forecast import NOT_SERVED, forecast
from envbuilder.reproduce.messages.message import Signature, Symptom
from envbuilder.reproduce.messages.recognise import get
from envbuilder.reproduce.other_builds import other_builds
from envbuilder.reproduce.question_from_report import means_gpu
from envbuilder.reproduce.report.reported import Reported
from envbuilder.reproduce.slow_start import causes
from envbuilder.reproduce.weighed_causes import by_cause
from envbuilder.versions import at_least

FIRST_WITHOUT_WINDOWS_GPU = "2.11"

_FOLLOW_UPS = frozenset(
    {"cannot_dlopen", "skipping_gpus", "cuda_not_found", "gpu_list_empty", "dnn_not_found", "invalid_handle",
     "runtime_not_loaded", "cudnn_driver_hint", "requirement_brand", "convolution_algorithm_failed"}
)  # fmt: skip
"""Messages that follow from another cause, and say nothing where that one is known."""

_OF_LIBRARIES = frozenset(
    {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
)

_HIDDEN_BY = {
    Code.GPU_NOT_VISIBLE: frozenset({Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.DRIVER_TOO_OLD}),
    Code.MISSING_LIBRARY: frozenset({Code.TWO_CUDA_STACKS, Code.NOT_INSTALLABLE}),
    Code.PYTHON_UNSUPPORTED: frozenset({Code.NOT_INSTALLABLE}),
}
"""What follows from something else that the lines prove, and is no cause beside it."""


def predict(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """List what must go wrong, the cause first: what lines prove, what the rules foresee, what pauses tell."""
    shown = _proved(symptoms)
    proved = {finding.code for finding in shown}
    builds = other_builds(reported, symptoms, catalog)
    elsewhere = _other_system(reported, symptoms)
    ruled = () if builds else forecast(reported, symptoms, catalog)
    ruled = tuple(finding for finding in ruled if not (finding.code in _OF_LIBRARIES and proved & _HOST))
    codes = {finding.code for finding in (*elsewhere, *ruled)}
    beside = tuple(row for row in shown if not _said_by(row.code, codes))
    if elsewhere and all(get(row.signature).layer == "symptom" for row in symptoms if get(row.signature).code):
        beside = ()
    known = (*elsewhere, *ruled, *beside, *builds)
    return by_cause((*known, *causes(reported, symptoms, known)), proved)


_HOST = frozenset({Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.GPU_NOT_VISIBLE, Code.CONTAINER_REQUIREMENT})


def _said_by(code: Code, codes: set[Code]) -> bool:
    """Tell whether the rules say what a line proves; they say it with the versions."""
    return code in codes or (code is Code.MISSING_LIBRARY and bool(codes & _OF_LIBRARIES))


def _proved(symptoms: tuple[Symptom, ...]) -> tuple[Finding, ...]:
    """Turn the messages that name a cause into findings, without those that only follow from another one's."""
    rows = [(row, get(row.signature)) for row in symptoms]
    wrong = [(row, known) for row, known in rows if known.code is not None and known.severity is not Severity.INFO]
    causes = [(row, known) for row, known in wrong if known.id not in _FOLLOW_UPS and known.layer != "symptom"]
    errors = {known.code for _, known in causes if known.severity is Severity.ERROR}
    kept = causes if errors else wrong
    kept = [(row, known) for row, known in kept if known.code is None or not _HIDDEN_BY.get(known.code, set()) & errors]
    if any(known.layer != "symptom" for _, known in kept):
        kept = [(row, known) for row, known in kept if known.layer != "symptom"]
    made = {(known.code, row.values.get("library", known.id)): _shown(row, known) for row, known in reversed(kept)}
    return tuple(reversed(made.values()))


def _other_system(reported: Reported, symptoms: tuple[Symptom, ...]) -> tuple[Finding, ...]:
    """Say what holds on systems other than Linux on x86-64."""
    release = reported.tensorflow
    about_gpu = means_gpu(reported, symptoms) or not _proved(symptoms)
    about_gpu = about_gpu and reported.distribution != "tensorflow-cpu"
    if reported.platform == "macos" and about_gpu:
        return (_no_gpu(f"TensorFlow {release or ''} on macOS", "no macOS wheel has CUDA", reported.os),)
    if reported.platform == "windows" and about_gpu and release and at_least(release, FIRST_WITHOUT_WINDOWS_GPU):
        subject = f"TensorFlow {release} on Windows"
        return (_no_gpu(subject, "Windows wheels have had no CUDA since 2.11", reported.os),)
    if reported.arch in NOT_SERVED:
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


def _shown(symptom: Symptom, signature: Signature) -> Finding:
    """Make a finding of what a reported line proves."""
    assert signature.code is not None  # noqa: S101 - `_proved` looked
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
