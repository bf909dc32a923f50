"""Findings predicted from versions, and builds of TensorFlow other than those of the package index."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit, TensorflowRelease
from envbuilder.compat.check import findings_of
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.catalog import MessageMatch, get
from envbuilder.reproduce.question_from_report import concerns_gpu, gpus_of, question_of, release_of
from envbuilder.reproduce.report.reported import Origin, Reported
from envbuilder.versions import key, key_or_none, names_line, same_major

_AT_IMPORT = frozenset(
    {
        Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.GLIBC_TOO_OLD, Code.CPU_FEATURE_MISSING,
        Code.PYTHON_UNSUPPORTED, Code.NOT_INSTALLABLE,
    }
)  # fmt: skip
"""Codes that stop TensorFlow before it looks at a GPU. A log that continues disproves them."""

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
"""Messages that require every CUDA library."""

_RAN = frozenset(
    {"cublas_launch_failed", "cublas_no_handle", "cudnn_no_handle", "no_algorithm_worked", "kernels_from_ptx",
     "no_kernel_image", "kernel_image_invalid", "memory_exhausted", "unsupported_ptx", "invalid_handle"}
)  # fmt: skip
"""Messages of code that runs on the GPU; its libraries were found."""

_ON_WINDOWS = frozenset(
    {
        Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.GPU_UNSUPPORTED_BY_CUDA, Code.GPU_UNSUPPORTED_BY_CUDNN,
        Code.NO_KERNEL_IMAGE, Code.PTX_JIT, Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH,
        Code.PYTHON_UNSUPPORTED, Code.UNKNOWN,
    }
)  # fmt: skip
"""Codes of Linux wheels that also hold for Windows wheels of the same release."""

NOT_SERVED = frozenset({"ppc64le", "i686", "armv7l"})
"""Processors without a wheel on the package index."""


def forecast(reported: Reported, symptoms: tuple[MessageMatch, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """Apply the rules; keep findings that fit the report's system, concern stated values, and agree with its log."""
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
    """Return True if a finding concerns a stated value rather than one that envbuilder chose."""
    if finding.code in {Code.CUDNN_MISMATCH, Code.TWO_CUDA_STACKS}:
        return reported.cudnn is not None or any("cudnn" in name for name in reported.packages)
    if finding.code is Code.PYTHON_UNSUPPORTED:
        return reported.python is not None and not _runs(reported)
    return True


def _runs(reported: Reported) -> bool:
    """Return True if TensorFlow is installed and was started: its wheel exists, even if the version looks wrong."""
    places = ("site-packages/tensorflow", "dist-packages/tensorflow", "site-packages\\tensorflow")
    return any(place in row.text for row in reported.evidence for place in places)


def _by_major(reported: Reported, catalog: Catalog) -> tuple[Finding, ...]:
    """Compare only majors if the exact CUDA is unknown: a file name says 12, not which 12."""
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
    """Compare GPU and toolkit if the catalogue has no row for the release."""
    stated = catalog.toolkit(reported.cuda) if reported.cuda and names_line(reported.cuda) else None
    toolkit = stated or _newest_of(reported, catalog)
    rows = [row for row in (catalog.gpu(name) for name in gpus_of(reported)) if row is not None]
    capabilities = [*(row.compute_capability for row in rows), *reported.compute_capabilities]
    newest = max(capabilities, key=key, default=None)
    if toolkit is None or newest is None or key(newest) <= key(toolkit.last_capability):
        return ()
    if same_major(newest, toolkit.last_capability):
        return ()  # machine code runs on later GPUs of the same major
    return (
        Finding(
            code=Code.GPU_UNSUPPORTED_BY_CUDA,
            severity=Severity.WARNING,
            subject=f"compute capability {newest}",
            message=f"CUDA {toolkit.version} is older than this GPU: its libraries have kernels up to compute "
            f"capability {toolkit.last_capability}, and the GPU has {newest}.",
            requires=f"a CUDA with compute capability {newest}",
            found=toolkit.version,
            fix="Install a TensorFlow whose CUDA supports the GPU.",
        ),
    )


def _newest_of(reported: Reported, catalog: Catalog) -> CudaToolkit | None:
    """Return the newest CUDA of releases before the catalogue: that of its first row."""
    known = key_or_none(release_of(reported.tensorflow)) if reported.tensorflow else None
    first = catalog.final_versions[0]
    if known is None or known >= key(first):
        return None
    return next((catalog.toolkit(row.cuda) for row in catalog.distributions(first) if row.cuda), None)


def _for_windows(finding: Finding, reported: Reported) -> Finding:
    """Report it for DLLs; the rules name Linux files."""
    if finding.code is not Code.CUDA_MISMATCH:
        return finding
    message = (
        f"TensorFlow {reported.tensorflow} opens the DLLs of the CUDA that it was built with, and those of CUDA "
        f"{reported.cuda} have other names."
    )
    return msgspec.structs.replace(finding, message=message)


def _refuted(finding: Finding, reported: Reported, symptoms: tuple[MessageMatch, ...]) -> bool:
    """Return True if the log continued further than this finding allows."""
    if any(get(row.signature).code is finding.code for row in symptoms):
        return False
    texts = (*(row.text for row in reported.evidence), *(row.text for row in symptoms))
    if finding.code in {Code.CUDA_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH}:
        ran = any(row.signature in _RAN for row in symptoms)
        return ran or any(mark in text for text in texts for mark in _AFTER_LOADING)
    if finding.code not in _AT_IMPORT:
        return False
    installing = any(get(row.signature).layer == "install" for row in symptoms)
    if finding.code is Code.PYTHON_UNSUPPORTED and not installing and (symptoms or concerns_gpu(reported, symptoms)):
        return True  # a question about an unused GPU implies that TensorFlow was installed
    if finding.code in _OF_PACKAGES and not _OF_PACKAGES[finding.code] & reported.packages.keys():
        return True  # holds only for unpinned installations made today
    return any(mark in text for text in texts for mark in _AFTER_IMPORT)


