"""Every parser of untrusted bytes: what users write, indexes, registries, engines, images and signers send."""

import base64
import contextlib
import hashlib
import io
import json
import re
import sys
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import factories
import msgspec
from device_code import pieces
from made_images import SITE, context_of, image_of, package, record
from target import REFUSED, REPOSITORY, Target, each, file, folder

from envbuilder.attest import envelope, keys, sbom, statements, trust_policy
from envbuilder.attest.requirements import Requirement, parse_host_classes
from envbuilder.catalog import store
from envbuilder.choice import read_known
from envbuilder.cli.output import as_json, flattened
from envbuilder.compat.fleet import FleetHost
from envbuilder.compat.plan import plan
from envbuilder.engine import connection, layers
from envbuilder.engine.buildkit import Trace
from envbuilder.engine.docker import HistoryEntry, Inspected, to_image
from envbuilder.image import build, host_settings, lockfile, removed_files, system_lock, wheel_records
from envbuilder.image.lockfile import Locked
from envbuilder.matrix import Matrix
from envbuilder.probes.suite import elf, fatbin
from envbuilder.pypi import answer_cache, client, index_config, pages
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import artefact, ptx_text, section_table
from envbuilder.registry import reference, referrers
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Manifest, ambiguity, config_digest
from envbuilder.report.export import FORMATS
from envbuilder.reproduce import document as reproduce_document
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.report import reported
from envbuilder.support import decoding, terminal_text
from envbuilder.support.docker_config import find_login
from envbuilder.support.yaml_reader import parse_yaml
from envbuilder.upgrade import compare, document, observe, policy, user_tests
from envbuilder.validation import image_claims, image_files, image_loader, layer_scan, validate_request
from envbuilder.validation.image_settings import keras_settings
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.validation.suite_session import Session
from envbuilder.validation.verdict_store import read_verdict, users_verdict
from envbuilder.verdict import Verdict, contradiction
from envbuilder.workspace import Workspace, read_document, write_document

DIGEST = "sha256:" + "a" * 64
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def files(*patterns: str) -> Callable[[], list[bytes]]:
    """Take files of the repository as honest inputs."""
    return lambda: [path.read_bytes() for pattern in patterns for path in sorted(REPOSITORY.glob(pattern))]


def documents(*values: object) -> list[bytes]:
    return [msgspec.json.encode(value) for value in values]


def verdicts() -> list[Verdict]:
    return [factories.verdict(), factories.failed_verdict(), factories.gpu_verdict()]


# Files of the user


def matrix(data: bytes) -> None:
    found = parse_yaml(data, "m.yaml", Matrix)
    if len(data) < 300:  # the number of combinations has a limit and tests of its own
        plan(found, store.load())


def lock(data: bytes) -> None:
    text = decoding.lossy(data)
    for parse in (lockfile.parse, system_lock.parse):
        with contextlib.suppress(ValueError):
            parse(text)


def verdict(data: bytes) -> None:
    found = users_verdict(file("v.json", data))
    contradiction(found)
    for form in FORMATS.values():
        form((found,))
    terminal_text.text(validate_request.as_text(flattened(found)))


def configuration(data: bytes) -> None:
    """Read the same bytes as settings of pip, uv and Docker."""
    path = str(file("uv.toml", data))
    for environ in ({"UV_CONFIG_FILE": path}, {"PIP_CONFIG_FILE": path, "UV_NO_CONFIG": "1"}):
        with contextlib.suppress(*REFUSED):
            found = index_config.configured({**environ, "HOME": str(folder())}, folder=folder(), prefix=folder())
            index_config.for_uv(found, {})
    file("config.json", data)
    docker = {"DOCKER_CONFIG": str(folder())}
    each(lambda: find_login("registry.example.org", docker), lambda: connection._arguments(docker))


def apt_settings(data: bytes) -> None:
    file("envbuilder/config.toml", data)
    with mock.patch.dict("os.environ", {"XDG_CONFIG_HOME": str(folder())}):
        host_settings.mirrors()
        host_settings.repository_files("nvidia-bookworm", "/k")


