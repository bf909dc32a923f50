"""The registry's port against real registries: Debian's docker-registry, and one with the referrers API."""

from collections.abc import Iterator

import pytest
from certificates import certificate
from publishing_world import attached, push_image
from registries import SECRET_BCRYPT, docker_registry, login, modern_registry

from envbuilder.errors import InfrastructureError, PublishError
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import DOCKER_MANIFEST, Manifest, digest_of
from envbuilder.registry.reference import parse
from envbuilder.registry.referrers import attach, contents

pytestmark = pytest.mark.engine  # docker-registry is installed with the engine

KIND = "application/vnd.dsse.envelope.v1+json"


@pytest.fixture(scope="module")
def debian_host(tmp_path_factory) -> Iterator[str]:
    with docker_registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


@pytest.fixture(params=["docker-registry 2.8.2", "with the referrers API"])
def repository(request, debian_host) -> Iterator[Repository]:
    """Yield a repository of its own in each kind of registry."""
    name = f"team/{request.node.originalname}".replace("test_", "")[:60]
    if "API" in request.param:
        with modern_registry() as (host, _):
            yield Repository(parse(f"{host}/{name}"), {})
    else:
        yield Repository(parse(f"{debian_host}/{name}"), {})


def push(repository: Repository, tag: str, content: bytes = b"layer") -> Manifest:
    return push_image(repository, tag, content, DOCKER_MANIFEST)


def test_manifest_keeps_its_bytes_and_digest(repository) -> None:
    stored = push(repository, "one")
    assert stored.digest == digest_of(stored.content)
    assert repository.manifest(stored.digest) == stored
    assert stored.media_type == DOCKER_MANIFEST


def test_missing_content_is_none(repository) -> None:
    assert repository.manifest("absent") is None
    assert repository.manifest(digest_of(b"absent")) is None
    assert Repository(parse(f"{repository.reference.host}/nobody/nothing"), {}).manifest("x") is None
    with pytest.raises(PublishError):
        repository.blob(digest_of(b"absent"))


def test_documents_are_attached_and_listed(repository) -> None:
    image, other = push(repository, "image"), push(repository, "other", b"another layer")
    for text in (b"first", b"second", b"first"):
        attach(repository, image, text, KIND, {"kind": text.decode()})
    found = attached(repository, image.digest, KIND)
    assert sorted(repository.blob(*contents(repository, stored)) for stored in found) == [b"first", b"second"]
    assert attached(repository, other.digest, KIND) == set()
    assert attached(repository, image.digest, "another/type") == set()
    assert repository.manifest("image") == image


def test_password_from_docker_s_configuration(tmp_path) -> None:
    (tmp_path / "users").write_text(f"ann:{SECRET_BCRYPT}\n")
    with docker_registry(tmp_path, extra=f"auth: {{htpasswd: {{realm: here, path: {tmp_path / 'users'}}}}}\n") as host:
        stored = push(Repository(parse(f"{host}/team/image"), login(tmp_path, host, "ann:secret")), "one")
        assert stored.digest.startswith("sha256:")
        for environment in ({}, login(tmp_path, host, "ann:wrong")):
            with pytest.raises(PublishError, match="answered 401"):
                Repository(parse(f"{host}/team/image"), {"HOME": "/nonexistent", **environment}).manifest("one")


def test_private_authority_is_trusted_by_its_variable_alone(tmp_path) -> None:
    bundle = certificate(tmp_path)
    tls = f"  tls: {{certificate: {bundle}, key: {tmp_path / 'key.pem'}}}\n"
    with docker_registry(tmp_path, extra=tls) as host:
        assert push(Repository(parse(f"{host}/team/image"), {"SSL_CERT_FILE": str(bundle)}), "one").digest
        with pytest.raises(InfrastructureError, match="CERTIFICATE_VERIFY_FAILED"):
            Repository(parse(f"{host}/team/image"), {}).manifest("one")
