"""What a publication reads of an earlier build: the record as values, never as a phrase to be taken apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import msgspec
import pytest
from fake_engine import FakeEngine

from envbuilder.attest.installed_packages import ImagePackages
from envbuilder.attest.statements import PROVENANCE
from envbuilder.catalog.store import load
from envbuilder.choice import choose
from envbuilder.image import debian
from envbuilder.image.build import Built
from envbuilder.image.ensure import ensure
from envbuilder.image.names import BASE_KEY_LABEL
from envbuilder.publish import publish_all
from envbuilder.publish.attestation import PublishSession
from envbuilder.publish.publish_all import PublishOptions, _Describe, plan_all
from envbuilder.registry.reference import parse
from envbuilder.verdict import HostRef
from envbuilder.workspace import Workspace, write_document

ROOT = Path(__file__).parents[2]
DIGEST = "sha256:" + "d" * 64


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PublishSession:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (environment,) = choose("quickstart", (), Workspace(ROOT), load()).environments
    shutil.copytree(ROOT / "images" / environment.id, Workspace(tmp_path).context(environment.id))
    shutil.copytree(ROOT / "images" / "shared", tmp_path / "images" / "shared")
    engine = FakeEngine()
    engine.add("envbuilder/base:debian-bookworm", b"root", {BASE_KEY_LABEL: debian.recipe("bookworm")})
    return PublishSession(engine, Workspace(tmp_path), lambda _: None, {}, HostRef())


def built(session: PublishSession) -> Built:
    (environment,) = choose("quickstart", (), Workspace(ROOT), load()).environments
    return ensure(environment, load(), session.workspace, session.engine, lambda _: None)


def tools_stated(what: Built, session: PublishSession) -> dict[str, str]:
    image = session.engine.image(what.record.image)
    assert image is not None
    (made,) = _Describe(what, session, sbom=False)("a.b/c", DIGEST, image)
    assert made.predicate_type == PROVENANCE
    versions: dict[str, str] = json.loads(bytes(made.predicate))["runDetails"]["builder"]["version"]
    return versions


def test_the_origin_names_the_engine_and_its_builder(session: PublishSession) -> None:
    what = built(session)
    stated = tools_stated(what, session)
    assert (stated["fake"], stated["builder"]) == ("1", "fake")
    assert "uv" in stated
    assert what.record.engine is not None
    spaced = msgspec.structs.replace(what.record.engine, version="27.1 beta", builder="buildkit")
    other = Built(what.environment, msgspec.structs.replace(what.record, engine=spaced), what.lock)
    assert tools_stated(other, session) | {"fake": "27.1 beta", "builder": "buildkit"} == tools_stated(other, session)


def test_an_older_record_is_stated_as_far_as_it_goes(session: PublishSession) -> None:
    what = built(session)
    older = Built(what.environment, msgspec.structs.replace(what.record, engine=None), what.lock)
    stated = tools_stated(older, session)
    assert stated["builder"] == "fake 1 fake"
    assert "fake" not in stated


def test_what_was_never_built_is_said(session: PublishSession) -> None:
    choice = choose("quickstart", (), Workspace(ROOT), load())
    (row,) = plan_all(choice, PublishOptions(to=parse("127.0.0.1:1/team/image")), session).rows
    assert "envbuilder build" in row.error
    what = built(session)
    write_document(
        session.workspace.image_record(what.environment.id), msgspec.structs.replace(what.record, engine=None)
    )
    (row,) = plan_all(choice, PublishOptions(to=parse("127.0.0.1:1/team/image")), session).rows
    assert "is not built" not in row.error


def test_an_image_is_read_once_for_the_bills_of_both_forms(session: PublishSession, monkeypatch) -> None:
    what = built(session)
    image = session.engine.image(what.record.image)
    assert image is not None
    reads: list[object] = []
    monkeypatch.setattr(publish_all, "read_image", lambda _, one: reads.append(one))
    monkeypatch.setattr(publish_all, "read", lambda _: ImagePackages(()))
    describe = _Describe(what, session, sbom=True)
    other = "sha256:" + "e" * 64
    about = [[one.subject[0].digest["sha256"] for one in describe("a.b/c", name, image)] for name in (DIGEST, other)]
    assert about == [["d" * 64] * 2, ["e" * 64] * 2]
    assert len(reads) == 1
