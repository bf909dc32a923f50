"""The table of checks: in which process each runs, how long it may take, what it proves, and what it can find."""

from __future__ import annotations

from typing import Literal

import msgspec

from envbuilder.finding import Code
from envbuilder.verdict import Tier

Profile = Literal["quick", "full"]

_IMPORT = ("import",)
_RIGHT = ("import", "matmul")
"""What trains or converges is only asked of a build whose matmul is right: one cause, one finding."""


class Group(msgspec.Struct, frozen=True):
    """Checks that share a process, and with it the import; lanes run beside each other, groups of a lane in turn."""

    name: str
    lane: Literal["main", "side"]
    env: tuple[tuple[str, str], ...] = ()


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One check: ``probe`` is ``module:function``, ``limit_s`` seconds after which it is killed.

    ``needs`` names checks without whose success this one is skipped; ``quiet`` ones run while nothing else does,
    because they are timed. ``proves`` is what a pass says; ``codes`` are the findings that it can make.
    """

    name: str
    tier: Tier
    group: str
    probe: str
    proves: str
    codes: tuple[Code, ...]
    limit_s: float = 60.0
    profile: Profile = "quick"
    flavor: Literal["any", "cpu", "gpu"] = "any"
    only_with: Literal["", "lock", "environment", "container"] = ""
    needs: tuple[str, ...] = ()
    quiet: bool = False
    arguments: tuple[tuple[str, str], ...] = ()


GROUPS: tuple[Group, ...] = (
    Group("framework", "main", (("CUDA_VISIBLE_DEVICES", "-1"),)),
    Group("static", "side"),
    Group("load", "side"),
    Group("driver", "side"),
    Group("gpu", "main"),
)

CHECKS: tuple[Check, ...] = (
    Check(
        name="import",
        tier="load",
        group="framework",
        probe="startup:import_tensorflow",
        proves="TensorFlow imports, in the version asked for; how long that takes, and in what",
        codes=(Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.GLIBC_TOO_OLD, Code.CPU_FEATURE_MISSING),
        limit_s=120,
        quiet=True,
    ),
    Check(
        name="first-op",
        tier="cpu",
        group="framework",
        probe="startup:first_op",
        proves="the first operation, matmul and traced function work on the CPU; how long each takes",
        codes=(Code.WRONG_NUMBERS,),
        needs=_IMPORT,
        quiet=True,
    ),
    Check(
        name="matmul",
        tier="cpu",
        group="framework",
        probe="numerics:matmul",
        proves="float32 matmul on the CPU agrees with float64",
        codes=(Code.WRONG_NUMBERS,),
        needs=_IMPORT,
    ),
    Check(
        name="locked",
        tier="static",
        group="static",
        probe="packages:as_locked",
        proves="the installed packages are exactly the locked ones",
        codes=(Code.LOCK_MISMATCH,),
        only_with="lock",
    ),
    Check(
        name="packages",
        tier="static",
        group="static",
        probe="packages:consistent",
        proves="every installed package's requirements are met, without asking pip",
        codes=(Code.PACKAGE_CONFLICT, Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH),
    ),
    Check(
        name="one-cuda",
        tier="static",
        group="static",
        probe="stacks:only_one",
        proves="no second CUDA or cuDNN is on the loader's path",
        codes=(Code.TWO_CUDA_STACKS,),
    ),
    Check(
        name="no-stub",
        tier="static",
        group="static",
        probe="stacks:no_stub",
        proves="the toolkit's link-time stub does not stand where the driver belongs",
        codes=(Code.STUB_LIBCUDA,),
    ),
    Check(
        name="libraries",
        tier="load",
        group="load",
        probe="libraries:opened",
        proves="every library that TensorFlow opens at run time is where it looks, and opens",
        codes=(Code.MISSING_LIBRARY, Code.LIBRARY_PATH, Code.CUDA_MISMATCH, Code.GLIBC_TOO_OLD),
        flavor="gpu",
        limit_s=180,
    ),
    Check(
        name="cuda-runtime",
        tier="load",
        group="load",
        probe="libraries:cuda_runtime",
        proves="the CUDA run time that would be loaded is of the build's major version",
        codes=(Code.CUDA_MISMATCH,),
        flavor="gpu",
    ),
    Check(
        name="cudnn",
        tier="load",
        group="load",
        probe="libraries:cudnn",
        proves="the cuDNN that would be loaded is of the build's major version and not an older minor",
        codes=(Code.CUDNN_MISMATCH,),
        flavor="gpu",
    ),
    Check(
        name="driver",
        tier="gpu",
        group="driver",
        probe="driver:identity",
        proves="the host has a driver and GPUs that this environment can use, asked of the driver itself",
        codes=(
            Code.DRIVER_TOO_OLD,
            Code.DRIVER_MISMATCH,
            Code.DRIVER_FORWARD_COMPAT,
            Code.GPU_NOT_VISIBLE,
            Code.STUB_LIBCUDA,
        ),
        flavor="gpu",
    ),
    Check(
        name="driver-and-runtime",
        tier="gpu",
        group="driver",
        probe="driver:runtime_accepts",
        proves="the CUDA run time that TensorFlow loads accepts this driver",
        codes=(Code.DRIVER_TOO_OLD, Code.DRIVER_MISMATCH, Code.GPU_NOT_VISIBLE),
        flavor="gpu",
    ),
    Check(
        name="devices",
        tier="gpu",
        group="gpu",
        probe="devices:seen_by_tensorflow",
        proves="TensorFlow sees the GPUs that the driver has",
        codes=(Code.GPU_NOT_VISIBLE,),
        flavor="gpu",
        limit_s=180,
        needs=_IMPORT,
    ),
)
"""Every check, in the order in which it is reported."""
