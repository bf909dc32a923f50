"""Adversarial images, built and validated for real: each has exactly its findings, in time, with no leftovers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.controls.run import Controller
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest
from envbuilder.finding import Severity
from envbuilder.image.build import Built
from envbuilder.pypi.client import open_index
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.validation import suite_plan
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
NAME = f"envbuilder/adversarial-{os.environ.get('PYTEST_XDIST_WORKER', 'gw0')}"
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


@pytest.fixture(scope="module")
def engine() -> DockerEngine:
    return connect()


@pytest.fixture(scope="module", autouse=True)
def no_tags_stay(engine: DockerEngine) -> Iterator[None]:
    yield
    for tag in engine.names(NAME):
        engine.remove(tag)


def validated(engine: DockerEngine, good: Built, image: Image, folder: Path) -> Verdict:
    (folder / "Dockerfile").write_text(f"FROM {good.record.reference}\n{image.steps}")
    built = engine.build(BuildRequest(context=folder, tag=f"{NAME}:{image.name}", network="none"), lambda _: None)
    begun = time.monotonic()
    request = ValidationRequest(built.tags[0], catalog=CATALOG, gpus="none", index=open_index())
    verdict = validate(engine, request.of(good, image=built.tags[0]) if image.derived else request)
    assert time.monotonic() - begun < LIMIT_S
    engine.remove(built.tags[0])
    return verdict


@pytest.fixture
def files_only(monkeypatch: pytest.MonkeyPatch, image: Image) -> None:
    """Run only the checks of the host for images that their files alone give away."""
    if image.dockerfile and image.codes and set(image.codes) <= FOUND_BY_FILES:
        every = suite_plan.select
        monkeypatch.setattr(suite_plan, "select", lambda facts: tuple(c for c in every(facts) if c.group == "host"))


def codes(verdict: Verdict, severity: Severity) -> set[str]:
    return {one.code.value for one in verdict.findings if one.severity is severity}


@pytest.mark.usefixtures("files_only")
@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_adversarial_image_has_its_findings_only(
    engine: DockerEngine, controller: Controller, image: Image, tmp_path: Path
) -> None:
    verdict = validated(engine, controller.good(image.base), image, tmp_path)
    good = "INCONCLUSIVE" if image.base == "gpu" else "PASSED"
    assert codes(verdict, Severity.ERROR) == set(image.codes), verdict.reasons
    assert verdict.verdict == ("FAILED" if image.codes else good), verdict.reasons
    assert set(image.warns) <= codes(verdict, Severity.WARNING)
    assert {one.name for one in verdict.additions if one.kind != "files"} == set(image.added)
    assert not any(line.startswith("::") for reason in verdict.reasons for line in reason.splitlines())
    assert engine.sweep() == 0
