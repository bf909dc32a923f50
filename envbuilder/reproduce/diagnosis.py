"""The diagnosis of a report: cause, confidence, and commands that would decide it."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.finding import Code, Finding, Severity
from envbuilder.reproduce.messages.catalog import MessageMatch, get
from envbuilder.reproduce.report.reported import Reported

Confidence = Literal["certain", "likely", "unsure"]
"""``proved`` by a log line, ``predicted`` from stated versions, or ``unsure``."""

RunTarget = Literal["versions", "installation", "host", "build", "unknown"]
"""The kind of fix: other versions, another installation step, the host (driver, container options, processor), or the
distributor of the build.
"""

_PLACES: dict[RunTarget, frozenset[Code]] = {
    "versions": frozenset(
        {
            Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.TWO_CUDA_STACKS,
            Code.PYTHON_UNSUPPORTED, Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.API_MISMATCH,
            Code.GLIBC_TOO_OLD,
            Code.NO_KERNEL_IMAGE, Code.PTX_JIT, Code.PTX_TOO_NEW, Code.GPU_UNSUPPORTED_BY_CUDA,
            Code.GPU_UNSUPPORTED_BY_CUDNN, Code.GPU_UNSUPPORTED_BY_DRIVER, Code.DRIVER_TOO_OLD,
            Code.CONTAINER_REQUIREMENT, Code.NOT_A_GPU_BUILD, Code.SLOW_PHASE,
        }
    ),
    "installation": frozenset(
        {Code.NOT_INSTALLABLE, Code.PACKAGE_CONFLICT, Code.XLA_TOOLS_MISSING, Code.IMAGE_CLAIM}
    ),
    "host": frozenset(
        {
            Code.GPU_NOT_VISIBLE, Code.DRIVER_MISMATCH, Code.STUB_LIBCUDA, Code.CPU_FEATURE_MISSING, Code.STALLS,
            Code.GPU_MEMORY, Code.GPU_ERRORS,
        }
    ),
    "build": frozenset({Code.OTHER_BUILD}),
}  # fmt: skip


class ReportDiagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """The cause in one sentence, and its confidence.

    ``codes`` are the findings behind it, the leading one first; empty if ``unsure``. ``line`` and ``quote`` are the
    deciding line of the report (0 and '' if there is none). ``fix`` is one sentence. ``harmless`` explains lines that
    look like errors. ``ask`` lists commands whose output would decide.
    """

    cause: str
    confidence: Confidence
    place: RunTarget
    codes: tuple[Code, ...] = ()
    line: int = 0
    quote: str = ""
    fix: str = ""
    harmless: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()


def diagnose(reported: Reported, predicted: tuple[Finding, ...], symptoms: tuple[MessageMatch, ...]) -> ReportDiagnosis:
    """Build the diagnosis from findings sorted by cause (see `by_cause`)."""
    harmless = tuple(dict.fromkeys(_harmless(row) for row in symptoms if get(row.signature).layer == "noise"))
    told = [row for row in predicted if row.severity is not Severity.INFO and row.code is not Code.UNKNOWN]
    lead = told[0] if told else None
    decisive = _decisive(lead, symptoms) if lead else None
    if lead is None or (decisive is not None and get(decisive.signature).layer == "symptom"):
        return ReportDiagnosis(
            cause=_UNKNOWN if lead is None else "TensorFlow finds no GPU, and the report does not contain the reason.",
            confidence="unsure",
            place="unknown",
            line=decisive.line if decisive else 0,
            quote=decisive.text if decisive else "",
            harmless=harmless,
            ask=deciding_commands(reported),
        )
    proved = decisive is not None and decisive.exact and not get(decisive.signature).prose
    return ReportDiagnosis(
        cause=get(decisive.signature).cause if decisive and _made_of(lead, decisive) else lead.message,
        confidence="certain" if proved else "likely",
        place="installation" if decisive and get(decisive.signature).layer == "system" else _place(lead.code),
        codes=tuple(dict.fromkeys([lead.code, *(row.code for row in told)])),
        line=decisive.line if decisive else 0,
        quote=decisive.text if decisive else "",
        fix=lead.fix,
        harmless=harmless,
        ask=() if proved else deciding_commands(reported),
    )


_UNKNOWN = "The report does not contain enough information for a diagnosis."


def _place(code: Code) -> RunTarget:
    return next((place for place, codes in _PLACES.items() if code in codes), "unknown")


def _decisive(lead: Finding, symptoms: tuple[MessageMatch, ...]) -> MessageMatch | None:
    """Return the log message behind the leading finding, else the first with its code."""
    same = [row for row in symptoms if get(row.signature).code is lead.code]
    return next((row for row in same if _made_of(lead, row)), None) or next(iter(same), None)


def _made_of(lead: Finding, symptom: MessageMatch) -> bool:
    """Return True if the finding quotes this line rather than a version that a rule compared."""
    return bool(lead.found) and symptom.text.startswith(lead.found)


def _harmless(symptom: MessageMatch) -> str:
    return get(symptom.signature).cause


_LIST = "python -m pip list"
_FILTER = " | grep -iE 'tensorflow|nvidia|cuda|keras|numpy|protobuf'"
_PYTHON = 'python -c "import platform, sys; print(sys.version, platform.platform(), platform.architecture()[0])"'
_IMPORT = 'python -c "import tensorflow as tf; print(tf.__version__, tf.__file__)"'
_WHEELS = "python -m pip index versions tensorflow"
_SEEN = (
    "import tensorflow as tf; print(tf.version.VERSION, tf.__file__, tf.sysconfig.get_build_info(), "
    "tf.config.list_physical_devices('GPU'))"
)
_LINES = "grep -E 'dso_loader|cuda|dlerror|[.]so|GPU|Error' | tail -n 60"
_TRACE = f'TF_CPP_MAX_VLOG_LEVEL=3 python -c "{_SEEN}" 2>&1 | {_LINES}'


def deciding_commands(reported: Reported) -> tuple[str, ...]:
    """List commands that would decide the diagnosis; they need only the reporter's own Python.

    If only installation or import fails, they print the interpreter and the full traceback. Windows has no grep.
    """
    windows = reported.platform == "windows"
    listed = _LIST if windows else _LIST + _FILTER
    if reported.complaints and set(reported.complaints) <= {"installing", "import"}:
        wheels = (_WHEELS,) if "installing" in reported.complaints else ()
        return _PYTHON, listed, *wheels, _IMPORT
    return "nvidia-smi", listed, f'python -c "{_SEEN}"' if windows else _TRACE
