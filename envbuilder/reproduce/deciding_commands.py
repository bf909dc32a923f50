"""What a reporter is asked to run where a report does not tell: by what is complained of, and the system."""

from __future__ import annotations

from envbuilder.reproduce.report.reported import Reported

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
    """Name the commands whose output would tell, which need nothing but the reporter's own Python.

    Where only installing or importing fails, the interpreter and the whole trace tell. Windows has no grep.
    """
    windows = reported.platform == "windows"
    listed = _LIST if windows else _LIST + _FILTER
    if reported.complaints and set(reported.complaints) <= {"installing", "import"}:
        wheels = (_WHEELS,) if "installing" in reported.complaints else ()
        return _PYTHON, listed, *wheels, _IMPORT
    return "nvidia-smi", listed, f'python -c "{_SEEN}"' if windows else _TRACE
