"""Import TensorFlow and compute for the first time, with the time that each step takes."""

from __future__ import annotations

import importlib.machinery
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from . import host, tensorflow1_compat
from .channel import private_output
from .cuda_timeline import Timeline
from .result import Answer, Facts, finding, judged, measure, phase


def import_tensorflow(facts: Facts) -> Answer:
    """Import it; divide the time into shared objects (mapping, relocation, initialisers) and Python modules."""
    worker = facts["worker"]
    before = len(sys.modules)
    events: list[tuple[float, bytes]] = []
    tf = import_marked(lambda mark: events.append((time.perf_counter(), mark)))
    took = events[-1][0] - events[0][0]
    modules, objects = list(analyse(events)["seconds"].values())[:2]
    start = worker["started"] - worker["spawned"]
    expected = facts.get("tensorflow") or ""
    observed = f"TensorFlow {tf.__version__} in {took:.2f} s"
    more = {
        "measurements": {
            "process_start": measure(start, "s"),
            "import": measure(took, "s"),
            "import_shared_objects": measure(objects, "s"),
            "modules": measure(len(sys.modules) - before, "1"),
        },
        "phases": {
            "process start": phase([start]),
            "import": phase([took]),
            "import: shared objects": phase([objects]),
            "import: Python modules": phase([modules]),
        },
    }
    findings = []
    if expected and not same_release(expected, tf.__version__):
        text = f"the environment names TensorFlow {expected}, and {tf.__version__} is imported"
        findings.append(finding("LOCK_MISMATCH", "tensorflow", text, expected, tf.__version__))
    return judged(findings, expected or "an import", observed, **more)


def same_release(wheel: str, module: str) -> bool:
    """Compare a wheel's version with ``tf.__version__``: ``2.21.0rc1`` is ``2.21.0-rc1``, a post-release its base."""
    return _plain(wheel.split(".post", maxsplit=1)[0]) == _plain(module)


def _plain(version: str) -> str:
    return version.partition("+")[0].replace("-", "").replace(".dev", "dev")


MARK = b"envbuilder-object "
# Printed by glibc with LD_DEBUG=files for every initialiser that it calls (elf/dl-init.c).
INITIALISER = re.compile(rb"calling init: (\S+)")
BLANK = re.compile(rb"\s*[0-9]*:?\s*\Z")


def import_marked(mark: Callable[[bytes], object]) -> Any:
    """Import TensorFlow, and mark its start, its end, and begin and end of the loading of each extension module."""
    kind: Any = importlib.machinery.ExtensionFileLoader
    plain = kind.create_module

    def loading(loader: Any, spec: Any) -> Any:
        mark(MARK + b"begin")
        try:
            return plain(loader, spec)
        finally:
            mark(MARK + b"end")

    kind.create_module = loading
    try:
        mark(MARK + b"start")
        return importlib.import_module("tensorflow")
    finally:
        mark(MARK + b"done")
        kind.create_module = plain


def traced_import() -> NoReturn:
    """Import TensorFlow in this fresh process, with the marks in the loader's trace."""
    import_marked(lambda mark: os.write(2, mark + b"\n"))
    os._exit(0)


def analyse(events: Iterable[tuple[float, bytes]]) -> dict[str, Any]:
    """Add up timed lines: within the loading of an extension, an initialiser lasts until the loader's next line."""
    inside = 0
    seconds = {"Python modules": 0.0, "mapping and relocation": 0.0, "initialisers (registration)": 0.0}
    by_object: dict[str, float] = {}
    previous, running = None, None
    started = False
    for now, line in events:
        if BLANK.match(line):  # the loader puts one after each of its messages
            continue
        if started and previous is not None:
            took = now - previous
            if running is not None:
                seconds["initialisers (registration)"] += took
                by_object[running] = by_object.get(running, 0.0) + took
            elif inside:
                seconds["mapping and relocation"] += took
            else:
                seconds["Python modules"] += took
        previous, running = now, None
        if line.startswith(MARK):
            word = line[len(MARK) :]
            started = started or word == b"start"
            inside += {b"begin": 1, b"end": -1}.get(word, 0)
            if word == b"done":
                break
        elif inside:
            found = INITIALISER.search(line)
            running = found.group(1).decode("utf-8", "replace") if found else None
    return {"seconds": seconds, "objects": len(by_object), "slowest": max(by_object.values(), default=0.0)}


