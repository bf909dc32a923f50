"""Every finding code, one row each: what it means, what causes it, what mends it, and where that is written."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Self

_RELEASE_NOTES = "https://docs.nvidia.com/cuda/cuda-toolkit-release-notes/index.html"
_COMPATIBILITY = "https://docs.nvidia.com/deploy/cuda-compatibility/"
_MINOR = "https://docs.nvidia.com/deploy/cuda-compatibility/minor-version-compatibility.html"
_FORWARD = "https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html"
_MATRIX = "https://docs.nvidia.com/datacenter/tesla/drivers/cuda-toolkit-driver-and-architecture-matrix.html"
_CUDNN = "https://docs.nvidia.com/deeplearning/cudnn/backend/latest/reference/support-matrix.html"
_TESTED = "https://www.tensorflow.org/install/source#gpu"
_PIP = "https://www.tensorflow.org/install/pip"
_PTX = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#just-in-time-compilation"
_CUBIN = "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility"
_ERRORS = "https://docs.nvidia.com/cuda/cuda-driver-api/group__CUDA__TYPES.html"
_ISA = "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#release-notes"
_TARGETS = "https://docs.nvidia.com/cuda/parallel-thread-execution/index.html#ptx-module-directives-target"
_TOOLKIT = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html"
_STATIC = "docs/suite.md#static"
_CPU = "docs/suite.md#cpu"
_ENDS = "docs/suite.md#how-a-check-ends"
_BUDGETS = "docs/suite.md#budgets"
_FACTS = "docs/catalog.md"
_MACHINES = "docs/catalog.md#machines-driver-branches-images-and-days"


class _Row(NamedTuple):
    """A code's name, what it means, what causes it, what mends it, and the sources of these statements."""

    name: str
    means: str
    cause: str
    fix: str
    sources: tuple[str, ...]