def apt_seeds() -> list[bytes]:
    key = file("key.asc", b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n-----END PGP PUBLIC KEY BLOCK-----\n")
    text = f"""[apt]
debian = "https://m.example.org/d"
[apt.repositories.nvidia-bookworm]
url = "https://p.example.org/c"
key = "{key}"
[mirrors]
"docker.io" = "mirror.example.org"
"""
    return [text.encode()]


def key_files(data: bytes) -> None:
    path = file("k.pem", data)
    path.chmod(0o600)
    each(lambda: keys.load_public_keys(path), lambda: keys.load_private(path))


@cache
def private_key() -> keys.PrivateKey:
    return keys.create(folder() / "keys")


def key_seeds() -> list[bytes]:
    private_key()
    return [path.read_bytes() for path in sorted((folder() / "keys").iterdir())]


# Reports


def report(data: bytes) -> None:
    document = analyse(decoding.lossy(data), store.load()).document
    reproduce_document.as_text(flattened(document))
    assert "\x1b" not in terminal_text.text(reproduce_document.as_markdown(flattened(document)))
    json.loads(as_json(document))


# Package indexes


def wheel(data: bytes) -> None:
    """Read the directory of a wheel, and the beginning of each file."""
    path = file("a-1-py3-none-any.whl", data)
    served = DistFile(project="a", filename=path.name, url=path.as_uri(), size=len(data))
    reader = client.PackageIndex(index_config.IndexConfig(url=""), answer_cache.Cache(folder() / "cache"))
    for member in reader.members(served)[:50]:
        with contextlib.suppress(*REFUSED):
            for _ in zip(reader.stream(served, member), range(40), strict=False):
                pass


def index(data: bytes) -> None:
    for kind in ("text/html", pages.JSON_TYPE):
        with contextlib.suppress(*REFUSED), decoding.damaged("a page"):
            pages.parse("numpy", data, kind, "https://index.example/simple/numpy/")


def locked_wheel(data: bytes) -> None:
    """Read the RECORD of a wheel that has the locked hash, from an index that serves it."""
    index = SimpleNamespace(size=lambda _: len(data), whole=lambda _: [data])
    wanted = DistFile(project="a", filename="a-1-py3-none-any.whl", url="x", sha256=hashlib.sha256(data).hexdigest())
    wheel_records._read(cast("Any", index), wanted, Locked("a", "1", (), "a==1"))


# Binaries


def shared_object(data: bytes) -> None:
    with contextlib.suppress(elf.NotElfError):
        elf.Elf(str(file("x.so", data)))


def object_seeds() -> list[bytes]:
    """Take the smallest shared objects of this Python."""
    found = sorted((path.stat().st_size, path) for path in Path(sys.prefix).rglob("*.so"))
    return [path.read_bytes() for _, path in found[:5]]


def fat_binary(data: bytes) -> None:
    stream = pieces(data, 777)
    fatbin.architectures(stream)
    for one in fatbin.fat_binaries(stream):
        for entry in one.entries[:20]:
            if entry.kind == fatbin.PTX:
                ptx_text.read(entry)
    table = section_table.SectionWatch()
    for _ in table.over(stream):
        pass
    table.sections()


def fat_seeds() -> list[bytes]:
    return [path.read_bytes()[:60_000] for path in sorted((REPOSITORY / "tests/data").rglob("*")) if path.is_file()]


# Engines


def engine(data: bytes) -> None:
    answer: object = decoding.from_json(data, object)
    inspected = answer.get("inspected", answer) if isinstance(answer, dict) else answer
    history = answer.get("history", []) if isinstance(answer, dict) else []
    described = decoding.converted(inspected, Inspected)
    to_image(described, decoding.converted(history, list[HistoryEntry]))


def build_log(data: bytes) -> None:
    """Read a build's messages, and the same bytes as the content of one."""
    response = SimpleNamespace(ok=True, iter_content=lambda _: iter(pieces(data, 1000)))
    found = Trace()
    for one in connection.Stream(cast("Any", None), "build", cast("Any", response), 60.0).records():
        with contextlib.suppress(*REFUSED), decoding.damaged("a trace"):
            list(found.feed(base64.b64decode(one.aux or "")))


def trace(data: bytes) -> None:
    found = Trace()
    with contextlib.suppress(*REFUSED), decoding.damaged("a trace"):
        list(found.feed(data))
    list(found.finish())
    found.failure()


def archive(data: bytes) -> None:
    for stream in layers.layers(pieces(data, 5000)):
        for number, one in enumerate(stream.files):
            if one.kind == "file" and number < 100:
                for _ in one.pieces():
                    pass


# Registries and signers


def manifests(data: bytes) -> None:
    """Read the same bytes as a manifest of every shape, as a configuration and as a list of referrers."""
    manifest = Manifest("application/vnd.oci.image.manifest.v1+json", data, DIGEST)
    name = reference.parse("registry.example/a:b")
    repository = SimpleNamespace(reference=name, manifest=lambda _: manifest)
    ambiguity(manifest)
    config_digest(manifest)
    each(lambda: referrers.contents(cast("Repository", repository), DIGEST))


def sealed_envelope(data: bytes) -> None:
    opened = envelope.KeyOpener((keys.load_public_keys(folder() / "keys" / keys.PUBLIC)[0],)).open(data)
    if not isinstance(opened, statements.Unread):
        statements.parse(opened.payload)


def statement_seeds() -> list[bytes]:
    return [statements.encode(statements.verdict_statement("registry.example/a", one)) for one in verdicts()]


def envelope_seeds() -> list[bytes]:
    return [envelope.KeySealer(private_key()).seal(payload) for payload in statement_seeds()]


def trusted(data: bytes) -> None:
    """Judge the same bytes as a statement, and as predicates, that a trusted key signed."""
    about = _about(data)
    made = [
        statements.encode(
            statements.Statement(
                type=statements.STATEMENT,
                subject=(statements.resource("a", about),),
                predicate_type=kind,
                predicate=msgspec.Raw(data),
            )
        )
        for kind in (statements.VERDICT, statements.TEST_RESULT)
    ]
    signed = (envelope.SignedBy(name="k"),)
    items = tuple(
        trust_policy.AttachedStatement(DIGEST, signed, statements.understood(about, statements.PAYLOAD_TYPE, one))
        for one in (*made, data)
    )
    each(
        lambda: trust_policy.decide(items, Requirement(level="cpu"), NOW),
        lambda: trust_policy.decide_by_class(
            items, Requirement(level="gpu", on=parse_host_classes("A100/535", store.load().gpu_names)), NOW
        ),
    )


def _about(data: bytes) -> str:
    """Return the digest that a predicate names, so that the predicate is relevant."""
    with contextlib.suppress(*REFUSED):
        found = decoding.from_json(data, statements.VerdictPredicate).verdict.image.digest or ""
        return found if re.fullmatch("sha256:[0-9a-f]{64}", found) else DIGEST
    return DIGEST


def trusted_seeds() -> list[bytes]:
    return [*statement_seeds(), *documents(*({"verdict": one} for one in verdicts()))]


def bundle(data: bytes) -> None:
    """Open a Sigstore bundle; no case reaches Sigstore's trust root."""
    import sigstore.errors  # noqa: PLC0415 - slow to import
    import sigstore.verify  # noqa: PLC0415

    verifier = mock.Mock()
    verifier.verify_dsse.side_effect = sigstore.errors.VerificationError("not verified")
    with mock.patch.object(sigstore.verify.Verifier, "production", return_value=verifier):
        envelope.SigstoreOpener("a@example.org", "https://issuer.example").open(data)


# Images


def results(data: bytes) -> None:
    """Follow a run: each line is the content of a message."""
    session = Session(CHECKS[:6], lambda _: None, token="k")
    for payload in data.split(b"\n")[:200]:
        session.feed(b"k " + payload + b"\n")
    session.results()
    session.violations()
    session.timeline()
    session.feed(data)


def result_seeds() -> list[bytes]:
    finding = {"code": "UNKNOWN", "severity": "error", "subject": "s", "message": "m"}
    more = {
        "findings": [finding],
        "measurements": {"a": {"value": 1.0, "unit": "s"}},
        "phases": {"p": {"cold_s": [1.0]}},
    }
    events: list[dict[str, Any]] = [{"event": "start", "python": "3.11", "executable": "/p"}]
    for one in CHECKS[:6]:
        result = {"name": one.name, "tier": one.level, "outcome": "failed", "duration_s": 1.0, "observed": "x"}
        events += [{"event": "begin", "name": one.name}, {"event": "result", "result": {**result, **more}}]
    driver = {"driver": "535.1", "cuda": "12.2", "count": 1, "gpus": [{"name": "A100", "uuid": "u", "memory": 1}]}
    events.append({"event": "result", "result": {"name": "driver", "tier": "gpu", "outcome": "passed", "data": driver}})
    return [b"\n".join(documents(*events, {"event": "end"})), *documents(*events[-3:])]


def claims(data: bytes) -> None:
    """Read the document and the lock that an image carries."""
    carried = cast("image_files.ImageFiles", SimpleNamespace(content=lambda _: data))
    image_claims.document(carried)
    if text := image_claims.carried_lock(carried):
        lockfile.parse(text)


def installed_records(data: bytes) -> None:
    """Read a RECORD as an image and as a wheel have it."""
    listed = {f"{SITE}/a-1.dist-info/RECORD": data}
    image_loader.distributions(image_of(package("a", "1", {"a/__init__.py": b""}), listed))
    tuple(image_loader.parse(data, "site"))
    image_loader.InstalledPackage("site", "a-1.dist-info", "a", "1", frozenset(), {}).of_wheel(data)


def image_packages(data: bytes) -> None:
    """Read what an SBOM is made of: dpkg's status, METADATA, os-release."""
    paths = ("var/lib/dpkg/status", "usr/lib/python3.11/site-packages/a-1.dist-info/METADATA")
    sbom.read([(path, data) for path in paths], lambda path: data if path.endswith("os-release") else None)


def single_files(data: bytes) -> None:
    """Read single files of an image: a shared object's header, settings, a build's facts."""
    text = decoding.lossy(data)
    layer_scan._dynamic(data)
    layer_scan.secrets_in("app/.env", data)
    files = image_of({"root/.keras/keras.json": data, "etc/passwd": data})
    tuple(keras_settings(context_of(files, env={"HOME": "/root"})))
    artefact.build_info(text)
    with contextlib.suppress(*REFUSED):
        removed_files.parse(text)


def test_results(data: bytes) -> None:
    """Read the lines of the runner of a user's tests."""
    user_tests.results(cast("observe.Output", SimpleNamespace(stdout=decoding.lossy(data), wrong="")))


def operation_results(data: bytes) -> None:
    """Compare numbers that two images computed."""
    for precision in ("float64", "float32"):
        old, new = (
            document.Operation(name="a", precision=precision, error=0.0, values=text)
            for text in (decoding.lossy(data), base64.b64encode(zlib.compress(data)).decode())
        )
        compare.drift_of(compare._values(old), compare._values(new))


# Files that envbuilder keeps


def stored_document(data: bytes) -> None:
    """Read every document that a workspace keeps; damaged ones are set aside."""
    space = Workspace(folder() / "kept")
    environment = factories.environment(id="x")
    with contextlib.redirect_stderr(io.StringIO()):
        found = read_document(file("d.json", data), Verdict)
        if found is not None:
            write_document(folder() / "e.json", found)
        for path, read in (
            (space.image_record("x"), lambda: build.stored_build(environment, space)),
            (space.image_record("x"), lambda: read_document(space.image_record("x"), build.ImageRecord)),
            (
                upgrade := space.root / "out/upgrades/a/upgrade.json",
                lambda: read_document(upgrade, document.UpgradeDocument),
            ),
            (space.verdict("x"), lambda: read_verdict(space.verdict("x"))),
            (space.base(DIGEST), lambda: read_known(_own_base(), space.root, store.load())),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            each(read)


def _own_base() -> str:
    image = f"registry.example/base@{DIGEST}"
    text = f"name: x\naxes: {{tensorflow: ['2.20.0'], os: [own]}}\nbases: {{own: {{image: {image!r}}}}}\n"
    return str(file("own.yaml", text.encode()))


def layer_record(data: bytes) -> None:
    """Read the cached record of a layer, compressed or not."""
    for kept in (data, zlib.compress(data, 1)):
        image_files._unpacked(kept)


def layer_record_seeds() -> list[bytes]:
    packed = msgspec.msgpack.encode(record(package("a", "1", {"a/__init__.py": b"x = 1\n"})))
    return [packed, zlib.compress(packed, 1)]


TARGETS: tuple[Target, ...] = (
    Target("matrix", matrix, files("matrices/*.yaml")),
    Target("fleet", lambda data: parse_yaml(data, "f.yaml", tuple[FleetHost, ...]), files("**/fleets/*.yaml")),
    Target("policy", lambda data: parse_yaml(data, "p.yaml", policy.Policy), files("envbuilder/upgrade/policy.yaml")),
    Target("lock", lock, files("images/*cpu*/requirements.lock")),
    Target("verdict", verdict, lambda: documents(*verdicts())),
    Target("configuration", configuration),
    Target("repositories", apt_settings, apt_seeds),
    Target("keys", key_files, key_seeds),
    Target("report", report, files("tests/corpus/*.txt")),
    Target("capture", lambda data: reported.parse(decoding.lossy(data))),
    Target("wheel", wheel),
    Target("index", index),
    Target("locked-wheel", locked_wheel),
    Target("elf", shared_object, object_seeds),
    Target("fat-binary", fat_binary, fat_seeds),
    Target("engine", engine),
    Target("records", build_log),
    Target("trace", trace),
    Target("archive", archive),
    Target("shapes", manifests),
    Target("envelope", sealed_envelope, envelope_seeds),
    Target("trusted", trusted, trusted_seeds),
    Target("bundle", bundle),
    Target("results", results, result_seeds),
    Target("claims", claims, files("images/*cpu*/environment.json", "images/*cpu*/requirements.lock")),
    Target("record-rows", installed_records),
    Target("packages", image_packages),
    Target("in-image", single_files),
    Target("user-tests", test_results),
    Target("outputs", operation_results),
    Target("stored", stored_document, lambda: documents(*verdicts()[:2])),
    Target("record", layer_record, layer_record_seeds),
)
