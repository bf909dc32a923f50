"""The negative controls, one row each, and the good environments beside them."""

from __future__ import annotations

from envbuilder.controls.control import Control, Copy, Entrypoint, Env, FromWheel, Run
from envbuilder.errors import UsageError
from envbuilder.finding import Code
from envbuilder.validation.checks import Check

_PIP = (
    "python3 -m venv /run/tools && "
    "/run/tools/bin/pip --python /opt/venv/bin/python install --no-deps --no-compile --quiet {0}"
)
_SUM = (
    "$(python3 -ISc 'import base64, hashlib, sys; print(base64.urlsafe_b64encode("
    """hashlib.sha256(open(sys.argv[1], "rb").read()).digest()).decode().rstrip("="))' """
)
"""A file's digest as RECORD writes it; the file's name and a closing bracket come behind."""

_AS_A_PACKAGE = (
    "cd {{site}} && mkdir {0}-1.0.dist-info && "
    "printf 'Metadata-Version: 2.1\\nName: {0}\\nVersion: 1.0\\n' > {0}-1.0.dist-info/METADATA && "
    "for file in {0}.* {0}-1.0.dist-info/METADATA; do "
    f"echo $file,sha256={_SUM}$file),; done > {{0}}-1.0.dist-info/RECORD && "
    "echo {0}-1.0.dist-info/RECORD,, >> {0}-1.0.dist-info/RECORD"
)
"""Make the defect a package of the lock with a RECORD of its own: what is wrong with it is what it does alone."""

_REPACKED = (
    f": {{0}}, packed anew; cd {{{{site}}}} && sum={_SUM}{{1}}) && "
    'record=$(grep -l "^{1}," *.dist-info/RECORD) && sed -i "s|^{1},sha256=[^,]*|{1},sha256=$sum|" $record'
)
"""Let the package that brings a file say that it always was as it is now, as one that was packed so would."""


def _defect(name: str) -> tuple[Copy | Run, ...]:
    """Install the file of defects under a name that says which of them it is, and let Python load it at its start."""
    return (
        Copy("envbuilder_defect.py", f"{{site}}/{name}.py"),
        Run(f"echo 'import {name}' > {{site}}/{name}.pth"),
        Run(_AS_A_PACKAGE.format(name)),
    )


_DOCUMENT = "/opt/envbuilder/environment.json"
_OLD_DRIVER = "driver=470.57.02,gpu=A100"
_CUDNN_OF_VERSION = ("libcudnn.so.9", "libcudnn_graph.so.9")
"""The parts of cuDNN 9 that are needed to ask for its version."""

_CUDNN_8_OF_VERSION = ("libcudnn.so.8", "libcudnn_ops_infer.so.8")
"""The same of cuDNN 8."""

_CUDNN_RENAMED = (
    "cd /opt/cudnn && mv nvidia_cudnn_cu11-8.6.0.163.dist-info nvidia_cudnn_cu11-8.5.0.96.dist-info && "
    "cd nvidia_cudnn_cu11-8.5.0.96.dist-info && sed -i 's/^Version: .*/Version: 8.5.0.96/' METADATA && "
    "sed -i 's/8[.]6[.]0[.]163/8.5.0.96/' RECORD && cd .. && "
    "for file in nvidia/cudnn/lib/{0} nvidia/cudnn/lib/{1} nvidia_cudnn_cu11-8.5.0.96.dist-info/METADATA; do "
    f'sum={_SUM}$file) && sed -i "s|^$file,sha256=[^,]*|$file,sha256=$sum|" *.dist-info/RECORD || exit 1; done'
)
"""Let the distribution that was laid beside the system's CUDA be the older one, with a RECORD that says so."""

_DRIVER = "driver=535.104.05,gpu=A100"

