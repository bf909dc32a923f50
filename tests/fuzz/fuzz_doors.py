"""What is fuzzed of the small doors: what is kept on disk, orders, shapes of a registry's answers, bytes in an image."""

from __future__ import annotations

import base64
import bz2
import contextlib
import gzip
import io
import json
import lzma
import re
import zipfile
import zlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import msgspec
import requests
from fuzz_target import TESTS, Target, file, place, read_all
from made_images import SITE, image_of, outside, package

from envbuilder.attest.demand import Demand
from envbuilder.attest.envelope import SignedBy
from envbuilder.attest.kinds import Kind, add_up
from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.attest.sigstore import SigstoreOpener
from envbuilder.attest.statement import REHEARSAL, VERDICT, Statement, resource
from envbuilder.attest.trust import Evidence, decide
from envbuilder.catalog import store
from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.choice import read_known
from envbuilder.compat.plan import plan
from envbuilder.engine import calls, docker
from envbuilder.engine.buildkit import Trace
from envbuilder.engine.port import Image
from envbuilder.environment import Environment
from envbuilder.errors import EnvbuilderError
from envbuilder.image import apt_sources, build, mirrors, omissions, system_lock, wheel_records
from envbuilder.image.lockfile import Locked
from envbuilder.jobs import fleet_kubernetes, fleet_make, kubernetes_executor
from envbuilder.jobs.fleet_task import ProofOrder, Task
from envbuilder.matrix import Matrix
from envbuilder.probes.suite import kernel_text
from envbuilder.publish import registry_image
from envbuilder.pypi.package_index import DistFile
from envbuilder.refresh import artefact, evidence
from envbuilder.registry import referrers, shapes
from envbuilder.registry.client import Manifest, Repository
from envbuilder.registry.exchange import Answer
from envbuilder.registry.reference import parse as parse_reference
from envbuilder.registry.transport import Transport
from envbuilder.report import collect
from envbuilder.reproduce.transcript import clean
from envbuilder.simulated import profile
from envbuilder.support import decoding
from envbuilder.support.yaml_reader import read_yaml
from envbuilder.upgrade import cache as upgrade_cache
from envbuilder.upgrade import model_exchange, observe
from envbuilder.upgrade.observed import Loaded, Saved
from envbuilder.validation import assembled_code, expectations, file_records, file_secrets, layer_scan, user_start
from envbuilder.validation.keras_settings import keras_settings
from envbuilder.validation.stored import read_verdict
from envbuilder.validation.suite_session import Identity
from envbuilder.workspace import Workspace

DIGEST = "sha256:" + "a" * 64


@cache
def _an_environment() -> Environment:
    matrix = read_yaml(TESTS.parent / "matrices" / "quickstart.yaml", Matrix)
    return msgspec.structs.replace(plan(matrix, store.load()).environments[0], id="x")


