"""Layers that are small to write and large to read. As a program: reads one, and prints what that took."""

import json
import struct
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count, repeat
from pathlib import Path

from made_images import SITE, context_of

from envbuilder.engine.port import LayerFile, LayerStream
from envbuilder.finding import Severity
from envbuilder.validation import layer_scan
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.validation.validate import run_host_checks

LARGE = b"x" * layer_scan.MAX_KEPT


def file(path: str, content: bytes, times: int = 1) -> LayerFile:
    return LayerFile(path, "file", size=len(content) * times, pieces=lambda: repeat(content, times))


def program() -> bytes:
    """Make a shared object of 70 kB whose table of needed libraries names each part of one text."""
    names = b"x" * 70_000
    rows = b"".join(struct.pack("<QQ", 1, at) for at in range(8190)) + struct.pack("<QQQQ", 5, 0, 0, 0)
    size = 64 + 112 + len(rows) + len(names)
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 176 + len(rows), 0, 0, len(names), len(names), 4096)
    return head + load + struct.pack("<IIQQQQQQ", 2, 5, 176, 0, 0, len(rows), size, 8) + rows + names


def linked() -> Iterator[LayerFile]:
    """Make a chain of links through long ways, and folders below its end."""
    for number in range(39):
        yield LayerFile(f"l{number}", "link", target="./a/.." * 600 + f"/l{number + 1}")
    yield from (LayerFile(f"l0/{number}/a", "folder") for number in count())


BOMBS: dict[str, Callable[[], Iterator[LayerFile]]] = {
    "entries": lambda: (LayerFile(f"srv/{number}", "file") for number in count()),
    "long paths": lambda: (LayerFile(f"{number}/" + "x/" * 2000, "folder") for number in count()),
    "one path": lambda: (LayerFile("srv/a", "link", target=str(number)) for number in count()),
    "links": linked,
    "programs": lambda: (file(f"{number}.so", program()) for number in count()),
    "program of holes": lambda: iter((file("cublas.so", program(), 200_000),)),
    "zeros": lambda: iter((file("srv/zeros", bytes(1 << 20), 1 << 40),)),
    "contents": lambda: (file(f"{number}.pth", LARGE) for number in range(40)),
    "RECORD": lambda: (file(f"{SITE}/a{number}-1.dist-info/RECORD", b"a\n" * (6 << 20)) for number in range(9)),
    "requirements": lambda: (
        file(f"{SITE}/a{number}-1.dist-info/METADATA", b"Name: a\nVersion: 1\n" + b"Requires-Dist: b>1\n" * 800_000)
        for number in range(2)
    ),
    "packages": lambda: (
        file(f"{SITE}/a{number}-1.dist-info/METADATA", b"Name: a%d\nVersion: 1\n" % number) for number in range(150_000)
    ),
    "digests": lambda: (file(f"var/lib/dpkg/info/{number}.md5sums", b"0  a\n" * 3_000_000) for number in range(2)),
    "lists": lambda: (file(f"var/lib/dpkg/info/{number}.list", b"/\n" * (6 << 20)) for number in range(9)),
}


def read(name: str) -> dict[str, object]:
    """Read a layer as a validation does, with a fraction of its seconds and bytes."""
    begun, layer_scan.SECONDS, layer_scan.CONTENT = time.process_time(), 5.0, 1 << 30
    budget = layer_scan.Budget()
    record = layer_scan.scan(LayerStream(BOMBS[name](), "sha256:1"), budget)
    files = ImageFiles(() if budget.reached else (record,), budget)
    results, causes = run_host_checks(context_of(files), [check for check in CHECKS if check.group == "host"])
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    return {
        "seconds": time.process_time() - begun,
        "megabytes": int(peak.split()[1]) / 1024,
        "errors": [one.message for one in causes.findings if one.severity is Severity.ERROR],
        "passed": [one.name for one in results if one.outcome == "passed"],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(read(sys.argv[1])))
