"""Images that lie about their run, hang it, flood it, compute wrongly, or do not start for their users."""

from __future__ import annotations

from hostile_row import FILES, SITE, START, TIMEOUT, VIOLATION, WRONG, Hostile, row

_BIN = "/opt/venv/bin"


def _python(script: str) -> str:
    """Put a shell script in the place of every Python of the image."""
    text = script.replace("'", "'\\''")
    return (
        f"RUN printf '%s\\n' '#!/bin/sh' '{text}' > /opt/fake && chmod 755 /opt/fake && rm -f {_BIN}/python* "
        f"/usr/bin/python3* && for name in python python3; do cp /opt/fake {_BIN}/$name; done && "
        "cp /opt/fake /usr/bin/python3"
    )


def start(code: str) -> str:
    """Let Python run some code at each of its starts."""
    text = code.replace("'", "'\\''").replace("\n", "\\n")
    return f"RUN printf '{text}\\n' > {SITE}/astray.py && echo 'import astray' > {SITE}/astray.pth"


def framework(code: str) -> str:
    """Let TensorFlow run some code at the end of its import."""
    text = code.replace("'", "'\\''").replace("\n", "\\n")
    return f"RUN printf '\\n{text}\\n' >> {SITE}/tensorflow/__init__.py"


def _doubled(name: str) -> Hostile:
    code = f"import tensorflow as _t\n_plain = _t.{name}\n_t.{name} = lambda *a, **k: _plain(*a, **k) * 2"
    return row(f"{name.rpartition('.')[2]}-is-doubled", framework(code), FILES, WRONG)


_PLAIN = '{"event": "result", "result": {"name": "import", "tier": "load", "outcome": "passed"}}'
_PROBED = 'case "$1$2$3" in -I-S-c) exit 0;; esac; '
IN_WORKERS = "import os, sys, time\nif '--worker' in sys.argv: "
_MATMUL = (
    "import tensorflow as _t\n_plain = _t.matmul\ndef _matmul(a, *r, **k):\n    c = _plain(a, *r, **k)\n    {0}\n"
    "    return c\n_t.matmul = _t.linalg.matmul = _matmul"
)

