"""Predict what goes wrong in a reported environment: by the rules, by its own messages, by its pauses."""

from __future__ import annotations

from envbuilder.catalog.model import Catalog
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.explained import as_remark, explains, is_aside
from envbuilder.reproduce.forecast import NOT_SERVED, forecast
from envbuilder.reproduce.image_defects import image_defects
from envbuilder.reproduce.messages.message import Signature, Symptom
from envbuilder.reproduce.messages.recognise import get
from envbuilder.reproduce.other_builds import other_builds
from envbuilder.reproduce.question_from_report import means_gpu, release_of
from envbuilder.reproduce.report.recognisers import TAG
from envbuilder.reproduce.report.reported import Evidence, Reported
from envbuilder.reproduce.slow_start import causes
from envbuilder.reproduce.weighed_causes import by_cause
from envbuilder.versions import at_least, minor

FIRST_WITHOUT_WINDOWS_GPU = "2.11"

_FOLLOW_UPS = frozenset(
    {"cannot_dlopen", "skipping_gpus", "cuda_not_found", "gpu_list_empty", "dnn_not_found", "invalid_handle",
     "runtime_not_loaded", "cudnn_driver_hint", "requirement_brand", "convolution_algorithm_failed"}
)  # fmt: skip
"""Messages that follow from another cause, and say nothing where that one is known."""

_AT_IMPORT = frozenset({Code.PROTOBUF_ABI, Code.NUMPY_ABI, Code.KERAS_MISMATCH, Code.API_MISMATCH})

_OF_LIBRARIES = frozenset(
    {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
)

_HIDDEN_BY = {
    Code.GPU_NOT_VISIBLE: frozenset({Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.DRIVER_TOO_OLD}),
    Code.MISSING_LIBRARY: frozenset({Code.TWO_CUDA_STACKS, Code.NOT_INSTALLABLE}),
    Code.PYTHON_UNSUPPORTED: frozenset({Code.NOT_INSTALLABLE}),
    Code.API_MISMATCH: frozenset({Code.PACKAGE_CONFLICT, Code.KERAS_MISMATCH}),
}
"""What follows from something else that the lines prove, and is no cause beside it."""


def predict(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """List what must go wrong, the cause first: what lines prove, what the rules foresee, what pauses tell."""
    stops = any(get(row.signature).code in _AT_IMPORT for row in symptoms if row.exact)
    symptoms = tuple(row for row in symptoms if not is_aside(row, reported, stops=stops))
    shown = _proved(symptoms)
    proved = {finding.code for finding in shown}
    builds = other_builds(reported, symptoms, catalog)
    elsewhere = _other_system(reported, symptoms)
    ruled = () if builds else forecast(reported, symptoms, catalog)
    ruled = tuple(finding for finding in ruled if not (finding.code in _OF_LIBRARIES and proved & _HOST))
    ruled, elsewhere = _answering(ruled, proved, reported), _answering(elsewhere, proved, reported)
    codes = {finding.code for finding in (*elsewhere, *ruled)}
    beside = tuple(row for row in shown if not _said_by(row.code, codes))
    if elsewhere and all(get(row.signature).layer == "symptom" for row in symptoms if get(row.signature).code):
        beside = ()
    tagged = (*_other_tag(reported), *_before_keras(reported, symptoms))
    if tagged:
        beside = tuple(row for row in beside if row.code is not Code.PACKAGE_CONFLICT)
    images = image_defects(reported, symptoms)
    explained = {get(signature).code for signatures in images.values() for signature in signatures}
    ruled, beside = _other_than(explained, ruled), _other_than(explained, beside)
    known = (*tagged, *images, *elsewhere, *ruled, *beside, *builds)
    return by_cause((*known, *causes(reported, symptoms, known)), proved)


def _answering(findings: tuple[Finding, ...], proved: set[Code], reported: Reported) -> tuple[Finding, ...]:
    """Make remarks of forecasts that no line shows and that do not explain what is complained of."""
    return tuple(row if row.code in proved or explains(row.code, reported) else as_remark(row) for row in findings)


def _other_than(codes: set[Code | None], findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Leave out what a known defect of the image explains: the same lines, or what would be right without an image."""
    return tuple(row for row in findings if row.code not in codes)


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


def _other_tag(reported: Reported) -> tuple[Finding, ...]:
    """Compare the Python that a wheel is for with the one that runs, where it could not be installed or found."""
    tag = next((row for row in reported.evidence if row.source == TAG), None)
    if tag is None or reported.python is None or not {"installing", "import"} & set(reported.complaints):
        return ()
    if minor(reported.python) == tag.value or any(
        row.source != TAG and row.value == tag.value for row in _of_python(reported)
    ):
        return ()
    return (
        Finding(
            code=Code.PYTHON_UNSUPPORTED,
            severity=Severity.ERROR,
            subject=f"Python {reported.python}",
            message=f"The wheel of line {tag.line} is for Python {tag.value}, and Python {reported.python} runs: no "
            "installer takes it.",
            requires=tag.value,
            found=tag.text[:200],
            fix=f"Take a wheel for Python {minor(reported.python)}, or make an environment with Python {tag.value}.",
        ),
    )


FIRST_WITH_KERAS = "1.4"


def _before_keras(reported: Reported, symptoms: tuple[Symptom, ...]) -> tuple[Finding, ...]:
    """Tell a TensorFlow without keras that is whole, and older than keras in it, from one whose files are missing."""
    row = next((row for row in symptoms if row.signature == "no_keras"), None)
    if row is None or reported.tensorflow is None or at_least(release_of(reported.tensorflow), FIRST_WITH_KERAS):
        return ()
    return (
        Finding(
            code=Code.API_MISMATCH,
            severity=Severity.ERROR,
            subject=f"TensorFlow {reported.tensorflow}",
            message=f"Line {row.line} asks for tf.keras, which TensorFlow has since {FIRST_WITH_KERAS}; "
            f"{reported.tensorflow} does not have it yet.",
            requires=FIRST_WITH_KERAS,
            found=row.text[:200],
            fix="Install the TensorFlow that the code was written for.",
        ),
    )


def _of_python(reported: Reported) -> tuple[Evidence, ...]:
    return tuple(row for row in reported.evidence if row.field == "python")


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