def first_op(facts: Facts, device: str = "/CPU:0", prefix: str = "") -> Answer:
    import tensorflow as tf

    line = Timeline(prefix)
    with tf.device(device):
        three, product, total = first_operations(tf, line)
    if tensorflow1_compat.is_first(tf):
        _session(tf, device, line)
    right = three == 3.0 and abs(product - 64.0) < 1e-3 and abs(total / (64.0 * 65536) - 1) < 1e-4
    measured = {prefix + row["phase"][len(prefix) :].replace(" ", "_"): row["seconds"] for row in line.phases}
    more = {
        "measurements": {name: measure(seconds, "s") for name, seconds in measured.items()},
        "phases": {row["phase"]: phase([row["seconds"]]) for row in line.phases},
    }
    observed = f"1+2={three:g}, product {product:g}, sum {total:g}"
    findings = [] if right else [finding("WRONG_NUMBERS", prefix + "first operations", observed)]
    return judged(findings, f"1+2=3, product 64, sum {64.0 * 65536:g}", observed, **more)


def first_operations(tf: Any, line: Timeline) -> tuple[float, float, float]:
    """Time the first operations; return their results: a sum, a product, a reduced product."""
    three = line.timed("first op", lambda: float(tf.add(tf.constant(1.0), tf.constant(2.0)).numpy()))
    matrix = tf.fill((256, 256), 0.5)
    product = line.timed("first matmul", lambda: tf.matmul(matrix, matrix).numpy())
    later = Timeline()
    for _ in range(20):
        later.timed("", lambda: tf.matmul(matrix, matrix).numpy())
    line.add("steady matmul", sorted(row["seconds"] for row in later.phases)[10])
    traced = tf.function(lambda x: tf.reduce_sum(tf.matmul(x, x)))
    total = line.timed("first function", lambda: float(traced(matrix)))
    return three, float(product[0, 0]), total


def _session(tf: Any, device: str, line: Timeline) -> None:
    """Time the start of a TensorFlow 1 program: a session, its first run, a later one. Raises for a wrong product."""
    with tf.Graph().as_default() as graph, tf.device(device):
        given = tf.compat.v1.placeholder(tf.float32, [256, 256])
        product = tf.matmul(given, given)
        with line.timed("first session", lambda: tf.compat.v1.Session(graph=graph)) as session:
            values = [[0.5] * 256] * 256
            first = line.timed("first run", lambda: session.run(product, {given: values}))
            line.timed("second run", lambda: session.run(product, {given: values}))
    if abs(float(first[0, 0]) - 64.0) >= 1e-3:
        raise ArithmeticError(f"a session multiplies to {float(first[0, 0]):g} where 64 is right")


def sample(started: float) -> NoReturn:
    """Time a start-up in this fresh process, from its first line to steady work; print the phases and exit at once."""
    order, output = json.loads(sys.stdin.read()), private_output()
    line = Timeline()
    line.add("process start", started - order["spawned"])
    tf = line.timed("import", lambda: importlib.import_module("tensorflow"))
    if tensorflow1_compat.is_older(tf.__version__):
        tf = tensorflow1_compat.as_later(tf)
    gpus = line.timed("device listing", lambda: tf.config.list_physical_devices("GPU"))
    for gpu in gpus if order.get("growth") else ():
        tf.config.experimental.set_memory_growth(gpu, True)
    line.timed("contexts and allocator", tf.config.list_logical_devices)
    work = Timeline("GPU " if gpus else "")
    with tf.device("/GPU:0" if gpus else "/CPU:0"):
        first_operations(tf, work)
        if gpus:
            image, kernel = tf.fill((1, 32, 32, 3), 0.5), tf.fill((3, 3, 3, 8), 0.1)
            work.timed("first convolution", lambda: tf.nn.conv2d(image, kernel, 1, "SAME").numpy())
        from .cpu_checks import jit  # not before the import of TensorFlow is timed

        matrix = tf.fill((256, 256), 0.5)
        compiled = jit(tf, lambda x: tf.reduce_sum(tf.matmul(x, x) * 2.0))
        if compiled is not None:
            work.timed("first XLA compile", lambda: compiled(matrix))
    document = {"phases": line.phases + work.phases, "gpus": len(gpus), "peak_memory": host.peak_memory()}
    os.write(output, json.dumps(document).encode())
    os._exit(0)
