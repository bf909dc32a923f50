"""How much memory this process took at most since a moment: what the kernel counted, files that are mapped included."""

from pathlib import Path

_FORGET, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def from_now_on() -> int:
    """Begin to measure: forget the most memory that there was, and return the bytes that there are now."""
    _FORGET.write_text("5")
    return _status("VmRSS")


def most() -> int:
    """Return the most bytes that there were since."""
    return _status("VmHWM")


def _status(name: str) -> int:
    text = _STATUS.read_text()
    return int(text[text.index(name) + len(name) + 1 :].split(maxsplit=1)[0]) << 10
