"""The list of what an image lacks: read, parted between layers, added up, and rendered into a context."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Flavor
from envbuilder.errors import InputError, decode
from envbuilder.image import lockfile, omissions
from envbuilder.image.context import templates
from envbuilder.image.omissions import Cut, LeftOut, OfDistribution, Omissions, Omitted
from envbuilder.image.parts import parts
from envbuilder.image.render import render_context

LOCK = "".join(
    f"{name}=={version} \\\n    --hash=sha256:{'0' * 64}\n"
    for name, version in (("numpy", "2.1.3"), ("nvidia-cublas-cu12", "12.5.3.2"), ("tensorflow", "2.20.0"))
)


def environment(flavor: Flavor) -> Environment:
    """Resolve the environment of a flavour."""
    found = resolve(Combination(tensorflow="2.20.0", os="debian-bookworm", flavor=flavor), load())
    assert isinstance(found, Environment)
    return found


CPU, GPU = environment("cpu"), environment("gpu")
CUBLAS = OfDistribution(
    "nvidia-cublas-cu12", "12.5.3.2", (LeftOut("nvidia/cublas/include/", 6, 500, "d", "compilers"),)
)
OWN = OfDistribution(
    "tensorflow",
    "2.20.0",
    (LeftOut("tensorflow/include/", 9, 1000, "d", "compilers"),),
    (Cut("tensorflow/libtensorflow_cc.so.2", 900, "a", 700, "b", "symbols"),),
)
LISTED = Omissions(lock="sha256:1", distributions=(CUBLAS, OWN))
TEXT = omissions.write(LISTED)


def slim(whole: Environment) -> Environment:
    """Return an environment in the form that leaves out what it can."""
    return msgspec.structs.replace(whole, form="runtime")


def test_a_list_is_read_as_it_was_written() -> None:
    """Writing and reading give the same; sums count files and bytes by reason."""
    assert omissions.parse(TEXT) == LISTED
    assert LISTED.sums() == (Omitted("compilers", 15, 1500), Omitted("symbols", 1, 200))
    assert LISTED.of("tensorflow", "2.20.0") == OWN
    assert LISTED.of("tensorflow", "2.20.1") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lock": 1}', '{"distributions": [{"name": "a"}]}'])
def test_what_is_no_list_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    """Damage is an error that names the file; nothing is left out by half a list."""
    with pytest.raises(decode.DamagedError):
        omissions.parse(text)
    (tmp_path / omissions.OMISSIONS).write_text(text)
    with pytest.raises(InputError, match=r"omissions\.json"):
        omissions.of_context(tmp_path)


def test_each_layer_is_made_with_its_own_part() -> None:
    """What the CUDA layer leaves out depends on the CUDA wheels alone, so that releases share it; no part is lost."""
    files = render_context(slim(GPU), LOCK, templates(), left_out=TEXT)
    names = [f"{part.name}-omissions.json" for part in parts(slim(GPU), LOCK)]
    listed = [omissions.parse(files[name].decode()).distributions for name in names]
    assert (names[0], listed) == ("cuda-omissions.json", [(CUBLAS,), (OWN,), ()])
    other = omissions.write(msgspec.structs.replace(LISTED, lock="sha256:2", distributions=(CUBLAS,)))
    assert render_context(slim(GPU), LOCK, templates(), left_out=other)[names[0]] == files[names[0]]


def test_every_pinned_package_is_in_one_layer() -> None:
    """The parts of a lock are the lock: CUDA, TensorFlow with its NCCL, what they require, and last what is added."""
    more = (
        "nvidia-nccl-cu12==2.23.4 \\\n    --hash=sha256:"
        + "0" * 64
        + "\nscipy==1.14.0 \\\n    --hash=sha256:"
        + "0" * 64
    )
    lock = LOCK + more + "\n"
    added = msgspec.structs.replace(slim(GPU), requirements=("tensorflow==2.20.0", "SciPy[full]>=1,<2"))
    found = parts(added, lock)
    assert [(part.name, sorted(part.distributions)) for part in found] == [
        ("cuda", ["nvidia-cublas-cu12"]),
        ("tensorflow", ["nvidia-nccl-cu12", "tensorflow"]),
        ("rest", ["numpy"]),
        ("added", ["scipy"]),
    ]
    files = render_context(added, lock, templates(), left_out=TEXT)
    pinned = [package.name for part in found for package in lockfile.parse(files[part.lock].decode())]
    assert sorted(pinned) == sorted(package.name for package in lockfile.parse(lock))
    assert [part.name for part in parts(slim(CPU), LOCK.replace("tensorflow", "tensorflow-cpu"))] == [
        "tensorflow",
        "rest",
    ]


def test_a_package_that_is_added_changes_its_own_layer_alone() -> None:
    """What the steps below are made with stays the same bytes, and so their layers."""
    added = msgspec.structs.replace(slim(GPU), requirements=("tensorflow==2.20.0", "scipy>=1"))
    lock = LOCK + "scipy==1.14.0 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    plain, more = (
        render_context(one, text, templates(), left_out=TEXT) for one, text in ((slim(GPU), LOCK), (added, lock))
    )
    below = [name for part in parts(slim(GPU), LOCK) for name in (part.lock, part.omissions)]
    assert {name: plain[name] for name in below} == {name: more[name] for name in below}


def test_what_goes_is_in_no_layer() -> None:
    """The list is carried out in the very step that installs, with the part of that step."""
    text = render_context(slim(GPU), LOCK, templates(), left_out=TEXT)["Dockerfile"].decode()
    installing = [step for step in re.split(r"\n(?=RUN|COPY|FROM)", text) if "uv pip install" in step]
    for step, part in zip(installing, parts(slim(GPU), LOCK), strict=True):
        assert f"source={part.omissions},target=/run/{part.omissions}" in step
        assert f"-r /run/{part.lock}" in step
        assert f"-m probes.omit {part.omissions}" in step.partition("uv pip install")[2]


def test_a_form_is_said_by_label_document_and_id() -> None:
    """The image carries its form, the list and the list's digest; whoever reads the id knows."""
    files = render_context(slim(CPU), LOCK, templates(), left_out=TEXT)
    text = files["Dockerfile"].decode()
    assert 'org.envbuilder.form="runtime"' in text
    assert re.search(r'org\.envbuilder\.omissions="sha256:[0-9a-f]{64}"', text)
    assert "COPY environment.json requirements.lock omissions.json /opt/envbuilder/" in text
    assert json.loads(files["environment.json"])["form"] == "runtime"
    assert "cuda-omissions.json" not in files
    wish = Combination(tensorflow="2.20.0", os="debian-bookworm", form="runtime")
    found = resolve(wish, load())
    assert isinstance(found, Environment)
    assert (found.id, found.form) == ("tf2.20.0-py311-cpu-bookworm-runtime", "runtime")


