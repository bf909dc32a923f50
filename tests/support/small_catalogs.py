"""Small catalogues and questions for the laws: every axis has a few values, so that all of them can be tried."""

from typing import Any

from hypothesis import strategies as st

from envbuilder.catalog import rows
from envbuilder.catalog.model import Catalog
from envbuilder.environment import Combination
from envbuilder.matrix import Targets

SEEN: dict[str, Any] = {"source": ("a test",), "verified": "2026-11-20 made up"}

PYTHONS = ("3.8", "3.9", "3.10")
SYSTEMS = (
    rows.OperatingSystem(name="old", short="old", python="3.8", glibc="2.17", image="old:1", suite="old", **SEEN),
    rows.OperatingSystem(name="mid", short="mid", python="3.9", glibc="2.27", image="mid:1", suite="mid", **SEEN),
    rows.OperatingSystem(name="new", short="new", python="3.10", glibc="2.36", image="new:1", **SEEN),
)
TOOLKITS = tuple(
    rows.CudaToolkit(
        version=version,
        driver=driver,
        minimum_driver=minimum,
        first_capability=first,
        last_capability=last,
        capabilities=tuple(cap for cap in ("5.0", "7.0", "8.0", "9.0") if float(first) <= float(cap) <= float(last)),
        sonames=sonames,
        **SEEN,
    )
    for version, driver, minimum, first, last, sonames in (
        ("11.0", "450.36", "450.36", "5.0", "8.0", ("libcudart.so.11.0", "libcusolver.so.10")),
        ("11.8", "520.61", "450.80", "5.0", "9.0", ("libcudart.so.11.0", "libcusolver.so.11")),
        ("12.2", "535.54", "525.60", "7.0", "9.0", ("libcudart.so.12", "libcusolver.so.11")),
        ("12.5", "555.42", "525.60", "7.0", "9.0", ("libcudart.so.12", "libcusolver.so.11")),
    )
)
FILES = {toolkit.version: toolkit.sonames for toolkit in TOOLKITS}
CUDNNS = tuple(
    rows.Cudnn(version=version, cuda=cuda, first_capability=first, last_capability="9.0", **SEEN)
    for version, cuda, first in (
        ("8.6", ("11.0", "11.8"), "5.0"),
        ("8.9", ("11.8", "12.2", "12.5"), "5.0"),
        ("9.3", ("12.2", "12.5"), "7.0"),
        ("9.11", ("12.2", "12.5"), "8.0"),
    )
)
WHEELS = (
    rows.CudnnWheel(package="nvidia-cudnn-cu11", versions=("8.6.0.1", "8.9.1.1"), **SEEN),
    rows.CudnnWheel(package="nvidia-cudnn-cu12", versions=("8.9.2.1", "9.3.0.1", "9.11.0.1"), **SEEN),
)
BRANCHES = tuple(
    rows.DriverBranch(
        branch=branch, first=f"{branch}.1", cuda=cuda, first_capability=first, last_capability=last, **SEEN
    )
    for branch, cuda, first, last in (
        ("450", "11.0", "5.0", "8.0"),
        ("520", "11.8", "5.0", "9.0"),
        ("535", "12.2", "5.0", "9.0"),
        ("560", "12.6", "5.0", "9.0"),
        ("590", "13.1", "8.0", "9.0"),
    )
)
GPUS = tuple(
    rows.Gpu(
        name=name,
        compute_capability=capability,
        architecture="x",
        brand="tesla",
        data_center=True,
        minimum_driver=floor,
        **SEEN,
    )
    for name, capability, floor in (
        ("M1", "5.0", "340.1"),
        ("V1", "7.0", "384.1"),
        ("A1", "8.0", "450.1"),
        ("H1", "9.0", "520.1"),
    )
)
DRIVERS = ("450.90", "520.70", "535.60", "560.10", "590.10")


def _wheel_set(cuda: str, cudnn: str) -> tuple[str, ...]:
    line = f"cu{cuda.split('.', maxsplit=1)[0]}"
    return (f"nvidia-cuda-runtime-{line}=={cuda}.100", f"nvidia-cudnn-{line}=={cudnn}")


BUILDS = (
    ("11.0", "8.6", "8.6.0.1"),
    ("11.8", "8.6", "8.6.0.1"),
    ("12.2", "8.9", "8.9.2.1"),
    ("12.5", "9.3", "9.3.0.1"),
    ("12.5", "9.3", "9.11.0.1"),
)
"""CUDA and cuDNN of a build, and the cuDNN of its set of wheels: the last one serves fewer GPUs than the build."""


@st.composite
def releases(draw: st.DrawFn, version: str) -> rows.TensorflowRelease:
    """Make a release: its Pythons, glibc, CUDA, cuDNN and code are drawn; only some have CUDA wheels of their own."""
    cuda, cudnn, pinned = draw(st.sampled_from(BUILDS))
    own = draw(st.booleans())
    first = draw(st.integers(0, 2))
    return rows.TensorflowRelease(
        package="tensorflow",
        version=version,
        gpu=draw(st.booleans()) or own,
        wheels=(
            rows.WheelSet(
                arch="x86_64",
                pythons=PYTHONS[first : draw(st.integers(first + 1, 3))],
                glibc=draw(st.sampled_from(("2.12", "2.17", "2.27"))),
                tag="any",
            ),
        ),
        cuda=cuda,
        cudnn=cudnn,
        cubins=draw(st.sampled_from((("5.0", "7.0", "8.0"), ("7.0", "8.0"), ("8.0", "9.0"), ("5.0",)))),
        ptx=draw(st.sampled_from(((), ("8.0",), ("9.0",)))),
        cuda_wheels=_wheel_set(cuda, pinned) if own else (),
        libraries=(*FILES[cuda], f"libcudnn.so.{cudnn[0]}"),
        **SEEN,
    )


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    """Make a catalogue of three releases over fixed toolkits, drivers, GPUs and systems."""
    return Catalog(
        tensorflow=tuple(draw(releases(version)) for version in ("2.1.0", "2.2.0", "2.3.0")),
        cuda=TOOLKITS,
        cudnn=CUDNNS,
        cudnn_wheels=WHEELS,
        drivers=BRANCHES,
        gpus=GPUS,
        systems=SYSTEMS,
    )


combinations = st.builds(
    Combination,
    tensorflow=st.sampled_from(("2.1.0", "2.2.0", "2.3.0", "2.9.0")),
    python=st.sampled_from((None, *PYTHONS)),
    os=st.sampled_from((None, "old", "mid", "new")),
    flavor=st.sampled_from(("cpu", "gpu")),
    cuda=st.sampled_from((None, "11.0", "11.8", "12.2", "12.5")),
    cudnn=st.sampled_from((None, "8.6", "8.9", "9.3", "9.11")),
)
full_combinations = st.builds(
    Combination,
    tensorflow=st.sampled_from(("2.1.0", "2.2.0", "2.3.0")),
    python=st.sampled_from(PYTHONS),
    flavor=st.just("gpu"),
    cuda=st.sampled_from(("11.0", "11.8", "12.2", "12.5")),
    cudnn=st.sampled_from(("8.6", "8.9", "9.3", "9.11")),
)
"""Combinations that leave nothing but the system open: the ones with the most ways to be wrong."""

targets = st.builds(
    Targets,
    drivers=st.lists(st.sampled_from(DRIVERS), max_size=2, unique=True).map(tuple),
    gpus=st.lists(st.sampled_from([gpu.name for gpu in GPUS]), max_size=2, unique=True).map(tuple),
)
