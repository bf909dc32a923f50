"""Builds that are not the package index's: named by the report, or given away by a log that does not fit the claim."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.message import Symptom
from envbuilder.reproduce.question_from_report import release_of
from envbuilder.reproduce.report.reported import Origin, Reported

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
        "Read the CUDA version off conda list, and hold it against what nvidia-smi says the driver serves.",
    ),
    "source": (
        "a self-made build, for the CUDA and GPUs that were given to it",
        "Print tf.sysconfig.get_build_info(): it names the CUDA, cuDNN and GPUs that this build was made for.",
    ),
    "library": (
        "the C library, whose releases are not the Python package's",
        "Read the file names that it opens off its log, and install the CUDA that they stand for.",
    ),
    "jax": (
        "JAX, whose library prints TensorFlow's file names",
        "Look at JAX's own requirements: TensorFlow's do not hold for it.",
    ),
    "third-party": (
        "somebody else's build, for the CUDA and GPUs that they chose",
        "Follow what its makers say that it was built for, or take the package index's build.",
    ),
}

_FILE = re.compile(r"lib(?P<name>[A-Za-z]+)\.so\.(?P<version>[0-9.]+)\Z", re.ASCII)
_DLL = re.compile(r"(?P<name>cudart)64_(?P<digits>[0-9]{2,3})\.dll\Z", re.ASCII)
_MENTIONED_CUDA = frozenset({"cudart", "cublas", "cublasLt", "cufft", "cusolver", "cusparse", "cudnn"})


def other_builds(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """Say whose build this is where it is not the index's: nothing that is known of wheels holds for it then."""
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
            message=f"This is {what}: what is known of the package index's builds does not hold for it.",
            found=row.text[:200] if row else "",
            fix=fix,
        ),
    )


def _against_claim(reported: Reported, symptoms: tuple[Symptom, ...], catalog: Catalog) -> Iterator[Finding]:
    """Find a library in the log that the stated release never opens: then something else printed that log."""
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
    """Tell whether the report names one TensorFlow: of two, the other may have printed the log."""
    return not any(row.field == "tensorflow" for row in reported.contradictions)


def stated_release(reported: Reported, catalog: Catalog) -> TensorflowRelease | None:
    """Return the GPU build of the stated release; None where none is stated or known."""
    version = catalog.version(release_of(reported.tensorflow)) if reported.tensorflow else None
    return next((row for row in catalog.distributions(version) if row.gpu), None) if version else None


def _not_opened(library: str, opens: dict[str, str], release: TensorflowRelease) -> str | None:
    """Return what the release opens in place of a library of the log; None where it may be this one."""
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
