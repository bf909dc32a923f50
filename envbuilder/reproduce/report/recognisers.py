"""The ordered table of line recognisers: one expression each; named groups are fields or conversions."""

# ruff: noqa: E501 - a row a line: the table is read across, and an expression does not get clearer by being cut.

from __future__ import annotations

import re
from dataclasses import dataclass, field

from envbuilder.reproduce.report.grammar import CUDNN, DRIVER, PYTHON, RELEASE, TOOLKIT
from envbuilder.reproduce.report.reported import Trust


@dataclass(frozen=True)
class Recogniser:
    """One pattern of a line that states a field.

    A line is tried if it contains one of ``needles`` (lower case). ``says`` are fixed values that a match implies. The
    line is skipped if it contains one of ``unless`` (lower case), a clause if it contains ``apart``. ``near`` replaces
    ``needles`` if these occur on every log line.
    """

    name: str
    trust: Trust
    needles: tuple[str, ...]
    pattern: re.Pattern[str]
    says: dict[str, str] = field(default_factory=dict)
    unless: tuple[str, ...] = ()
    near: re.Pattern[str] | None = None
    apart: str = ""


def _row(
    name: str,
    trust: Trust,
    needles: str,
    pattern: str,
    *,
    says: dict[str, str] | None = None,
    unless: str = "",
    any_case: bool = False,
    near: str = "",
    apart: str = "",
) -> Recogniser:
    flags = re.ASCII | (re.IGNORECASE if any_case else 0)
    words = tuple(unless.split("|")) if unless else ()
    found = re.compile(near, re.ASCII) if near else None
    return Recogniser(
        name, trust, tuple(needles.split("|")), re.compile(pattern, flags), says or {}, words, found, apart
    )


TAG = "tag of a wheel"
"""The recogniser for a wheel's Python version; the running version outranks it."""

_P, _L, _O, _M = Trust.PROVED, Trust.LISTED, Trust.ORDERED, Trust.MENTIONED
_LINUX = {"platform": "linux"}
_FAILED = "could not load|cannot open|dlerror|not found|importerror|no such file|trying to|tries to|looking for|needs|wants|missing|expects|unable"
_LOGGED = '.cc:|.py:|file "|driver version:|kmd version|umd version|compiled with|satisf|matching distrib|.tar.gz'
_NOT_SAID = _LOGGED