CONTROLS: tuple[Control, ...] = (
    Control(name="good-cpu", base="cpu", code=None, broken="nothing: the CPU environment as it is"),
    Control(
        name="wrong-matmul",
        base="cpu",
        code=Code.WRONG_NUMBERS,
        broken="float32 matmul computes in bfloat16",
        steps=_defect("envbuilder_defect"),
        added=(("envbuilder-defect", "1.0"),),
    ),
    Control(
        name="functions-traced-again",
        base="cpu",
        code=Code.STALLS,
        broken="each traced function is traced once more at its second call",
        steps=_defect("envbuilder_retraces"),
        added=(("envbuilder-retraces", "1.0"),),
    ),
    Control(
        name="slow-disk",
        base="cpu",
        code=Code.SLOW_PHASE,
        broken="the first import takes three times as long as the next, as from a slow disk",
        steps=_defect("envbuilder_slow_disk"),
        added=(("envbuilder-slow-disk", "1.0"),),
        warned=True,
        profile="full",
    ),
    Control(
        name="kernels-compiled-at-first-use",
        base="cpu",
        code=Code.PTX_JIT,
        broken="the first product of a first start waits and fills the kernel cache, as kernels compiled from PTX do",
        steps=_defect("envbuilder_compiles"),
        added=(("envbuilder-compiles", "1.0"),),
        warned=True,
        profile="full",
    ),
    Control(
        name="package-of-no-known-wheel",
        base="cpu",
        code=Code.UNKNOWN,
        broken="a package is locked without a hash: what its wheel holds, nobody can say",
        steps=(
            Run("echo 'VERSION = 1' > {site}/envbuilder_plain.py"),
            Run(_AS_A_PACKAGE.format("envbuilder_plain")),
        ),
        added=(("envbuilder-plain", "1.0"),),
        warned=True,
    ),
    Control(
        name="larger-than-its-budget",
        base="cpu",
        code=Code.BUDGET_EXCEEDED,
        broken="nothing in the image: the matrix allows less than it takes",
        budgets=(("size_gb", 0.1),),
    ),
    Control(
        name="file-changed",
        base="cpu",
        code=Code.FILES_DIFFER,
        broken="a module was edited after its package was installed",
        steps=(Run("echo '# edited' >> {site}/termcolor/termcolor.py"),),
    ),
    Control(
        name="document-gone",
        base="cpu",
        code=Code.IMAGE_CLAIM,
        broken="the label names an environment, and the document that says which is gone",
        steps=(Run("rm /opt/envbuilder/environment.json"),),
    ),
    Control(
        name="variable-astray",
        base="cpu",
        code=Code.IMAGE_CONFIGURATION,
        broken="a variable sends every program to certificates that are not in the image",
        steps=(Env("SSL_CERT_FILE", "/etc/ssl/nowhere.pem"),),
    ),
    Control(
        name="probe-hangs",
        base="cpu",
        code=Code.PROBE_TIMEOUT,
        broken="a check never answers",
        extra=(
            Check(
                name="control-hangs",
                level="static",
                group="static",
                probe="misbehave:hang",
                proves="nothing: it never answers",
                codes=(Code.PROBE_TIMEOUT,),
                limit_s=2.0,
            ),
        ),
    ),
    Control(
        name="probe-segfaults",
        base="cpu",
        code=Code.PROBE_CRASHED,
        broken="a check's process dies of a segmentation fault",
        extra=(
            Check(
                name="control-segfaults",
                level="static",
                group="static",
                probe="misbehave:segfault",
                proves="nothing: its process dies",
                codes=(Code.PROBE_CRASHED,),
            ),
        ),
    ),
    Control(
        name="not-as-locked",
        base="cpu",
        code=Code.LOCK_MISMATCH,
        broken="a package in another version than the lock's, still within what TensorFlow accepts",
        steps=(Run(_PIP.format("termcolor==2.2.0"), network=True),),
    ),
    Control(
        name="old-protobuf",
        base="cpu",
        code=Code.PROTOBUF_ABI,
        broken="a protobuf that is older than the code generated for this build",
        steps=(Run(_PIP.format("protobuf==4.25.8"), network=True),),
        locked=(("protobuf", "4.25.8"),),
    ),
    Control(
        name="package-too-old",
        base="cpu",
        code=Code.PACKAGE_CONFLICT,
        broken="a package that is older than TensorFlow asks for, and locked so",
        steps=(Run(_PIP.format("flatbuffers==24.3.7"), network=True),),
        locked=(("flatbuffers", "24.3.7"),),
    ),
    Control(
        name="keras-too-old",
        base="cpu",
        code=Code.KERAS_MISMATCH,
        broken="a Keras that is older than this TensorFlow goes with, and locked so",
        steps=(Run(_PIP.format("keras==3.9.2"), network=True),),
        locked=(("keras", "3.9.2"),),
    ),
    Control(
        name="newer-c-library",
        base="cpu",
        code=Code.GLIBC_TOO_OLD,
        broken="a package's shared object needs a newer C library than the system's",
        steps=(
            Run(
                "sed 's/GLIBC_2[.]14/GLIBC_2.94/g' /usr/lib/x86_64-linux-gnu/libz.so.1 > {site}/envbuilder_newer.so && "
                "grep -q GLIBC_2.94 {site}/envbuilder_newer.so"
            ),
            Run(_AS_A_PACKAGE.format("envbuilder_newer")),
        ),
        added=(("envbuilder-newer", "1.0"),),
    ),
    Control(
        name="probe-meets-an-unknown-instruction",
        base="cpu",
        code=Code.CPU_FEATURE_MISSING,
        broken="a check's process dies of an instruction that the processor does not have",
        extra=(
            Check(
                name="control-illegal",
                level="static",
                group="static",
                probe="misbehave:illegal",
                proves="nothing: its process dies",
                codes=(Code.CPU_FEATURE_MISSING,),
            ),
        ),
    ),
    Control(
        name="secret-in-layer",
        base="cpu",
        code=Code.SECRET_IN_IMAGE,
        broken="an index's password was left in the image by a build step",
        steps=(
            Run(
                "mkdir -p /root/.config/pip && printf '[global]\\nindex-url = https://builder:hunter2hunter2@"
                "packages.example.com/simple\\n' > /root/.config/pip/pip.conf && chmod -R a+rX /root"
            ),
        ),
    ),
    Control(
        name="answers-spoiled",
        base="cpu",
        code=Code.PROTOCOL_VIOLATION,
        broken="a module that Python loads at its start writes on the descriptor of a check's answers",
        steps=(
            Copy("envbuilder_forger.py", "{site}/envbuilder_forger.py"),
            Run("echo 'import envbuilder_forger' > {site}/envbuilder_forger.pth"),
            Run(_AS_A_PACKAGE.format("envbuilder_forger")),
        ),
        added=(("envbuilder-forger", "1.0"),),
    ),
    Control(
        name="entrypoint-swallows",
        base="cpu",
        code=Code.USER_START,
        broken="the image's entrypoint ends well and never runs the command",
        steps=(Entrypoint("/bin/true"),),
    ),
    Control(
        name="numpy-2",
        base="numpy-1",
        code=Code.NUMPY_ABI,
        broken="NumPy 2 under a build that was compiled for NumPy 1",
        steps=(Run(_PIP.format("numpy==2.0.2"), network=True),),
        locked=(("numpy", "2.0.2"),),
    ),
    Control(name="good-gpu", base="gpu", code=None, broken="nothing: the GPU environment as it is"),
    Control(
        name="build-without-cuda",
        base="gpu",
        code=Code.NOT_A_GPU_BUILD,
        broken="TensorFlow's build for CPUs stands where the one for GPUs belongs",
        steps=(
            Run(
                "python3 -m venv /run/tools && cd /run/tools/bin && ./pip --python /opt/venv/bin/python uninstall "
                "--quiet --yes tensorflow && ./pip --python /opt/venv/bin/python install --no-deps --no-compile "
                "--no-cache-dir --quiet tensorflow-cpu==2.20.0 && rm -r /run/tools",
                network=True,
            ),
            Run('sed -i \'s/"package": *"tensorflow"/"package": "tensorflow-cpu"/\' ' + _DOCUMENT),
            Run("sed -i '/bin.tensorboard,/d' {site}/tensorboard-*.dist-info/RECORD"),  # both bring it
        ),
        swapped=(("tensorflow", "tensorflow-cpu"),),
    ),
    Control(
        name="run-time-of-another-cuda",
        base="gpu",
        code=Code.CUDA_MISMATCH,
        broken="the run time of CUDA 11 is packed under the name of CUDA 12's",
        wheels=(
            FromWheel(
                "nvidia-cuda-runtime-cu11", "11.8.89", "nvidia/cuda_runtime/lib/libcudart.so.11.0", "libcudart.so.12"
            ),
        ),
        steps=(
            Copy("libcudart.so.12", "{site}/nvidia/cuda_runtime/lib/libcudart.so.12"),
            Run(_REPACKED.format("nvidia-cuda-runtime-cu12==12.5.82", "nvidia/cuda_runtime/lib/libcudart.so.12")),
        ),
        locked=(("nvidia-cuda-runtime-cu12", "12.5.82"),),
    ),
    Control(
        name="library-removed",
        base="gpu",
        code=Code.MISSING_LIBRARY,
        broken="a CUDA library that TensorFlow opens at run time is gone",
        steps=(Run("rm {site}/nvidia/cufft/lib/libcufft.so.11"),),
    ),
    Control(
        name="loader-untold",
        base="told-gpu",
        code=Code.LIBRARY_PATH,
        broken="a CUDA library is in a folder that the build does not look into, and the loader was not told",
        steps=(Run("rm /etc/ld.so.conf.d/cuda-wheels.conf && ldconfig"),),
    ),
    Control(
        name="profiler-shadowed",
        base="gpu",
        code=Code.MISSING_LIBRARY,
        broken="a file that is no library stands in front of CUPTI, which TensorFlow opens for its profiler alone",
        steps=(
            Run("mkdir /opt/cupti && : > /opt/cupti/libcupti.so.12"),
            Env("LD_LIBRARY_PATH", "/opt/cupti"),
        ),
    ),
    Control(
        name="cudnn-in-parts",
        base="gpu",
        code=Code.MISSING_LIBRARY,
        broken="cuDNN opens, and a part that it loads at first use is gone",
        steps=(Run("rm {site}/nvidia/cudnn/lib/libcudnn_graph.so.9"),),
    ),
    Control(
        name="older-cudnn",
        base="gpu",
        code=Code.CUDNN_MISMATCH,
        broken="an older minor of cuDNN is in front of the one that the build needs",
        wheels=tuple(
            FromWheel("nvidia-cudnn-cu12", "9.1.0.70", f"nvidia/cudnn/lib/{name}", name) for name in _CUDNN_OF_VERSION
        ),
        steps=(
            *(Copy(name, f"/opt/cudnn-9.1/{name}") for name in _CUDNN_OF_VERSION),
            Env("LD_LIBRARY_PATH", "/opt/cudnn-9.1"),
        ),
    ),
    Control(
        name="two-cuda-stacks",
        base="gpu",
        code=Code.TWO_CUDA_STACKS,
        broken="a second CUDA, of another minor version, is on the loader's path",
        wheels=(
            FromWheel(
                "nvidia-cuda-runtime-cu12", "12.4.127", "nvidia/cuda_runtime/lib/libcudart.so.12", "libcudart.so.12"
            ),
        ),
        steps=(
            Copy("libcudart.so.12", "/usr/local/cuda-12.4/lib64/libcudart.so.12"),
            Env("LD_LIBRARY_PATH", "/usr/local/cuda-12.4/lib64"),
        ),
    ),
    Control(
        name="stub-in-front",
        base="gpu",
        code=Code.STUB_LIBCUDA,
        broken="the toolkit's link-time stub is first on the loader's path",
        stub=True,
        steps=(
            Copy("libcuda.so", "/usr/local/cuda/lib64/stubs/libcuda.so"),
            Run("ln -s libcuda.so /usr/local/cuda/lib64/stubs/libcuda.so.1"),
            Env("LD_LIBRARY_PATH", "/usr/local/cuda/lib64/stubs"),
        ),
    ),
    Control(name="good-system-cuda", base="system-gpu", code=None, broken="nothing: CUDA of the system as it is"),
    Control(
        name="system-library-removed",
        base="system-gpu",
        code=Code.MISSING_LIBRARY,
        broken="one package of the system's CUDA is gone",
        steps=(Run("dpkg --purge --force-depends libcufft10 && ldconfig"),),
        unlocked=("libcufft10",),
    ),
    Control(
        name="system-package-of-another-version",
        base="system-gpu",
        code=Code.LOCK_MISMATCH,
        broken="a package of the system is of another version than the locked one",
        steps=(Run("sed -i '/^Package: libcupti11.8$/,/^$/s/^Version: .*/Version: 11.7.101/' /var/lib/dpkg/status"),),
    ),
    Control(
        name="file-of-cudnn-changed",
        base="system-gpu",
        code=Code.FILES_DIFFER,
        broken="a header of the cuDNN beside the system's CUDA is not its wheel's",
        steps=(Run("echo '// edited' >> /opt/cudnn/nvidia/cudnn/include/cudnn_version_v8.h"),),
    ),
    Control(
        name="system-and-wheels",
        base="system-gpu",
        code=Code.TWO_CUDA_STACKS,
        broken="a wheel brings a second CUDA run time, in the lock, and the loader is told of it",
        steps=(
            Run(_PIP.format("nvidia-cuda-runtime-cu11==11.7.99"), network=True),
            Run("echo {site}/nvidia/cuda_runtime/lib > /etc/ld.so.conf.d/00-wheels.conf && ldconfig"),
        ),
        added=(("nvidia-cuda-runtime-cu11", "11.7.99"),),
    ),
    Control(
        name="system-cudnn-swapped",
        base="system-gpu",
        code=Code.CUDNN_MISMATCH,
        broken="an older minor of cuDNN is in the place of the one beside the system's CUDA",
        wheels=tuple(
            FromWheel("nvidia-cudnn-cu11", "8.5.0.96", f"nvidia/cudnn/lib/{name}", name) for name in _CUDNN_8_OF_VERSION
        ),
        steps=(
            *(Copy(name, f"/opt/cudnn/nvidia/cudnn/lib/{name}") for name in _CUDNN_8_OF_VERSION),
            Run(_CUDNN_RENAMED.format(*_CUDNN_8_OF_VERSION)),
        ),
        cudnn="8.5.0.96",
    ),
    Control(
        name="no-ptxas",
        base="gpu",
        code=Code.XLA_TOOLS_MISSING,
        broken="ptxas is not where XLA looks",
        steps=(Run("rm {site}/nvidia/cuda_nvcc/bin/ptxas"),),
    ),
    Control(
        name="requirement-in-words",
        base="gpu",
        code=Code.CONTAINER_REQUIREMENT,
        broken="the image asks for a CUDA in words, and no container of it starts where there is a GPU",
        steps=(Env("NVIDIA_REQUIRE_CUDA", "cuda>=twelve"),),
    ),
    Control(
        name="good-driver",
        base="gpu",
        code=None,
        broken="nothing: a driver that serves this environment (simulated)",
        simulate=_DRIVER,
    ),
    Control(
        name="old-driver",
        base="gpu",
        code=Code.DRIVER_TOO_OLD,
        broken="the driver is older than this CUDA's minimum (simulated)",
        simulate=_OLD_DRIVER,
    ),
    Control(
        name="no-gpu",
        base="gpu",
        code=Code.GPU_NOT_VISIBLE,
        broken="the container was given no GPU (simulated)",
        simulate=f"{_DRIVER},fail=no-device",
    ),
    Control(
        name="driver-mismatch",
        base="gpu",
        code=Code.DRIVER_MISMATCH,
        broken="the driver's library and its kernel module differ (simulated)",
        simulate=f"{_DRIVER},fail=driver-mismatch",
    ),
    Control(
        name="forward-compatibility",
        base="gpu",
        code=Code.DRIVER_FORWARD_COMPAT,
        broken="a compatibility package on a GPU that it is not for (simulated)",
        simulate="driver=535.104.05,libcuda=555.42.02,gpu=GeForce RTX 3090",
    ),
    Control(
        name="gpu-too-old",
        base="gpu",
        code=Code.NO_KERNEL_IMAGE,
        broken="the build holds no code for the host's GPU (simulated)",
        simulate="driver=535.104.05,gpu=GTX 980",
    ),
    Control(
        name="generated-kernels-too-new",
        base="gpu",
        code=Code.PTX_TOO_NEW,
        broken="generated kernels hold only PTX for the host's GPU, newer than its driver compiles (simulated)",
        simulate="driver=535.104.05,gpu=H100",
    ),
    Control(
        name="gpu-damaged",
        base="gpu",
        code=Code.GPU_ERRORS,
        broken="the GPU has an uncorrectable memory error (simulated)",
        simulate=f"{_DRIVER},fail=ecc",
    ),
    Control(
        name="gpu-full",
        base="gpu",
        code=Code.GPU_MEMORY,
        broken="another program holds the GPU's memory (simulated)",
        simulate=f"{_DRIVER},fail=out-of-memory",
    ),
)
"""Every control. The good environments are among them: a suite that is red everywhere proves nothing."""


def named(names: tuple[str, ...]) -> tuple[Control, ...]:
    """Return the controls of these names in the table's order; all without names.

    Raises UsageError for a name that the table lacks.
    """
    known = {control.name for control in CONTROLS}
    for name in names:
        if name not in known:
            raise UsageError(f"there is no control {name!r}", hint="one of: " + ", ".join(c.name for c in CONTROLS))
    return tuple(control for control in CONTROLS if not names or control.name in names)
