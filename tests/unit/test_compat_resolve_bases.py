"""Environments on published images that bring CUDA: what stands in them is all there is, judged as `check` does."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.compat.binding import bind
from envbuilder.compat.fleet import findings_on
from envbuilder.compat.question import Question
from envbuilder.compat.resolve import resolve
from envbuilder.compat.rules import evaluate
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code, Severity
from envbuilder.image.context import templates
from envbuilder.image.lockfile import parse
from envbuilder.image.render import render_context
from envbuilder.matrix import Targets
from envbuilder.workspace import Workspace

ROOT = Path(__file__).parents[2]
CATALOG = load()
CUDA_11_0 = "nvidia/cuda:11.0.3-cudnn8-runtime-ubuntu20.04"


def on(
    image: str, tensorflow: str, targets: Targets | None = None, wish: dict[str, str] | None = None
) -> Environment | Rejection:
    """Resolve a GPU environment on a published image."""
    asked = Combination(tensorflow=tensorflow, os=image, flavor="gpu")
    asked = msgspec.structs.replace(asked, **(wish or {}))
    return resolve(asked, CATALOG, targets or Targets())


def refusal(found: Environment | Rejection) -> Code:
    """Return the code by which something was rejected."""
    assert isinstance(found, Rejection), found
    return next(row.code for row in found.findings if row.severity is Severity.ERROR)


def classic() -> tuple[Environment, ...]:
    """Resolve the matrix of releases before the CUDA wheels."""
    return choose("classic", (), Workspace(ROOT), CATALOG).environments


def test_every_classic_release_is_an_environment() -> None:
    found = {one.tensorflow: one for one in classic()}
    assert set(found) == {"1.15.5", "2.1.4", "2.2.3", "2.3.4", "2.4.4"}
    assert {version: one.cuda for version, one in found.items()} == {
        "1.15.5": "10.0",
        "2.1.4": "10.1",
        "2.2.3": "10.1",
        "2.3.4": "10.1",
        "2.4.4": "11.0",
    }
    for one in found.values():
        assert one.flavor == "gpu"
        assert one.cuda_wheels == ()
        assert one.on_registry_base is not None
        assert one.on_registry_base.brings_cuda
        lock = (ROOT / "images" / one.id / "requirements.lock").read_text()
        pinned = {package.name: package.version for package in parse(lock)}
        assert pinned[one.package] == one.tensorflow
        assert not [name for name in pinned if name.startswith("nvidia-")]
        assert all(package.hashes for package in parse(lock))


HOSTS = [
    *(("410.129", "V100"), ("418.39", "T4"), ("450.51.06", "V100"), ("450.80.02", "A100"), ("470.57.02", "P100")),
    *(("535.104.05", "H100"), ("570.124.06", "A100"), ("384.81", "P100")),
]


@pytest.mark.parametrize(("driver", "gpu"), HOSTS)
def test_plan_and_check_agree_on_a_base_that_brings_cuda(driver: str, gpu: str) -> None:
    for one in classic():
        asked = Question(
            tensorflow=one.tensorflow,
            python=one.python,
            base_image=one.os,
            install="system",
            driver=driver,
            gpus=(gpu,),
        )
        candidate = bind(asked, CATALOG).candidate
        assert candidate is not None
        said = [(row.severity, row.code, row.message) for row in evaluate(candidate, CATALOG, ("cuda",))]
        ours = [(row.severity, row.code, row.message) for row in findings_on(one, driver, (gpu,), CATALOG)]
        assert ours == said, (one.id, driver, gpu)


def test_a_base_flavour_is_refused_before_a_build() -> None:
    found = on("nvidia/cuda:11.0.3-cudnn8-base-ubuntu20.04", "2.4.4")
    assert refusal(found) is Code.MISSING_LIBRARY
    assert isinstance(found, Rejection)
    assert "libcublas.so.11" in found.sentence


def test_an_image_without_cudnn_is_refused() -> None:
    assert refusal(on("nvidia/cuda:11.0.3-runtime-ubuntu20.04", "2.4.4")) is Code.MISSING_LIBRARY


def test_a_cuda_of_other_file_names_is_refused() -> None:
    """CUDA 11.2 has no libcusolver.so.10, which 2.4 opens."""
    assert refusal(on("nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04", "2.4.4")) is Code.CUDA_MISMATCH


@pytest.mark.parametrize(
    ("wish", "code"), [({"cuda": "11.2"}, Code.CUDA_MISMATCH), ({"cudnn": "8.1"}, Code.CUDNN_MISMATCH)]
)
def test_what_the_base_does_not_bring_cannot_be_wished_for(wish: dict[str, str], code: Code) -> None:
    assert refusal(on(CUDA_11_0, "2.4.4", wish=wish)) is code


def test_what_the_base_brings_may_be_said() -> None:
    said, open_ = on(CUDA_11_0, "2.4.4", wish={"cuda": "11.0", "cudnn": "8.0"}), on(CUDA_11_0, "2.4.4")
    assert isinstance(said, Environment)
    assert isinstance(open_, Environment)
    assert said.id == open_.id


def test_a_base_that_does_not_start_on_a_target_is_refused() -> None:
    targets = Targets(drivers=("440.33.01",), gpus=("V100",))
    assert refusal(on(CUDA_11_0, "2.4.4", targets)) is Code.DRIVER_TOO_OLD
    found = on(CUDA_11_0, "2.4.4", targets)
    assert isinstance(found, Rejection)
    assert Code.CONTAINER_REQUIREMENT in {row.code for row in found.findings}


def test_an_image_of_another_registry_is_not_taken_for_the_published_one() -> None:
    assert CATALOG.system(CUDA_11_0) is not None
    assert CATALOG.system(f"registry.example.org/{CUDA_11_0}") is None


def test_a_python_that_the_system_offers_is_taken_where_its_own_does_not_fit() -> None:
    """Ubuntu 18.04's own Python is 3.6; a release that begins with 3.8 gets the 3.8 that its packages bring."""
    found = on("nvidia/cuda:11.2.1-cudnn8-runtime-ubuntu18.04", "2.11.1")
    assert isinstance(found, Environment)
    assert found.python == "3.8"
    assert found.on_registry_base is not None
    assert found.on_registry_base.python_packages == ("python3.8", "python3.8-venv")
    assert refusal(on("nvidia/cuda:11.2.1-cudnn8-runtime-ubuntu18.04", "2.11.1", wish={"python": "3.10"})) is (
        Code.PYTHON_UNSUPPORTED
    )


