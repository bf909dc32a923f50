"""Possible causes of a report's complaint, from its messages, versions, image and pauses."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib import resources

import msgspec

from envbuilder.catalog.model import Catalog
from envbuilder.finding import SEVERITY_RANK, Code, Finding, Severity
from envbuilder.reproduce.forecast import NOT_SERVED, forecast, other_builds
from envbuilder.reproduce.messages.catalog import LogMessage, MessageMatch, get, shipped_rows
from envbuilder.reproduce.question_from_report import concerns_gpu, release_of
from envbuilder.reproduce.report.recognisers import TAG
from envbuilder.reproduce.report.reported import Complaint, Reported, ReportStatement
from envbuilder.reproduce.slow_start import causes
from envbuilder.support import decoding
from envbuilder.versions import at_least, minor

FIRST_WITHOUT_WINDOWS_GPU = "2.11"

_FOLLOW_UPS = frozenset(
    {"cannot_dlopen", "skipping_gpus", "cuda_not_found", "gpu_list_empty", "dnn_not_found", "invalid_handle",
     "runtime_not_loaded", "cudnn_driver_hint", "requirement_brand", "convolution_algorithm_failed"}
)  # fmt: skip
"""Messages that follow from another cause. They are ignored if that cause is known."""

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
"""Codes that are dropped if one of these root causes is proved."""


def predict(reported: Reported, symptoms: tuple[MessageMatch, ...], catalog: Catalog) -> tuple[Finding, ...]:
    """List the possible causes, the most likely first: proved by lines, predicted by rules, suggested by pauses."""
    stops = any(get(row.signature).code in _AT_IMPORT for row in symptoms if row.exact)
    symptoms = tuple(row for row in symptoms if not is_unrelated(row, reported, stops=stops))
    shown = _proved(symptoms)
    proved = {finding.code for finding in shown}
    builds = other_builds(reported, symptoms, catalog)
    elsewhere = _other_system(reported, symptoms)
    ruled = () if builds else forecast(reported, symptoms, catalog)
    ruled = tuple(finding for finding in ruled if not (finding.code in _OF_LIBRARIES and proved & _HOST))
    ruled, elsewhere = _answering(ruled, proved, reported), _answering(elsewhere, proved, reported)
    codes = {finding.code for finding in (*elsewhere, *ruled)}
    beside = tuple(row for row in shown if not _reported_by_rule(row.code, codes))
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
    """Downgrade forecasts that no line proves and that do not explain the complaint."""
    return tuple(row if row.code in proved or explains(row.code, reported) else as_info(row) for row in findings)


def _other_than(codes: set[Code | None], findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Drop findings that a known image defect explains."""
    return tuple(row for row in findings if row.code not in codes)


_HOST = frozenset({Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.GPU_NOT_VISIBLE, Code.CONTAINER_REQUIREMENT})


def _reported_by_rule(code: Code, codes: set[Code]) -> bool:
    """Return True if a rule reports the same cause; its finding includes the versions."""
    return code in codes or (code is Code.MISSING_LIBRARY and bool(codes & _OF_LIBRARIES))


def _proved(symptoms: tuple[MessageMatch, ...]) -> tuple[Finding, ...]:
    """Turn messages that name a cause into findings, without messages that follow from another cause."""
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
    """Compare the Python version of a wheel with the running one if installation or import failed."""
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
            message=f"The wheel of line {tag.line} is for Python {tag.value}, and Python {reported.python} runs: it "
            "cannot be installed.",
            requires=tag.value,
            found=tag.text[:200],
            fix=f"Take a wheel for Python {minor(reported.python)}, or create an environment with Python {tag.value}.",
        ),
    )


FIRST_WITH_KERAS = "1.4"


def _before_keras(reported: Reported, symptoms: tuple[MessageMatch, ...]) -> tuple[Finding, ...]:
    """Report a TensorFlow release that is older than its ``keras`` module, rather than one with missing files."""
    row = next((row for row in symptoms if row.signature == "no_keras"), None)
    if row is None or reported.tensorflow is None or at_least(release_of(reported.tensorflow), FIRST_WITH_KERAS):
        return ()
    return (
        Finding(
            code=Code.API_MISMATCH,
            severity=Severity.ERROR,
            subject=f"TensorFlow {reported.tensorflow}",
            message=f"Line {row.line} asks for tf.keras, which TensorFlow contains since {FIRST_WITH_KERAS}; "
            f"{reported.tensorflow} does not contain it.",
            requires=FIRST_WITH_KERAS,
            found=row.text[:200],
            fix="Install the TensorFlow that the code was written for.",
        ),
    )