class Code(StrEnum):
    """The stable names of findings; `explain` says what each means. More may be added; none is renamed."""

    # Rules are asked, and their findings shown, in this order: first what stops earliest. A source that is a page of
    # ours is its path with its section, and the section has to name the code.

    means: str
    cause: str
    fix: str
    sources: tuple[str, ...]

    def __new__(cls, name: str, means: str, cause: str, fix: str, sources: tuple[str, ...]) -> Self:
        """Make a member that is its name, with the rest of its row beside it."""
        code = str.__new__(cls, name)
        code._value_ = name
        code.means, code.cause, code.fix, code.sources = means, cause, fix, sources
        return code

    NOT_A_GPU_BUILD = _Row(
        "NOT_A_GPU_BUILD",
        "This wheel has no GPU support.",
        "tensorflow-cpu never has; tensorflow has none in 1.13, 1.14, 1.15.2 to 1.15.5 and 2.0.x (tensorflow-gpu has), "
        "nor on aarch64, macOS, or Windows since 2.11.",
        "Install the distribution that has it; on Windows use Linux under WSL2.",
        (_PIP,),
    )
    ARCH_MISMATCH = _Row(
        "ARCH_MISMATCH",
        "It is for another machine than this host is.",
        "Some GPUs are built into one kind of machine alone: GH200, GB200, GB300, GB10 and every Jetson stand beside "
        "an Arm processor. An image holds the programs of one machine.",
        "Take an environment for that machine; none with CUDA can be made of the index's aarch64 wheels.",
        ("https://docs.nvidia.com/grace-performance-tuning-guide/index.html", _MACHINES),
    )
    NOT_INSTALLABLE = _Row(
        "NOT_INSTALLABLE",
        "No installer can resolve it.",
        "A pinned requirement is gone from the index (the extra and-cuda of 2.15.0), a distribution is a source "
        "archive that raises (tensorflow-gpu 2.12.0), no CUDA wheels were ever published for the build, or the release "
        "came after the day asked about.",
        "Take the version that the finding names, or pin the CUDA wheels without the extra.",
        ("https://github.com/NVIDIA/TensorRT/issues/2933", "https://github.com/tensorflow/tensorflow/issues/61986"),
    )
    PYTHON_UNSUPPORTED = _Row(
        "PYTHON_UNSUPPORTED",
        "There is no wheel of this TensorFlow for this Python.",
        "A wheel is built for one Python minor version; each TensorFlow release covers four or five of them. Patch "
        "releases dropped some without saying so (2.11.1 has none for 3.7). An image's Python is its system's.",
        "Take a Python that the finding names, or a TensorFlow whose wheels cover yours.",
        (_PIP, _TESTED),
    )
    GLIBC_TOO_OLD = _Row(
        "GLIBC_TOO_OLD",
        "The system's C library is older than the wheel needs, or is no glibc.",
        "A wheel's tag names the oldest glibc that loads it: manylinux2014 is 2.17, and from 2.21 wheels need 2.27. "
        "Alpine has musl, for which there is no wheel.",
        "Use a newer system as base; glibc cannot be replaced inside an old one.",
        ("https://peps.python.org/pep-0600/",),
    )
    CPU_FEATURE_MISSING = _Row(
        "CPU_FEATURE_MISSING",
        "The processor lacks instructions that the wheel was compiled for.",
        "Official wheels need AVX since 1.6. Old processors and some virtual machines do not offer it; importing ends "
        "with an illegal instruction.",
        "Give the virtual machine a CPU model with AVX, or use another processor.",
        (_PIP, "https://github.com/tensorflow/tensorflow/releases/tag/v1.6.0"),
    )
    CUDA_MISMATCH = _Row(
        "CUDA_MISMATCH",
        "The CUDA libraries are not ones that this build can load, or are older than those it was built with.",
        "TensorFlow opens libraries by file name. The number in the name is not the toolkit's: libcudart.so.11.0 is "
        "every 11.x, but libcusolver.so.10 is 10.1, 10.2 and 11.0, and from 11.1 it is libcusolver.so.11.",
        "Use the CUDA that the build names, or a newer one of the same major with the same file names.",
        (_TESTED, _RELEASE_NOTES),
    )
    CUDNN_MISMATCH = _Row(
        "CUDNN_MISMATCH",
        "This cuDNN has another major version than the build's, or an older minor.",
        "TensorFlow compares the loaded cuDNN with the one it was compiled with: the major must be equal and the minor "
        "not older; the patch is free. Base images often carry an older cuDNN than the wheel wants.",
        "Install a cuDNN of the same major with the same minor or a newer one; the pinned wheels are exact.",
        (_TESTED, _CUDNN),
    )
    LIBRARY_PATH = _Row(
        "LIBRARY_PATH",
        "The libraries are installed, and this build does not look where they are.",
        "Since 2.14 wheels look into the nvidia-* packages by the RUNPATH of the library that opens CUDA; 2.16.1 was "
        "published with these entries in another library, 2.21.0 with the one of cuSOLVER there, and older wheels "
        "never had them. One library that is not found makes TensorFlow skip every GPU. What is opened only when it is "
        "asked for is an exception: 2.14 to 2.19 do not find CUPTI in its wheel, which their profiler alone wants.",
        "Put the packages' lib folders on LD_LIBRARY_PATH before Python starts, or in a file of /etc/ld.so.conf.d: for "
        "2.21.0 site-packages/nvidia/cusolver/lib, for the profiler of 2.14 to 2.19 "
        "site-packages/nvidia/cuda_cupti/lib; for 2.16.1 take 2.16.2.",
        (
            "https://github.com/tensorflow/tensorflow/issues/63362",
            "https://github.com/tensorflow/tensorflow/issues/117538",
        ),
    )
    MISSING_LIBRARY = _Row(
        "MISSING_LIBRARY",
        "A library that this build opens at run time is not there.",
        "TensorFlow opens CUDA's libraries by name when it starts. One that is missing makes it skip every GPU, with a "
        "warning only; without CUPTI alone the profiler sees nothing of the GPU.",
        "Install what brings that file: the base image's cudnn variant, or the pinned CUDA wheels.",
        (_PIP,),
    )
    DRIVER_TOO_OLD = _Row(
        "DRIVER_TOO_OLD",
        "The driver is below the minimum of this CUDA, minor-version compatibility already counted.",
        "CUDA 11.x needs driver 450.80.02, 12.x needs 525.60.13, 13.x needs 580; before CUDA 11 every toolkit needs "
        "its own driver. A newer driver is never too new.",
        "Update the driver on the host (not in the container), or take a TensorFlow of an older CUDA.",
        (_MINOR, _RELEASE_NOTES),
    )
    DRIVER_FORWARD_COMPAT = _Row(
        "DRIVER_FORWARD_COMPAT",
        "It works only with CUDA's forward-compatibility package (cuda-compat).",
        "The package brings the user-mode half of a newer driver. It works on data-centre GPUs and on the driver "
        "branches that NVIDIA names for each toolkit; a GeForce answers with CUDA error 804.",
        "Keep cuda-compat in the image and first on the loader's path, or update the driver.",
        (_FORWARD,),
    )
    DRIVER_BRANCH = _Row(
        "DRIVER_BRANCH",
        "The driver was named by its branch alone, so the answer is about its production releases.",
        "A branch (535, R535) has many releases, betas among them; its newest is judged. Where an older production "
        "release would not do, this is a warning and names the first that does.",
        "Give the release that nvidia-smi prints.",
        ("https://docs.nvidia.com/datacenter/tesla/drivers/index.html", _MACHINES),
    )
    DRIVER_MINOR_COMPAT = _Row(
        "DRIVER_MINOR_COMPAT",
        "The driver is older than the toolkit's own, and runs it through minor-version compatibility.",
        "Within a CUDA major, programs run on any driver from the major's minimum on. What is lost: PTX made by the "
        "newer toolkit cannot be compiled by the older driver (error 222), and features that need the new driver.",
        "Nothing, where machine code exists for the GPU; otherwise update the driver to the toolkit's own.",
        (_MINOR,),
    )
    GPU_UNSUPPORTED_BY_DRIVER = _Row(
        "GPU_UNSUPPORTED_BY_DRIVER",
        "This driver branch is older than the GPU, or has dropped it.",
        "A GPU needs the branch that introduced it, or a later one. Branches after 470 have no Kepler, those after 580 "
        "no Maxwell, Pascal and Volta: the only case in which a newer driver takes something away.",
        "Install a branch that the finding names.",
        (_MATRIX,),
    )
    GPU_UNSUPPORTED_BY_CUDA = _Row(
        "GPU_UNSUPPORTED_BY_CUDA",
        "The CUDA libraries of this toolkit have no machine code for the GPU.",
        "A toolkit compiles its libraries for a range of compute capabilities: CUDA 12 dropped Kepler, CUDA 13 dropped "
        "everything before Turing; a GPU that came later is not in it. Dropped is an error; a GPU that came later runs "
        "only as far as the libraries hold PTX, slowly at first. Another vendor's GPU (AMD, Apple, Intel) is none that "
        "any CUDA knows.",
        "For an old GPU take a TensorFlow of an older CUDA; for a new one a newer toolkit of the same major.",
        (_MATRIX, _RELEASE_NOTES),
    )
    GPU_UNSUPPORTED_BY_CUDNN = _Row(
        "GPU_UNSUPPORTED_BY_CUDNN",
        "This cuDNN has no kernels for the GPU.",
        "cuDNN 9.11 and newer hold none for Maxwell, Pascal and Volta, and an unpinned tensorflow[and-cuda] takes the "
        "newest cuDNN of the major. An old cuDNN knows no GPU that came after it.",
        "Pin the cuDNN wheel to a version that the finding names.",
        (_CUDNN,),
    )
    NO_KERNEL_IMAGE = _Row(
        "NO_KERNEL_IMAGE",
        "TensorFlow's own kernels have neither machine code nor usable PTX for this GPU.",
        "Machine code runs on its own compute capability and on newer minors of the same major, never on another "
        "major. PTX can be compiled for newer GPUs, unless the driver is older than the toolkit that wrote it, or its "
        "target ends in an a: sm_90a is compiled for 9.0 alone. Each kernel is needed: the generated ones of 2.16 to "
        "2.20 hold PTX for sm_90a alone, so these releases fail on every Blackwell GPU, whatever the others hold.",
        "Take a TensorFlow that was built for this GPU, or a driver that can compile its PTX.",
        (
            _CUBIN,
            _PTX,
            _TARGETS,
            "https://github.com/tensorflow/tensorflow/issues/99592",
            "https://github.com/tensorflow/tensorflow/issues/101746",
            "https://github.com/tensorflow/tensorflow/issues/112272",
        ),
    )
    PTX_TOO_NEW = _Row(
        "PTX_TOO_NEW",
        "Generated kernels have only PTX for this GPU, of an ISA that the driver's compiler does not take.",
        "A driver compiles PTX up to the ISA of its own CUDA (535: 8.2, 550: 8.4); minor-version compatibility does "
        "not help. TensorFlow's generated kernels, most element-wise operations, hold no machine code for the newest "
        "GPUs of their time: none for 9.0 up to 2.22, none for 8.x from 2.10 to 2.15. The GPU is listed and libraries "
        "work; the first such operation ends with CUDA error 222 (unsupported PTX version).",
        "Update the driver to the one that the finding names, or take a TensorFlow whose PTX is older.",
        (_ERRORS, _MINOR, _ISA),
    )
    PTX_JIT = _Row(
        "PTX_JIT",
        "It runs, after compiling its kernels from PTX at first use, which takes minutes.",
        "The wheel holds no machine code for the GPU, only PTX of an older architecture, which the driver compiles and "
        "keeps in its cache. The cache is lost with the container, and too small by default.",
        "Set CUDA_CACHE_PATH to a volume and CUDA_CACHE_MAXSIZE=4294967296, or take a wheel built for the GPU.",
        (_PTX, "https://github.com/tensorflow/tensorflow/issues/46537"),
    )
    PTX_JIT_GENERATED = _Row(
        "PTX_JIT_GENERATED",
        "Generated kernels alone are compiled from PTX, each when it is first used.",
        "TensorFlow's generated kernels, most element-wise operations, hold no machine code for the newest GPUs of "
        "their time; all other kernels do. The driver compiles the small texts one by one and keeps them in its "
        "cache.",
        "Nothing has to be done; with CUDA_CACHE_PATH on a volume it happens once.",
        (_PTX,),
    )
    CONTAINER_REQUIREMENT = _Row(
        "CONTAINER_REQUIREMENT",
        "The image's own start-up requirement refuses this driver and GPU before anything runs.",
        "NVIDIA's images carry NVIDIA_REQUIRE_CUDA: conditions joined by commas must all hold, alternatives are "
        "separated by spaces. It refuses GeForce drivers that minor-version compatibility would serve, and images of "
        "11.5 to 12.4 admit some on which forward compatibility does not work.",
        "Update the driver, take an image of an older CUDA, or set NVIDIA_DISABLE_REQUIRE=1.",
        (_TOOLKIT,),
    )
    TWO_CUDA_STACKS = _Row(
        "TWO_CUDA_STACKS",
        "More than one CUDA or cuDNN is on the loader's path.",
        "An image with CUDA and the pip packages of CUDA, or a system CUDA beside an environment's. Which is loaded "
        "depends on LD_LIBRARY_PATH, RUNPATH and the loader's cache, in this order.",
        "Keep one: the plain package in an image with CUDA, or the pinned wheels in an image without.",
        ("https://man7.org/linux/man-pages/man8/ld.so.8.html",),
    )
    XLA_TOOLS_MISSING = _Row(
        "XLA_TOOLS_MISSING",
        "ptxas or libdevice is not where XLA looks.",
        "XLA compiles with ptxas and links libdevice.10.bc. Both are part of the compiler's package, which runtime "
        "images leave out.",
        "Install the nvidia-cuda-nvcc wheel, or point XLA_FLAGS=--xla_gpu_cuda_data_dir at a toolkit.",
        ("https://openxla.org/xla/flags_guidance", _PIP),
    )
    NUMPY_ABI = _Row(
        "NUMPY_ABI",
        "This build and this NumPy do not load together.",
        "Wheels compiled against NumPy 1, which is all before 2.18, fail under NumPy 2 (_ARRAY_API not found). Those "
        "of 1.13.1, 2.7 to 2.11 and 2.14.0 state no upper bound, so an unpinned install brings it since 2024-06-16.",
        "Pin NumPy as the finding says.",
        ("https://numpy.org/doc/stable/numpy_2_0_migration_guide.html",),
    )
    PROTOBUF_ABI = _Row(
        "PROTOBUF_ABI",
        "This build and this protobuf do not load together.",
        "Generated code has to be of protobuf's own generation: wheels up to 2.11 break with 4.x. Those up to 2.6.4, "
        "2.7.2, 2.8.1 and 2.9.0 state no upper bound, so an unpinned install brings it since 2022-05-26.",
        "Pin protobuf as the finding says.",
        ("https://protobuf.dev/support/cross-version-runtime-guarantee/",),
    )
    KERAS_MISMATCH = _Row(
        "KERAS_MISMATCH",
        "This build and this Keras do not belong together.",
        "Up to 2.15 each TensorFlow needs the Keras of its own minor version; from 2.16 it needs Keras 3, and tf-keras "
        "of its own minor version for Keras 2.",
        "Install the Keras that the finding names.",
        ("https://keras.io/getting_started/",),
    )
    API_MISMATCH = _Row(
        "API_MISMATCH",
        "The code that runs was written for another TensorFlow: a name that it uses is not in this one.",
        "TensorFlow 2 left names of TensorFlow 1 out (`Session`, `placeholder`, `contrib`), and later releases have "
        "names that older ones lack.",
        "Install the release that the code was written for, or change the code: tf_upgrade_v2 and tf.compat.v1 lead "
        "from 1 to 2.",
        ("https://www.tensorflow.org/guide/migrate",),
    )
    PACKAGE_CONFLICT = _Row(
        "PACKAGE_CONFLICT",
        "Installed packages contradict each other's requirements.",
        "Something was installed afterwards without asking the resolver, or two distributions bring the same module "
        "(tensorflow beside tensorflow-cpu).",
        "Install everything in one resolution, from a lock.",
        ("https://pip.pypa.io/en/stable/topics/dependency-resolution/",),
    )
    DRIVER_MISMATCH = _Row(
        "DRIVER_MISMATCH",
        "The driver's kernel module and its libraries are of different versions.",
        "The driver was updated without a restart, or a container holds driver libraries of its own beside those that "
        "the runtime mounts.",
        "Restart the host (or reload the module), and keep libcuda.so.1 and libnvidia-* out of images.",
        (_COMPATIBILITY, _TOOLKIT),
    )
    GPU_NOT_VISIBLE = _Row(
        "GPU_NOT_VISIBLE",
        "The driver has a GPU, and TensorFlow does not see it.",
        "A library of the CUDA set is missing or refused, CUDA_VISIBLE_DEVICES hides it, or the container was started "
        "without GPUs. A virtual GPU of the A or B series (GRID T4-1B) has no CUDA at all.",
        "Start the container with GPUs, and look at the other findings for the library.",
        (_PIP, _TOOLKIT),
    )
    STUB_LIBCUDA = _Row(
        "STUB_LIBCUDA",
        "The link-time stub of libcuda stands where the driver's library should be.",
        "The toolkit's folder lib64/stubs is on the loader's path (a devel image, LD_LIBRARY_PATH); every call into "
        "the stub fails.",
        "Take the stubs folder off LD_LIBRARY_PATH and out of ld.so.conf.",
        (_TOOLKIT,),
    )
    LOCK_MISMATCH = _Row(
        "LOCK_MISMATCH",
        "What is installed differs from the lock.",
        "A package was added, removed or changed after the locked installation, or a file was altered.",
        "Rebuild from the lock; add what is needed to the matrix instead of the running image.",
        ("https://packaging.python.org/en/latest/specifications/recording-installed-packages/", _STATIC),
    )
    IMAGE_CLAIM = _Row(
        "IMAGE_CLAIM",
        "What the image says of itself is not what it holds.",
        "Labels, environment variables or build_info name another version than is installed: often a base image that "
        "moved under its tag.",
        "Rebuild on a base named by digest.",
        ("https://github.com/opencontainers/image-spec/blob/main/annotations.md", _STATIC),
    )
    FILES_DIFFER = _Row(
        "FILES_DIFFER",
        "Files in the image are not those that its packages brought, or code is there that no package brings.",
        "Every installed file is held against its package's RECORD, and that against the RECORD of the locked wheel. A "
        "file that was swapped, cut short or deleted after the installation differs, and so does a .pth file, a "
        "sitecustomize, an editable link or a library that a later step put where Python or the loader looks.",
        "Build the image anew from its lock, and bring what it needs beside that as a package of the lock.",
        (_STATIC, "https://packaging.python.org/en/latest/specifications/recording-installed-packages/"),
    )
    IMAGE_CONFIGURATION = _Row(
        "IMAGE_CONFIGURATION",
        "The image's own configuration breaks what runs in it, or changes it for every program.",
        "Variables such as PYTHONHOME, LD_PRELOAD, KERAS_BACKEND or XLA_FLAGS, an entry point or a user that is not in "
        "the image, and a PATH that leads to another Python act before any program of yours does. Programs with "
        "another's rights, code that anybody may change, and root as the user are told as warnings.",
        "Leave the variable out of the image and set it where one program needs it; name what is in the image.",
        (_STATIC, "https://docs.docker.com/reference/dockerfile/"),
    )
    SECRET_IN_IMAGE = _Row(
        "SECRET_IN_IMAGE",
        "A credential was left in the image.",
        "A token in an environment variable, a build argument or a file such as .netrc or pip.conf stays in a layer "
        "even when a later step deletes it.",
        "Pass it as a build secret, revoke the one that leaked, and rebuild.",
        ("https://docs.docker.com/build/building/secrets/",),
    )
    WRONG_NUMBERS = _Row(
        "WRONG_NUMBERS",
        "A computation gave another result than it must.",
        "Libraries that do not fit each other, a miscompiled kernel, broken memory, or a changed API.",
        "Do not use this image; compare with the CPU result in the evidence and look at the other findings.",
        (_CPU,),
    )
    GPU_ERRORS = _Row(
        "GPU_ERRORS",
        "A GPU's error counters grew while it was being checked.",
        "Uncorrectable memory errors, or faults that the driver reports as Xid messages.",
        "Take the GPU out of service and run the vendor's diagnostics (dcgmi diag); the image is not to blame.",
        ("https://docs.nvidia.com/deploy/xid-errors/index.html",),
    )
    GPU_MEMORY = _Row(
        "GPU_MEMORY",
        "TensorFlow does not use GPU memory as it was configured to (growth, a limit, or all at once).",
        "Another process holds memory, or a variable such as TF_FORCE_GPU_ALLOW_GROWTH overrides the program.",
        "Look at nvidia-smi and at the image's variables; repeat with the GPU to yourself.",
        ("https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth",),
    )
    PROBE_CRASHED = _Row(
        "PROBE_CRASHED",
        "A check's process ended by a signal.",
        "An illegal instruction (no AVX), a segmentation fault in a library, or the memory limit.",
        "The evidence holds the signal and the last lines; look at CPU features, ABI findings and memory.",
        (_ENDS,),
    )
    PROBE_TIMEOUT = _Row(
        "PROBE_TIMEOUT",
        "A check did not end within its limit.",
        "Compiling kernels at first use, a deadlock, or a host that is too busy.",
        "Look for PTX_JIT; otherwise repeat on a quiet host.",
        (_ENDS,),
    )
    PROTOCOL_VIOLATION = _Row(
        "PROTOCOL_VIOLATION",
        "The messages of a validation are not those of an honest run: forged, doubled, lost, out of order, impossible.",
        "Something in the image answers in the suite's place or writes on its channel: a .pth file, a sitecustomize, a "
        "wrapped python; or it floods its log.",
        "Start python -I -S in the image and compare; remove what is loaded at start-up and is not the framework.",
        (_ENDS,),
    )
    USER_START = _Row(
        "USER_START",
        "Started as its users start it, the image does not compute with TensorFlow.",
        "Its entrypoint swallows the command, its PATH or working folder finds another python or module, or its user "
        "may not read the files.",
        "Run docker run IMAGE python -c 'import tensorflow' and mend the entrypoint, PATH, WORKDIR or permissions.",
        ("https://docs.docker.com/reference/dockerfile/#understand-how-cmd-and-entrypoint-interact",),
    )
    OTHER_BUILD = _Row(
        "OTHER_BUILD",
        "What printed this is not the package index's build of the release that is named.",
        "TensorFlow.js, Jetson's wheels, conda's, NVIDIA's and self-made builds open other libraries and serve other "
        "GPUs than the wheel of the same version; a second installation on the path looks alike.",
        "Ask that program for tf.version.VERSION and tf.__file__, and follow the documentation of whoever built it.",
        (_TESTED, "https://docs.nvidia.com/deeplearning/frameworks/tensorflow-release-notes/index.html"),
    )
    SLOW_PHASE = _Row(
        "SLOW_PHASE",
        "A phase of start-up takes much longer than it should.",
        "Kernels compiled at first use, a cold disk, drivers that load again for every process (no persistence mode), "
        "or an unwritable cache.",
        "The timeline says which phase; keep the kernel cache on a volume and persistence mode on.",
        ("https://docs.nvidia.com/deploy/driver-persistence/index.html", _PTX),
    )
    STALLS = _Row(
        "STALLS",
        "Steps of a loop take irregularly long.",
        "Retracing, compiling for new shapes, an input pipeline that cannot keep up, or a throttled processor.",
        "The measurements tell which: trace count, compilations, throttling. Fix shapes, prefetch, raise limits.",
        ("https://www.tensorflow.org/guide/function", "https://www.tensorflow.org/guide/data_performance"),
    )
    BUDGET_EXCEEDED = _Row(
        "BUDGET_EXCEEDED",
        "A measured size or time is above the matrix's budget.",
        "More packages, a bigger base, or a slower start than the author of the matrix allows.",
        "Look at the difference to the last verdict; raise the budget only with a reason.",
        (_BUDGETS,),
    )
    CATALOG_AGE = _Row(
        "CATALOG_AGE",
        "The catalogue is older than the day that was asked about.",
        "What was uploaded after the index was last read is not in it: newer releases, and newer packages that an "
        "unpinned installation takes. More than 90 days are a warning.",
        "Update envbuilder, or run `envbuilder catalog refresh`.",
        (_MACHINES,),
    )
    UNREVIEWED = _Row(
        "UNREVIEWED",
        "The catalogue's row of this release was made by a program, and nobody has reviewed it.",
        "`envbuilder catalog refresh` reads a new release's row from its wheels. What a wheel says of itself can be "
        "wrong, and what it needs beside its own requirements shows only when it is installed.",
        "Take the answer as a proposal; try it (`envbuilder validate`), or wait until the row is reviewed.",
        ("docs/catalog.md",),
    )
    UNKNOWN = _Row(
        "UNKNOWN",
        "The catalogue makes no claim.",
        "It has no row for something that was named, or its sources do not say.",
        "Check the spelling, run `envbuilder catalog refresh`, or validate a real image.",
        (_FACTS,),
    )
