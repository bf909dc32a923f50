"""Keys; statements and their envelope; and the decision of `verify`, for one requirement and for each host class."""

import base64
import importlib
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import permutations, product
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from factories import A100, H100, check, digest, failed_verdict, finding, gpu_verdict, inconclusive_verdict, verdict
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from in_toto_attestation.predicates.test_result.v0 import test_result_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement as Published
from securesystemslib.dsse import Envelope as TheirEnvelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer._crypto_signer import CryptoSigner
from securesystemslib.signer._key import SSlibKey
from table_rows import rows

from envbuilder import simulated
from envbuilder.attest import envelope, statements
from envbuilder.attest.envelope import BUNDLE, Envelope, KeyOpener, KeySealer, Opened, SignedBy, bundled
from envbuilder.attest.keys import PRIVATE, PUBLIC, PrivateKey, create, load_private, load_public_keys
from envbuilder.attest.requirements import GpuRequirement, HostClass, Requirement, parse_host_classes, read_gpu
from envbuilder.attest.statements import (
    VERDICT,
    VerdictPredicate,
    about,
    result_statement,
    understood,
    verdict_statement,
)
from envbuilder.attest.trust_policy import AttachedStatement, decide_by_class
from envbuilder.catalog.store import load
from envbuilder.errors import PublishError, UsageError
from envbuilder.finding import Code, Severity
from envbuilder.verdict import GpuSeen, HostRef, ImageRef, Verdict

NAME = "registry.example.org/team/image"


def predicate(made: statements.Statement | None) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bytes(made.predicate))
    return found


@pytest.mark.parametrize("make", [verdict, gpu_verdict, failed_verdict])
def test_statements_have_the_shape_that_in_toto_publishes(make) -> None:
    result = result_statement(NAME, make())
    assert result is not None
    for made in (result, verdict_statement(NAME, make())):
        parsed = json_format.Parse(statements.encode(made), statement_pb2.Statement())
        Published.copy_from_pb(parsed).validate()
        assert parsed.subject[0].digest["sha256"] == make().image.digest.removeprefix("sha256:")
    fields = {key: value for key, value in predicate(result).items() if not key.startswith("envbuilder_")}
    shape = json_format.ParseDict(fields, test_result_pb2.TestResult())
    assert shape.result in ("PASSED", "WARNED", "FAILED")
    assert {item.name for item in shape.configuration} == {"suite", "requirements.lock"}


def test_each_verdict_has_its_word() -> None:
    warned = verdict(checks=(check(findings=(finding(Code.PTX_JIT, Severity.WARNING),)), check("labels")))
    assert predicate(result_statement(NAME, verdict()))["result"] == "PASSED"
    assert predicate(result_statement(NAME, failed_verdict()))["failedTests"] == ["import"]
    stated = predicate(result_statement(NAME, warned))
    assert (stated["result"], stated["warnedTests"], stated["passedTests"]) == ("WARNED", ["import"], ["labels"])


def test_inconclusive_never_becomes_passed() -> None:
    assert result_statement(NAME, inconclusive_verdict()) is None
    stated = predicate(result_statement(NAME, inconclusive_verdict(), allowed=("inconclusive",)))
    assert stated["result"] == "WARNED"
    assert stated["envbuilder_allowed"] == ["inconclusive"]
    assert stated["envbuilder_verdict"] == "INCONCLUSIVE"
    assert stated["envbuilder_skippedTests"] == ["matmul"]
    assert stated["envbuilder_unfinishedTests"] == ["conv"]


@pytest.mark.parametrize("word", ["PASSED", "FAILED", "INCONCLUSIVE"])
@pytest.mark.parametrize("state", [result_statement, verdict_statement])
def test_simulated_verdict_is_never_stated(state, word) -> None:
    with pytest.raises(PublishError, match="simulated"):
        state(NAME, verdict(simulated=True, verdict=word), allowed=("inconclusive",))


def test_verdict_without_a_digest_is_never_stated() -> None:
    with pytest.raises(PublishError, match="manifest digest"):
        verdict_statement(NAME, verdict(image=ImageRef(id=digest("image"))))


NOW = datetime(2026, 11, 21, tzinfo=UTC)
OLD = "2026-06-01T00:00:00+00:00"
CATALOG = load()
SUBJECT = digest("manifest")