def _of_python(reported: Reported) -> tuple[ReportStatement, ...]:
    return tuple(row for row in reported.evidence if row.field == "python")


def _other_system(reported: Reported, symptoms: tuple[MessageMatch, ...]) -> tuple[Finding, ...]:
    """List the limits of systems other than Linux on x86-64."""
    release = reported.tensorflow
    about_gpu = concerns_gpu(reported, symptoms) or not _proved(symptoms)
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
                message=f"No wheel on the package index is for {reported.arch}: this build is unofficial.",
                fix="Compare with an x86-64 machine, or ask the distributor of the build.",
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


def _shown(symptom: MessageMatch, signature: LogMessage) -> Finding:
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


_OPENS_AT_USE = "1.14"
"""The first release that imports without CUDA's libraries: it opens them when it looks for a GPU."""

_LIBRARIES = frozenset(
    {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
)
_PACKAGES = frozenset(
    {Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.PACKAGE_CONFLICT, Code.API_MISMATCH}
)
_START = frozenset({Code.GLIBC_TOO_OLD, Code.CPU_FEATURE_MISSING, Code.NOT_INSTALLABLE, Code.PYTHON_UNSUPPORTED})
_HOST_CODES = frozenset(
    {Code.DRIVER_TOO_OLD, Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.GPU_NOT_VISIBLE, Code.CONTAINER_REQUIREMENT,
     Code.GPU_UNSUPPORTED_BY_DRIVER, Code.DRIVER_FORWARD_COMPAT, Code.IMAGE_CLAIM}
)  # fmt: skip
_KERNELS = frozenset(
    {Code.NO_KERNEL_IMAGE, Code.GPU_UNSUPPORTED_BY_CUDA, Code.GPU_UNSUPPORTED_BY_CUDNN, Code.PTX_TOO_NEW}
)
_TIME = frozenset({Code.PTX_JIT, Code.SLOW_PHASE, Code.STALLS, Code.XLA_TOOLS_MISSING, Code.GPU_UNSUPPORTED_BY_CUDA})

_EXPLAINED: dict[Complaint, frozenset[Code]] = {
    "invisible": _LIBRARIES
    | _HOST_CODES
    | _START
    | {Code.NOT_A_GPU_BUILD, Code.NO_KERNEL_IMAGE, Code.PACKAGE_CONFLICT},
    "slow": _TIME | _LIBRARIES | _HOST_CODES | {Code.NOT_A_GPU_BUILD, Code.GPU_MEMORY},
    "stuck": _TIME | _KERNELS | {Code.GPU_MEMORY, Code.CUDNN_MISMATCH, Code.DRIVER_TOO_OLD},
    "breaks": _LIBRARIES | _HOST_CODES | _KERNELS | _START | _PACKAGES
    | {Code.XLA_TOOLS_MISSING, Code.STALLS, Code.GPU_MEMORY, Code.GPU_ERRORS},
    "installing": _START | _PACKAGES,
    "import": _START | _PACKAGES | {Code.STUB_LIBCUDA},
    "building": frozenset(),
    "several": _TIME | {Code.GPU_MEMORY, Code.TWO_CUDA_STACKS},
}  # fmt: skip
"""The codes that can cause each complaint. `OTHER_BUILD` can cause all of them."""


def explains(code: Code, reported: Reported) -> bool:
    """Return True if a finding can cause the complaint, or if the report states no complaint."""
    if code in _LIBRARIES and reported.install == "conda":
        return False  # it may be conda's build, which opens the libraries of its own environment
    if not reported.complaints or code in {Code.OTHER_BUILD, Code.UNKNOWN}:
        return True
    wanted = frozenset[Code]().union(*(_EXPLAINED[complaint] for complaint in reported.complaints))
    return code in wanted or (code in _LIBRARIES and "import" in reported.complaints and _opens_at_import(reported))


def _opens_at_import(reported: Reported) -> bool:
    """Return True if a missing CUDA stops the import: before 1.14, or if the release is unknown."""
    return reported.tensorflow is None or not at_least(release_of(reported.tensorflow), _OPENS_AT_USE)


def as_info(finding: Finding) -> Finding:
    return finding if finding.severity is Severity.INFO else msgspec.structs.replace(finding, severity=Severity.INFO)


_GOES_ON = frozenset({"library_not_loaded", "cuda_not_found", "cannot_dlopen", "cudnn_part_not_loaded"})
"""Messages after which TensorFlow continues without the GPU. They do not stop an import."""


def _is_first(reported: Reported) -> bool:
    release = release_of(reported.tensorflow) if reported.tensorflow else ""
    return bool(release) and at_least(release, "1.4") and not at_least(release, "2.0")


def is_unrelated(symptom: MessageMatch, reported: Reported, *, stops: bool = False) -> bool:
    """Return True if a message is unrelated: about a GPU if only an import fails, or from another TensorFlow.

    ``stops`` is True if another message explains the failed import.
    """
    asked = set(reported.complaints)
    only = (stops and "invisible" not in asked) or (bool(asked) and asked <= {"import", "installing", "building"})
    if symptom.signature == "tf1_code" and _is_first(reported):
        return True  # 1.x contains these names: the message is from another TensorFlow
    return only and (symptom.signature in _GOES_ON or get(symptom.signature).layer == "symptom")


_TIERS: tuple[frozenset[Code], ...] = (
    frozenset(
        {Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.CONTAINER_REQUIREMENT, Code.IMAGE_CLAIM, Code.DRIVER_TOO_OLD,
         Code.GPU_UNSUPPORTED_BY_DRIVER}
    ),
    frozenset(
        {Code.PYTHON_UNSUPPORTED, Code.NOT_INSTALLABLE, Code.PACKAGE_CONFLICT, Code.GLIBC_TOO_OLD,
         Code.CPU_FEATURE_MISSING, Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.API_MISMATCH}
    ),
    frozenset({Code.GPU_NOT_VISIBLE}),
    frozenset({Code.NOT_A_GPU_BUILD}),
    frozenset({Code.OTHER_BUILD}),
    frozenset(
        {Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS}
    ),
    frozenset(
        {Code.NO_KERNEL_IMAGE, Code.GPU_UNSUPPORTED_BY_CUDA, Code.PTX_JIT, Code.PTX_TOO_NEW,
         Code.GPU_UNSUPPORTED_BY_CUDNN}
    ),
    frozenset({Code.XLA_TOOLS_MISSING}),
    frozenset({Code.STALLS, Code.GPU_MEMORY, Code.SLOW_PHASE}),
)  # fmt: skip
"""Codes in the order in which they explain each other: a stub libcuda makes all later findings meaningless."""

_BEFORE_BUILDS = frozenset(
    {Code.CUDNN_MISMATCH, Code.NO_KERNEL_IMAGE, Code.PTX_JIT, Code.XLA_TOOLS_MISSING, Code.STALLS}
)
"""Codes that hold for any build. They rank before `OTHER_BUILD`; libraries that only this build opens rank after it."""

_BUILD_TIER = next(tier for tier, codes in enumerate(_TIERS) if Code.OTHER_BUILD in codes)
_TIER = {code: tier for tier, codes in enumerate(_TIERS) for code in codes}


def by_cause(findings: tuple[Finding, ...], proved: set[Code]) -> tuple[Finding, ...]:
    """Sort findings without duplicates: the cause, its consequences, remarks, then UNKNOWN.

    ``proved`` are the codes that lines of the report prove; they rank before forecasts.
    """
    return tuple(sorted(dict.fromkeys(findings), key=lambda row: _key(row, proved)))


def _key(finding: Finding, proved: set[Code]) -> tuple[bool, bool, float, int, str, str]:
    code = finding.code
    tier: float = _TIER.get(code, len(_TIERS))
    if code in proved & _BEFORE_BUILDS:
        tier = _BUILD_TIER - 0.5
    elif proved and code not in proved and tier == 1:
        tier = len(_TIERS) - 1.5  # the forecast predicts a failed import, but a line shows another failure
    if Code.SLOW_PHASE in proved and code in {Code.PTX_JIT, Code.GPU_UNSUPPORTED_BY_CUDA}:
        tier = -1  # it runs slowly: compilation at each start explains that
    remark = finding.severity is Severity.INFO
    return remark, code is Code.UNKNOWN, tier, SEVERITY_RANK[finding.severity], finding.subject, finding.message


_DAY = re.compile(r"\b(20[12][0-9]-[01][0-9]-[0-3][0-9])[ T][0-2][0-9]:", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_SECONDS = re.compile(r"\b[EFIW]0000 00:00:(1[0-9]{9})\.", re.ASCII)
"""Timestamp of messages before absl's log is open: seconds since 1970."""

_MOVES = ("latest", "nightly", "devel")
"""Tags that are moved to newer images."""


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A public thread or document, its date, and a summary."""

    url: str
    date: str
    says: str


class ImageDefect(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row of ``image_defects.yaml``; the file explains the fields."""

    id: str
    images: str
    shows: tuple[str, ...]
    since: str
    code: Code
    what: str
    fix: str
    sources: tuple[Source, ...]
    until: str | None = None
    library: str = ""


@cache
def image_defect_rows() -> tuple[ImageDefect, ...]:
    rows = shipped_rows(resources.files("envbuilder.reproduce") / "image_defects.yaml")
    return decoding.converted(rows, tuple[ImageDefect, ...])


def image_defects(reported: Reported, symptoms: tuple[MessageMatch, ...]) -> dict[Finding, tuple[str, ...]]:
    """Find the known defects of the images that a report names, and the messages that each explains.

    An error if a log message proves it. INFO if the tag moves and its image is unknown, or if no message proves it but
    it explains the complaint. Nothing if the log was written at another time.
    """
    named = [value for row in symptoms for name, value in row.values.items() if name.startswith("image")]
    images = dict.fromkeys([*named, *([reported.image] if reported.image else [])])
    if not images:
        return {}
    day = day_of(reported, symptoms)
    found = {}
    for row in image_defect_rows():
        image = next((image for image in images if re.fullmatch(row.images, image)), None)
        if image is None or (day is not None and not _is_of_its_time(row, image, day)):
            continue
        shown = next((each for each in symptoms if _shows(row, each, image)), None)
        if shown is None and (symptoms or not reported.complaints or not explains(row.code, reported)):
            continue
        sure = shown is not None and (day is not None or not _moves(image) or row.until is None)
        found[_finding(row, image, shown, sure=sure)] = row.shows if sure else ()
    return found


def day_of(reported: Reported, symptoms: tuple[MessageMatch, ...]) -> str | None:
    """Return the date of a report's first dated log line, or None."""
    texts = [row.text for row in symptoms] + [row.text for row in reported.evidence]
    texts += [text for row in reported.pauses for text in (row.before, row.after)]
    days = [match[1] for text in texts for match in _DAY.finditer(text)]
    stamps = [int(match[1]) for text in texts for match in _SECONDS.finditer(text)]
    days += [(_EPOCH + timedelta(seconds=stamp)).date().isoformat() for stamp in stamps]
    return min(days, default=None)


def _is_of_its_time(row: ImageDefect, image: str, day: str) -> bool:
    """Return True if the image had the defect on that day: fixed tags keep it, moving tags lose it with the fix."""
    return row.since <= day <= (row.until or day) if _moves(image) else True


def _moves(image: str) -> bool:
    return image.rpartition(":")[2].startswith(_MOVES)


def _shows(row: ImageDefect, symptom: MessageMatch, image: str) -> bool:
    """Return True if a message belongs to this defect: same image, and same library if it names one."""
    if symptom.signature not in row.shows or not symptom.exact:
        return False
    own = [value for name, value in symptom.values.items() if name.startswith("image")]
    return (not own or image in own) and symptom.values.get("library", row.library) == row.library


def _finding(row: ImageDefect, image: str, shown: MessageMatch | None, *, sure: bool) -> Finding:
    until = f" to {row.until}" if row.until else ""
    known = f"known from {row.since}{until}" if row.until != row.since else f"known of {row.since}"
    said = f"Line {shown.line} shows a known defect of {image}" if sure and shown else f"A defect of {image} is known"
    whose = "" if sure or not _moves(image) else "; it is unknown whether this pull of the tag has it"
    return Finding(
        code=row.code,
        severity=Severity.ERROR if sure else Severity.INFO,
        subject=image,
        message=f"{said}: {row.what} ({known}){whose}.",
        found=image,
        fix=row.fix,
        sources=tuple(source.url for source in row.sources),
    )
