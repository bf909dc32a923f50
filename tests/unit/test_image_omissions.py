"""The list of what an image lacks: read, parted between layers, added up, and rendered into a context."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from factories import lock, pin

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Flavor
from envbuilder.errors import InputError
from envbuilder.image import lockfile, omissions
from envbuilder.image.context import templates
from envbuilder.image.omissions import Cut, LeftOut, OfDistribution, Omissions, Omitted
from envbuilder.image.parts import parts
from envbuilder.image.render import render_context
from envbuilder.probes.settle import SETTLED
from envbuilder.support import decoding

LOCK = lock(numpy="2.1.3", nvidia_cublas_cu12="12.5.3.2", tensorflow="2.20.0")


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
    with pytest.raises(decoding.DamagedError):
        omissions.parse(text)
    (tmp_path / omissions.OMISSIONS).write_text(text)
    with pytest.raises(InputError, match=r"omissions\.json"):
        omissions.of_context(tmp_path)


def layers(wish: Environment, lock: str, listed: Omissions = LISTED) -> list[tuple[str, list[str]]]:
    """Name the layers that install, and what is in each."""
    return [(part.name, sorted(part.distributions)) for part in parts(wish, lock, listed)]


def test_each_layer_is_made_with_its_own_part() -> None:
    """What a distribution of CUDA leaves out decides about its own layer alone, so that releases share the others."""
    files = render_context(slim(GPU), LOCK, templates(), left_out=TEXT)
    names = [f"{part.folder}/omissions.json" for part in parts(slim(GPU), LOCK, LISTED)]
    listed = [omissions.parse(files[name].decode()).distributions for name in names]
    assert (names[0], listed) == ("parts/nvidia-cublas-cu12/omissions.json", [(CUBLAS,), (OWN,), ()])
    other = omissions.write(msgspec.structs.replace(LISTED, lock="sha256:2", distributions=(CUBLAS,)))
    assert render_context(slim(GPU), LOCK, templates(), left_out=other)[names[0]] == files[names[0]]


def test_every_pinned_package_is_in_one_layer() -> None:
    """The parts of a lock are the lock: each of CUDA, NCCL, TensorFlow, what it requires, and last what is added."""
    lock = LOCK + pin("nvidia-nccl-cu12", "2.23.4") + pin("scipy", "1.14.0")
    added = msgspec.structs.replace(slim(GPU), requirements=("tensorflow==2.20.0", "SciPy[full]>=1,<2"))
    assert layers(added, lock) == [
        ("nvidia-cublas-cu12", ["nvidia-cublas-cu12"]),
        ("nccl", ["nvidia-nccl-cu12"]),
        ("tensorflow", ["tensorflow"]),
        ("required", ["numpy"]),
        ("added", ["scipy"]),
    ]
    files = render_context(added, lock, templates(), left_out=TEXT)
    found = [files[f"{part.folder}/{part.lock}"].decode() for part in parts(added, lock, LISTED)]
    pinned = [package.name for text in found for package in lockfile.parse(text)]
    assert sorted(pinned) == sorted(package.name for package in lockfile.parse(lock))
    assert [name for name, _ in layers(slim(CPU), LOCK.replace("tensorflow", "tensorflow-cpu"))] == [
        "tensorflow",
        "required",
    ]


def test_what_differs_between_releases_lies_above_what_does_not() -> None:
    """Of cuRAND and cuSOLVER releases take different parts: the layers of the rest of the set are below theirs."""
    lock = "".join(pin(*one.split("==")) for one in GPU.cuda_wheels) + pin("tensorflow", "2.20.0")
    names = [name for name, _ in layers(slim(GPU), lock)]
    cuda = [name for name in names if name.startswith("nvidia-")]
    assert [name.split("-")[1] for name in cuda[-2:]] == ["curand", "cusolver"]
    assert "nvidia-cudnn-cu12" in cuda[:-2]
    assert names[len(cuda) :] == ["nccl", "tensorflow"]


def test_what_an_added_package_requires_is_in_its_layer() -> None:
    """Where the list says what TensorFlow requires, all else is there for what is added, and lies with it.

    A package that is added and that TensorFlow requires anyway stays where it was.
    """
    lock = LOCK + pin("contourpy", "1.3.0") + pin("matplotlib", "3.9.0")
    known = msgspec.structs.replace(LISTED, required=("absl-py", "numpy"))
    added = msgspec.structs.replace(slim(GPU), requirements=("tensorflow==2.20.0", "matplotlib", "numpy<3"))
    assert layers(added, lock, known)[2:] == [("required", ["numpy"]), ("added", ["contourpy", "matplotlib"])]


def test_a_package_that_is_added_changes_its_own_layer_alone() -> None:
    """What the steps below are made with stays the same bytes, and so their layers."""
    added = msgspec.structs.replace(slim(GPU), requirements=("tensorflow==2.20.0", "scipy>=1"))
    lock = LOCK + pin("scipy", "1.14.0")
    plain, more = (
        render_context(one, text, templates(), left_out=TEXT) for one, text in ((slim(GPU), LOCK), (added, lock))
    )
    below = [name for name in plain if name.startswith("parts/")]
    assert {name: plain[name] for name in below} == {name: more[name] for name in below}
    assert [name for name in more if name.startswith("parts/added/")]


def test_what_goes_is_in_no_layer() -> None:
    """The list is carried out in the very step that installs, with the part of that step."""
    text = render_context(slim(GPU), LOCK, templates(), left_out=TEXT)["Dockerfile"].decode()
    installing = [step for step in re.split(r"\n(?=RUN|COPY|FROM)", text) if "uv pip install" in step]
    for step, part in zip(installing, parts(slim(GPU), LOCK, LISTED), strict=True):
        assert f"source={part.folder},target=/run/part" in step
        assert f"-r /run/part/{part.lock}" in step
        after = step.partition("uv pip install")[2]
        assert after.index("-m probes.omit part/omissions.json") < after.index("-m probes.settle /opt/venv")


def test_mounts_have_their_places_before_any_layer_is_made() -> None:
    """Each place that an installing step mounts something at is made, and its time set, in the stage below all steps.

    A place that is not there an engine makes and takes away again, which leaves the time of the build in the layer.
    """
    text = render_context(slim(GPU), LOCK, templates(), left_out=TEXT)["Dockerfile"].decode()
    system, *steps = re.split(r"\n(?=RUN --mount|FROM)", text.partition(" AS system")[2])
    made = system.partition("mkdir")[2]
    installing = [step for step in steps if "uv pip install" in step]
    places = {place for step in installing for place in re.findall(r"target=([^\s,]+)", step)}
    assert places == {"/opt/tools", "/root/.cache/uv", "/run/host", "/run/part", "/run/probes"}
    assert all(place in made for place in places)
    assert "COPY mounts/ /" in system
    assert f"touch -h -d @{SETTLED} $(find /opt /root /run)" in made


def test_a_form_is_said_by_label_document_and_id() -> None:
    """The image carries its form, the list and the list's digest; whoever reads the id knows."""
    files = render_context(slim(CPU), LOCK, templates(), left_out=TEXT)
    text = files["Dockerfile"].decode()
    assert 'org.envbuilder.form="runtime"' in text
    assert re.search(r'org\.envbuilder\.omissions="sha256:[0-9a-f]{64}"', text)
    assert "COPY environment.json requirements.lock omissions.json /opt/envbuilder/" in text
    assert json.loads(files["environment.json"])["form"] == "runtime"
    assert not [name for name in files if "nvidia" in name]
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