def test_the_dockerfile_installs_no_second_cuda() -> None:
    found = on(CUDA_11_0, "2.4.4")
    assert isinstance(found, Environment)
    files = render_context(found, "tensorflow==2.4.4 --hash=sha256:" + "0" * 64 + "\n", templates())
    text = files[f"{found.id}/Dockerfile"].decode()
    assert "install nvidia-" not in text
    assert "loader-path" not in text
    assert "NVIDIA_REQUIRE_CUDA" not in text
    assert f"ARG BASE={CUDA_11_0}\n" in text
    assert "ARG TOOLS=envbuilder/base:debian-bookworm\n" in text
    assert "sh /run/tools/prepare-base 3.8 python3 python3-venv\n" in text
    assert "USER root\n" in text


def test_a_cpu_environment_on_such_a_base_does_not_claim_its_cuda() -> None:
    found = resolve(Combination(tensorflow="2.4.4", os=CUDA_11_0), CATALOG)
    assert isinstance(found, Environment)
    assert (found.cuda, found.libraries) == (None, ())
    assert found.on_registry_base is not None
    assert not found.on_registry_base.brings_cuda


@pytest.mark.parametrize(
    ("os", "version", "cuda", "cudnn", "line"),
    [
        ("debian-bullseye-cuda", "2.11.1", "11.2", "8.7.0.84", "nvidia-cudnn-cu11"),
        ("debian-bookworm-cuda", "2.13.1", "11.8", "8.6.0.163", "nvidia-cudnn-cu11"),
        ("debian-bookworm-cuda", "2.14.1", "11.8", "8.7.0.84", "nvidia-cudnn-cu11"),
        ("debian-trixie-cuda", "2.20.0", "12.4", "9.3.0.75", "nvidia-cudnn-cu12"),
    ],
)
def test_the_distribution_s_cuda_is_judged_as_a_base_s(os: str, version: str, cuda: str, cudnn: str, line: str) -> None:
    found = on(os, version)
    assert isinstance(found, Environment)
    assert (found.cuda, found.cudnn, found.cuda_wheels, found.loader_folders) == (cuda, cudnn, (), ())
    assert found.packaged_cuda is not None
    assert found.packaged_cuda.cudnn == f"{line}=={cudnn}"
    assert found.base_system == os.removesuffix("-cuda")
    assert found.on_registry_base is None
    assert Code.XLA_TOOLS_MISSING in {row.code for row in found.findings}


@pytest.mark.parametrize(
    ("os", "version", "wish", "code"),
    [
        ("debian-bookworm-cuda", "2.15.1", {}, Code.CUDA_MISMATCH),  # opens CUDA 12
        ("debian-trixie-cuda", "2.14.1", {}, Code.PYTHON_UNSUPPORTED),
        ("debian-bookworm-cuda", "2.13.1", {"cuda": "11.2"}, Code.CUDA_MISMATCH),
        ("debian-bookworm-cuda", "2.13.1", {"cudnn": "8.1"}, Code.CUDNN_MISMATCH),  # no wheel of it
    ],
)
def test_what_the_distribution_s_cuda_does_not_serve_is_refused(
    os: str, version: str, wish: dict[str, str], code: Code
) -> None:
    assert refusal(on(os, version, wish=wish)) is code


def test_no_cuda_but_that_of_the_packages_is_chosen_unasked() -> None:
    found = resolve(Combination(tensorflow="2.13.1", flavor="gpu"), CATALOG)
    assert isinstance(found, Environment)
    assert found.packaged_cuda is None
