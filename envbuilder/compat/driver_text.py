"""The driver that a text names: as `nvidia-smi` prints it, as a package is called, as Windows shows it."""

from __future__ import annotations

import re

_SAID = re.compile(r"driver version:?\s*(\d{3,4}\.[\d.]*\d)", re.IGNORECASE)
"""What ``nvidia-smi`` says. The number of the program itself, which stands before, may be another."""

_WINDOWS = re.compile(r"(?<![\d.])\d{2}\.\d{1,2}\.\d(\d)\.(\d{4})(?![\d.])")
"""Windows' own number: its last five digits are the driver's, so that ``31.0.15.3742`` is 537.42."""

_RELEASE = re.compile(r"(?<![\d.])(\d{3,4}(?:\.\d{1,3}){1,2})(?!\.?\d)")
_BRANCH = re.compile(r"(?<![\d.Rr])[Rr]?(\d{3,4})(?:\.(?:x+|\*|xx\.xx)?)?(?![\d.])", re.IGNORECASE)


def driver_meant(text: str) -> str:
    """Return the driver or branch that a text names; the text itself where it names none, or more than one.

    ``535.104.05``, ``R535``, ``nvidia-driver-535-server``, ``535.x``, ``535.104.05-0ubuntu1``, a line of nvidia-smi or
    of /proc/driver/nvidia/version.
    """
    said = _SAID.search(text)
    if said:
        return said[1]
    windows = {f"{digits[:3]}.{digits[3:]}" for one in _WINDOWS.findall(text) if (digits := "".join(one))}
    named = windows or set(_RELEASE.findall(text)) or set(_BRANCH.findall(text))
    return named.pop() if len(named) == 1 else text
