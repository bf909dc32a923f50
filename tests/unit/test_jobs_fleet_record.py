"""The record of an environment: all that a host needs, the same wherever it is packed, and refused if it is damaged."""

import zlib
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from factories import digest

from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.environment import Additions, Environment, RegistryBase
from envbuilder.errors import UsageError
from envbuilder.image import lockfile
from envbuilder.image.context import build_files
from envbuilder.image.layers import carried_out
from envbuilder.image.removed_files import LABEL
from envbuilder.jobs.fleet.job import packed, unpacked
from envbuilder.validation.validate import ValidationRequest
from envbuilder.validation.validate_request import of_record
from envbuilder.workspace import Workspace, read_document, write_document

CHECKOUT = Workspace(Path(__file__).parents[2])
BASE = f"registry.example.org/corp@{digest('corp')}"


def environment(name: str) -> Environment:
    matrix = CHECKOUT.root / "matrices" / "tensorflow.yaml"
    return next(one for one in choose(str(matrix), (), CHECKOUT, load()).environments if one.id == name)


RUNTIME = environment("tf2.20.0-py311-cpu-bookworm-runtime")
CUDA = environment("tf2.20.0-py311-cu12.5-cudnn9.3-bookworm-runtime")


@pytest.mark.parametrize("one", [RUNTIME, CUDA], ids=["cpu", "gpu"])
def test_host_knows_lock_removed_files_and_configuration_from_the_record(one: Environment, tmp_path: Path) -> None:
    record = packed(one, CHECKOUT)
    assert len(record) < 150_000, "a job has to fit into an object of Kubernetes"
    there = unpacked(record, tmp_path)
    request = of_record(ValidationRequest(), one.id, there)
    dockerfile = (CHECKOUT.context(one.id) / "Dockerfile").read_text()
    assert f'{LABEL}="{lockfile.digest(request.removed)}"' in dockerfile
    assert f'org.envbuilder.lock="{lockfile.digest(request.lock)}"' in dockerfile
    assert request.removed == carried_out(build_files(one.id, CHECKOUT), f"{one.id}/Dockerfile")
    assert request.environment.id == one.id
    assert request.pins
    assert request.known is not None or one is CUDA, "the committed record of an image is part of it"
    assert packed(one, there) == record, "it is the same, wherever it is packed"


def test_variant_without_its_list_is_refused_and_a_complete_one_is_not(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leaves out are unknown") as refused:
        packed(RUNTIME, Workspace(tmp_path))
    assert f"envbuilder lock -s {RUNTIME.id}" in (refused.value.hint or "")
    complete = msgspec.structs.replace(RUNTIME, variant=msgspec.UNSET)
    there = unpacked(packed(complete, Workspace(tmp_path)), tmp_path / "there")
    assert of_record(ValidationRequest(image="x"), RUNTIME.id, there) == ValidationRequest(image="x")


def test_base_of_your_own_and_files_of_the_matrix_are_part_of_it(tmp_path: Path) -> None:
    layers = (digest("layer 1"), digest("layer 2"))
    here, there = Workspace(tmp_path / "here"), tmp_path / "there"
    facts = BaseFacts(image=BASE, digest=digest("corp"), architecture="amd64", layers=layers)
    write_document(here.base(digest("corp")), facts)
    for name in ("my.Dockerfile.j2", "files/motd"):
        (here.root / name).parent.mkdir(exist_ok=True)
        (here.root / name).write_text("mine")
    own = msgspec.structs.replace(
        RUNTIME,
        base=RegistryBase(image=BASE),
        additions=Additions(files=(("files/motd", "/etc/motd"),), template="my.Dockerfile.j2"),
    )
    context = here.context(own.id)
    context.mkdir(parents=True)
    (context / "environment.json").write_bytes(msgspec.json.encode(own))
    (context / "Dockerfile").write_text("FROM x\n")
    workspace = unpacked(packed(own, here), there)
    assert (there / "my.Dockerfile.j2").read_text() == (there / "files/motd").read_text() == "mine"
    assert read_document(workspace.base(digest("corp")), BaseFacts).layers == layers
    request = of_record(ValidationRequest(), own.id, workspace)
    assert (request.base, request.base_layers) == (BASE, layers)
    assert replace(request, environment=None).environment is None


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (b"x", "not the record"),
        (zlib.compress(b"x" * 100)[:-3], "not the record"),
        (zlib.compress(msgspec.msgpack.encode([1])), "not the record"),
        (zlib.compress(bytes(65 << 20), 1), "cut off or too large"),
        (zlib.compress(msgspec.msgpack.encode({"../x": b""})), "outside"),
        (zlib.compress(msgspec.msgpack.encode({"/etc/x": b""})), "outside"),
    ],
)
def test_damaged_record_and_a_path_outside_of_the_folder_are_refused(record: bytes, text: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=text):
        unpacked(record, tmp_path / "there")
    assert not list(tmp_path.iterdir())
