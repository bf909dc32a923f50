"""Check that XLA finds and can use its tools for GPUs: ptxas, nvlink and libdevice."""

from __future__ import annotations

import mmap
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence

from . import tensorflow_install
from .elf import Elf, NotElfError
from .result import Answer, Facts, finding, judged, skipped

# tsl/platform/default/cuda_root_path.cc: the wheel of nvcc next to TensorFlow's folder, the copy of libdevice in
# TensorFlow's own wheel, then the toolkit's usual places; executables are looked up on PATH last.
USUAL = ["/usr/local/cuda"]
LIBDEVICE = os.path.join("nvvm", "libdevice", "libdevice.10.bc")


def roots(folder: str, cuda: str | None, flags: str) -> list[str]:
    """Return the folders in which XLA looks for CUDA's tools, in its order; ``flags`` are those of XLA."""
    option = "--xla_gpu_cuda_data_dir="
    found = [word[len(option) :] for word in flags.split() if word.startswith(option)]
    for base in (folder, os.path.join(folder, "python")):
        found += [os.path.join(base, up, "nvidia", "cuda_nvcc") for up in ("..", os.path.join("..", ".."))]
        found.append(os.path.join(base, "cuda"))
    if cuda and USUAL:
        found.append(USUAL[0] + "-" + ".".join(cuda.split(".")[:2]))
    found += USUAL
    return list(dict.fromkeys(os.path.normpath(path) for path in found))


def _places(facts: Facts) -> list[str]:
    folder = tensorflow_install.tensorflow_folder() or ""
    return roots(folder, facts.get("built_cuda"), os.environ.get("XLA_FLAGS", ""))


def _path() -> list[str]:
    return os.environ.get("PATH", os.defpath).split(os.pathsep)


def _runs(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.X_OK)


RELEASE = re.compile(r"release (\d+\.\d+), V([\d.]+)")
LIMIT_S = 40.0
FIX = "reinstall the nvidia-cuda-nvcc package of this CUDA"

CONSTANT = 0x4D5A1B37
"""A number in the kernel below that its machine code has too."""

KERNEL = """.version {isa}
.target sm_{target}
.address_size 64
.visible .entry kernel(.param .u64 out)
{{
 .reg .b32 %r<3>;
 .reg .b64 %rd<4>;
 ld.param.u64 %rd1, [out];
 cvta.to.global.u64 %rd2, %rd1;
 mov.u32 %r1, %tid.x;
 xor.b32 %r2, %r1, {constant};
 mul.wide.u32 %rd3, %r1, 4;
 add.s64 %rd2, %rd2, %rd3;
 st.global.u32 [%rd2], %r2;
 ret;
}}
"""


def target(cuda: str | None) -> tuple[str, int]:
    """Return the PTX version and the GPU of the kernel.

    PTX 6.3 and Turing are known to every ptxas from CUDA 10.0 to 13; before, 6.0 and Volta.
    """
    return ("6.0", 70) if cuda and int(str(cuda).split(".")[0]) < 10 else ("6.3", 75)


def assembled(facts: Facts) -> Answer:
    ptxas = tool("ptxas", _places(facts), _path(), _runs)
    if ptxas is None:
        return skipped("there is no ptxas; the check of XLA's tools reports it")
    isa, gpu = target(facts.get("built_cuda"))
    architecture = f"-arch=sm_{gpu}"
    tools = {}
    try:
        release = RELEASE.search(_output([ptxas, "--version"]))
        with tempfile.TemporaryDirectory() as folder:
            source, cubin, linked = (os.path.join(folder, name) for name in ("k.ptx", "k.cubin", "linked.cubin"))
            with open(source, "w") as stream:
                stream.write(KERNEL.format(isa=isa, target=gpu, constant=CONSTANT))
            _output([ptxas, architecture, source, "-o", cubin])
            tools["ptxas"] = problem(cubin, gpu)
            nvlink = os.path.join(os.path.dirname(ptxas), "nvlink")
            if _runs(nvlink):
                _output([ptxas, "-c", architecture, source, "-o", cubin])  # nvlink only takes relocatable code
                _output([nvlink, architecture, cubin, "-o", linked])
                tools["nvlink"] = problem(linked, gpu)
    except (OSError, subprocess.SubprocessError) as error:
        text = f"{ptxas} does not work: {str(error)[:1000]}"
        return judged([finding("XLA_TOOLS_MISSING", "ptxas", text, "ptxas", ptxas, FIX)], "ptxas assembles", text)
    if release is None:
        tools["ptxas"] = "it does not print a release of ptxas"
    wanted, wrong = "machine code of the kernel", [row for row in tools.items() if row[1]]
    findings = [finding("XLA_TOOLS_MISSING", name, f"{name}: {why}", wanted, why, FIX) for name, why in wrong]
    return judged(findings, wanted, f"{ptxas} {release and release.group(2)}; {' and '.join(tools)}")


_EM_CUDA = "190"
_FLAGS, _ABI = 48, 8
"""Where an ELF header has its flags and its ABI version."""

_NEW_ABI = 8
"""From this ABI on, which CUDA 13 writes, the GPU is in the second byte of the flags."""


def problem(path: str, gpu: int) -> str:
    """Return why a file is not the machine code of the kernel for this GPU; '' if it is."""
    try:
        with open(path, "rb") as stream:
            content = stream.read(1 << 20)
            window = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        elf = Elf(path, window)
    except (OSError, ValueError, NotElfError):
        return "its output is not an ELF file"
    flags = int.from_bytes(content[_FLAGS : _FLAGS + 4], "little")
    if elf.machine != _EM_CUDA:
        return "its output is not for a GPU"
    if (flags >> 8 if content[_ABI] >= _NEW_ABI else flags) & 0xFF != gpu:
        return "its output is for another GPU"
    offset, size = elf.sections.get(".text.kernel", (0, 0))
    has_code = struct.pack("<I", CONSTANT) in window[offset : offset + size]
    return "" if has_code else "its output has no code of the kernel"


def _output(command: Sequence[str]) -> str:
    null, pipe, output = subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT
    done = subprocess.run(command, check=False, stdin=null, stdout=pipe, stderr=output, timeout=LIMIT_S)
    printed = done.stdout[:4000].decode("utf-8", "replace")
    if done.returncode != 0:
        raise subprocess.SubprocessError(f"exit code {done.returncode}: {printed[-300:]}")
    return printed


def tool(name: str, places: Iterable[str], on_path: Iterable[str], runs: Callable[[str], bool]) -> str | None:
    """Return the program that XLA would start, None if it finds none; ``runs`` returns True for a program."""
    folders = [os.path.join(place, "bin") for place in places] + list(on_path)
    candidates = [os.path.join(folder, name) for folder in folders]
    return next((path for path in candidates if runs(path)), None)