LOGS = (
    _row("opened libcudart", _P, "libcudart", r"opened (?:dynamic|CUDA) library libcudart\.so\.(?P<cuda_soname>[0-9]{1,2}(?:\.[0-9]{1,2})?)\b", says=_LINUX),
    _row("opened cuBLAS of CUDA 9 and 10", _P, "libcublas", r"opened (?:dynamic|CUDA) library libcublas\.so\.(?P<cuda>(?:[789]|10)\.[0-9])\b", says=_LINUX),
    _row("opened cuBLAS DLL", _P, "cublas64_", r"opened (?:dynamic|CUDA) library cublas64_(?P<cuda_dll>[89][0-9])\.dll", says={"platform": "windows"}),
    _row("opened libcudnn", _P, "libcudnn", r"opened (?:dynamic|CUDA) library libcudnn\.so\.(?P<cudnn>[4-9])\b", says=_LINUX),
    _row("opened cudart DLL", _P, "cudart64_", r"opened (?:dynamic|CUDA) library cudart64_(?P<cuda_dll>[0-9]{2,3})\.dll", says={"platform": "windows"}),
    _row("Windows library in a log", _P, ".dll", r"dso_loader\.cc:[0-9]{1,4}\][^\n]{0,80}\.dll", says={"platform": "windows"}),
    _row("Linux library in a log", _P, ".so", r"(?:dso_loader|cudart_stub)\.cc:[0-9]{1,4}\][^\n]{0,80}lib[a-zA-Z]{2,20}\.so", says=_LINUX),
    _row("loaded cuDNN", _P, "loaded cudnn version", r"Loaded cuDNN version (?P<cudnn_number>[0-9]{4,5})\b"),
    _row("runtime cuDNN", _P, "loaded runtime cudnn", rf"Loaded runtime CuDNN library: (?P<cudnn>{CUDNN}) "),
    _row("runtime cuDNN number", _P, "loaded runtime cudnn", r"Loaded runtime CuDNN library: (?P<cudnn_number>[0-9]{4,5}) "),
    _row("device in a log", _P, "major:|computecapability|compute capability", r"\bname: (?P<gpu>[A-Za-z][A-Za-z0-9 ./()+-]{2,60}?)(?:\s+major: (?:[0-9])\b|\s+computeCapability: (?P<capability>[0-9]{1,2}\.[0-9])|, pci bus id[^\n]{0,60}compute capability: (?P<capability_2>[0-9]{1,2}\.[0-9]))"),
    _row("device of StreamExecutor", _P, "streamexecutor device", r"StreamExecutor device \((?P<index>[0-9]{1,2})\): (?P<gpu>[A-Za-z][A-Za-z0-9 ./()+-]{2,60}), Compute Capability (?P<capability>[0-9]{1,2}\.[0-9])"),
    _row("device on a line of its own", _P, "name: ", r"^\s{0,4}name: (?P<gpu>(?:GeForce|Tesla|Quadro|TITAN|GRID|NVIDIA)[A-Za-z0-9 ./()+-]{2,40})\s*$"),
    _row("capability on a line of its own", _P, "memoryclockrate", r"^\s{0,4}major: (?P<capability_parts>[1-9][0-9]? minor: [0-9]) memoryClockRate"),
    _row("deviceQuery's versions", _P, "driver version / runtime", r"CUDA Driver Version / Runtime Version\s+(?P<driver_cuda>[0-9]{1,2}\.[0-9]) / (?P<cuda>[0-9]{1,2}\.[0-9])"),
    _row("deviceQuery's capability", _P, "major/minor version", r"CUDA Capability Major/Minor version number:\s+(?P<capability>[0-9]{1,2}\.[0-9])"),
    _row("capability in a warning", _P, "compatible with compute capability", r"compatible with compute capability (?P<capability>[0-9]{1,2}\.[0-9])"),
    _row("capability that is too low", _P, "minimum required cuda capability", r"with Cuda compute capability (?P<capability>[0-9]{1,2}\.[0-9])\. The minimum"),
    _row("kernel module's version", _P, "nvrm version", rf"NVRM version: NVIDIA UNIX [A-Za-z0-9_ ]{{0,40}}Kernel Module(?: for [a-z0-9_]{{3,10}})?\s+(?P<driver>{DRIVER})", says=_LINUX),
    _row("kernel module in a log", _L, "kernel reported version", rf"kernel reported version is: (?P<driver>{DRIVER})"),
    _row("libcuda in a log", _O, "libcuda reported version", rf"libcuda reported version is: (?P<driver>{DRIVER})"),
    _row("driver hint of cuDNN", _L, "insufficient driver version", rf"insufficient driver version: (?P<driver>{DRIVER})"),
    _row("Python's banner", _P, "python ", rf"(?:^|>|\s)Python (?P<python>{PYTHON})\S{{0,8}} (?:\||\()"),
    _row("Python's banner, system", _P, "] on ", r"\[(?:GCC|Clang|MSC)[^\n]{0,60}\] (?:::[^\n]{0,30})?on (?:(?P<lin>linux)|(?P<win>win32)|(?P<mac>darwin))"),
    _row("Python's version_info", _P, "'final'", r"\((?:major=)?(?P<python_parts>3, (?:minor=)?[0-9]{1,2}, (?:micro=)?[0-9]{1,2}), (?:releaselevel=)?'final'"),
    _row("tf.version.VERSION", _P, "version.version|__version__", rf"(?:tf\.version\.VERSION|(?:tf|tensorflow)\.__version__)\)? ?(?:=|:|is)? ?['\"]?(?P<tensorflow>{RELEASE})"),
    _row("GIT_VERSION and VERSION", _P, "-g", rf"\bv[0-9]{{1,2}}\.[0-9]{{1,3}}\.[0-9]{{1,3}}(?:-rc[0-9])?-[0-9]{{1,7}}-g?[0-9a-f]{{7,12}}['\",]{{0,2}}\s{{1,3}}['\"]?(?P<tensorflow>{RELEASE})"),
    _row("build info", _P, "cuda_version", rf"['\"]cuda_version['\"]\]?[ ,:=]{{1,4}}['\"]?(?:(?P<built_cuda>{TOOLKIT})|64_(?P<built_dll>1[01][0-9]))"),
    _row("build info, cuDNN", _P, "cudnn_version", r"['\"]cudnn_version['\"]\]?[ ,:=]{1,4}['\"]?(?P<built_cudnn>[4-9](?:\.[0-9]{1,2}){0,2})['\"]"),
)  # fmt: skip
"""Output of running programs."""

