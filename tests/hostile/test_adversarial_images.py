"""Adversarial images, built and validated for real: each has exactly its findings, in time, with no leftovers."""

import os
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec
import pytest
from msgspec import structs

from envbuilder.catalog.store import load
from envbuilder.controls.run import Controller
from envbuilder.engine.docker import DockerEngine
from envbuilder.engine.port import BuildRequest
from envbuilder.engine.port import Image as EngineImage
from envbuilder.finding import Severity
from envbuilder.pypi.client import open_index
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.validation import suite_plan, suite_session
from envbuilder.validation.image_files import read_layers
from envbuilder.validation.suite_plan import Check, Facts
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

LEADING = ("import", "first-op", "matmul", "elementary", "challenge", "xla-cpu")
"""The checks of the framework for an image that is not sound; a sound one passes all."""

CATALOG = load()


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A group of images.yaml; its first lines explain the fields."""

    images: dict[str, str]
    recipe: Literal["dockerfile", "variables", "foreign", "entrypoint", "start", "import", "python"] = "dockerfile"
    together: str = ""
    codes: tuple[str, ...] = ()
    warns: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    verdict: str = ""
    runs: bool = False
    limit_s: float = 0.0
    derived: bool = False
    base: Literal["cpu", "gpu"] = "cpu"

    @property
    def is_run(self) -> bool:
        return self.runs or self.recipe in ("entrypoint", "start", "import", "python")


class Image(NamedTuple):
    name: str
    groups: tuple[Group, ...]

    @property
    def group(self) -> Group:
        return self.groups[0]

    @property
    def codes(self) -> set[str]:
        return {code for group in self.groups for code in group.codes}

    @property
    def steps(self) -> str:
        group = self.group
        texts = (
            [text for one in self.groups for text in one.images.values()]
            if group.together
            else [group.images[self.name]]
        )
        text = (" " if group.recipe == "variables" else "\n").join(one.rstrip("\n") for one in texts)
        code = quoted(text)
        steps = {
            "dockerfile": text,
            "variables": f"ENV {text}",
            "foreign": f'LABEL org.envbuilder.environment="" org.envbuilder.lock=""\nRUN rm -r /opt/envbuilder\n{text}',
            "entrypoint": f"RUN printf '{code}\\n' > /opt/e && chmod 755 /opt/e\nENTRYPOINT [\"/opt/e\"]",
            "start": f"RUN printf '{code}\\n' > {SITE}/astray.py && echo 'import astray' > {SITE}/astray.pth",
            "import": f"RUN printf '\\n{code}\\n' >> {SITE}/tensorflow/__init__.py",
            "python": REPLACED.format(code),
        }[group.recipe]
        user = "" if "USER " in steps else "\nUSER envbuilder"
        return f"USER root\n{steps.replace('{site}', SITE).replace('{digest}', DIGEST)}{user}\n"


def quoted(code: str) -> str:
    """Quote code for printf in a shell's single quotes."""
    return code.rstrip("\n").replace("'", "'\\''").replace("\n", "\\n")


def images_of(groups: tuple[Group, ...]) -> Iterator[Image]:
    for word in dict.fromkeys(group.together for group in groups):
        same = tuple(group for group in groups if group.together == word)
        if word:
            yield Image(word, same)
        else:
            yield from (Image(name, (group,)) for group in same for name in group.images)


IMAGES = list(images_of(read_yaml(Path(__file__).with_name("images.yaml"), tuple[Group, ...])))
OF_GROUP = 16
GROUPS = {
    one.name: f"{base}-{number // OF_GROUP}"
    for base in ("cpu", "gpu")
    for number, one in enumerate(one for one in IMAGES if one.group.base == base)
}
"""Rows that one worker runs, on images that are built and read together."""


Prepare = Callable[[Image], str]


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
        base = controller.good(image.group.base).record.reference
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
def limits(monkeypatch: pytest.MonkeyPatch, image: Image) -> None:
    """Start no container for images that their files alone give away; do not wait long for those that never answer."""
    select, plan, limit_s = suite_plan.select, suite_plan.plan, image.group.limit_s

    def limited(check: Check) -> Check:
        # A start as a user is slow on a busy machine; only an entry point is to be waited for there.
        kept = not limit_s or (check.group == "users" and image.group.recipe != "entrypoint")
        return check if kept else structs.replace(check, limit_s=min(check.limit_s, limit_s))

    def runs(check: Check) -> bool:
        is_short = check.group not in ("framework", "timeline", "steps") or check.name in LEADING
        return check.group == "host" or (image.group.is_run and (is_short or not image.codes))

    def selected(facts: Facts) -> tuple[Check, ...]:
        return tuple(limited(one) for one in select(facts) if runs(one))

    def planned(checks: tuple[Check, ...], facts: Facts) -> bytes:
        whole = msgspec.json.decode(plan(checks, facts))
        return msgspec.json.encode({**whole, "limits": {"start_s": limit_s, "rest_s": 3.0}})

    monkeypatch.setattr(suite_plan, "select", selected)
    if not image.group.is_run:
        monkeypatch.setattr(suite_session, "in_container", lambda *_, **__: None)
    if limit_s:
        monkeypatch.setattr(suite_plan, "plan", planned)
        monkeypatch.setattr(suite_session, "SILENCE_S", limit_s)


def codes(verdict: Verdict, severity: Severity) -> set[str]:
    return {one.code.value for one in verdict.findings if one.severity is severity}


@pytest.mark.usefixtures("limits")
@pytest.mark.parametrize("image", IMAGES, ids=lambda image: f"{image.name}@{GROUPS[image.name]}")
def test_adversarial_image_has_its_findings_only(
    engine: DockerEngine, controller: Controller, prepare: Prepare, image: Image
) -> None:
    reference, group = prepare(image), image.group
    request = ValidationRequest(reference, catalog=CATALOG, gpus="none", index=open_index())
    request = request.of(controller.good(group.base), image=reference) if group.derived else request
    begun = time.monotonic()
    verdict = validate(engine, request)
    assert time.monotonic() - begun < LIMIT_S
    if "PROBE_TIMEOUT" in codes(verdict, Severity.ERROR) - image.codes:  # the machine was busy: once more
        verdict = validate(engine, request)
    engine.remove(reference)
    good = group.verdict or ("PASSED" if group.is_run and group.base == "cpu" else "INCONCLUSIVE")
    assert codes(verdict, Severity.ERROR) == image.codes, verdict.reasons
    assert verdict.verdict == ("FAILED" if image.codes else good), verdict.reasons
    for one in (one for one in image.groups if one.together):
        severity, wanted = (Severity.ERROR, one.codes) if one.codes else (Severity.WARNING, one.warns)
        texts = [
            f"{found.subject} {found.message} {found.found}"
            for found in verdict.findings
            if found.severity is severity and found.code.value in wanted
        ]
        assert not wanted or all(any(name in text for text in texts) for name in one.images), (one.images, texts)
    assert set(group.warns) <= codes(verdict, Severity.WARNING)
    assert {one.name for one in verdict.additions if one.kind != "files"} == set(group.added)
    assert not any(line.startswith("::") for reason in verdict.reasons for line in reason.splitlines())
    assert engine.sweep() == 0