def _kept(data: bytes) -> None:
    """Read every document that a workspace keeps from the same bytes; what is damaged is set aside each time."""
    space = Workspace(place() / "kept")
    matrix = place() / "own.yaml"
    image = f"registry.example/base@{DIGEST}"
    matrix.write_text(f"name: x\naxes: {{tensorflow: ['2.20.0'], os: [own]}}\nbases: {{own: {{image: {image!r}}}}}\n")
    answers = upgrade_cache.Kept(space.root / "upgrade")

    def put(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    environment = _an_environment()
    asked = (
        (space.image_record("x"), lambda: build.standing(environment, space)),
        (space.image_record("x"), lambda: collect._layers(space)),
        (space.root / "out" / "upgrades" / "a" / "upgrade.json", lambda: collect._upgrades(space)),
        (space.verdict("x"), lambda: read_verdict(space.verdict("x"))),
        (space.base(DIGEST), lambda: read_known(str(matrix), space.root, store.load())),
        (space.root / "upgrade" / "rounds.json", lambda: answers.rounds("key")),
        (space.root / "upgrade" / "a.json", lambda: answers.answer("a", "key", Saved, lambda: Saved(saved={}))),
    )
    with contextlib.redirect_stderr(io.StringIO()):
        for path, ask in asked:
            put(path)
            with contextlib.suppress(EnvbuilderError):
                ask()
    evidence._decoded(data, evidence.Evidence)


def _kept_seeds() -> list[bytes]:
    from factories import verdict  # noqa: PLC0415

    record = build.ImageRecord(
        environment="x", key="k", image=DIGEST, reference="a:b", size=1, base="b", base_id="c", base_origin="d",
        builder="docker", seconds=1.0, layers=(),
    )  # fmt: skip
    answer = {"key": "key", "value": {"saved": {"h5": {"a": "YQ=="}}}}
    facts = dict.fromkeys(BaseFacts.__struct_fields__)
    documents = (record, verdict(), upgrade_cache.Rounds(key="key"), answer, facts)
    return [*map(msgspec.json.encode, documents), msgspec.msgpack.encode(evidence.Evidence(libraries=1))]


def _orders(data: bytes) -> None:
    """Take an order of a proof, and one of an image."""
    task = Task(name="t", arguments=(), order=data, gpu="", driver="", arch="x86_64")
    cluster = fleet_kubernetes.Cluster(runner="registry.example/envbuilder:1")
    for take in (lambda: fleet_make.order_of(task), lambda: fleet_kubernetes.manifests((task,), cluster)):
        with contextlib.suppress(EnvbuilderError, decoding.DamagedError):
            take()


def _orders_seeds() -> list[bytes]:
    proof = ProofOrder(
        repository="registry.example/a", digest=DIGEST, environment="x", level="cpu", arch="x86_64", suite="s",
        max_age_s=5.0,
    )  # fmt: skip
    matrix = read_yaml(TESTS.parent / "matrices" / "quickstart.yaml", Matrix)
    make = fleet_make.MakeOrder(repository="r.example/a", environment="x", matrix=matrix, files={"Dockerfile": b"FROM"})
    return [msgspec.json.encode(proof), msgspec.json.encode(make)]


class _Repository:
    """A repository of which every manifest and blob is the same bytes."""

    reference = parse_reference("registry.example/a:b")

    def __init__(self, data: bytes) -> None:
        self._data = data

    def manifest(self, _: str) -> Manifest:
        return Manifest("application/vnd.oci.image.manifest.v1+json", self._data, DIGEST)

    def blob(self, _: str) -> bytes:
        return self._data


def _shapes(data: bytes) -> None:
    """Read the same bytes as every shape of a manifest, as a configuration, as a token and as a list of tags."""
    repository = cast("Repository", _Repository(data))
    manifest = repository.manifest(DIGEST)
    assert manifest is not None
    shapes.ambiguity(manifest)
    shapes.platforms(manifest)
    shapes.config_digest(manifest)
    transport, client = Transport.__new__(Transport), Repository.__new__(Repository)
    answered = Answer(200, {}, data, "https://registry.example/token")
    transport._reference = client.reference = _Repository.reference
    transport._exchange = cast("Any", SimpleNamespace(send=lambda *_, **__: answered))
    client.transport = cast("Any", SimpleNamespace(send=lambda *_, **__: answered))
    client._path = ""
    client.lacking(manifest)
    for ask in (
        lambda: registry_image.described(repository, manifest, "a@b"),
        lambda: referrers._described(repository, "tag"),
        lambda: referrers.document(repository, DIGEST, DIGEST, "application/x"),
        lambda: transport._token({"realm": "https://registry.example/token"}, None, "pull"),
        client.tags_if_there,
    ):
        with contextlib.suppress(EnvbuilderError):
            ask()


def _shapes_seeds() -> list[bytes]:
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": DIGEST, "size": 5}
    layer = {"mediaType": "application/x", "digest": DIGEST, "size": 7}
    settings = {"User": "u", "Env": ["A=b"], "Labels": {"a": "b"}}
    zstd = {**layer, "mediaType": "application/vnd.oci.image.layer.v1.tar+zstd"}
    gzip = {**layer, "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip"}
    platform = {"os": "linux", "architecture": "amd64"}
    return [
        json.dumps(one).encode()
        for one in (
            {"schemaVersion": 2, "config": config, "layers": [layer], "subject": {**layer, "digest": DIGEST}},
            {"schemaVersion": 2, "manifests": [{**layer, "platform": platform}, {**layer, "platform": None}]},
            {"config": {**config, **settings}, "architecture": "arm64", "artifactType": "x", "annotations": {}},
            {"config": config, "layers": [zstd], "rootfs": {"diff_ids": [DIGEST]}},
            {"config": config, "layers": [gzip], "rootfs": {"diff_ids": [DIGEST]}},
            {"token": "t", "access_token": "u", "tags": ["a", "b"], "name": "team/image"},
        )
    ]


def _trusted(data: bytes) -> None:
    """Judge a predicate that a trusted key signed, as a verdict and as a rehearsal, about the digest that it names."""
    now = datetime(2026, 11, 22, tzinfo=UTC)
    raw, about = msgspec.Raw(data), _about(data)
    items = tuple(
        Evidence(
            stored=DIGEST,
            signed_by=(SignedBy(name="k", expires=""),),
            statement=Statement(subject=(resource("a", about),), predicate_type=kind, predicate=raw),
        )
        for kind in (VERDICT, REHEARSAL)
    )
    with contextlib.suppress(EnvbuilderError):
        decide(about, items, Demand(level="cpu"), now)
    with contextlib.suppress(EnvbuilderError):
        add_up(about, items, Demand(level="gpu"), (Kind(gpu="A100", driver="535"),), now)


def _about(data: bytes) -> str:
    """Take the digest that a predicate speaks of, so that it is about what is asked for."""
    with contextlib.suppress(decoding.DamagedError):
        found = decoding.from_json(data, VerdictPredicate).verdict.image.digest or ""
        return found if re.fullmatch("sha256:[0-9a-f]{64}", found) else DIGEST
    return DIGEST


def _trusted_seeds() -> list[bytes]:
    from factories import failed_verdict, gpu_verdict, verdict  # noqa: PLC0415

    return [msgspec.json.encode({"verdict": one}) for one in (verdict(), failed_verdict(), gpu_verdict())]


def _bundle(data: bytes) -> None:
    """Open what says that it is a Sigstore bundle; this host has no way to Sigstore's trust root."""
    import sigstore.errors  # noqa: PLC0415 - slow to import
    import sigstore.verify  # noqa: PLC0415

    def nowhere() -> None:
        raise sigstore.errors.NetworkError

    with mock.patch.object(sigstore.verify.Verifier, "production", nowhere):
        SigstoreOpener("a@example.org", "https://issuer.example").open(data)


@cache
def _bundle_seeds() -> list[bytes]:
    from certificates import certificate  # noqa: PLC0415 - needed where these are made alone

    pem = certificate(place() / "certificate").read_text()
    signed = "".join(pem.split("-----")[2].split())
    text = base64.b64encode(b"x" * 40).decode()
    envelope = {"payload": text, "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": text}]}
    entry = {
        "logIndex": "1", "logId": {"keyId": text}, "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": "1", "canonicalizedBody": text, "inclusionPromise": {"signedEntryTimestamp": text},
        "inclusionProof": {"logIndex": "1", "rootHash": text, "treeSize": "2", "hashes": [text], "checkpoint": {"envelope": "x"}},
    }  # fmt: skip
    material = {"certificate": {"rawBytes": signed}, "tlogEntries": [entry]}
    kind = "application/vnd.dev.sigstore.bundle.v0.3+json"
    return [json.dumps({"mediaType": kind, "verificationMaterial": material, "dsseEnvelope": envelope}).encode()]


