"""Small catalogues and questions for the laws: every axis has a few values, so that all of them can be tried."""

import msgspec
from hypothesis import strategies as st
from msgspec.structs import replace
from table_rows import beside

from envbuilder.catalog import rows
from envbuilder.catalog.model import Catalog
from envbuilder.environment import Combination
from envbuilder.matrix import Targets

FIXED = msgspec.convert(beside(__file__), Catalog)
"""The rows that every small catalogue has: all tables but the releases."""

PYTHONS = ("3.8", "3.9", "3.10")
FILES = {toolkit.version: toolkit.sonames for toolkit in FIXED.cuda}
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
        source=("a test",),
        verified="2026-11-20 made up",
    )


@st.composite
def catalogs(draw: st.DrawFn) -> Catalog:
    """Make a catalogue of three releases over fixed toolkits, drivers, GPUs and systems."""
    return replace(FIXED, tensorflow=tuple(draw(releases(version)) for version in ("2.1.0", "2.2.0", "2.3.0")))


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
    gpus=st.lists(st.sampled_from([gpu.name for gpu in FIXED.gpus]), max_size=2, unique=True).map(tuple),
)