LISTINGS = (
    _row("nvidia-smi", _L, "nvidia-smi", rf"NVIDIA-SMI\s+[0-9.]{{3,12}}\s+Driver Version:\s*(?P<driver>{DRIVER})(?:\s+CUDA Version:\s*(?P<driver_cuda>[0-9]{{1,2}}\.[0-9]{{1,2}}))?"),
    _row("nvidia-smi, R610 on", _L, "kmd version", rf"KMD Version:\s*(?P<driver>{DRIVER})(?:\s+CUDA UMD Version:\s*(?P<driver_cuda>[0-9]{{1,2}}\.[0-9]{{1,2}}))?"),
    _row("nvidia-smi -q", _L, "driver version  |cuda version  ", rf"^(?:Driver Version\s{{2,40}}: (?P<driver>{DRIVER})|CUDA Version\s{{2,40}}: (?P<driver_cuda>[0-9]{{1,2}}\.[0-9]{{1,2}}))"),
    _row("nvidia-smi -L", _L, "(uuid: ", r"^\s{0,4}GPU (?P<index>[0-9]{1,2}): (?P<gpu>[A-Za-z][A-Za-z0-9 ./()+-]{2,60}) \(UUID: "),
    _row("nvidia-smi row", _L, "| ", r"^\s{0,4}\|\s{1,4}(?P<index>[0-9]{1,2})\s{1,3}(?P<gpu>[A-Z][A-Za-z0-9 ./()+-]{2,40}?)\s{1,24}(?:On|Off|N/A|TCC|WDDM|MCDM)\s{1,3}\|\s{1,4}[0-9A-F]{4,8}:"),
    _row("nvcc", _L, "compilation tools", rf"Cuda compilation tools, release (?P<cuda>{TOOLKIT})"),
    _row("version.txt", _L, "cuda version ", rf"^CUDA Version (?P<cuda>{TOOLKIT})\s{{0,3}}$"),
    _row("ldconfig, libcudart", _L, "libcudart.so", r"^\s{0,8}libcudart\.so\.(?P<cuda_soname>[0-9]{1,2}(?:\.[0-9]{1,2})?) \(libc6", says=_LINUX),
    _row("ldconfig, libcudnn", _L, "libcudnn.so", r"^\s{0,8}libcudnn\.so\.(?P<cudnn>[4-9]) \(libc6", says=_LINUX),
    _row("file of libcudart", _L, "libcudart.so", rf"(?:^|[ /])libcudart\.so\.(?P<cuda>{TOOLKIT})(?:\s|$)", says=_LINUX, unless=_FAILED),
    _row("file of libcudnn", _L, "libcudnn.so", rf"(?:^|[ /])libcudnn\.so\.(?P<cudnn>{CUDNN})(?:\s|$)", says=_LINUX, unless=_FAILED),
    _row("nvidia-cudnn package", _L, "nvidia-cudnn-cu|nvidia_cudnn_cu", rf"^\s{{0,4}}nvidia[-_]cudnn[-_]cu1[1-5](?:==|\s{{1,40}})(?P<cudnn>{CUDNN})"),
    _row("nvidia-cuda-runtime package", _L, "nvidia-cuda-runtime|nvidia_cuda_runtime", rf"^\s{{0,4}}nvidia[-_]cuda[-_]runtime(?:[-_]cu1[1-5])?(?:==|\s{{1,40}})(?P<cuda>{TOOLKIT})"),
    _row("conda cudatoolkit", _L, "cudatoolkit|cuda-cudart|cuda-toolkit", rf"^\s{{0,4}}(?:cudatoolkit|cuda-cudart|cuda-toolkit)\s{{1,40}}(?P<cuda>{TOOLKIT})\s{{1,40}}\S"),
    _row("conda cudnn", _L, "cudnn ", rf"^\s{{0,4}}cudnn\s{{1,40}}(?P<cudnn>{CUDNN})\s{{1,40}}\S"),
    _row("conda python", _L, "python ", rf"^\s{{0,4}}python\s{{1,40}}(?P<python>{PYTHON})\s{{1,40}}[0-9a-z]{{1,12}}_"),
    _row("conda tensorflow", _L, "tensorflow", rf"^\s{{0,4}}tensorflow(?:-gpu|-base)?\s{{1,40}}(?P<tensorflow>{RELEASE})\s{{1,40}}(?!pypi)(?:cuda|cpu|gpu|mkl|eigen|py|h)[0-9a-z]{{0,20}}_", says={"install": "conda"}),
    _row("pip package in conda list", _L, "tensorflow", r"^\s{0,4}tensorflow(?:-gpu|-cpu)?\s{1,40}[0-9][0-9a-z.]{2,16}\s{1,40}pypi_0", says={"install": "pip"}),
    _row("Debian cuDNN", _L, "libcudnn", rf"^(?:ii|hi)\s{{1,4}}libcudnn[0-9](?:-cuda-1[0-9])?(?::amd64)?\s{{1,40}}(?P<cudnn>{CUDNN})", says=_LINUX),
    _row("Debian toolkit", _L, "cuda-toolkit|cuda-cudart|cuda-runtime", rf"^(?:ii|hi)\s{{1,4}}cuda-(?:toolkit|cudart|runtime)-[0-9-]{{3,5}}(?::amd64)?\s{{1,40}}(?P<cuda>{TOOLKIT})", says=_LINUX),
    _row("Debian driver", _L, "nvidia-driver", rf"^(?:ii|hi)\s{{1,4}}nvidia-driver-[0-9a-z-]{{3,16}}(?::amd64)?\s{{1,40}}(?P<driver>{DRIVER})", says=_LINUX),
    _row("pip, already installed", _L, "requirement already satisfied", rf"Requirement already satisfied: tensorflow(?:-gpu|-cpu)?(?:\[[a-z,-]{{1,20}}\])?\S{{0,30}} in [^\n]{{1,200}}\((?P<tensorflow>{RELEASE})\)", says={"install": "pip"}),
    _row("pip, in the way", _L, "but you have", r"but you have (?:keras (?P<keras>[0-9][0-9.]{2,12})|numpy (?P<numpy>[0-9][0-9.]{2,12})|protobuf (?P<protobuf>[0-9][0-9.]{2,12})) which is incompatible", says={"install": "pip"}),
    _row("nvcc in a sentence", _L, "nvcc", rf"nvcc(?: --version| -V)?[`'\":]{{0,2}} ?(?:is |says |shows |gives |reports )?(?:release )?(?P<cuda>{TOOLKIT})"),
    _row("file of libcuda", _L, "libcuda.so.", rf"\blibcuda\.so\.(?P<driver>{DRIVER})", says=_LINUX),
    _row("driver's own version", _L, "version string", rf"version string \"?(?P<driver>{DRIVER})"),
    _row("os-release", _L, "pretty_name", r"PRETTY_NAME['\"]?(?:=|: )['\"]?(?P<os>[A-Za-z][A-Za-z0-9 ./()_-]{2,60})"),
    _row("path of Python, Linux", _L, "python3.|python2.", r"/(?:lib|lib64|bin)/(?:lib)?python(?P<python>[23]\.[0-9]{1,2})(?:/|\b)", says=_LINUX, unless="/users/"),
    _row("path of Python, macOS", _L, "/users/", r"/Users/[^\n]{0,200}/(?:lib|bin)/python(?P<python>[23]\.[0-9]{1,2})(?:/|\b)", says={"platform": "macos"}),
    _row("CUDA's DLL", _L, "cudart64_", r"cudart64_[0-9]{2,3}\.dll", says={"platform": "windows"}),
    _row("path of Python, Windows", _L, "python3|python2", r"[\\/]python(?P<python_digits>3[0-9]{1,2}|27)\\", says={"platform": "windows"}, any_case=True),
    _row("path, Windows", _L, ":\\|\\site-packages\\|\\anaconda3\\|\\appdata\\", r"(?:\b[a-z]:\\{1,2}[a-z]|[\w~]\\{1,2}(?:site-packages|anaconda3|miniconda3|appdata)\\)", says={"platform": "windows"}, any_case=True),
    _row("processor", _L, "x86_64|aarch64|ppc64le|arm64", r"\b(?:uname|machine|architecture|Linux|Darwin)\b[^\n]{0,160}\b(?P<arch>x86_64|aarch64|ppc64le|arm64)\b", unless=".cc:"),
)  # fmt: skip
"""Output of tools."""

