"""Predict what goes wrong in a reported environment: by the rules, by its own messages, by its pauses."""

from __future__ import annotations

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit
from envbuilder.compat.check import findings_of
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.message import Signature, Symptom
from envbuilder.reproduce.messages.recognise import get
from envbuilder.reproduce.other_builds import other_builds, stated_release
from envbuilder.reproduce.question_from_report import gpus_of, means_gpu, question_of, release_of
from envbuilder.reproduce.report.reported import Reported
from envbuilder.reproduce.slow_start import causes
from envbuilder.reproduce.weighed_causes import by_cause
from envbuilder.versions import at_least, key, key_or_none, names_line, same_major

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

_AFTER_LOADING = (
    "Created TensorFlow device", "Created device /job", "Loaded cuDNN version", "cuda_blas.cc", "cuda_dnn.cc",
)  # fmt: skip
"""What is printed only where every CUDA library was found and opened."""

_RAN = frozenset(
    {"cublas_launch_failed", "cublas_no_handle", "cudnn_no_handle", "no_algorithm_worked", "kernels_from_ptx",
     "no_kernel_image", "kernel_image_invalid", "memory_exhausted"}
)  # fmt: skip
"""Messages of code that runs on the GPU: the libraries that it is in were found."""

_FOLLOW_UPS = frozenset(
    {"cannot_dlopen", "skipping_gpus", "cuda_not_found", "gpu_list_empty", "dnn_not_found", "invalid_handle",
     "runtime_not_loaded", "cudnn_driver_hint", "requirement_brand", "convolution_algorithm_failed"}
)  # fmt: skip
"""Messages that follow from another cause, and say nothing where that one is known."""

