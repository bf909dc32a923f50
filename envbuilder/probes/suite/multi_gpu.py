"""Checks of several GPUs together: peer access, all-reduce through NCCL, one context per device."""

from __future__ import annotations

import ctypes
from typing import Any

from . import driver
from .cpu_checks import wrong
from .gpu import usable
from .result import Answer, Facts, finding, judged, measure, skipped

ONE = "one GPU: there is nothing to share"


def _several(facts: Facts) -> driver.DriverState | Answer:
    seen = usable(facts)
    return seen if isinstance(seen, dict) or seen.count > 1 else skipped(ONE)


def peers(facts: Facts) -> Answer:
    """Ask the driver which pairs of GPUs reach each other's memory."""
    seen = _several(facts)
    if isinstance(seen, dict):
        return seen
    library = driver.opened("libcuda.so.1")
    library.cuInit(0)
    pairs = []
    for one in range(seen.count):
        for other in range(seen.count):
            able = ctypes.c_int(0)
            if one != other and library.cuDeviceCanAccessPeer(ctypes.byref(able), one, other) == 0 and able.value:
                pairs.append("{0}→{1}".format(one, other))
    wanted = seen.count * (seen.count - 1)
    text = "{0} of {1} pairs have peer access".format(len(pairs), wanted)
    findings = [] if len(pairs) == wanted else [finding("STALLS", "peer access", text, severity="warning")]
    return judged(findings, "a statement for every pair", text, measurements={"pairs": measure(len(pairs), "1")})


def all_reduce(facts: Facts) -> Answer:
    """Sum over all GPUs through NCCL and compare: every GPU holds the same, right sum."""
    seen = _several(facts)
    if isinstance(seen, dict):
        return seen
    import numpy as np
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(cross_device_ops=tf.distribute.NcclAllReduce())
    values = np.arange(1024, dtype=np.float32)

    @tf.function  # type: ignore[untyped-decorator]
    def step() -> Any:
        def each() -> Any:
            replica = tf.distribute.get_replica_context()
            rank = tf.cast(replica.replica_id_in_sync_group + 1, tf.float32)
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(values) * rank)

        return strategy.run(each)

    count = strategy.num_replicas_in_sync
    wanted = values * (count * (count + 1) / 2)
    sums = [part.numpy() for part in strategy.experimental_local_results(step())]
    error = max(float(np.max(np.abs(part - wanted))) for part in sums)
    findings = (
        [] if error == 0 and count == seen.count else [wrong("all-reduce over {0} GPUs".format(count), error, 0.0)]
    )
    return judged(findings, "the exact sum on {0} GPUs".format(seen.count), "largest difference {0:g}".format(error))


def one_context_each(facts: Facts) -> Answer:
    """Compute on every GPU in one process; each must hold exactly one context of this process."""
    seen = _several(facts)
    if isinstance(seen, dict):
        return seen
    import tensorflow as tf

    for index in range(seen.count):
        with tf.device("/GPU:{0}".format(index)):
            tf.matmul(tf.fill((64, 64), 1.0), tf.fill((64, 64), 1.0)).numpy()
    counts = driver.contexts_of_this_process()
    wrong_ones = [index for index, count in enumerate(counts) if count != 1]
    text = "contexts per GPU: {0}".format(counts)
    findings = [finding("STALLS", "contexts", text, "one each", str(counts), severity="warning")] if wrong_ones else []
    return judged(findings, "one context per device", text)
