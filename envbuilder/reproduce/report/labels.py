"""The labels that issue forms, scripts and bullet lists put before a value, and the field that each is for."""

# ruff: noqa: E501 - a label's spellings stand in one row.

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

PACKAGES = ("numpy", "protobuf", "keras", "tensorboard", "h5py", "ml-dtypes", "tf-keras")
"""Python packages that forms and people name beside TensorFlow."""

LABEL = re.compile(
    r"^[\s|*_#\"'>+-]{0,12}(?P<label>[A-Za-z][A-Za-z0-9 /_.?'()-]{1,70}?)[\s*_\"'|]{0,6}(?:(?:[:=]|\||(?<=\s)-(?=\s))[\s*_|]{0,40}(?P<value>\S.{0,300})?)?$",
    re.ASCII,
)


@dataclass(frozen=True)
class Label:
    """A label that forms use, as it begins in lower case, and the field that its value is for."""

    begins: tuple[str, ...]
    field: str


LABELS = (
    Label(("tensorflow installed", "source", "install method", "installed using", "installed from", "installation"), "install"),
    Label(("tensorflow version", "tf version", "tensorflow-gpu version", "tensorflow_version", "tf_version", "tensorflow gpu version", "tensorflow", "tf.version.version", "tf"), "tensorflow"),
    Label(("python version", "python_version", "python"), "python"),
    Label(("cuda/cudnn", "cuda / cudnn", "cuda and cudnn", "cuda, cudnn"), "cuda and cudnn"),
    Label(("cuda toolkit", "cuda version", "cuda_version", "cuda runtime version", "hermetic_cuda_version", "cuda"), "cuda"),
    Label(("cudnn version", "cudnn_version", "hermetic_cudnn_version", "cudnn"), "cudnn"),
    Label(("nvidia driver", "gpu driver", "driver version", "driver_version", "graphics driver", "driver"), "driver"),
    Label(("gpu model", "gpu models", "gpu type", "gpu name", "gpus", "gpu", "graphics card", "graphic card", "device name"), "gpus"),
    Label(("os platform", "operating system", "linux distribution", "linux os distribution", "os/platform", "distribution", "os_platform", "platform", "os release", "host os", "os name", "system", "os", "ubuntu", "windows"), "os"),
    Label(("docker image", "container image", "image"), "image"),
    Label(("machine", "architecture"), "arch"),
    Label(("bazel version",), "origin"),
    Label(("compute capability", "compute_capability"), "compute_capabilities"),
)  # fmt: skip
"""Labels by field, longest beginnings first within a row; the first row that fits wins."""

BEGINNING = re.compile(
    r"(?m)^[ \t|*_#\"'>+-]{0,12}(?:tensorflow|tf|python|cuda|cudnn|nvidia|gpu|driver|graphic|os\b|os[ /_]|operating|linux|"
    r"distribution|platform|host os|system|docker|container|image|machine|architecture|compute|source|install|device name|"
    r"hermetic|bazel|installed version of cuda|" + "|".join(PACKAGES) + ")",
    re.ASCII,
)
"""Where a label may begin, searched for in lower case before anything finer is tried."""

_EXACT = {"tensorflow", "tf", "python", "cuda", "cudnn", "driver", "gpu", "gpus", "system", "os", "source", "image",
          "distribution", "platform", "machine", "architecture", "installation"}  # fmt: skip


@lru_cache(maxsize=4_096)
def field_of(label: str) -> str | None:
    """Return the field that a label is for; None where it is no label of ours."""
    words = " ".join(label.lower().replace("*", "").replace("_version", " version").split()).strip(" .?'")
    if words.startswith(("cuda", "installed version of cuda")) and "cudnn" in words:
        return "cuda and cudnn"
    for row in LABELS:
        for begins in row.begins:
            if words == begins or (begins not in _EXACT and words.startswith(begins)):
                return row.field
    return next((f"packages.{name}" for name in PACKAGES if words in {name, f"{name} version"}), None)
