"""What the index holds of CUDA and cuDNN beyond the catalogue is proposed, and nothing that it does not show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from file_index import add

from envbuilder.catalog import store
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Contradiction, CudaToolkit, Cudnn, CudnnWheel, TensorflowRelease
from envbuilder.errors import UsageError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import Client
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.refresh import new_lines, propose
from envbuilder.refresh.holdings import Holdings
from envbuilder.refresh.verify_catalog import verify

TODAY = "2026-11-21"
SOURCE: dict[str, Any] = {"source": ("a test",), "verified": "2026-11-20 by a test"}
CUDA = CudaToolkit(
    version="13.4",
    driver="615",
    minimum_driver="580.65.06",
    first_capability="7.5",
    last_capability="12.1",
    capabilities=("7.5", "12.1"),
    ptx_isa="9.4",
    forward_compat=("580",),
    sonames=("libcudart.so.13", "libcufft.so.12", "libnvJitLink.so.13"),
    **SOURCE,
)
CUDNN = Cudnn(version="9.28", cuda=("12.9", "13.4"), first_capability="7.5", last_capability="12.0", **SOURCE)
LIST = CudnnWheel(package="nvidia-cudnn-cu13", versions=("9.28.0.42",), **SOURCE)
CATALOG = Catalog(cuda=(CUDA,), cudnn=(CUDNN,), cudnn_wheels=(LIST,))
TOOLKIT = (
    "Requires-Dist: nvidia-cuda-runtime==13.5.37.*; extra == 'cudart'\n"
    "Requires-Dist: nvidia-cufft==12.5.0.14.*; extra == 'cufft'\n"
    "Requires-Dist: nvidia-nvjitlink<14,>=13.5.37; extra == 'nvjitlink'\n"
    "Requires-Dist: nvidia-other==1.*; extra == 'all'\n"
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make an index with what the catalogue has."""
    root = tmp_path / "simple"
    add(root, "nvidia-cuda-runtime", "13.4.92", {"nvidia/cu13/lib/libcudart.so.13": b""})
    add(root, "nvidia-cudnn-cu13", "9.28.0.42", {"a": b""})
    for name in propose.PACKAGES:
        add(root, name, "1.12.0", {"a": b""})  # older than what the catalogue begins with
    return root


def opened(root: Path) -> tuple[Client, Holdings]:
    """Open the index anew."""
    index = Client(IndexConfig(url=root.as_uri()), Cache(root.parent / "cache"), page_life_s=0)
    return index, Holdings(index)


def test_what_is_there_is_not_proposed(root: Path) -> None:
    """An index that holds what the catalogue holds lacks nothing, and the answer says so."""
    index, held = opened(root)
    assert new_lines.toolkits(CATALOG, held, TODAY) == ()
    assert list(new_lines.cudnn_lines(CATALOG, held, TODAY)) == []
    assert new_lines.wheel_lists(CATALOG, held, TODAY) == ()
    found = propose.refresh(propose.Proposer(CATALOG, index, TODAY), ())
    assert found.tables == {}
    assert propose.as_text(found).startswith("nothing is missing: compared were tensorflow, ")


def test_a_new_toolkit_is_read_from_the_wheels_that_it_pins(root: Path) -> None:
    """The libraries' names are the wheels' own; the driver, the PTX and the compatibility package are not known."""
    add(root, "nvidia-cuda-runtime", "13.5.37", {"nvidia/cu13/lib/libcudart.so.13": b""})
    add(root, "nvidia-cuda-runtime", "14.0.0rc1", {"nvidia/cu13/lib/libcudart.so.14": b""})
    add(
        root,
        "nvidia-cufft",
        "12.5.0.14",
        {"nvidia/cu13/lib/libcufft.so.13": b"", "nvidia/cu13/lib/libcufftw.so.13": b""},
    )
    add(root, "nvidia-nvjitlink", "13.5.37", {"nvidia/cu13/lib/libnvJitLink.so.13": b""})
    add(root, "cuda-toolkit", "13.5.0", {}, TOOLKIT)
    index, held = opened(root)
    (row,) = new_lines.toolkits(CATALOG, held, TODAY)
    assert (row.version, row.driver, row.ptx_isa, row.forward_compat) == ("13.5", None, "", ())
    assert row.sonames == ("libcudart.so.13", "libcufft.so.13", "libnvJitLink.so.13")
    assert (row.minimum_driver, row.capabilities) == (CUDA.minimum_driver, CUDA.capabilities)
    assert "not reviewed" in row.verified
    assert "13.4" in row.note
    found = propose.refresh(propose.Proposer(CATALOG, index, TODAY), ())
    assert list(found.tables) == ["cuda"]
    assert store.parse((("cuda.yaml", propose.as_text(found).encode()),)).cuda == (row,)


def test_a_new_major_is_left_to_a_person(root: Path) -> None:
    """Nothing of an older major holds for another: no row is made of guesses, and the answer says so."""
    add(root, "nvidia-cuda-runtime", "14.0.40", {"nvidia/cu14/lib/libcudart.so.14": b""})
    index, held = opened(root)
    assert new_lines.toolkits(CATALOG, held, TODAY) == ()
    found = propose.refresh(propose.Proposer(CATALOG, index, TODAY), ())
    assert propose.as_text(found).startswith("# CUDA 14.0 is the first of its major")