class _Stream:
    """A connection that answers everything with the same bytes."""

    base_url = "http://engine"
    api_version = "1.41"

    def __init__(self, data: bytes, status: int) -> None:
        self.status_code, self.ok, self._data = status, status == 200, data

    def _url(self, path: str, *_: object, **__: object) -> str:
        return path

    def get(self, *_: object, **__: object) -> _Stream:
        return self

    def iter_content(self, _: int) -> list[bytes]:
        return [self._data]

    def close(self) -> None:
        """Nothing to close."""


def _asked(data: bytes) -> None:
    """Take the same bytes as an engine's answer, as its complaint, and as a message of its builder."""
    for status in (200, 500):
        with contextlib.suppress(EnvbuilderError):
            calls.ask(cast("Any", _Stream(data, status)), "/x", "ask", dict[str, Any])
    with contextlib.suppress(EnvbuilderError):
        calls.checked("ask", cast("requests.Response", _Stream(data, 500)))
    record = cast("Any", SimpleNamespace(aux=decoding.lossy(data), id="moby.buildkit.trace"))
    with contextlib.suppress(EnvbuilderError):
        docker._steps("build", Trace(), record)


class _Index:
    """An index that serves one wheel, whatever it is."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self, _: DistFile) -> int:
        return len(self._data)

    def whole(self, _: DistFile) -> list[bytes]:
        return [self._data]


def _record_rows(data: bytes) -> None:
    """Read a RECORD, as an image has it and as a wheel has it."""
    file_records.distributions(
        image_of(package("a", "1", {"a/__init__.py": b""}), {f"{SITE}/a-1.dist-info/RECORD": data})
    )
    tuple(file_records.parse(data, "site"))
    distribution = file_records.Distribution("site", "a-1.dist-info", "a", "1", frozenset(), {})
    file_records.of_wheel(data, distribution)


def _locked_wheel(data: bytes) -> None:
    """Read the RECORD of a wheel that is the locked one, and yet anything."""
    import hashlib  # noqa: PLC0415

    wanted = DistFile(project="a", filename="a-1-py3-none-any.whl", url="x", sha256=hashlib.sha256(data).hexdigest())
    wheel_records._read(cast("Any", _Index(data)), wanted, Locked("a", "1", (), "a==1"))


def _locked_wheel_seeds() -> list[bytes]:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/__init__.py", b"x = 1\n")
        archive.writestr("a-1.dist-info/RECORD", "a/__init__.py,sha256=abc,6\n")
    return [buffer.getvalue()]


def _profile(data: bytes) -> None:
    profile.parse(decoding.lossy(data)[:500], store.load())


def _configured(data: bytes) -> dict[str, str]:
    """Write a user's configuration, and return the variables that lead to it."""
    folder = place() / "envbuilder"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_bytes(data)
    return {"XDG_CONFIG_HOME": str(folder.parent)}