ORDERS = (
    _row("TensorFlow image", _O, "tensorflow/tensorflow:", rf"(?P<image>tensorflow/tensorflow:(?P<tensorflow>{RELEASE[:RELEASE.rindex('(?![0-9A-Za-z])')]})[A-Za-z0-9.-]{{0,40}})", says={"install": "docker", "platform": "linux"}),
    _row("TensorFlow image, undated", _O, "tensorflow/tensorflow:", r"(?P<image>tensorflow/tensorflow:(?:latest|nightly|devel|custom)[a-z0-9.-]{0,40})", says={"install": "docker", "platform": "linux"}),
    _row("CUDA image", _O, "nvidia/cuda:", unless="nvidia-smi", pattern=rf"(?P<image>nvidia/cuda:(?P<cuda>{TOOLKIT})(?:-cudnn(?P<cudnn>[4-9]))?[a-z0-9.-]{{0,40}})", says={"install": "docker", "platform": "linux"}),
    _row("vendor's image", _O, "nvcr.io/nvidia/tensorflow:", r"(?P<image>nvcr\.io/nvidia/tensorflow:[0-9]{2}\.[0-9]{2}[a-z0-9.-]{0,20})", says={"install": "docker", "platform": "linux"}),
    _row("Python image", _O, "from python:", r"FROM (?P<image>python:(?P<python>[23]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)[a-z0-9.-]{0,30})", says={"install": "docker", "platform": "linux"}),
    _row("system image", _O, "from ubuntu:|from debian:", r"FROM (?P<image>(?P<os>(?:ubuntu|debian):[a-z0-9.]{3,12})[a-z0-9.-]{0,20})", says={"install": "docker", "platform": "linux"}),
    _row("wheel", _O, ".whl", rf"tensorflow(?:_gpu|_cpu)?-(?P<tensorflow>{RELEASE})-(?:cp|py)[23]", says={"install": "pip"}, unless="not a supported|skipping link|not compatible"),
    _row(TAG, _M, ".whl", rf"tensorflow(?:_gpu|_cpu)?-{RELEASE}-cp(?P<python_digits>[23][0-9]{{1,2}})-", unless="not a supported|skipping link|not compatible"),
    _row("wheel for Windows", _O, "win_amd64", r"tensorflow[a-z_]{0,6}-[0-9][0-9A-Za-z.]{2,12}-cp[0-9a-z-]{2,16}-win_amd64", says={"platform": "windows"}),
    _row("wheel that does not fit", _O, "not a supported wheel", rf"tensorflow(?:_gpu|_cpu)?-(?P<tensorflow>{RELEASE})-cp"),
    _row("wheel of another processor", _O, "_aarch64.whl", r"linux_(?P<arch>aarch64)\.whl", says=_LINUX),
    _row("Debian file of cuDNN", _O, "libcudnn", rf"libcudnn[4-9](?:-dev)?_(?P<cudnn>{CUDNN})-1\+cuda", says=_LINUX),
    _row("environment module", _O, "module load|module add|ml ", rf"\b(?:module (?:load|add)|ml)\b[^\n]{{0,120}}?\bcuda[/-]?(?P<cuda>{TOOLKIT})", any_case=True),
    _row("environment module, cuDNN", _O, "module load|module add", rf"\bmodule (?:load|add)\b[^\n]{{0,120}}?\bcudnn[/-]?(?P<cudnn>{CUDNN})", any_case=True),
    _row("pip install", _O, "pip install|pip3 install|pip2 install", rf"(?:pip[0-9.]{{0,4}}|uv) install [^\n]{{0,200}}?tensorflow(?:-gpu|-cpu|-intel)?(?:\[and-cuda\])?(?:(?:={{1,2}}|-)(?P<tensorflow>{RELEASE}))?(?![a-z0-9-])", says={"install": "pip"}, any_case=True),
    _row("conda install", _O, "conda install|mamba install|conda create|mamba create", rf"(?:conda|mamba) (?:install|create)[^\n]{{0,200}}?(?<!-n )(?<!--name )\btensorflow(?:-gpu)?(?:={{1,2}}(?P<tensorflow>{RELEASE}))?", says={"install": "conda"}, any_case=True),
    _row("conda install, CUDA", _O, "cudatoolkit=", rf"(?:conda|mamba) (?:install|create)[^\n]{{0,200}}?cudatoolkit={{1,2}}(?P<cuda>{TOOLKIT})"),
    _row("conda install, cuDNN", _O, "cudnn=", rf"(?:conda|mamba) (?:install|create)[^\n]{{0,200}}?\bcudnn={{1,2}}(?P<cudnn>{CUDNN})"),
    _row("conda install, Python", _O, "python=", rf"(?:conda|mamba) (?:install|create)[^\n]{{0,200}}?\bpython={{1,2}}(?P<python>{PYTHON})"),
    _row("apt install, cuDNN", _O, "libcudnn", rf"libcudnn[0-9](?:-cuda-1[0-9])?=(?P<cudnn>{CUDNN})"),
    _row("docker run", _O, "docker run", r"docker run [^\n]{0,300}tensorflow/", says={"install": "docker", "platform": "linux"}),
)  # fmt: skip
"""Commands and recipes."""