def gpu(text: str) -> GpuRequirement:
    return read_gpu(text, CATALOG.gpu_names)


def evidence(*values: Verdict) -> tuple[AttachedStatement, ...]:
    """Sign verdicts, each of which claims to answer all that are FAILED."""
    failed = tuple(digest(repr(one)) for one in values if one.verdict == "FAILED")
    made = []
    for value in values:
        predicate = VerdictPredicate(verdict=value, answers=failed)
        payload = statements.encode(about("image", SUBJECT, VERDICT, predicate))
        meaning = understood(SUBJECT, statements.PAYLOAD_TYPE, payload)
        made.append(AttachedStatement(digest(repr(value)), (SignedBy(name="key"),), meaning))
    return tuple(made)


ON = parse_host_classes("H100/535, A100/550", CATALOG.gpu_names)
HOSTS = {
    "H100/535": HostRef(driver="535.104.05", gpus=(H100,)),
    "A100/550": HostRef(driver="550.54.15", gpus=(A100,)),
    "A100/535": HostRef(driver="535.104.05", gpus=(A100,)),
}


def passed(kind: str, **given: object) -> Verdict:
    return gpu_verdict(**{"host": HOSTS[kind], "started": given.get("finished", verdict().started), **given})


def failed(kind: str, level: str, **given: object) -> Verdict:
    values: dict[str, object] = {"host": HOSTS[kind], "level": "static", "finished": "2026-11-20T20:00:00+00:00"}
    names: dict[str, str] = {check.level: check.name for check in gpu_verdict().checks}
    values["environment"] = gpu_verdict().environment
    return failed_verdict(checks=(check(names.get(level, "all-reduce"), "failed", level=level),), **{**values, **given})


def states(*values: Verdict, demand: Requirement | None = None) -> list[str]:
    asked = replace(demand or Requirement(level="gpu"), on=ON)
    found = decide_by_class(evidence(*values), asked, NOW)
    for one in found:
        assert bool(one.refusals) == (one.state != "passed"), "each no has a reason, no yes has one"
        assert one.state == one.standing.state
    return [one.state for one in found]


def test_pass_on_each_kind_is_demanded() -> None:
    assert states() == ["missing", "missing"]
    assert states(passed("H100/535")) == ["passed", "missing"]
    assert states(passed("H100/535"), passed("A100/535")) == ["passed", "missing"]
    assert states(passed("H100/535"), passed("A100/550")) == ["passed", "passed"]


@pytest.mark.parametrize("level", ["gpu", "multi-gpu"])
def test_failure_on_a_gpu_is_its_own_kinds(level: str) -> None:
    assert states(passed("H100/535"), failed("A100/550", level)) == ["passed", "failed"]
    assert states(passed("H100/535"), passed("A100/550"), failed("A100/550", level)) == ["passed", "failed"]
    assert states(passed("H100/535"), passed("A100/550"), failed("A100/535", level)) == ["passed", "passed"]


@pytest.mark.parametrize(("level", "where"), list(product(["static", "load", "cpu"], HOSTS)))
def test_failure_below_the_gpu_revokes_all(level: str, where: str) -> None:
    bad = failed(where, level)
    assert states(passed("H100/535"), passed("A100/550"), bad) == ["failed", "failed"]
    assert states(bad) == ["failed", "failed"]
    newer = passed("A100/550", finished="2026-11-20T22:00:00+00:00")
    assert states(passed("H100/535"), newer, bad) == ["passed", "passed"], "a newer PASSED makes up for it"


def test_simulated_verdict_counts_as_none() -> None:
    simulated = passed("A100/550", simulated=True)
    assert states(passed("H100/535"), simulated) == ["passed", "missing"]
    assert states(simulated, demand=Requirement(level="none")) == ["missing", "missing"]
    assert states(msgspec.structs.replace(simulated, verdict="FAILED")) == ["missing", "missing"]


