"""The Dockerfiles of rebuilt environments. Every value is one plain word, or it is refused."""

from __future__ import annotations

import re

from envbuilder.image.render import with_host

_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}\Z", re.ASCII)
_REQUIREMENT = re.compile(
    r"[a-z0-9][a-z0-9._-]{0,63}(?:(?:==|>=|<=|~=|<|>|!=)[0-9][A-Za-z0-9.+*]{0,31},?){1,16}\Z", re.ASCII
)


PUBLISHED = "tensorflow/tensorflow"
"""The repository of TensorFlow's own images."""


def holds_tensorflow(image: str) -> bool:
    """Tell whether an image brings TensorFlow, because it is one of TensorFlow's own."""
    return image.partition(":")[0] == PUBLISHED


def word(text: str) -> str:
    """Return a text that is one plain word. Raises ValueError for anything else."""
    if not _WORD.match(text):
        raise ValueError(f"not fit for a Dockerfile: {text!r}")
    return text


def requirement(text: str) -> str:
    """Return a requirement in quotation marks for a shell. Raises ValueError for anything but a name and versions."""
    if not _REQUIREMENT.match(text):
        raise ValueError(f"not a requirement: {text!r}")
    return f"'{text}'"


def on_top(pins: tuple[str, ...], *, untold: bool = False) -> str:
    """Write the Dockerfile that installs what deviates over one of our images (build argument ``BASE``).

    ``untold`` takes back what our images tell the loader of CUDA wheels.
    """
    wanted = " ".join(requirement(pin) for pin in pins)
    lines = [
        "# Made by `envbuilder reproduce`: what the report has otherwise, over the environment as it should be.",
        "ARG BASE",
        "FROM ${BASE}",
        "USER root",
    ]
    if pins:
        lines += [
            "COPY tools.lock /run/tools.lock",
            f"RUN {with_host()}",
            "    python3 -m venv /run/tools && \\",
            (
                "    /run/tools/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes"
                " -r /run/tools.lock && \\"
            ),
            (
                "    /run/tools/bin/uv pip install --python /opt/venv/bin/python --no-deps --no-progress --no-cache"
                f" {wanted} && \\"
            ),
            "    rm -rf /run/tools /run/tools.lock",
        ]
    if untold:
        lines += ["RUN rm /etc/ld.so.conf.d/cuda-wheels.conf && ldconfig"]
    return "\n".join([*lines, "USER envbuilder", ""])


def on_image(image: str, tensorflow: str, pins: tuple[str, ...], caps: tuple[str, ...]) -> str:
    """Write the Dockerfile that installs a TensorFlow over a published image; '' leaves the image's own."""
    lines = ["# Made by `envbuilder reproduce`: the reported environment, on the image that brings its CUDA."]
    lines.append(f"FROM {word(image)}")
    wanted = " ".join(requirement(text) for text in (*([tensorflow] if tensorflow else []), *pins, *caps))
    if tensorflow:
        lines.append(
            f"RUN {with_host()}\n"
            "    apt-get update && apt-get install -y --no-install-recommends python3 python3-pip && \\\n"
            f"    python3 -m pip install --no-cache-dir --upgrade pip && \\\n"
            f"    python3 -m pip install --no-cache-dir {wanted}"
        )
    elif wanted:
        lines.append(f"RUN {with_host()}\n    python3 -m pip install --no-cache-dir {wanted}")
    return "\n".join([*lines, ""])
