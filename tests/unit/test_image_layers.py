"""The steps of a Dockerfile: what they install, in which order, and how long the file is."""

import re
from pathlib import Path

import msgspec
import pytest
from factories import lock, pin, resolved
from package_folders import COMMITTED, package_folders

from envbuilder.environment import Environment
from envbuilder.image import lockfile
from envbuilder.image.context import templates
from envbuilder.image.layers import carried_out, package_layers
from envbuilder.image.render import render_context

LOCK = lock(numpy="2.1.3", nvidia_cublas_cu12="12.5.3.2", tensorflow="2.20.0")
REMOVED = {"nvidia-cublas-cu12": "nvidia-cublas-cu12==12.5.3.2\ttests\ta\t1\t1000000\tsha256=x\n"}


GPU, COMPLETE = resolved(flavor="gpu", variant="runtime"), resolved(flavor="gpu")


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
    added = msgspec.structs.replace(GPU, requirements=("tensorflow==2.20.0", "matplotlib", "numpy<3"))
    assert names(added, text)[2:] == [["numpy"], ["contourpy", "matplotlib"]]


def test_added_package_changes_no_layer_below() -> None:
    added = msgspec.structs.replace(GPU, requirements=("tensorflow==2.20.0", "scipy>=1"))
    plain, more = package_layers(GPU, LOCK), package_layers(added, LOCK + pin("scipy", "1.14.0"))
    assert more[: len(plain)] == plain


def test_devel_has_the_same_steps_and_removes_nothing() -> None:
    """A step without a list is the same text in both variants, and so the same layer."""
    texts = {}
    for one in (GPU, COMPLETE):
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
    asked = msgspec.structs.replace(GPU, requirements=("tensorflow==2.20.0", "nvidia-cublas-cu12"))
    files = render_context(asked, LOCK, templates(), packages=package_folders(asked, LOCK, REMOVED))
    assert carried_out(files, f"{asked.id}/Dockerfile") == ""


def test_wheels_of_which_nothing_is_used_are_not_installed() -> None:
    """The environment says which and why, and its Dockerfile too; the devel variant installs them."""
    assert [pin.partition("==")[0] for pin in GPU.not_installed] == ["nvidia-curand-cu12", "nvidia-nccl-cu12"]
    assert set(COMPLETE.cuda_wheels) == {*GPU.cuda_wheels, *GPU.not_installed}
    text = render_context(GPU, LOCK, templates())[f"{GPU.id}/Dockerfile"].decode()
    assert all(f"# Not installed: {pin}: {why}\n" in text for pin, why in GPU.not_installed.items())


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