def test_our_simulated_driver_is_known_by_its_gpus() -> None:
    header = Path(simulated.__file__).with_name("driver.h").read_text()
    (text,) = re.findall(r'UUID_TEXT "([^"]+)"', header)
    uuid = text.replace("%02x", "00")
    assert bytes.fromhex(uuid[4:].replace("-", "")).startswith(b"simulated GPU")
    host = HostRef(driver="550.54.15", gpus=(msgspec.structs.replace(A100, uuid=uuid),))
    unreal = gpu_verdict(host=host)
    assert unreal.unreal
    assert not unreal.simulated
    assert states(passed("H100/535"), unreal) == ["passed", "missing"]
    assert states(passed("H100/535"), passed("A100/550"), failed("A100/550", "cpu", host=host)) == ["passed", "passed"]
    later = gpu_verdict(host=host, finished="2026-11-20T23:00:00+00:00")
    assert states(failed("A100/550", "cpu"), later) == ["failed", "failed"]
    with pytest.raises(PublishError, match="simulated"):
        verdict_statement("x", unreal)


def test_stale_inconclusive_and_too_low_are_told_apart() -> None:
    old = passed("A100/550", finished=OLD)
    assert states(passed("H100/535"), old) == ["passed", "stale"]
    unsure = inconclusive_verdict(host=HOSTS["A100/550"])
    assert states(passed("H100/535"), unsure) == ["passed", "inconclusive"]
    assert states(unsure, old) == ["missing", "stale"]
    assert states(passed("A100/550", level="cpu")) == ["missing", "refused"]


def test_example_of_the_documents_is_a_verdict_statement() -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "attestations.md").read_text()
    shown = page.split("```json\n")[1].split("```")[0]
    subject = json.loads(shown)["subject"][0]
    found = understood(f"sha256:{subject['digest']['sha256']}", statements.PAYLOAD_TYPE, shown.encode())
    assert isinstance(found, VerdictPredicate)
    made = statements.verdict_statement(subject["name"], found.verdict, answers=found.answers, previous=found.previous)
    assert json.loads(statements.encode(made)) == json.loads(shown)


def test_kinds_are_read_by_the_catalogues_names() -> None:
    assert parse_host_classes("NVIDIA H100/535,h100 / 535", CATALOG.gpu_names) == (HostClass(gpu("H100"), "535"),)
    names = {
        "a100-80gb": "A100 80GB",
        " A100 40 GiB\n": "A100 40GB",
        "RTX3080": "GeForce RTX 3080",
        "3080Ti": "GeForce RTX 3080 Ti",
    }
    assert [str(gpu(text)) for text in names] == list(names.values())
    for wrong in ("H100", "", "H100/", "/535", "H100/new", "H999/535", "H100/535,,", "RTX 4000/550"):
        with pytest.raises(UsageError):
            parse_host_classes(wrong, CATALOG.gpu_names)


def seen(name: str, memory: float = 0) -> GpuSeen:
    return GpuSeen(name=name, compute_capability="9.0", memory=int(memory * (1 << 30)))


@rows
def test_every_word_of_a_gpu_has_to_be_in_the_drivers_name(wanted: str, met: list[str], not_met: list[str]) -> None:
    assert [name for name in met if not gpu(wanted).is_met_by(seen(name))] == []
    assert [name for name in not_met if gpu(wanted).is_met_by(seen(name))] == []


def test_name_of_a_product_is_no_other_product() -> None:
    """Of the names that nvidia-smi prints, a demand takes its own one, and those with the same words."""
    brands, nothing = {"geforce", "tesla", "quadro", "grid"}, {"nvidia", "gpu", ""}
    sxm = {"NVIDIA H100 SXM5 80GB": ["NVIDIA H100 80GB HBM3"]}
    sxm |= {"A100-SXM-80GB": ["NVIDIA A100-SXM4-80GB", "A100-SXM4-80GB"]}
    for row in CATALOG.gpus:
        names = [name for name in row.smi_names if CATALOG.gpu_model(name) == row.name]
        words = {name: {*re.split("[ ()-]+", name.lower())} - nothing for name in names}
        for wanted, name in product(names, names):
            same = words[wanted] <= words[name] and words[name] - words[wanted] <= brands
            assert gpu(wanted).is_met_by(seen(name)) == (same or name in sxm.get(wanted, ())), (wanted, name)


def test_memory_is_compared_where_the_name_does_not_say_it() -> None:
    assert gpu("T4 16GB").is_met_by(seen("Tesla T4", 15))
    assert gpu("H100 94GB").is_met_by(seen("NVIDIA H100 NVL", 93.58))
    assert not gpu("H100 80GB").is_met_by(seen("NVIDIA H100 NVL", 93.58))
    assert not gpu("H100 80GB").is_met_by(seen("NVIDIA H100 PCIe"))
    assert not gpu("A100 80GB").is_met_by(seen("NVIDIA A100-SXM4-40GB", 80))