LIAR_IMAGES: tuple[Hostile, ...] = (
    # A python that is none: it says nothing, too much, the old way, for ever.
    row("python-says-nothing", _python(_PROBED + "exit 0"), FILES, VIOLATION, fast=True),
    row("python-prints-results", _python(_PROBED + f"echo '{_PLAIN}'; exit 0"), FILES, VIOLATION, fast=True),
    row("python-says-it-died", _python(_PROBED + "exit 9"), FILES, fast=True),
    row("python-never-ends", _python(_PROBED + "sleep 3000"), FILES, TIMEOUT),
    row("python-trickles", _python(_PROBED + "while :; do echo x; sleep 1; done"), FILES, TIMEOUT),
    row("python-floods-a-line", _python(_PROBED + "tr '\\0' x < /dev/zero"), FILES, VIOLATION, fast=True),
    row("python-floods-lines", _python(_PROBED + "yes ::error::x"), FILES, VIOLATION, fast=True),
    row("python-floods-errors", _python(_PROBED + "yes ::error::x >&2"), FILES, VIOLATION),
    row("python-hangs-when-asked", _python("sleep 3000"), FILES, TIMEOUT),
    # Code that Python loads at its start.
    row(
        "start-writes-on-the-answers",
        start(IN_WORKERS + "os.write(int(sys.argv[-1]), b'{}' + bytes([10]))"),
        FILES,
        VIOLATION, fast=True),
    row("start-leaves-well", start(IN_WORKERS + "os._exit(0)"), FILES, fast=True),
    row("start-raises", start(IN_WORKERS + "raise SystemExit(0)"), FILES),
    row("start-takes-the-order", start(
        "import os, sys\nif sys.argv[:1] == ['-c']:\n    try: os.read(os.open('/proc/1/fd/0', os.O_RDONLY), 1 << 20)\n    except OSError: pass"),
        FILES),
    row("start-stays-behind", start("import os, sys, time\nif sys.argv[:1] == ['-c'] and os.fork() == 0: time.sleep(3000)"), FILES),
    row("start-hangs", start(IN_WORKERS + "time.sleep(3000)"), FILES, TIMEOUT),
    row("start-kills-everybody", start(IN_WORKERS + "os.kill(-1, 9)"), FILES),
    row("start-closes-what-is-open", start(IN_WORKERS + "os.closerange(3, 64)"), FILES),
    row("start-eats-the-memory", start(IN_WORKERS + "b = [bytearray(b'x') * (1 << 30) for _ in range(64)]"), FILES),
    row("start-prints-commands", start("import sys\nprint('::error::x', flush=True)\nsys.stderr.write('::set-env x')"), FILES),
    row(
        "answers-are-rewritten",
        start("import json\n_p = json.dumps\njson.dumps = lambda *a, **k: _p(*a, **k).replace('failed', 'passed')"),
        FILES,
    ),
    row("clock-stands-still", start("import time\ntime.perf_counter = lambda: 1.0"), FILES, VIOLATION),
    row(
        "clock-runs-backwards",
        start("import time\ntime.perf_counter = lambda t=[1e9]: t.append(t[-1] - 1) or t[-1]"),
        FILES,
        VIOLATION,
    ),
    # What the import does.
    row("import-floods", framework("import os\nfor _ in range(200): os.write(2, b'x' * (1 << 20))"), FILES, START),
    row("import-leaves-well", framework("import os\nos._exit(0)"), FILES),
    row("import-hangs", framework("import time\ntime.sleep(3000)"), FILES, TIMEOUT),
    row("works-for-the-suite-alone", framework("import os\nif not os.path.exists('/envbuilder'): raise ImportError('no')"), FILES, START),
    row("works-for-other-users", framework("import os\nif os.getuid() == 1000: raise ImportError('no')"), FILES, START),
    # Numbers.
    row("large-products-are-wrong", framework(_MATMUL.format("if c.shape.rank == 2 and min(c.shape) >= 512: return c * 1.5")), FILES, WRONG),
    row("one-entry-of-a-large-product-is-wrong", framework(_MATMUL.format(
        "if c.shape.rank == 2 and min(c.shape) >= 1000: return _t.tensor_scatter_nd_add(c, [[777, 888]], [1.0])")), FILES, WRONG),
    *map(
        _doubled,
        ("nn.max_pool2d", "nn.depthwise_conv2d", "cumsum", "math.erf", "gather", "reverse", "math.segment_sum", "sort", "tan",
         "linalg.cholesky", "nn.softmax"),
    ),
    row("strings-are-wrong", framework("import tensorflow as _t\n_t.strings.upper = lambda x, **k: x"), FILES, WRONG),
    row("pictures-are-not-read", framework("import tensorflow as _t\ndef _no(*a, **k): raise OSError('no')\n_t.io.decode_jpeg = _no"), FILES, WRONG),
    row("files-are-not-read", framework("import tensorflow as _t\ndef _no(*a, **k): raise OSError('no')\n_t.io.read_file = _no"), FILES, WRONG),
    # As users start it.
    row("entrypoint-swallows", 'ENTRYPOINT ["/bin/true"]', START, fast=True),
    row("entrypoint-says-no", "RUN printf '#!/bin/sh\\nexit 3\\n' > /opt/e && chmod 755 /opt/e\nENTRYPOINT [\"/opt/e\"]", START),
    row("entrypoint-hangs", 'ENTRYPOINT ["/bin/sleep", "3000"]', START),
    row("entrypoint-floods", 'ENTRYPOINT ["/usr/bin/yes"]', START),
    row("user-may-not-read", f"RUN chmod 0700 {SITE}/tensorflow/python/framework", START),
    row("user-may-not-enter", "RUN chmod 0700 /opt/venv", START),
)  # fmt: skip
