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
        name="build-info",
        tier="load",
        group="framework",
        probe="build:claims",
        proves="what the build says of itself (flavour, CUDA, cuDNN, GPU architectures) is what the environment names",
        codes=(Code.NOT_A_GPU_BUILD, Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.IMAGE_CLAIM),
        needs=_IMPORT,
    ),
    Check(
        name="elementary",
        tier="cpu",
        group="framework",
        probe="execution:elementary",
        proves="elementary functions, reductions, convolution, linear algebra and FFT agree with float64",
        codes=(Code.WRONG_NUMBERS,),
        limit_s=60,
        needs=_RIGHT,
    ),
    Check(
        name="execution-modes",
        tier="cpu",
        group="framework",
        probe="execution:modes",
        proves="eager, traced and graph-session execution give one answer, with one trace",
        codes=(
            Code.WRONG_NUMBERS,
            Code.STALLS,
        ),
        limit_s=60,
        needs=_RIGHT,
    ),
    Check(
        name="gradients",
        tier="cpu",
        group="framework",
        probe="execution:gradients",
        proves="automatic gradients, also second ones, are those derived by hand",
        codes=(Code.WRONG_NUMBERS,),
        limit_s=60,
        needs=_RIGHT,
    ),
    Check(
        name="mixed-precision",
        tier="cpu",
        group="framework",
        probe="execution:mixed_precision",
        proves="bfloat16 and float16 matmul are within their precision of float64",
        codes=(Code.WRONG_NUMBERS,),
        limit_s=60,
        needs=_RIGHT,
    ),
    Check(
        name="xla-cpu",
        tier="cpu",
        group="framework",
        probe="execution:xla",
        proves="XLA compiles for the CPU and agrees with the uncompiled program",
        codes=(Code.WRONG_NUMBERS,),
        limit_s=120,
        needs=_RIGHT,
    ),
    Check(
        name="operations",
        tier="cpu",
        group="framework",
        probe="execution:operations",
        proves="the operations of a whole build are registered",
        codes=(Code.PACKAGE_CONFLICT,),
        limit_s=60,
        needs=_IMPORT,
    ),
    Check(
        name="saved-model",
        tier="cpu",
        group="framework",
        probe="saving:saved_model",
        proves="a SavedModel answers as the module that was saved",
        codes=(Code.WRONG_NUMBERS,),
        limit_s=60,
        needs=_RIGHT,
    ),
    Check(
        name="checkpoint",
        tier="cpu",
        group="framework",
        probe="saving:checkpoint",
        proves="a checkpoint restores the values that were written",
        codes=(Code.WRONG_NUMBERS,),
        limit_s=60,
        needs=_RIGHT,
    ),
    Check(
        name="tflite",
        tier="cpu",
        group="framework",
        probe="saving:tflite",
        proves="conversion to TFLite works, and its interpreter gives the same answer",
        codes=(Code.WRONG_NUMBERS,),
        limit_s=120,
        needs=_RIGHT,
    ),
    Check(
        name="keras",
        tier="cpu",
        group="framework",
        probe="training:keras_fit",
        proves="Keras learns: loss falls at least tenfold on data that can be learnt",
        codes=(
            Code.WRONG_NUMBERS,
            Code.KERAS_MISMATCH,
        ),
        limit_s=120,
        needs=_RIGHT,
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
        name="closure",
        tier="static",
        group="static",
        probe="closure:complete",
        proves="every need of every shared object that packages bring is found in the loader's order",
        codes=(Code.MISSING_LIBRARY,),
        limit_s=120,
    ),
    Check(
        name="symbol-versions",
        tier="static",
        group="static",
        probe="closure:versions",
        proves="the C and C++ libraries have every symbol version that the packages need",
        codes=(Code.GLIBC_TOO_OLD,),
        limit_s=120,
    ),
    Check(
        name="xla-tools",
        tier="static",
        group="static",
        probe="xlatools:found",
        proves="ptxas and libdevice are where XLA looks for them",
        codes=(Code.XLA_TOOLS_MISSING,),
        limit_s=60,
        flavor="gpu",
    ),
    Check(
        name="claims",
        tier="static",
        group="static",
        probe="claims:labels",
        proves="labels, environment document and lock in the image say what is in it",
        codes=(Code.IMAGE_CLAIM,),
        limit_s=60,
        only_with="environment",
    ),
    Check(
        name="start-up-requirement",
        tier="static",
        group="static",
        probe="claims:requirement",
        proves="the image's start-up requirement can be read, asks for its own CUDA and is in force",
        codes=(Code.CONTAINER_REQUIREMENT,),
        limit_s=60,
        flavor="gpu",
    ),
    Check(
        name="secrets",
        tier="static",
        group="static",
        probe="secrets_left:in_files",
        proves="no credentials and no certificates of the build host are in the files or variables",
        codes=(Code.SECRET_IN_IMAGE,),
        limit_s=120,
        only_with="container",
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
