"""Adversarial images, built and validated for real: each has exactly its findings, in time, with no leftovers."""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.controls.run import Controller
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest
from envbuilder.engine.port import Image as EngineImage
from envbuilder.finding import Severity
from envbuilder.pypi.client import open_index
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.validation import suite_plan
from envbuilder.validation.image_files import read_layers
from envbuilder.validation.validate import ValidationRequest, validate
from envbuilder.verdict import Verdict

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.full]

SITE = "/opt/venv/lib/python3.11/site-packages"
DIGEST = (
    'import base64,hashlib,sys; print(base64.urlsafe_b64encode(hashlib.sha256(open(sys.argv[1],"rb").read()).digest())'
    '.decode().rstrip("="))'
)
REPLACED = (
    "RUN printf '%s\\n' '#!/bin/sh' '{0}' > /opt/fake && chmod 755 /opt/fake && rm -f /opt/venv/bin/python* "
    "/usr/bin/python3* && for name in /opt/venv/bin/python /opt/venv/bin/python3 /usr/bin/python3; do "
    "cp /opt/fake $name; done"
)
"""A shell script in place of every Python of the image."""
NAME = f"envbuilder/adversarial-{zlib.crc32(__file__.encode()):x}-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}"
LIMIT_S = 600.0
"""The longest time that a validation may take on a busy machine, whatever the image does."""

CATALOG = load()


class Image(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of images.yaml; its first lines explain the fields."""

    name: str
    dockerfile: str = ""
    start: str = ""
    imported: str = msgspec.field(name="import", default="")
    python: str = ""
    codes: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    derived: bool = False
    base: Literal["cpu", "gpu"] = "cpu"

    @property
    def steps(self) -> str:
        steps = self.dockerfile.rstrip("\n")
        if self.start:
            steps = (
                f"RUN printf '{quoted(self.start)}\\n' > {SITE}/astray.py && echo 'import astray' > {SITE}/astray.pth"
            )
        elif self.imported:
            steps = f"RUN printf '\\n{quoted(self.imported)}\\n' >> {SITE}/tensorflow/__init__.py"
        elif self.python:
            steps = REPLACED.format(quoted(self.python))
        user = "" if "USER " in steps else "\nUSER envbuilder"
        return f"USER root\n{steps.replace('{site}', SITE).replace('{digest}', DIGEST)}{user}\n"


def quoted(code: str) -> str:
    """Quote code for printf in a shell's single quotes."""
    return code.rstrip("\n").replace("'", "'\\''").replace("\n", "\\n")


FOUND_BY_FILES = {"FILES_DIFFER", "IMAGE_CLAIM", "IMAGE_CONFIGURATION", "LOCK_MISMATCH", "SECRET_IN_IMAGE"}
"""Codes that the host finds in an image's layers and configuration, without its container."""

IMAGES = read_yaml(Path(__file__).with_name("images.yaml"), tuple[Image, ...])
OF_GROUP = 32
GROUPS = {
    one.name: f"{base}-{number // OF_GROUP}"
    for base in ("cpu", "gpu")
    for number, one in enumerate(one for one in IMAGES if one.base == base)
}
"""Rows that one worker runs, on images that are built and read together."""


Prepare = Callable[[Image], str]


@pytest.fixture(scope="module")
def engine() -> DockerEngine:
    return connect()


@pytest.fixture(scope="module")
def prepare(
    engine: DockerEngine,
    controller: Controller,
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Prepare]:
    """Build the images of a group together: one archive has the layers of all, since an engine needs 15 s for each."""
    folder = tmp_path_factory.mktemp("context")
    items = [item for item in request.session.items if isinstance(item, pytest.Function) and item.path == request.path]
    chosen = {item.callspec.id.partition("@")[0] for item in items}
    waiting = [one for one in IMAGES if one.name in chosen]

    def prepared(image: Image) -> str:
        base = controller.good(image.base).record.reference
        group = [one for one in waiting if GROUPS[one.name] == GROUPS[image.name]]
        read_layers(engine, tuple(build(one, base) for one in group))
        waiting[:] = [one for one in waiting if one not in group]
        return f"{NAME}:{image.name}"

    def build(image: Image, base: str) -> EngineImage:
        (folder / "Dockerfile").write_text(f"FROM {base}\n{image.steps}")
        return engine.build(BuildRequest(folder, f"{NAME}:{image.name}"), lambda _: None)

    yield prepared
    for tag in engine.names(NAME):
        engine.remove(tag)


@pytest.fixture
def files_only(monkeypatch: pytest.MonkeyPatch, image: Image) -> None:
    """Run only the checks of the host for images that their files alone give away."""
    if image.dockerfile and image.codes and {*image.codes, *image.warns} <= FOUND_BY_FILES:
        every = suite_plan.select
        monkeypatch.setattr(suite_plan, "select", lambda facts: tuple(c for c in every(facts) if c.group == "host"))


def codes(verdict: Verdict, severity: Severity) -> set[str]:
    return {one.code.value for one in verdict.findings if one.severity is severity}


@pytest.mark.usefixtures("files_only")
@pytest.mark.parametrize("image", IMAGES, ids=lambda image: f"{image.name}@{GROUPS[image.name]}")
def test_adversarial_image_has_its_findings_only(
    engine: DockerEngine, controller: Controller, prepare: Prepare, image: Image
) -> None:
    reference = prepare(image)
    request = ValidationRequest(reference, catalog=CATALOG, gpus="none", index=open_index())
    request = request.of(controller.good(image.base), image=reference) if image.derived else request
    begun = time.monotonic()
    verdict = validate(engine, request)
    assert time.monotonic() - begun < LIMIT_S
    if "PROBE_TIMEOUT" in codes(verdict, Severity.ERROR) - set(image.codes):  # the machine was busy: once more
        verdict = validate(engine, request)
    engine.remove(reference)
    good = "INCONCLUSIVE" if image.base == "gpu" else "PASSED"
    assert codes(verdict, Severity.ERROR) == set(image.codes), verdict.reasons
    assert verdict.verdict == ("FAILED" if image.codes else good), verdict.reasons
    assert set(image.warns) <= codes(verdict, Severity.WARNING)
    assert {one.name for one in verdict.additions if one.kind != "files"} == set(image.added)
    assert not any(line.startswith("::") for reason in verdict.reasons for line in reason.splitlines())
    assert engine.sweep() == 0
