"""Loaded at Python's start by a control's image: it answers in the place of the suite's checks."""

from __future__ import annotations

import os
import sys

if "--worker" in sys.argv:
    os.write(int(sys.argv[-1]), b'{"event": "result", "result": {"name": "import", "outcome": "passed"}}\n')