_OF_LIBRARIES = frozenset(
    {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
)

_ON_WINDOWS = frozenset(
    {
        Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.GPU_UNSUPPORTED_BY_CUDA, Code.GPU_UNSUPPORTED_BY_CUDNN,
        Code.NO_KERNEL_IMAGE, Code.PTX_JIT, Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH,
        Code.PYTHON_UNSUPPORTED, Code.UNKNOWN,
    }
)  # fmt: skip
"""What the rules know of Linux wheels that holds for the Windows wheels of the same release."""

_HIDDEN_BY = {
    Code.GPU_NOT_VISIBLE: frozenset({Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.DRIVER_TOO_OLD}),
    Code.MISSING_LIBRARY: frozenset({Code.TWO_CUDA_STACKS, Code.NOT_INSTALLABLE}),
    Code.PYTHON_UNSUPPORTED: frozenset({Code.NOT_INSTALLABLE}),
}
"""What follows from something else that the lines prove, and is no cause beside it."""

_NOT_SERVED = frozenset({"ppc64le", "i686", "armv7l"})


def predict(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """List what must go wrong, the cause first: what lines prove, what the rules foresee, what pauses tell."""
    shown = _proved(symptoms)
    proved = {finding.code for finding in shown}
    builds = other_builds(reported, symptoms, catalog)
    elsewhere = _other_system(reported, symptoms)
    ruled = () if builds else _ruled(reported, symptoms, catalog)
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


def _ruled(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """Ask the rules, and keep what holds on the report's system, about what was stated, and against its own log."""
    question = question_of(reported, symptoms, catalog)
    if question is None or reported.platform == "macos" or reported.arch in _NOT_SERVED:
        return ()
    found = findings_of(question, catalog)
    if reported.platform == "windows":
        found = tuple(_for_windows(row, reported) for row in found if row.code in _ON_WINDOWS)
    kept = tuple(row for row in found if _stated(row, reported) and not _refuted(row, reported, symptoms))
    kept = (*_by_major(reported, catalog), *kept)
    told = any(row.severity is not Severity.INFO and row.code is not Code.UNKNOWN for row in kept)
    return kept if told else (*kept, *_by_toolkit(reported, catalog))


def _stated(finding: Finding, reported: Reported) -> bool:
    """Tell whether a finding is about something that somebody said: what was chosen in its place is not judged."""
    if finding.code in {Code.CUDNN_MISMATCH, Code.TWO_CUDA_STACKS}:
        return reported.cudnn is not None or any("cudnn" in name for name in reported.packages)
    if finding.code is Code.PYTHON_UNSUPPORTED:
        return reported.python is not None
    return True


def _by_major(reported: Reported, catalog: Catalog) -> tuple[Finding, ...]:
    """Compare majors where no more is known of a CUDA: a soname says 12, and not which 12."""
    release = stated_release(reported, catalog)
    if release is None or release.cuda is None or reported.cuda is None or names_line(reported.cuda):
        return ()
    if same_major(reported.cuda, release.cuda):
        return ()
    return (
        Finding(
            code=Code.CUDA_MISMATCH,
            severity=Severity.ERROR,
            subject=f"CUDA {reported.cuda}",
            message=f"TensorFlow {release.version} was built with CUDA {release.cuda}; the libraries of CUDA "
            f"{reported.cuda} have other file names.",
            requires=release.cuda,
            found=reported.cuda,
            fix=f"Use CUDA {release.cuda}, or a TensorFlow that was built with CUDA {reported.cuda}.",
        ),
    )


def _by_toolkit(reported: Reported, catalog: Catalog) -> tuple[Finding, ...]:
    """Compare GPU and toolkit where the catalogue has no row of the release: that needs none."""
    stated = catalog.toolkit(reported.cuda) if reported.cuda and names_line(reported.cuda) else None
    toolkit = stated or _newest_of(reported, catalog)
    rows = [row for row in (catalog.gpu(name) for name in gpus_of(reported)) if row is not None]
    capabilities = [*(row.compute_capability for row in rows), *reported.compute_capabilities]
    newest = max(capabilities, key=key, default=None)
    if toolkit is None or newest is None or key(newest) <= key(toolkit.last_capability):
        return ()
    return (
        Finding(
            code=Code.GPU_UNSUPPORTED_BY_CUDA,
            severity=Severity.WARNING,
            subject=f"compute capability {newest}",
            message=f"CUDA {toolkit.version} is older than this GPU: its libraries have kernels up to compute "
            f"capability {toolkit.last_capability}, and the GPU has {newest}.",
            requires=f"a CUDA that knows compute capability {newest}",
            found=toolkit.version,
            fix="Take a TensorFlow whose CUDA knows the GPU.",
        ),
    )


def _newest_of(reported: Reported, catalog: Catalog) -> CudaToolkit | None:
    """Return the newest CUDA that a release from before the catalogue can be of: that of the first one in it."""
    known = key_or_none(release_of(reported.tensorflow)) if reported.tensorflow else None
    first = catalog.final_versions[0]
    if known is None or known >= key(first):
        return None
    return next((catalog.toolkit(row.cuda) for row in catalog.distributions(first) if row.cuda), None)


def _for_windows(finding: Finding, reported: Reported) -> Finding:
    """Say it of DLLs: what the rules say names Linux files."""
    if finding.code is not Code.CUDA_MISMATCH:
        return finding
    message = (
        f"TensorFlow {reported.tensorflow} opens the DLLs of the CUDA that it was built with, and those of CUDA "
        f"{reported.cuda} have other names."
    )
    return msgspec.structs.replace(finding, message=message)


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
    if reported.arch in _NOT_SERVED:
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
    if any(get(row.signature).code is finding.code for row in symptoms):
        return False
    texts = (*(row.text for row in reported.evidence), *(row.text for row in symptoms))
    if finding.code in {Code.CUDA_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH}:
        ran = any(row.signature in _RAN for row in symptoms)
        return ran or any(mark in text for text in texts for mark in _AFTER_LOADING)
    if finding.code not in _AT_IMPORT:
        return False
    if finding.code in _OF_PACKAGES and not _OF_PACKAGES[finding.code] & reported.packages.keys():
        return True  # true of an unpinned installation made today; the report does not say that it is one
    return any(mark in text for text in texts for mark in _AFTER_IMPORT)


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
