"""The command's whole way, on an image that holds packages but no TensorFlow: dry run, bill, provenance, refusal."""

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from factories import digest, environment, tar
from registries import docker_registry

from envbuilder.attest.envelope import KeySealer
from envbuilder.attest.keys import create
from envbuilder.attest.statements import CYCLONEDX, PROVENANCE
from envbuilder.catalog.model import Catalog
from envbuilder.choice import Choice
from envbuilder.cli import exit_codes
from envbuilder.compat.plan import Plan
from envbuilder.engine.docker import connect
from envbuilder.errors import InfrastructureError
from envbuilder.image.build import ImageRecord, stored_build
from envbuilder.image.context import build_files
from envbuilder.matrix import Matrix
from envbuilder.publish.attestation import PublishSession
from envbuilder.publish.publish_all import PublishOptions, _statements, plan_all, publish_all
from envbuilder.publish.results import as_text
from envbuilder.registry.client import Repository
from envbuilder.registry.errors import RegistryRefusedError
from envbuilder.registry.reference import parse
from envbuilder.registry.referrers import subject_of
from envbuilder.verdict import EngineRef, HostRef
from envbuilder.workspace import Workspace, content_key, write_atomically, write_document

pytestmark = pytest.mark.engine

ENVIRONMENT = environment()
TAG = "scratch-publish:session"
FILES = {
    "var/lib/dpkg/status": "Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\n",
    "etc/os-release": "ID=debian\nVERSION_CODENAME=bookworm\n",
    "opt/venv/lib/python3.11/site-packages/numpy-2.1.3.dist-info/METADATA": "Name: numpy\nVersion: 2.1.3\n\n",
}


@pytest.fixture
def session(tmp_path) -> Iterator[PublishSession]:
    engine, workspace = connect(), Workspace(tmp_path)
    (tmp_path / "image.tar").write_bytes(tar(FILES))
    image = engine.import_base(tmp_path / "image.tar", TAG, {})
    context = workspace.context(ENVIRONMENT.id)
    context.mkdir(parents=True)
    (context / "Dockerfile").write_text("FROM scratch\nCOPY shared/tools.lock /\n")
    (context / "requirements.lock").write_text(f"numpy==2.1.3 \\\n    --hash=sha256:{'a' * 64}\n")
    write_atomically(workspace.images / "shared/tools.lock", f"uv==0.5.1 --hash=sha256:{'b' * 64}\n".encode())
    record = ImageRecord(
        environment=ENVIRONMENT.id,
        key=content_key({**build_files(ENVIRONMENT.id, workspace), "base": digest("base").encode()}),
        image=image.id,
        reference=TAG,
        size=image.size,
        base="envbuilder/base:debian-bookworm",
        base_id=digest("base"),
        base_origin="bootstrapped",
        builder="docker 20.10.24 buildkit",
        engine=EngineRef(name="docker", version="20.10.24", builder="buildkit"),
        seconds=1.0,
        layers=(),
    )
    write_document(workspace.results(ENVIRONMENT.id) / "image.json", record)
    said: list[str] = []
    yield PublishSession(engine, workspace, said.append, {"HOME": str(tmp_path)}, HostRef())
    with suppress(InfrastructureError):
        engine.remove(TAG)


@pytest.fixture
def choice() -> Choice:
    plan = Plan(environments=(ENVIRONMENT,), rejections=(), excluded=())
    return Choice(Matrix(name="test"), Catalog(), plan, (ENVIRONMENT,))


def test_bill_and_the_provenance_of_a_real_image(session) -> None:
    built = stored_build(ENVIRONMENT, session.workspace)
    assert built is not None
    image = session.engine.image(built.record.image)
    stated = _statements(built, session, "a.b/c", digest("manifest"), image, sbom=True)
    made = {one.predicate_type: bytes(one.predicate) for one in stated}
    assert set(made) == {CYCLONEDX, PROVENANCE}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(made[CYCLONEDX].decode()) is None
    parts = {part["name"]: part for part in json.loads(made[CYCLONEDX])["components"]}
    assert parts["numpy"]["hashes"] == [{"alg": "SHA-256", "content": "a" * 64}]
    assert parts["libc6"]["purl"] == "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=bookworm"
    inputs = json.loads(made[PROVENANCE])["buildDefinition"]["resolvedDependencies"]
    assert {part["name"] for part in inputs if "name" in part} == {
        f"{ENVIRONMENT.id}/Dockerfile",
        f"{ENVIRONMENT.id}/requirements.lock",
        "shared/tools.lock",
        "envbuilder/base:debian-bookworm",
    }
    tools = json.loads(made[PROVENANCE])["runDetails"]["builder"]["version"]
    assert (tools["docker"], tools["builder"], tools["uv"]) == ("20.10.24", "buildkit", "0.5.1")


def test_dry_run_changes_nothing_and_an_unfit_image_is_never_public(session, choice, tmp_path) -> None:
    with docker_registry(tmp_path / "registry") as host:
        options = PublishOptions(to=parse(f"{host}/team/image"), moving=("latest",))
        repository = Repository(options.to, {})
        planned = plan_all(choice, options, session)
        names = [tag.name for tag in planned.rows[0].tags]
        assert names[1:] == [ENVIRONMENT.id, "latest"]
        assert names[0].startswith(f"{ENVIRONMENT.id}-")
        assert [tag.before for tag in planned.rows[0].tags] == ["", "", ""]
        with pytest.raises(RegistryRefusedError, match="NAME_UNKNOWN"):
            repository.tags()
        done = publish_all(choice, options, KeySealer(create(tmp_path / "keys")), session)
        assert (done.rows[0].published, done.rows[0].verdict, exit_codes.of(done)) == (False, "FAILED", 1)
        tags = set(repository.tags())
        lists = {tag for tag in tags if subject_of(tag) == done.rows[0].digest}
        assert lists  # the statement that it FAILED
        assert tags - lists == {f"staging-{ENVIRONMENT.id}"}
        assert as_text(done).splitlines()[1].split()[1] == "refused"
        assert " would publish " in as_text(planned).splitlines()[1]
        session.engine.remove(f"{options.to.name}:staging-{ENVIRONMENT.id}")