def test_an_environment_as_installed_says_nothing_of_forms() -> None:
    """Documents, contexts and ids of environments with everything are what they were before there were forms."""
    files = render_context(CPU, LOCK, templates())
    assert not {name for name in files if "omi" in name}
    assert b"form" not in files["environment.json"]
    assert b"omi" not in files["Dockerfile"]


def test_the_loader_is_not_told_of_folders_that_are_not_there() -> None:
    """A folder of a CUDA wheel that goes whole is not among those that a step lists: it would fail."""
    told = msgspec.structs.replace(slim(GPU), loader_folders=("cublas", "curand"))
    gone = OfDistribution("nvidia-curand-cu12", "10", (LeftOut("nvidia/curand/", 3, 9, "d", "unimported"),))
    text = omissions.write(msgspec.structs.replace(LISTED, distributions=(gone,)))
    dockerfile = render_context(told, LOCK, templates(), left_out=text)["Dockerfile"].decode()
    assert ("nvidia/cublas/lib" in dockerfile, "nvidia/curand/lib" in dockerfile) == (True, False)


def test_kernels_are_summed_apart_from_symbols() -> None:
    """Of one object that lost both, each reason has its own bytes; a list without thinning writes no word of it."""
    both = Cut("a.so", 900, "a", 500, "b", "symbols", 300, ("8.0",))
    alone = Cut("b.so", 90, "a", 50, "b", "symbols", 40, ("8.0",))
    found = Omissions(distributions=(OfDistribution("tensorflow", "2.20.0", (), (both, alone)),))
    assert found.sums() == (Omitted("kernels", 2, 340), Omitted("symbols", 1, 100))
    assert omissions.parse(omissions.write(found)) == found
    assert "gpus" not in TEXT
