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
from envbuilder.image import omissions
from envbuilder.image.context import templates
from envbuilder.image.omissions import Cut, LeftOut, OfDistribution, Omissions, Omitted
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
    cuda, rest = (omissions.parse(files[name].decode()) for name in (omissions.CUDA_PART, omissions.REST_PART))
    assert (cuda.distributions, rest.distributions) == ((CUBLAS,), (OWN,))
    other = omissions.write(msgspec.structs.replace(LISTED, lock="sha256:2", distributions=(CUBLAS,)))
    assert (
        render_context(slim(GPU), LOCK, templates(), left_out=other)[omissions.CUDA_PART] == files[omissions.CUDA_PART]
    )


def test_what_goes_is_in_no_layer() -> None:
    """The list is carried out in the very step that installs, with the part of that step."""
    steps = re.split(
        r"\n(?=RUN|COPY|FROM)", render_context(slim(GPU), LOCK, templates(), left_out=TEXT)["Dockerfile"].decode()
    )
    installing = [step for step in steps if "uv pip install" in step]
    assert len(installing) == 2
    for step, part in zip(installing, (omissions.CUDA_PART, omissions.REST_PART), strict=True):
        assert f"source={part},target=/run/{part}" in step
        assert f"/run/omit.py /run/{part}" in step.partition("uv pip install")[2]


def test_a_form_is_said_by_label_document_and_id() -> None:
    """The image carries its form, the list and the list's digest; whoever reads the id knows."""
    files = render_context(slim(CPU), LOCK, templates(), left_out=TEXT)
    text = files["Dockerfile"].decode()
    assert 'org.envbuilder.form="runtime"' in text
    assert re.search(r'org\.envbuilder\.omissions="sha256:[0-9a-f]{64}"', text)
    assert "COPY environment.json requirements.lock omissions.json /opt/envbuilder/" in text
    assert json.loads(files["environment.json"])["form"] == "runtime"
    assert omissions.CUDA_PART not in files
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