def _mirrors(data: bytes) -> None:
    mirrors.mirrors(_configured(data))


def _repositories(data: bytes) -> None:
    environ = _configured(data)
    with contextlib.suppress(EnvbuilderError):
        apt_sources.debian_lines("bookworm", environ)
    apt_sources.repository("nvidia-bookworm", environ)


def _repositories_seeds() -> list[bytes]:
    key = file("key.asc", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n")
    text = f"""[apt]
debian = "https://m.example.org/d"
[apt.repositories.nvidia-bookworm]
url = "https://p.example.org/c"
key = "{key}"
"""
    return [text.encode()]


def _exchange(data: bytes) -> None:
    """Take what one side's image says that it saved, and what the other says of loading it."""
    spoken = observe.Output(data, "", "")
    before = observe.run_probe
    observe.run_probe = lambda *_, **__: spoken
    try:
        side = cast("Any", SimpleNamespace())
        observe.ask(side, "x", Loaded)
        model_exchange._exchanged(side, side, "old")
    finally:
        observe.run_probe = before


def _exchange_seeds() -> list[bytes]:
    saved = {"h5": {"model.h5": base64.b64encode(b"x").decode()}, "../x": {"/etc/a": "!!"}}
    return [json.dumps({"saved": saved, "loaded": {"h5": ""}}).encode()]


def _in_image(data: bytes) -> None:
    """Read single files of an image: one that was assembled, a start's answer, headers, packed text, a list."""
    kernel = kernel_text.Kernel("nonce", "12.5")
    assembled_code._wrong(decoding.lossy(data), kernel)
    assembled_code._wrong(base64.b64encode(data).decode(), kernel)
    layer_scan._dynamic(data)
    for path in (".git/objects/aa/" + "b" * 38, ".git/objects/pack/a.pack"):
        for head in (b"", b"\x1f\x8b"):
            search = file_secrets.FileSecrets(path)
            search.take(head + data)
    heard = cast("Any", SimpleNamespace(output=bytearray(user_start._MARK + data), overdue=lambda: False))
    ended = SimpleNamespace(refusal="", timed_out=False, flooded=False, out_of_memory=False, exit_code=0)
    user_start._wrong(cast("Any", ended), heard, [1, 2])
    with contextlib.suppress(decoding.DamagedError):
        omissions.parse(decoding.lossy(data))
    identity = Identity(python="3", executable="p", environment=decoding.lossy(data), lock=decoding.lossy(data))
    image = Image(id=DIGEST, tags=(), digests=(), size=0, labels={}, env={}, user="", architecture="amd64")
    with contextlib.suppress(EnvbuilderError):
        expectations.told_of(identity, image)


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _zip(content: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr(zipfile.ZipInfo("a/.env"), content)
        packed.writestr(zipfile.ZipInfo("b"), content)
    return made.getvalue()


def _in_image_seeds() -> list[bytes]:
    from fuzz_targets import _tiny_elf  # noqa: PLC0415 - made there for the reader of shared objects

    return [
        _tiny_elf(),
        *(
            pack(b"password = 'hunter2hunter2'\n" * 30)
            for pack in (_gzip, _zip, bz2.compress, lzma.compress, zlib.compress)
        ),
        b"PACK\0\0\0\2\0\0\0\1\x35" + zlib.compress(b"hello"),
        json.dumps({"product": [[1, 2]], "schema": "envbuilder/omissions/v1"}).encode(),
        *read_all("images/*cpu*/environment.json")()[:1],
    ]


def _transcript(data: bytes) -> None:
    clean(decoding.lossy(data))


def _operators(data: bytes) -> None:
    """Read what kubectl wrote, a lock of system packages, Keras' settings, and what a build says of itself."""
    text = decoding.lossy(data)
    kinds: tuple[Any, ...] = (kubernetes_executor._Job, kubernetes_executor._Jobs, kubernetes_executor._Pods)
    for kind in kinds:
        with contextlib.suppress(EnvbuilderError):
            kubernetes_executor._read(text, kind)
    with contextlib.suppress(ValueError):  # as its callers expect
        system_lock.parse(text)
    tuple(keras_settings(outside(image_of({"root/.keras/keras.json": data, "etc/passwd": data})), {"HOME": "/root"}))
    artefact.build_info(text)


def _operators_seeds() -> list[bytes]:
    job = {
        "metadata": {"name": "a", "creationTimestamp": "2026-11-22T05:00:00Z"},
        "status": {"conditions": [{"type": "Failed"}]},
    }
    return [
        json.dumps({"items": [job], **job}).encode(),
        b"libc6=2.36-9%2Bdeb12u4 sha256:" + b"a" * 64 + b" pool/main/g/libc6.deb\n",
        b'{"backend": "jax", "floatx": "float16", "epsilon": 1e-7, "image_data_format": "channels_first"}',
        b"build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('cuda_compute_capabilities', ['sm_60'])])\n",
    ]


DOORS: tuple[Target, ...] = (
    Target("operators", _operators_seeds, _operators),
    Target("kept", _kept_seeds, _kept),
    Target("orders", _orders_seeds, _orders),
    Target("shapes", _shapes_seeds, _shapes),
    Target("trusted", _trusted_seeds, _trusted),
    Target("bundle", _bundle_seeds, _bundle),
    Target("asked", lambda: [b'{"message": "no space left on device", "Id": "x"}', base64.b64encode(b"\x0a\x02\x0a\x00")], _asked),
    Target("record-rows", lambda: [b'a/b.py,sha256=x,3\n"a,b",,\n../../../bin/x,sha256=y,1\na-1.data/scripts/z,,\n'], _record_rows),
    Target("locked-wheel", _locked_wheel_seeds, _locked_wheel),
    Target("profile", lambda: [b"driver=470.57.02,gpu=A100", b"driver=535.104.05,gpu=H100,gpus=8,memory=80,fail=no-device"], _profile),
    Target("repositories", _repositories_seeds, _repositories),
    Target("mirrors", lambda: [b'[mirrors]\n"docker.io" = "mirror.example.org"\n'], _mirrors),
    Target("exchange", _exchange_seeds, _exchange),
    Target("in-image", _in_image_seeds, _in_image),
    Target("transcript", lambda: [b'[\n  "a line of a log",\n  "another \\u0130"\n]\n', b"> quoted\n```\nlog\n```\n"], _transcript),
)  # fmt: skip
