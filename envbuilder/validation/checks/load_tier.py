"""The load tier: TensorFlow imports, and every library that it opens at run time is there and belongs to it."""

from __future__ import annotations

from envbuilder.finding import Code
from envbuilder.validation.checks.specification import IMPORT, Check

CHECKS: tuple[Check, ...] = (
    Check(
        name="protocol",
        tier="static",
        group="protocol",
        probe="runner:main",
        proves="the run's messages are sealed, whole, in order and of the plan; none is impossible",
        codes=(Code.PROTOCOL_VIOLATION,),
    ),
    Check(
        name="import",
        tier="load",
        group="framework",
        probe="startup:import_tensorflow",
        proves="TensorFlow imports, in the version asked for; how long that takes, and in what",
        codes=(Code.NUMPY_ABI, Code.PROTOBUF_ABI, Code.KERAS_MISMATCH, Code.GLIBC_TOO_OLD, Code.CPU_FEATURE_MISSING),
        limit_s=70,
        quiet=True,
        # A tenth of what the fastest import takes on any host that was seen: no module loads a framework in that.
        at_least=(("import", 0.1),),
    ),
    Check(
        name="user-start",
        tier="load",
        group="users",
        probe="runner:main",
        proves="started by its own entrypoint, user, PATH and folder, as users do, the image computes with TensorFlow",
        codes=(Code.USER_START,),
        limit_s=150,
        only_with="container",
        needs=IMPORT,
    ),
    Check(
        name="fresh-user",
        tier="load",
        group="users",
        probe="runner:main",
        proves="so it does under a user that it does not know, on a read-only root, as Kubernetes starts it",
        codes=(Code.USER_START,),
        limit_s=150,
        profile="full",
        only_with="container",
        needs=IMPORT,
        arguments=(("user", "fresh"),),
    ),
    Check(
        name="build-info",
        tier="load",
        group="framework",
        probe="build_claims:claims",
        proves="what the build says of itself (flavour, CUDA, cuDNN, architectures) is what the catalogue says of it",
        codes=(Code.NOT_A_GPU_BUILD, Code.CUDA_MISMATCH, Code.CUDNN_MISMATCH, Code.IMAGE_CLAIM, Code.MISSING_LIBRARY),
        needs=IMPORT,
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
        codes=(Code.CUDNN_MISMATCH, Code.MISSING_LIBRARY),
        flavor="gpu",
    ),
    Check(
        name="xla-assembles",
        tier="load",
        group="load",
        probe="xlatools:assembled",
        proves="ptxas, and nvlink where it is there, turn a kernel drawn for this run into its machine code",
        codes=(Code.XLA_TOOLS_MISSING,),
        flavor="gpu",
        only_with="tools",
        limit_s=120,
    ),
)

LAST: tuple[Check, ...] = (
    Check(
        name="libraries-by-tensorflow",
        tier="load",
        group="framework",
        probe="opened:by_tensorflow",
        proves="TensorFlow's own code opens every one of its run-time libraries by name",
        codes=(Code.MISSING_LIBRARY, Code.LIBRARY_PATH),
        limit_s=180,
        flavor="gpu",
        needs=IMPORT,
    ),
    Check(
        name="library-names",
        tier="load",
        group="load-log",
        probe="opened:names_in_log",
        proves="every library that TensorFlow says it opens is one that the environment names",
        codes=(Code.IMAGE_CLAIM,),
        limit_s=300,
        profile="full",
        flavor="gpu",
        needs=IMPORT,
    ),
)
"""Made after everything else of their group: they fill the process with libraries that no other check needs."""
