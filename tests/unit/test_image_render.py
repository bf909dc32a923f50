"""Rendering: deterministic, complete, and closed to anything that is not one plain word."""

from typing import Any

import msgspec
import pytest
from factories import environment, gpu_environment, lock

from envbuilder.controls.control import named
from envbuilder.controls.run import dockerfile
from envbuilder.environment import Additions, Environment
from envbuilder.image import lockfile
from envbuilder.image.context import templates
from envbuilder.image.render import WITH_HOST, render_context, required_cuda
from envbuilder.reproduce import rebuild
from envbuilder.workspace import shipped

LOCK = lock(numpy="2.1.3", nvidia_cublas_cu12="12.5.3.2", tensorflow="2.20.0")
GPU, CPU = gpu_environment(), environment()


def test_choice_of_an_environment_leaves_no_trace() -> None:
    other = msgspec.structs.replace(GPU, chosen=("os", "cuda"))
    assert render_context(GPU, LOCK, templates()) == render_context(other, LOCK, templates())


def dockerfile_of(environment: Environment) -> str:
    return render_context(environment, LOCK, templates())[f"{environment.id}/Dockerfile"].decode()


def test_cpu_context_has_no_trace_of_cuda() -> None:
    files = render_context(CPU, lock(tensorflow="2.20.0"), templates())
    assert not [name for name in files if "nvidia" in name]
    assert b"nvidia" not in files[f"{CPU.id}/Dockerfile"].lower()


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({"loader_folders": ("*",)}, "loader-path '*'\n"),
        ({"loader_folders": ("cusolver", "nccl")}, "loader-path 'cusolver' 'nccl'\n"),
        ({"cuda_wheels": ("nvidia-cuda-nvrtc-cu11==11.8.89",)}, "link-library ../../cuda_nvrtc/lib/libnvrtc.so.11.2 "),
    ],
)
def test_only_an_environment_that_needs_it_has_a_step_for_the_loader(changes: dict[str, Any], step: str) -> None:
    """For folders that TensorFlow does not search, and for the name of NVRTC that cuDNN 8 for CUDA 11 opens."""
    assert f"sh /run/tools/{step}" in dockerfile_of(msgspec.structs.replace(GPU, **changes))
    assert step.split(maxsplit=1)[0] not in dockerfile_of(GPU)


def network_steps() -> dict[str, str]:
    return {
        "a control": dockerfile(named(("numpy-2",))[0], "3.11", {lockfile.LOCK: LOCK}),
        "a reproduction": rebuild.on_top(("numpy==2.0.0",)),
        "a published image": rebuild.on_image("nvidia/cuda:12.5.1-base", "tensorflow==2.20.0", (), ()),
    }


@pytest.mark.parametrize("origin", list(network_steps()))
def test_inline_step_that_reaches_the_network_gets_the_files_of_the_host(origin: str) -> None:
    text = network_steps()[origin]
    _, preamble = WITH_HOST.split(" \\\n", 1)
    assert 0 < text.count(preamble) == text.count("source=host,target=/run/host")


@pytest.mark.parametrize("environment", [GPU, CPU], ids=["gpu", "cpu"])
def test_scripts_that_reach_the_network_get_the_files_of_the_host(environment: Environment) -> None:
    steps = [line for line in dockerfile_of(environment).splitlines() if line.startswith("RUN")]
    for step in steps:
        script = shipped("templates") / "steps" / step.partition("sh /run/tools/")[2].partition(" ")[0]
        asks = script.is_file() and "host-settings" in script.read_text()
        assert asks == ("source=shared/host,target=/run/host" in step), step


@pytest.mark.parametrize(
    "evil", ["2.20.0\nRUN id", "2.20.0 && id", "$(id)", "`id`", "2.20.0\\", '2.20.0"', "", "-x", "2.20.0;id", "a\x00b"]
)
@pytest.mark.parametrize("field", ["id", "tensorflow", "python", "os"])
def test_only_a_word_enters_a_dockerfile(field: str, evil: str) -> None:
    with pytest.raises(ValueError, match="not fit for a Dockerfile"):
        render_context(msgspec.structs.replace(GPU, **{field: evil}), LOCK, templates())


def test_start_up_requirement_counts_minor_version_compatibility() -> None:
    """Since CUDA 11 any driver of the same major starts the image; before, the toolkit's own line is needed."""
    assert required_cuda("12.5") == "12.0"
    assert required_cuda("11.2") == "11.0"
    assert required_cuda("10.1") == "10.1"


@pytest.mark.parametrize("evil", ["", "a b", "$(id)", "*;id", "../x", "a\nRUN id", "**"])
def test_only_a_folder_is_put_on_the_loaders_path(evil: str) -> None:
    with pytest.raises(ValueError, match="not fit for a Dockerfile"):
        render_context(msgspec.structs.replace(GPU, loader_folders=(evil,)), LOCK, templates())


def test_certificates_of_the_matrix_are_installed_under_names_that_the_system_reads() -> None:
    added = Additions(certificates=("corp/root.pem", "ca.crt"))
    text = dockerfile_of(msgspec.structs.replace(CPU, additions=added))
    place = "/usr/local/share/ca-certificates"
    for source, target in (("corp/root.pem", "corp-root.pem.crt"), ("ca.crt", "ca.crt")):
        assert f'["sh","/run/tools/add-file","{source}","{place}/{target}"]' in text
    bundle = "/etc/ssl/certs/ca-certificates.crt"
    assert f"ENV SSL_CERT_FILE={bundle} REQUESTS_CA_BUNDLE={bundle}\n" in text
    assert text.index("add-file") < text.index("update-ca-certificates") < text.index("USER envbuilder")
    assert "certificates" not in dockerfile_of(CPU)