@rows
def test_word_without_a_meaning_is_quoted(text: str, quoted: str) -> None:
    with pytest.raises(UsageError, match=f"'{quoted}'"):
        gpu(text)


VERDICTS = st.builds(
    lambda kind, word, level, days, simulated: msgspec.structs.replace(
        failed(kind, level) if word == "FAILED" else passed(kind, verdict=word),
        simulated=simulated,
        started=(NOW - timedelta(days=days)).isoformat(),
        finished=(NOW - timedelta(days=days)).isoformat(),
    ),
    st.sampled_from(sorted(HOSTS)),
    st.sampled_from(["PASSED", "FAILED", "INCONCLUSIVE"]),
    st.sampled_from(["static", "load", "cpu", "gpu", "multi-gpu"]),
    st.integers(min_value=0, max_value=200),
    st.booleans(),
)


@given(st.lists(VERDICTS, max_size=5), VERDICTS)
def test_more_bad_news_never_proves_a_kind(values: list[Verdict], more: Verdict) -> None:
    before = states(*values)
    if more.verdict != "PASSED" or more.simulated:
        after = states(*values, more)
        assert not [pair for pair in zip(before, after, strict=True) if pair[1] == "passed" != pair[0]]
    for kind, state in zip(ON, before, strict=True):
        real = [one for one in values if one.verdict == "PASSED" and not one.simulated and one.host == HOSTS[str(kind)]]
        assert real or state != "passed"