MENTIONS = (
    _row("prose, TensorFlow", _M, "tensorflow|tensor flow|tf", rf"(?<![\w.@-])(?<!\S/)(?:tensor ?flow(?:[-_ ]?(?:gpu|cpu|nightly))?|tf(?:[-_ ]?(?:gpu|nightly))?)(?:[ -](?:version|release))?(?: (?:is|to|at|with))?(?: ?[:=@(]{{1,2}} ?| v\.? ?|[ -]|v)?(?P<tensorflow>{RELEASE})", unless=_NOT_SAID, any_case=True, near=r"(?:tensor ?flow|tf)[a-z _-]{0,24}[ :=@(v.]{0,4}[0-3]\.[0-9]"),
    _row("prose, CUDA", _M, "cuda", rf"(?<![\w.-])(?<![A-Za-z.]/)cuda(?:[ -]?too?l?kit)?(?:[ -]version)?(?: is)?(?: ?[:=(]{{1,2}} ?| v\.? ?|[ -]|v)?(?P<cuda>{TOOLKIT})(?!\.[0-9]| driver)", unless=_NOT_SAID, apart="nvidia-smi", any_case=True, near=r"cuda[a-z -]{0,20}[ :=(v.]{0,4}[0-9]{1,2}\.[0-9]"),
    _row("prose, what the driver serves", _M, "nvidia-smi|driver", r"(?:nvidia-smi[^\n]{0,40}?(?:cuda(?: version)?)[^0-9\n]{0,12}|CUDA Version \(from nvidia-smi\): ?|cuda ?)(?P<driver_cuda>1[0-9]\.[0-9]{1,2})(?: driver)?(?![0-9.])", any_case=True, near=r"nvidia-smi[^\n]{0,40}cuda|cuda version \(from nvidia-smi|cuda ?1[0-9]\.[0-9]{1,2} driver"),
    _row("prose, cuDNN", _M, "cudnn", rf"(?<![\w.])(?<![Cc][Uu][Dd][Aa]/)(?<![Cc][Uu][Dd][Aa] / )cudnn(?: ?library)?(?:[ -]version)?(?: is)?(?: ?[:=(]{{1,2}} ?| v\.? ?|[ -]|v)?(?P<cudnn>{CUDNN})", unless=_NOT_SAID, any_case=True),
    _row("prose, cuDNN's major", _M, "cudnn", r"(?<![\w.])(?<![Cc][Uu][Dd][Aa]/)(?<![Cc][Uu][Dd][Aa] / )cudnn ?(?:version )?v?(?P<cudnn>[4-9])(?![\w.])(?!\.[0-9])", unless=_NOT_SAID, any_case=True),
    _row("prose, Python", _M, "python|py3|py 3", rf"(?<![\w./=-])(?:python|py)(?: ?version)?(?: is)?(?: ?[:=]{{1,2}} ?| v\.? ?|[ -]|v)?(?P<python>{PYTHON})(?!\.[0-9])", unless=_NOT_SAID, any_case=True, near=r"py(?:thon)?[a-z ]{0,14}[ :=v.-]{0,4}[23]\.[0-9]"),
    _row("prose, CPU build", _M, "tensorflow-cpu", r"(?<![\w./-])(?P<distribution>tensorflow-cpu)(?![\w-])", says={"build": "cpu"}, unless=_NOT_SAID),
    _row("prose, installer", _M, "pip|conda|docker", r"\b(?:from|via|using|with|through|by|for) (?:ana(?=conda))?(?P<installer>pip|conda|docker)\b(?! ?(?:install|list|freeze|show|run|-))", unless=_NOT_SAID, any_case=True),
    _row("prose, card", _M, "card|gpu|on a|on my|with a|on an|with my", r"(?:^\s{0,4}(?:graphics? card|video card|gpu)(?: model)?|\b(?:on|with) (?:an?|my|the)) (?P<gpu>[1-5]0[5-9]0(?: ?Ti| ?SUPER)?)(?![\w.])", any_case=True),
    _row("prose, Windows", _M, "on windows|windows machine|windows pc|windows system|vs2015_runtime", r"(?:\bon (?:my |an? )?(?:native |ms |microsoft )?(?P<win>windows)\b(?! ?subsystem)|(?P<win_2>windows (?:machine|pc|system)|vs2015_runtime))", any_case=True, unless="wsl"),
    _row("prose, driver's number first", _M, "driver", r"(?<![\w.])(?P<driver>[2-9][0-9]{2}\.[0-9]{1,3}(?:\.[0-9]{1,3})?) (?:nvidia )?driver", any_case=True),
    _row("capability of a device", _L, "computecapability", r"computeCapability: (?P<capability>[0-9]{1,2}\.[0-9])"),
    _row("prose, Linux", _M, "linux x86|linux-64|linux_x86|on linux", r"(?P<lin>\blinux[ _-](?:x86_64|64)\b|\bon linux\b(?! or| and))", any_case=True),
    _row("prose, kernel", _M, "linux kernel", r"\bLinux kernel (?P<lin>[2-7]\.[0-9]{1,2})", any_case=True),
    _row("prose, installed from", _M, "installed", r"tensorflow[^\n.;]{0,24} installed (?:\w+ ){0,2}?(?:from|via|using|with|through|by)(?: the)? (?:ana)?(?P<installer>conda|pip|docker|source)", any_case=True, unless=_NOT_SAID),
    _row("prose, built", _M, "from source", r"\b(?:built|compiled)\b[^\n.;]{0,60}from (?P<installer>source)\b", any_case=True, unless="unless|if you|should i"),
    _row("prose, version of TensorFlow", _M, " of tensorflow| of tf", rf"(?<![\w.])v?(?P<tensorflow>{RELEASE}) (?:version |release |build )?of (?:tensorflow|tf)\b", any_case=True, unless=_NOT_SAID),
    _row("prose, Keras", _M, "keras", r"(?<![\w./=-])keras(?:[ -]version)?(?: ?[:=] ?| v\.? ?|[ -]|v)?(?P<keras>[23]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)(?![\w.]*[0-9x])", unless=_NOT_SAID + "|<|>", any_case=True),
    _row("prose, NumPy", _M, "numpy", r"(?<![\w./=-])numpy(?:[ -]version)?(?: ?[:=] ?| v\.? ?|[ -])(?P<numpy>[0-9]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)(?![\w.]*[0-9x])", unless=_NOT_SAID + "|<|>", any_case=True),
    _row("prose, protobuf", _M, "protobuf", r"(?<![\w./=-])protobuf(?:[ -]version)?(?: ?[:=] ?| v\.? ?|[ -])(?P<protobuf>[0-9]\.[0-9]{1,2}(?:\.[0-9]{1,2})?)(?![\w.]*[0-9x])", unless=_NOT_SAID + "|<|>", any_case=True),
    _row("prose, driver", _M, "driver", r"(?<![\w./])drivers?(?:[ -]version)?(?: is)?(?: ?[:=(#] ?| v\.? ?|[ -]|v)?(?P<driver>[2-9][0-9]{2}(?:\.[0-9]{1,3}){0,2})(?![0-9.]?[0-9])", unless=_NOT_SAID.replace("driver version:|", ""), any_case=True),
)  # fmt: skip
"""Sentences of people."""

