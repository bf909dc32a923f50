"""Find the known cause of an error in what a framework raised or printed."""

from __future__ import annotations

import re

from .result import Answer, finding

# (pattern, code, meaning, fix); the first match names the cause.
CAUSES = (
    (
        r"compiled using NumPy 1\.x cannot be run in|_ARRAY_API not found"
        r"|numpy\.core\.(_multiarray_umath|umath|multiarray) failed to import|numpy\.dtype size changed"
        r"|compiled against (ABI|API) version",
        "NUMPY_ABI",
        "a compiled module was built for another NumPy than the one installed",
        "install a NumPy below 2 (numpy<2) next to this build",
    ),
    (
        r"Descriptors cannot (not )?be created directly|cannot import name 'builder' from 'google\.protobuf"
        r"|'(MessageFactory|SymbolDatabase)' object has no attribute 'GetPrototype'|runtime_version.*protobuf"
        r"|Detected incompatible Protobuf",
        "PROTOBUF_ABI",
        "the generated code does not match the installed protobuf",
        "install the protobuf that this release was made for",
    ),
    (
        r"version `?(GLIBC|GLIBCXX|CXXABI)_[0-9.]+'? not found",
        "GLIBC_TOO_OLD",
        "the system's C or C++ library is older than the wheel needs",
        "use a newer base image",
    ),
    (
        r"(?P<name>lib[\w.+-]+\.so[\w.]*): cannot open shared object file",
        "MISSING_LIBRARY",
        "a shared library that the framework is linked with is absent",
        "install the package that brings it",
    ),
    (
        r"CUDA driver version is insufficient for CUDA runtime version",
        "DRIVER_TOO_OLD",
        "the driver is older than the CUDA run time that this build loads",
        "use a newer driver, or an environment built with an older CUDA",
    ),
    (
        r"CUDA_ERROR_UNSUPPORTED_PTX_VERSION|compiled with an unsupported toolchain",
        "PTX_TOO_NEW",
        "the driver cannot compile the PTX that this build holds for the GPU",
        "use a newer driver, or a TensorFlow that was built with an older CUDA",
    ),
    (
        r"CUDA_ERROR_NO_BINARY_FOR_GPU|no kernel image is available for execution",
        "NO_KERNEL_IMAGE",
        "this build holds no code for the GPU",
        "take a TensorFlow that was built for this GPU",
    ),
    (
        r"No PTX compilation provider is available|error: libdevice not found at",
        "XLA_TOOLS_MISSING",
        "TensorFlow finds no ptxas or no libdevice to compile for the GPU with",
        "install the nvidia-cuda-nvcc wheel of this CUDA, or give XLA_FLAGS=--xla_gpu_cuda_data_dir",
    ),
    (
        r"No module named 'keras[.']|cannot import name '\w+' from 'keras|Keras cannot be imported",
        "KERAS_MISMATCH",
        "the installed Keras does not belong to this TensorFlow",
        "install the Keras that this release names in its requirements",
    ),
)


def classify(result: Answer) -> Answer:
    """Add the finding for the text of an error; a result that has a finding already does not change."""
    if result["outcome"] in ("passed", "skipped"):
        return result
    known = [found["code"] for found in result["findings"]]
    if known and known != ["PROBE_CRASHED"]:
        return result
    lines = (result.get("observed", "") + "\n" + result.get("log", "")).splitlines()
    for pattern, code, meaning, fix in CAUSES:
        found = next(filter(None, (re.search(pattern, line) for line in lines)), None)
        if found:
            subject = found.groupdict().get("name") or result.get("name", "")
            return dict(result, findings=[finding(code, subject, meaning, found=found.string.strip(), fix=fix)])
    if not known and result["outcome"] == "error":
        raised = finding("PROBE_CRASHED", result.get("name", ""), result["observed"] or "the check raised")
        return dict(result, findings=[raised])
    return result
