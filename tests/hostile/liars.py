"""Images that lie about their run, hang it, flood it or do not start for their users: one row each."""

from __future__ import annotations

from dataclasses import dataclass

SITE = "/opt/venv/lib/python3.11/site-packages"
BIN = "/opt/venv/bin"
_VIOLATION, _TIMEOUT, _CRASHED, _USER = "PROTOCOL_VIOLATION", "PROBE_TIMEOUT", "PROBE_CRASHED", "USER_START"
_WRONG = "WRONG_NUMBERS"


@dataclass(frozen=True)
class Liar:
    """One image: ``lines`` of a Dockerfile below the good image (as root), and one code that must be an error in it.

    ``quick`` ones never import the framework: they end in seconds.
    """

    name: str
    lines: str
    code: str
    quick: bool = False


def _python(script: str) -> str:
    """Put a shell script in the place of every Python of the image."""
    text = script.replace("'", "'\\''")
    return (
        f"RUN printf '%s\\n' '#!/bin/sh' '{text}' > /opt/fake && chmod 755 /opt/fake && rm -f {BIN}/python* "
        "/usr/bin/python3* && for name in python python3; do "
        f"cp /opt/fake {BIN}/$name; done && cp /opt/fake /usr/bin/python3"
    )


def _start(code: str) -> str:
    """Let Python run some code at each of its starts."""
    text = code.replace("'", "'\\''").replace("\n", "\\n")
    return f"RUN printf '{text}\\n' > {SITE}/astray.py && echo 'import astray' > {SITE}/astray.pth"


_PLAIN = '{"event": "result", "result": {"name": "import", "tier": "load", "outcome": "passed"}}'
_PROBED = 'case "$1" in -c) exit 10;; esac; '

LIARS: tuple[Liar, ...] = (
    # A python that is none: it says nothing, too much, the old way, for ever.
    Liar("python-says-nothing", _python(_PROBED + "exit 0"), _VIOLATION, quick=True),
    Liar("python-prints-results", _python(_PROBED + f"echo '{_PLAIN}'; exit 0"), _VIOLATION, quick=True),
    Liar("python-says-it-died", _python(_PROBED + "exit 9"), _CRASHED, quick=True),
    Liar("python-never-ends", _python(_PROBED + "sleep 3000"), _TIMEOUT, quick=True),
    Liar("python-trickles", _python(_PROBED + "while :; do echo x; sleep 1; done"), _TIMEOUT, quick=True),
    Liar("python-floods-a-line", _python(_PROBED + "tr '\\0' x < /dev/zero"), _VIOLATION, quick=True),
    Liar("python-floods-lines", _python(_PROBED + "yes ::error::x"), _VIOLATION, quick=True),
    Liar("python-floods-errors", _python(_PROBED + "yes ::error::x >&2"), _VIOLATION, quick=True),
    Liar("python-hangs-when-asked", _python("sleep 3000"), _TIMEOUT, quick=True),
    Liar("python-does-not-start", "ENV PYTHONHOME=/nowhere", _CRASHED, quick=True),
    Liar("hash-seed-is-a-word", "ENV PYTHONHASHSEED=word", _CRASHED, quick=True),
    # Code that Python loads at its start.
    Liar(
        "start-writes-on-the-answers",
        _start("import os, sys\nif '--worker' in sys.argv: os.write(int(sys.argv[-1]), b'{}' + bytes([10]))"),
        _VIOLATION,
        quick=True,
    ),
    Liar(
        "start-leaves-well",
        _start("import os, sys\nif '--worker' in sys.argv: os._exit(0)"),
        _CRASHED,
        quick=True,
    ),
    Liar(
        "start-hangs",
        _start("import sys, time\nif '--worker' in sys.argv: time.sleep(3000)"),
        _TIMEOUT,
        quick=True,
    ),
    Liar(
        "numbers-are-guessed",
        _start(
            "import json\nplain = json.dumps\njson.dumps = lambda *a, **k: plain(*a, **k).replace('failed', 'passed')"
        ),
        "FILES_DIFFER",
    ),
    Liar("clock-stands-still", _start("import time\ntime.perf_counter = lambda: 1.0"), _VIOLATION),
    Liar(
        "clock-runs-backwards",
        _start("import time\ntime.perf_counter = lambda t=[1e9]: t.append(t[-1] - 1) or t[-1]"),
        _VIOLATION,
    ),
    # Numbers.
    Liar(
        "large-products-are-wrong",
        "RUN printf 'import tensorflow as tf\\nplain = tf.matmul\\n"
        "def matmul(a, *r, **k):\\n    c = plain(a, *r, **k)\\n"
        "    return c * 1.5 if c.shape.rank == 2 and min(c.shape) >= 512 else c\\ntf.matmul = matmul\\n' "
        f">> {SITE}/tensorflow/__init__.py",
        _WRONG,
    ),
    *(
        Liar(
            f"{name.rpartition('.')[2]}-is-doubled",
            f"RUN printf '\\nimport tensorflow as _t\\n_p{place} = _t.{name}\\n"
            f"_t.{name} = lambda *a, **k: _p{place}(*a, **k) * 2\\n' >> {SITE}/tensorflow/__init__.py",
            _WRONG,
        )
        for place, name in enumerate(
            ("nn.max_pool2d", "nn.depthwise_conv2d", "cumsum", "math.erf", "gather", "reverse", "math.segment_sum")
        )
    ),
    # As users start it.
    Liar("entrypoint-swallows", 'ENTRYPOINT ["/bin/true"]', _USER),
    Liar("entrypoint-is-not-there", 'ENTRYPOINT ["/opt/gone"]', _USER),
    Liar("path-without-the-environment", "ENV PATH=/usr/bin:/bin", _USER),
    Liar(
        "folder-shadows-the-framework",
        "RUN mkdir -p /app/tensorflow && touch /app/tensorflow/__init__.py\nWORKDIR /app",
        _USER,
    ),
    Liar("user-may-not-read", f"RUN chmod 0700 {SITE}/tensorflow/python/framework", _USER),
    Liar("user-is-not-there", "USER nobody-of-that-name", _USER),
    Liar("preload-is-gone", "ENV LD_PRELOAD=/opt/gone/libjemalloc.so", _USER),
)
"""Every image of this kind. What looks at files from outside finds some too; this code is to be among theirs."""