def test_an_index_without_a_distribution_was_not_compared_with_it(tmp_path: Path) -> None:
    """A mirror that holds no TensorFlow says nothing about its releases: that is not nothing missing."""
    add(tmp_path / "simple", "tensorflow-cpu", "1.12.0", {"a": b""})
    index, _ = opened(tmp_path / "simple")
    found = propose.refresh(propose.Proposer(CATALOG, index, TODAY), ())
    assert found.compared[0] == "tensorflow-cpu"
    assert "# tensorflow is not on the configured index" in propose.as_text(found)


def test_a_new_cudnn_says_what_its_wheels_names_say(root: Path) -> None:
    """A line's row names the majors that its wheels are for, and makes no claim about GPUs; its list grows."""
    add(root, "nvidia-cudnn-cu13", "9.29.0.10", {"a": b""})
    add(root, "nvidia-cudnn-cu13", "9.30.0.1.dev5", {"a": b""})
    _, held = opened(root)
    (row,) = new_lines.cudnn_lines(CATALOG, held, TODAY)
    assert (row.version, row.cuda, row.first_capability, row.last_capability) == ("9.29", ("13.4",), None, None)
    (wheels,) = new_lines.wheel_lists(CATALOG, held, TODAY)
    assert (wheels.versions, wheels.uploaded) == (("9.28.0.42", "9.29.0.10"), ())
    assert wheels.verified == "2026-11-21 catalog refresh"


def test_a_release_that_has_a_row_keeps_what_no_wheel_says(root: Path) -> None:
    """Its day, its bounds, its contradictions and its note stay; what the wheel says is read anew."""
    info = b"build_info = {'is_cuda_build': False}\n"
    add(root, "tensorflow", "2.20.0", {"tensorflow/python/platform/build_info.py": info}, "Requires-Python: >=3.9\n")
    known = TensorflowRelease(
        package="tensorflow",
        version="2.20.0",
        gpu=False,
        released="2025-08-13",
        requires_python=">=3.8",
        caps=("protobuf<7",),
        contradictions=(Contradiction(says="a", but="b", source="c", field="cudnn"),),
        note="a note",
        **SOURCE,
    )
    index, _ = opened(root)
    proposer = propose.Proposer(msgspec.structs.replace(CATALOG, tensorflow=(known,)), index, TODAY)
    (row,) = propose.refresh(proposer, ("2.20.0",)).proposals
    for name in ("released", "caps", "contradictions", "note"):
        assert getattr(row, name) == getattr(known, name)
    assert (row.requires_python, row.reviewed) == (">=3.9", False)


def test_of_nightly_builds_the_newest_is_read(root: Path) -> None:
    """The others are gone tomorrow; what no wheel says is taken from the release before it."""
    info = b"build_info = {'is_cuda_build': False}\n"
    for day in ("20261025", "20261026"):
        add(root, "tf-nightly", f"2.23.0.dev{day}", {"tensorflow/python/platform/build_info.py": info})
    before = TensorflowRelease(package="tensorflow", version="2.22.0", gpu=False, cpu_features=("avx",), **SOURCE)
    index, _ = opened(root)
    proposer = propose.Proposer(msgspec.structs.replace(CATALOG, tensorflow=(before,)), index, TODAY)
    (row,) = propose.refresh(proposer, (), propose.NIGHTLY).proposals
    assert (row.package, row.version, row.cpu_features) == ("tf-nightly", "2.23.0.dev20261026", ("avx",))
    with pytest.raises(UsageError, match="not a TensorFlow"):
        propose.refresh(proposer, (), "torch")


def test_a_proposed_cpu_build_agrees_with_the_wheel_that_it_is_made_from(root: Path) -> None:
    """An extra that a CPU build has all the same is recorded, so that verifying the new row finds nothing."""
    info = b"build_info = {'is_cuda_build': False}\n"
    head = (
        "Requires-Dist: numpy>=1.26\nProvides-Extra: and-cuda\n"
        "Requires-Dist: nvidia-cuda-runtime-cu12<13.0,>=12.5; extra == 'and-cuda'\n\n"
    )
    add(root, "tensorflow-cpu", "2.22.0", {"tensorflow/python/platform/build_info.py": info}, head)
    index, _ = opened(root)
    proposer = propose.Proposer(msgspec.structs.replace(CATALOG, tensorflow=()), index, TODAY)
    (row,) = propose.refresh(proposer, ("2.22.0",), "tensorflow-cpu").proposals
    assert (row.gpu, row.and_cuda, row.requires) == (False, (), ("numpy>=1.26",))
    (told,) = row.contradictions
    assert (told.field, "nvidia-cuda-runtime-cu12" in told.says) == ("and_cuda", True)
    found = verify(msgspec.structs.replace(CATALOG, tensorflow=(row,)), index, (row,))
    assert {one.outcome for one in found if one.field == "and_cuda"} == {"recorded"}
    assert "disagrees" not in {one.outcome for one in found}
