"""Rendering: deterministic, closed to anything but one plain word; what the steps install, and in which order."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import environment, gpu_environment, lock, pin, resolved
from package_folders import COMMITTED, package_folders
from table_rows import rows

from envbuilder.controls.control import named
from envbuilder.controls.run import dockerfile
from envbuilder.environment import Additions, Environment
from envbuilder.image import lockfile
from envbuilder.image.context import templates
from envbuilder.image.host_settings import WITH_HOST
from envbuilder.image.layers import carried_out, package_layers
from envbuilder.image.render import render_context, required_cuda
from envbuilder.reproduce import rebuild
from envbuilder.support.templates import shipped

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


@rows
def test_only_an_environment_that_needs_it_has_a_step_for_the_loader(changes: dict[str, Any], step: str) -> None:
    """For folders that TensorFlow does not search, and for the name of NVRTC that cuDNN 8 for CUDA 11 opens."""
    assert f"sh /run/tools/{step}" in dockerfile_of(msgspec.structs.replace(GPU, **changes))
    assert step.split(maxsplit=1)[0] not in dockerfile_of(GPU)


def network_steps() -> dict[str, str]:
    return {
        "a control": dockerfile(named(("numpy-2",))[0], "3.11", {lockfile.LOCK: LOCK}),
        "a reproduction": rebuild.dockerfile(("numpy==2.0.0",)),
        "a published image": rebuild.dockerfile((), "nvidia/cuda:12.5.1-base", "tensorflow==2.20.0"),
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


REMOVED = {"nvidia-cublas-cu12": "nvidia-cublas-cu12==12.5.3.2\ttests\ta\t1\t1000000\tsha256=x\n"}


RUNTIME, COMPLETE = resolved(flavor="gpu", variant="runtime"), resolved(flavor="gpu")


def names(environment: Environment, text: str) -> list[list[str]]:
    return [[package.name for package in lockfile.parse(layer.lock)] for layer in package_layers(environment, text)]


def test_every_pinned_package_is_in_one_layer() -> None:
    text = LOCK + pin("nvidia-nccl-cu12", "2.25.1") + pin("scipy", "1.14.0")
    added = msgspec.structs.replace(COMPLETE, requirements=("tensorflow==2.20.0", "SciPy[full]>=1,<2"))
    assert names(added, text) == [["nvidia-cublas-cu12"], ["nvidia-nccl-cu12"], ["tensorflow"], ["numpy"], ["scipy"]]


def test_layers_that_differ_between_releases_are_above_the_others() -> None:
    text = "".join(pin(*one.split("==")) for one in COMPLETE.cuda_wheels) + pin("tensorflow", "2.20.0")
    found = [one for (one,) in names(COMPLETE, text)]
    assert [name.split("-")[1] for name in found[-4:-1]] == ["curand", "cusolver", "nccl"]
    assert "nvidia-cudnn-cu12" in found[:-4]


def test_requirements_of_an_added_package_are_in_its_layer() -> None:
    text = "# added by the matrix: contourpy matplotlib\n" + LOCK
    text += pin("contourpy", "1.3.0") + pin("matplotlib", "3.9.0")
    added = msgspec.structs.replace(RUNTIME, requirements=("tensorflow==2.20.0", "matplotlib", "numpy<3"))
    assert names(added, text)[2:] == [["numpy"], ["contourpy", "matplotlib"]]


def test_added_package_changes_no_layer_below() -> None:
    added = msgspec.structs.replace(RUNTIME, requirements=("tensorflow==2.20.0", "scipy>=1"))
    plain, more = package_layers(RUNTIME, LOCK), package_layers(added, LOCK + pin("scipy", "1.14.0"))
    assert more[: len(plain)] == plain


def test_devel_has_the_same_steps_and_removes_nothing() -> None:
    """A step without a list is the same text in both variants, and so the same layer."""
    texts = {}
    for one in (RUNTIME, COMPLETE):
        packages = package_folders(one, LOCK, REMOVED)
        files = render_context(one, LOCK, templates(), packages=packages)
        texts[one.variant or "devel"] = files[f"{one.id}/Dockerfile"].decode()
        removed = carried_out(files, f"{one.id}/Dockerfile")
        assert removed == (REMOVED["nvidia-cublas-cu12"] if one.variant else "")
    runtime, devel = (
        [line.partition("target=/run/package ")[2] for line in text.splitlines() if "target=/run/package " in line]
        for text in (texts["runtime"], texts["devel"])
    )
    assert [line.replace(" --complete", "") for line in devel] == runtime
    assert devel[0] != runtime[0]
    assert devel[1:] == runtime[1:]
    assert "# cuBLAS 12.5.3.2, 9 MB\n" in texts["runtime"]
    assert "# cuBLAS 12.5.3.2, 10 MB\n" in texts["devel"]


def test_wheel_that_the_matrix_names_is_complete() -> None:
    """To keep all of a CUDA wheel, name it among the packages."""
    asked = msgspec.structs.replace(RUNTIME, requirements=("tensorflow==2.20.0", "nvidia-cublas-cu12"))
    files = render_context(asked, LOCK, templates(), packages=package_folders(asked, LOCK, REMOVED))
    assert carried_out(files, f"{asked.id}/Dockerfile") == ""


def test_wheels_of_which_nothing_is_used_are_not_installed() -> None:
    """The environment says which and why, and its Dockerfile too; the devel variant installs them."""
    assert [pin.partition("==")[0] for pin in RUNTIME.not_installed] == ["nvidia-curand-cu12", "nvidia-nccl-cu12"]
    assert set(COMPLETE.cuda_wheels) == {*RUNTIME.cuda_wheels, *RUNTIME.not_installed}
    text = render_context(RUNTIME, LOCK, templates())[f"{RUNTIME.id}/Dockerfile"].decode()
    assert all(f"# Not installed: {pin}: {why}\n" in text for pin, why in RUNTIME.not_installed.items())


DOCKERFILES = sorted(COMMITTED.glob("*/Dockerfile"))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.parent.name)
def test_committed_dockerfile_is_short(path: Path) -> None:
    """At most 80 lines, two for each library, the first with name, version and size; no Python in `-c`."""
    lines = path.read_text().splitlines()
    assert len(lines) <= 80
    assert not re.search(r"python\S* .*-c\b", path.read_text())
    steps = [number for number, line in enumerate(lines) if "target=/run/package" in line]
    for number in steps:
        assert re.match(r"# .+, \d+ MB$", lines[number - 1]), lines[number - 1]


def test_mount_points_are_made_before_any_step(tmp_path: Path) -> None:
    """What a step mounts something at exists below all steps: else an engine makes it with the time of the build."""
    for path in DOCKERFILES:
        text = path.read_text()
        head, _, steps = text.partition("AS base")
        places = set(re.findall(r"target=([^\s,]+)", steps))
        assert all(f"/rootfs{place}" in head for place in places), path


def test_images_is_small() -> None:
    files = [path for path in COMMITTED.rglob("*") if path.is_file()]
    assert len(files) <= 500
    assert sum(path.read_bytes().count(b"\n") for path in files) <= 60_000


def test_each_committed_pin_has_one_hash() -> None:
    for path in COMMITTED.rglob("*.lock"):
        if path.name in {"requirements.lock", "cudnn.lock"}:
            assert all(len(package.hashes) == 1 for package in lockfile.parse(path.read_text())), path