@pytest.mark.parametrize("name", [PRIVATE, PUBLIC])
def test_no_key_is_ever_overwritten(tmp_path, name) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="never overwritten"):
        create(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_protected_key_needs_its_password(tmp_path) -> None:
    right, other = "correct \udcff", "other"  # a byte of a variable that is not text
    made = create(tmp_path, password=right)
    assert load_private(tmp_path / PRIVATE, password=right).public.keyid == made.public.keyid
    for wrong in (None, other):
        with pytest.raises(UsageError, match="TF_ENVBUILDER_KEY_PASSWORD"):
            load_private(tmp_path / PRIVATE, password=wrong)
    with pytest.raises(UsageError, match="1,023"):
        create(tmp_path / "long", password=right * 200)


def test_wrong_half_is_named(tmp_path) -> None:
    create(tmp_path)
    with pytest.raises(UsageError, match=PUBLIC):
        load_public_keys(tmp_path / PRIVATE)
    with pytest.raises(UsageError, match="absent"):
        load_public_keys(tmp_path / "absent")


PAYLOAD = statements.encode(verdict_statement("registry.example.org/team/image", verdict()))


@pytest.fixture(scope="module")
def keys(tmp_path_factory) -> tuple[PrivateKey, PrivateKey]:
    folder = tmp_path_factory.mktemp("keys")
    return create(folder / "one"), create(folder / "two")


def theirs(key: PrivateKey) -> SSlibKey:
    """Make the key that securesystemslib knows; it has its own way to name keys."""
    raw = key.public._key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return SSlibKey(key.public.keyid, "ed25519", "ed25519", {"public": raw.hex()})


def test_securesystemslib_accepts_what_we_sign(keys) -> None:
    one, two = keys
    document = json.loads(msgspec.json.encode(envelope.seal(PAYLOAD, statements.PAYLOAD_TYPE, one, two)))
    read = TheirEnvelope.from_dict(json.loads(json.dumps(document)))
    assert set(read.verify([theirs(one), theirs(two)], 2)) == {one.public.keyid, two.public.keyid}
    assert read.payload == PAYLOAD
    edited = TheirEnvelope(PAYLOAD + b" ", statements.PAYLOAD_TYPE, read.signatures)
    with pytest.raises(VerificationError):
        edited.verify([theirs(one)], 1)


def test_we_accept_what_securesystemslib_signs(keys) -> None:
    one, two = keys
    made = TheirEnvelope(PAYLOAD, statements.PAYLOAD_TYPE, {})
    made.sign(CryptoSigner(one._key, SSlibKey("their-name", "ed25519", "ed25519", theirs(one).keyval)))
    content = json.dumps(made.to_dict()).encode()
    opened = KeyOpener((two.public, one.public)).open(content)
    assert isinstance(opened, Opened)
    assert (opened.payload, [who.name for who in opened.signed_by]) == (PAYLOAD, [one.public.keyid])
    edited = json.dumps(made.to_dict() | {"payload": base64.b64encode(PAYLOAD + b" ").decode()}).encode()
    for opener, text in ((KeyOpener((two.public,)), content), (KeyOpener((one.public,)), edited)):
        assert isinstance(opener.open(text), statements.Unread)


def test_sigstore_encodes_the_same_message() -> None:
    dsse = importlib.import_module("sigstore.dsse")  # its encoder has no public name
    assert dsse._pae(statements.PAYLOAD_TYPE, PAYLOAD) == envelope.pae(statements.PAYLOAD_TYPE, PAYLOAD)


def test_file_of_two_keys_holds_both(tmp_path: Path, keys) -> None:
    one, two = keys
    file = tmp_path / "both.pub"
    file.write_text(f"{one.public.pem}# the second\nExpires: 2027-01-01T00:00:00Z\n{two.public.pem}")
    expected = [(one.public.keyid, None), (two.public.keyid, END)]
    assert [(key.keyid, key.expires) for key in load_public_keys(file)] == expected


def secret(key: PrivateKey) -> str:
    found: bytes = key._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return found.decode()


END = datetime(2027, 1, 1, tzinfo=UTC)
LIMIT = "Expires: 2027-01-01T00:00:00Z"


@rows
def test_key_file_with_text_that_is_not_understood_is_refused(tmp_path: Path, keys, text: str) -> None:
    for read, pem in ((load_public_keys, keys[0].public.pem), (load_private, secret(keys[0]))):
        (tmp_path / "key").write_text(text.format(pem=pem, secret=secret(keys[1])))
        with pytest.raises(UsageError, match=r"key(:[0-9]+:| holds a private)") as refused:
            read(tmp_path / "key")
        assert "hello" not in str(refused.value)  # a line that is not understood may be a secret


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_limit_is_read_from_a_file_of_any_editor(tmp_path: Path, keys, end: str, encoding: str) -> None:
    for name, pem in (("key.pub", keys[1].public.pem), ("key", secret(keys[0]))):
        text = f"# mine\n{LIMIT}\n\n{pem}".replace("\n", end)
        (tmp_path / name).write_bytes(text.encode(encoding))
    assert [key.expires for key in load_public_keys(tmp_path / "key.pub")] == [END]
    assert load_private(tmp_path / "key").public.expires == END


def test_key_that_is_given_twice_has_the_earlier_end(tmp_path: Path, keys) -> None:
    for name, limit in (("a", ""), ("b", LIMIT), ("c", LIMIT.replace("2027", "2028"))):
        (tmp_path / name).write_text(f"{limit}\n{keys[0].public.pem}")
    for order in permutations("abc"):
        assert [key.expires for key in load_public_keys(*(tmp_path / name for name in order))] == [END]


def test_bundle_holds_the_envelopes_own_signatures(tmp_path: Path) -> None:
    key, other = create(tmp_path / "one"), create(tmp_path / "two")
    sealed = KeySealer(key, others=(other,)).seal(b'{"a": 1}')
    before, made = json.loads(sealed), json.loads(bundled(sealed))
    assert made["mediaType"] == BUNDLE
    assert made["verificationMaterial"] == {"publicKey": {"hint": key.public.keyid}, "tlogEntries": []}
    inside = made["dsseEnvelope"]
    assert (inside["payload"], inside["payloadType"]) == (before["payload"], before["payloadType"])
    assert inside["signatures"] == [{"sig": one["sig"]} for one in before["signatures"]]
    opened = KeyOpener((key.public,)).open(json.dumps(inside).encode())
    assert isinstance(opened, Opened), "the signature stands without its name"
    with pytest.raises(PublishError):
        bundled(b"no envelope")
    empty = Envelope(payload="", payload_type="", signatures=())
    assert json.loads(bundled(msgspec.json.encode(empty)))["dsseEnvelope"]


def test_sigstores_own_reader_takes_it(tmp_path: Path) -> None:
    bundles = pytest.importorskip("sigstore_models.bundle.v1", reason="comes with the extra sigstore")
    key = create(tmp_path)
    read = bundles.Bundle.from_json(bundled(KeySealer(key).seal(b"{}")))
    assert read.verification_material.public_key.hint == key.public.keyid
    assert len(read.dsse_envelope.signatures) == 1