_ORIGINS: dict[Origin, tuple[str, str]] = {
    "tfjs": (
        "TensorFlow.js, which brings a TensorFlow library of its own",
        (
            "Install the CUDA and cuDNN that this TensorFlow.js was built for (its README names them); no Python "
            "package and no newer CUDA changes what it opens."
        ),
    ),
    "jetson": (
        "a build for NVIDIA's Jetson, made for one JetPack release",
        "Take the TensorFlow that NVIDIA publishes for the installed JetPack, with that JetPack's own Python and CUDA.",
    ),
    "nvidia": (
        "NVIDIA's own build, which follows the CUDA of its own release",
        "Compare with NVIDIA's support matrix for that release: it names the CUDA, the lowest driver and the GPUs.",
    ),
    "conda": (
        "conda's build, which takes the CUDA that conda chose for it",
        "Read the CUDA version off conda list, and compare it with the CUDA version that nvidia-smi prints.",
    ),
    "source": (
        "a custom build for the CUDA and GPUs of its configuration",
        "Print tf.sysconfig.get_build_info(): it prints the CUDA, cuDNN and GPUs of this build.",
    ),
    "library": (
        "the C library, whose releases are not the Python package's",
        "Find the library names in its log, and install the CUDA that they belong to.",
    ),
    "jax": (
        "JAX, whose library prints TensorFlow's file names",
        "Read JAX's requirements: TensorFlow's do not apply.",
    ),
    "third-party": (
        "a build of another distributor, with other CUDA and GPU support",
        "Read its distributor's documentation, or install the build of the package index.",
    ),
}

_FILE = re.compile(r"lib(?P<name>[A-Za-z]+)\.so\.(?P<version>[0-9.]+)\Z", re.ASCII)
_DLL = re.compile(r"(?P<name>cudart)64_(?P<digits>[0-9]{2,3})\.dll\Z", re.ASCII)
_MENTIONED_CUDA = frozenset({"cudart", "cublas", "cublasLt", "cufft", "cusolver", "cusparse", "cudnn"})


def other_builds(reported: Reported, symptoms: tuple[MessageMatch, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """Report a build that is not from the package index: the facts about wheels do not hold for it."""
    named = _named(reported)
    return named or tuple(_against_claim(reported, symptoms, catalog))


def _named(reported: Reported) -> tuple[Finding, ...]:
    if reported.origin is None:
        return ()
    what, fix = _ORIGINS[reported.origin]
    row = next((row for row in reported.evidence if (row.field, row.value) == ("origin", reported.origin)), None)
    return (
        Finding(
            code=Code.OTHER_BUILD,
            severity=Severity.WARNING,
            subject=reported.origin,
            message=f"This is {what}: the facts about the package index's builds do not apply.",
            found=row.text[:200] if row else "",
            fix=fix,
        ),
    )


def _against_claim(reported: Reported, symptoms: tuple[MessageMatch, ...], catalog: Catalog) -> Iterator[Finding]:
    """Find a library that the stated release never opens: another TensorFlow printed that log."""
    release = stated_release(reported, catalog)
    if release is None or not release.libraries or not _only_claim(reported):
        return
    opens = {match["name"]: soname for soname in release.libraries if (match := _FILE.match(soname))}
    for row in symptoms:
        library = row.values.get("library", "")
        other = _not_opened(library, opens, release)
        if other is None:
            continue
        yield Finding(
            code=Code.OTHER_BUILD,
            severity=Severity.WARNING,
            subject=f"TensorFlow {release.version}",
            message=f"Line {row.line} asks for {library}, which TensorFlow {release.version} never opens (it opens "
            f"{other}): another build or a second installation printed this log.",
            requires=other,
            found=library,
            fix="Print tf.version.VERSION and tf.__file__ in the program that printed the log, and remove the "
            "installation that is not meant.",
        )
        return


def _only_claim(reported: Reported) -> bool:
    """Return True if the report names one TensorFlow version; of two, the other may have printed the log."""
    return not any(row.field == "tensorflow" for row in reported.contradictions)


def stated_release(reported: Reported, catalog: Catalog) -> TensorflowRelease | None:
    """Return the GPU build of the stated release, or None if it is not stated or unknown."""
    version = catalog.version(release_of(reported.tensorflow)) if reported.tensorflow else None
    return next((row for row in catalog.distributions(version) if row.gpu), None) if version else None


def _not_opened(library: str, opens: dict[str, str], release: TensorflowRelease) -> str | None:
    """Return the library that the release opens instead of the logged one; None if it may be this one."""
    dll = _DLL.match(library)
    if dll is not None and release.cuda is not None:
        digits = dll["digits"]
        built = versions.minor(release.cuda).replace(".", "")
        major = str(versions.major(release.cuda))
        return (
            None if digits in {built, major} or (digits, major) == ("110", "11") else f"the DLLs of CUDA {release.cuda}"
        )
    match = _FILE.match(library)
    if match is None or match["name"] not in _MENTIONED_CUDA or match["name"] not in opens:
        return None
    known = opens[match["name"]]
    return None if known == library or known.startswith(f"{library}.") else known
