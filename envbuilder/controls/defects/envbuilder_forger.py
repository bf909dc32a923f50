"""Loaded at Python's start by a control's image: it answers instead of the probes."""

from __future__ import annotations

import os
import sys

if "--worker" in sys.argv:
    os.write(int(sys.argv[-1]), b'{"event": "result", "result": {"name": "import", "outcome": "passed"}}\n')
