"""Ask the rules about a reported environment, and keep what holds there: on its system, of what was stated."""

from __future__ import annotations

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit
from envbuilder.compat.check import findings_of
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.message import Symptom
from envbuilder.reproduce.messages.recognise import get
from envbuilder.reproduce.other_builds import stated_release
from envbuilder.reproduce.question_from_report import gpus_of, means_gpu, question_of, release_of
from envbuilder.reproduce.report.reported import Reported
from envbuilder.versions import key, key_or_none, names_line, same_major

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
     "no_kernel_image", "kernel_image_invalid", "memory_exhausted", "unsupported_ptx", "invalid_handle"}
)  # fmt: skip
"""Messages of code that runs on the GPU: the libraries that it is in were found."""

_ON_WINDOWS = frozenset(
    {
        Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.GPU_UNSUPPORTED_BY_CUDA, Code.GPU_UNSUPPORTED_BY_CUDNN,
        Code.NO_KERNEL_IMAGE, Code.PTX_JIT, Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH,
        Code.PYTHON_UNSUPPORTED, Code.UNKNOWN,
    }
)  # fmt: skip
"""What the rules know of Linux wheels that holds for the Windows wheels of the same release."""

NOT_SERVED = frozenset({"ppc64le", "i686", "armv7l"})
"""Processors that no wheel on the package index is for."""


def forecast(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """Ask the rules, and keep what holds on the report's system, about what was stated, and against its own log."""
    question = question_of(reported, symptoms, catalog)
    if reported.platform == "macos" or reported.arch in NOT_SERVED:
        return ()
    if question is None:
        return _by_toolkit(reported, catalog)
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
        return reported.python is not None and not _runs(reported)
    return True


def _runs(reported: Reported) -> bool:
    """Tell whether TensorFlow is there and was started: an installer found a wheel of it, whatever was read."""
    places = ("site-packages/tensorflow", "dist-packages/tensorflow", "site-packages\\tensorflow")
    return any(place in row.text for row in reported.evidence for place in places)


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
    if same_major(newest, toolkit.last_capability):
        return ()  # machine code runs on the later GPUs of its major
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
    installing = any(get(row.signature).layer == "install" for row in symptoms)
    if finding.code is Code.PYTHON_UNSUPPORTED and not installing and (symptoms or means_gpu(reported, symptoms)):
        return True  # whoever asks why a GPU is not used has a TensorFlow that was installed
    if finding.code in _OF_PACKAGES and not _OF_PACKAGES[finding.code] & reported.packages.keys():
        return True  # true of an unpinned installation made today; the report does not say that it is one
    return any(mark in text for text in texts for mark in _AFTER_IMPORT)