ORIGINS = (
    _row("TensorFlow.js", _L, "tfjs|tensorflow.js|@tensorflow/", r"(?:\btfjs\b|TensorFlow\.js\b|@tensorflow/tfjs)", says={"origin": "tfjs"}, any_case=True),
    _row("Jetson", _L, "jetson|jetpack|l4t|tegra|xavier|linux_aarch64.whl", r"(?:\bjetson|\bjetpack|\bl4t[-_ ]|\btegra\b|\bxavier\b|tensorflow[^\n/]{0,60}linux_aarch64\.whl)", says={"origin": "jetson"}, any_case=True),
    _row("NVIDIA's build", _L, "nvidia-tensorflow|nvidia/tensorflow:|+nv2|nvidia-pyindex|tensorflow:1|tensorflow:2", r"(?:(?<![\w/])tensorflow:[12][0-9]\.[01][0-9]-(?:tf[12]-)?py[23]|nvidia-tensorflow\b|nvcr\.io/nvidia/tensorflow:|[0-9]\+nv2[0-9]\.|nvidia-pyindex)", says={"origin": "nvidia"}),
    _row("conda's build", _L, "tensorflow", r"(?:conda-forge/tensorflow|^\s{0,4}tensorflow(?:-gpu|-base)?\s{1,40}[0-9][0-9a-z.]{2,16}\s{1,40}(?!pypi)(?:cuda|cpu|gpu|mkl|eigen|py|h)[0-9a-z]{0,20}_)", says={"origin": "conda"}),
    _row("conda's package", _O, "conda install|mamba install|conda create|mamba create", r"(?:conda|mamba) (?:install|create)[^\n]{0,200}?(?<!-n )(?<!--name )\btensorflow(?:-gpu)?\b", says={"origin": "conda"}, any_case=True),
    _row("own build", _O, "from source", r"(?:(?<!but to )(?<!than to )(?:buil[dt]|compil\w{1,4}) (?:\S{1,20} ){0,4}from source|:\s{0,4}from source\b)", says={"origin": "source"}, any_case=True),
    _row("Bazel", _M, "bazel version", r"bazel version[^\n0-9]{0,40}[0-9]{1,2}\.[0-9]", says={"origin": "source"}, any_case=True),
    _row("C library", _O, "libtensorflow-", r"libtensorflow-(?:cpu|gpu)-[a-z]", says={"origin": "library"}),
    _row("JAX", _O, "jaxlib|external/org_tensorflow", r"(?:external/org_tensorflow|jaxlib-[0-9])", says={"origin": "jax"}),
    _row("third party", _O, "tensorflow-windows-wheel|tensorflow-wheels|floydhub/|tensorflow-community-wheels", r"(?:(?:github\.com/\S{0,60}|\bfrom |\busing |\bwith |\buse |\binstalled |\.whl\S{0,20} )\S{0,20}(?:tensorflow-windows-wheel|tensorflow-(?:community-)?wheels)|floydhub/tensorflow)", says={"origin": "third-party"}),
    _row("distribution's package", _O, "tensorflow", r"(?:\b(?:python[0-9]?-)?tensorflow-(?:opt-)?(?:cuda|rocm)\b|(?:pacman|yay|emerge|nix-(?:env|shell)|zypper|spack|guix) [^\n]{0,60}tensorflow|(?:apt|apt-get|dnf|yum) install[^\n]{0,60}tensorflow|python[0-9]?Packages\.tensorflow|tensorflow[^\n]{0,60}(?:arch repos|\bAUR\b|nixpkgs))", says={"origin": "third-party"}),
    _row("DirectML", _L, "directml", r"tensorflow-directml\b|tensorflow_directml", says={"origin": "third-party"}, any_case=True),
    _row("ROCm", _L, "rocm", r"tensorflow-rocm\b|tensorflow_rocm|rocm/tensorflow", says={"origin": "third-party"}, any_case=True),
)  # fmt: skip
"""The distributor of the build if it is not the package index."""

TABLE = (*LOGS, *LISTINGS, *ORDERS, *MENTIONS, *ORIGINS)
