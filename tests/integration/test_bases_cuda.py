"""Bases that bring CUDA, for real: laid out as NVIDIA's, from a registry on loopback, built on, judged, and broken."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from registries import docker_registry
from table_rows import beside

from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.controls.control import Control, instruction
from envbuilder.controls.run import Controller
from envbuilder.engine.docker import connect
from envbuilder.engine.port import BuildRequest
from envbuilder.finding import Code, Severity
from envbuilder.image.build import Built, ensure
from envbuilder.image.names import CONTROLS
from envbuilder.jobs.base_inspection import inspect_base
from envbuilder.publish.zstd_push import ZstdPusher
from envbuilder.pypi.client import open_index
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Descriptor
from envbuilder.registry.reference import parse
from envbuilder.support.console import Console
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.workspace import Workspace, write_document

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
SYSTEM, CUDA, TENSORFLOW = "debian-bookworm", "11.8", "2.13.1"
"""A system whose own packages bring CUDA, and the TensorFlow that is built on a base of these files."""

FOLDER = f"/usr/local/cuda-{CUDA}/targets/x86_64-linux/lib"
NAMES = ("cudart", "cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse", "cupti", "nvrtc")
LAID_OUT = beside(__file__)["Dockerfile"]


class PlainPusher(ZstdPusher):
    """Pushes layers as they are: an engine compresses 4 GB for minutes."""

    def _upload(self, name: str, source: IO[bytes]) -> None:
        file = self.folder / "layer"
        with file.open("w+b") as copy:
            shutil.copyfileobj(source, copy)
            copy.seek(0)
            digest = f"sha256:{hashlib.file_digest(copy, 'sha256').hexdigest()}"
            self.repository.upload(digest, copy)
        layer = Descriptor(media_type="application/vnd.oci.image.layer.v1.tar", size=file.stat().st_size, digest=digest)
        self._layers[name] = (digest, layer)
        file.unlink()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Workspace, Built, Controller]]:
    """Build on a base that was pulled from a registry, was looked into, and that nobody told us anything about."""
    folder = tmp_path_factory.mktemp("cuda")
    workspace, engine, catalog = Workspace(folder), connect(), load()
    (of_packages,) = choose("debian", (f"tensorflow={TENSORFLOW}",), workspace, catalog).environments
    shutil.copytree(ROOT / "images" / of_packages.id, workspace.context(of_packages.id))
    whole = ensure(of_packages, catalog, workspace, engine, lambda _: None)
    (folder / "base").mkdir()
    libraries = " ".join(f"lib{name}.so*" for name in NAMES) + " libnvrtc-builtins.so*"
    (folder / "base/Dockerfile").write_text(
        LAID_OUT.format(whole=whole.record.reference, system=SYSTEM, cuda=CUDA, folder=FOLDER, libraries=libraries)
    )
    with docker_registry(folder / "registry") as host:
        name = f"{host}/nvidia/cuda:{CUDA}-cudnn8-runtime"
        engine.build(BuildRequest(context=folder / "base", tag=name), lambda _: None)
        image = engine.image(name)
        assert image is not None
        PlainPusher(Repository(parse(name)), folder).push(engine, image, name.rpartition(":")[2])
        engine.remove(name)
        facts = inspect_base(engine, name, catalog, lambda *_: None)
        write_document(workspace.base(facts.digest), facts)
        assert (facts.cuda, facts.cudnn.split(".")[0], facts.refused) == (CUDA, "8", "")
        include = [{"tensorflow": TENSORFLOW, "os": "corp", "flavor": "gpu"}]
        matrix = {"name": "ours", "bases": {"corp": {"image": facts.image}}, "include": include}
        (folder / "ours.yaml").write_text(json.dumps(matrix))
        choice = choose("ours.yaml", (), workspace, catalog)
        (environment,) = choice.environments
        assert environment.cuda_wheels == ()
        built = ensure(environment, choice.catalog, workspace, engine, lambda _: None)
        controller = Controller(workspace, engine, open_index(), choice.catalog, Console(), _good={"system-gpu": built})
        yield workspace, built, controller
        for reference in (
            f"{CONTROLS}:{GONE.name}",
            f"{CONTROLS}:{built.record.tag_part}",
            built.record.reference,
            facts.image,
            name,
        ):
            engine.remove(reference)


def test_tensorflow_runs_on_the_bases_cuda(made: tuple[Workspace, Built, Controller]) -> None:
    _, built, controller = made
    request = ValidationRequest(gpus="none", index=open_index()).of(built)
    verdict = validate(controller.engine, request)
    assert [one.message for one in verdict.findings if one.severity is Severity.ERROR] == []
    assert (verdict.verdict, verdict.level) == ("INCONCLUSIVE", "cpu")
    opened = next(check for check in verdict.checks if check.name == "libraries")
    found = re.findall(r"(\S+) → (\S+)", opened.observed)
    assert opened.outcome == "passed"
    assert {"libcudart.so.11.0", "libcudnn.so.8"} <= {name for name, _ in found}
    assert all(path.startswith(FOLDER) or "/libcudnn" in path for _, path in found)
    assert not [path for _, path in found if "site-packages" in path]
    assert next(check for check in verdict.checks if check.name == "one-cuda").outcome == "passed"


GONE = Control(
    name="base-library-removed",
    base="system-gpu",
    code=Code.MISSING_LIBRARY,
    broken="a library of the base's CUDA is gone",
    steps=(instruction(f"RUN rm {FOLDER}/libcufft.so* && ldconfig"),),
)
"""A wheel's CUDA on top and another cuDNN in its place are controls on the system's CUDA."""


def test_missing_library_of_such_a_base_is_named(made: tuple[Workspace, Built, Controller]) -> None:
    (row,) = made[2].run((GONE,)).rows
    assert row.right, (row.wrong, row.red)
