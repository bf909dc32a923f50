"""Policies for admission controllers: valid by their own schemas, and as strict as they say."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from command_line import ran
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from factories import H100

from envbuilder.attest.keys import PUBLIC, PublicKey, create
from envbuilder.attest.kinds import Kind
from envbuilder.attest.statement import VERDICT
from envbuilder.errors import UsageError
from envbuilder.publish.admission import CONTROLLERS, Admission, policy
from envbuilder.verdict import Level

CRDS = Path(__file__).parents[1] / "data" / "crds"
KINDS = (Kind(gpu="H100", driver="535"), Kind(gpu="GeForce RTX 3080", driver="550.54.15"))


KEY = PublicKey(
    "ab" * 32, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", Ed25519PrivateKey.generate().public_key()
)
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def asked(
    *on: Kind, level: Level = "gpu", keys: tuple[PublicKey, ...] = (), identity: str = "ci@example.org"
) -> Admission:
    return Admission("registry.example.org/ml/tf", identity, "https://accounts.example.org", level, on, keys)


def closed(schema: Any) -> Any:
    """Forbid what a schema does not name, as an API server with strict validation does."""
    if isinstance(schema, dict):
        made = {key: closed(value) for key, value in schema.items()}
        return {"additionalProperties": False, **made} if "properties" in made else made
    return [closed(one) for one in schema] if isinstance(schema, list) else schema


def schema_of(document: dict[str, Any]) -> Any:
    definition = yaml.safe_load((CRDS / f"{document['kind'].lower()[:-1]}ies.yaml").read_text())
    group, _, version = document["apiVersion"].partition("/")
    assert (definition["spec"]["group"], definition["spec"]["names"]["kind"]) == (group, document["kind"])
    named = next(one for one in definition["spec"]["versions"] if one["name"] == version)
    assert named["served"]
    return closed(named["schema"]["openAPIV3Schema"]["properties"]["spec"])


@pytest.mark.parametrize("on", [(), KINDS], ids=["anywhere", "kinds"])
def test_a_cluster_image_policy_is_valid_by_its_own_schema(on: tuple[Kind, ...]) -> None:
    """Strictly, by the definition that the controller is installed with; a field too many is refused."""
    document = yaml.safe_load(policy("sigstore-policy-controller", asked(*on), NOW))
    schema = schema_of(document)
    jsonschema.validate(document["spec"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document["spec"], "image": []}, schema)


@pytest.mark.parametrize("keys", [(), (KEY, KEY)], ids=["identity", "keys"])
def test_a_cluster_policy_is_valid_by_its_own_schema(keys: tuple[PublicKey, ...]) -> None:
    """Strictly, by the definition that Kyverno is installed with; a field too many is refused."""
    document = yaml.safe_load(policy("kyverno", asked(level="cpu", keys=keys), NOW))
    schema = schema_of(document)
    jsonschema.validate(document["spec"], schema)
    rule = document["spec"]["rules"][0]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document["spec"], "rules": [{**rule, "verifyImage": []}]}, schema)


def test_kyverno_takes_any_one_of_the_keys_and_asks_no_log() -> None:
    """Each key is an entry of which one has to have signed; no log has what a key signed, and none is asked."""
    document = yaml.safe_load(
        policy("kyverno", asked(level="cpu", keys=(KEY, replace(KEY, pem="other")), identity=""), NOW)
    )
    (attestors,) = document["spec"]["rules"][0]["verifyImages"][0]["attestations"][0]["attestors"]
    assert attestors["count"] == 1
    assert [one["keys"]["publicKeys"] for one in attestors["entries"]] == [KEY.pem, "other"]
    assert all(one["keys"]["rekor"] == {"ignoreTlog": True} for one in attestors["entries"])
    assert all(one["keys"]["ctlog"] == {"ignoreSCT": True} for one in attestors["entries"])
    with pytest.raises(UsageError, match="keyless"):
        policy("sigstore-policy-controller", asked(keys=(KEY,)), NOW)


def test_each_kind_is_asked_for_by_itself() -> None:
    """A rule a kind, each for our predicate, PASSED, real, high enough, that driver's branch and that very model."""
    document = yaml.safe_load(policy("sigstore-policy-controller", asked(*KINDS), NOW))
    (authority,) = document["spec"]["authorities"]
    assert authority["signatureFormat"] == "bundle", "what keyless publishing attaches"
    first, second = (one["policy"]["data"] for one in authority["attestations"])
    assert {one["predicateType"] for one in authority["attestations"]} == {VERDICT}
    for rule in (first, second):
        assert 'verdict.verdict == "PASSED"' in rule
        assert "verdict.simulated == false" in rule
        assert '["gpu", "multi-gpu"][_]' in rule
        assert "default isCompliant = false" in rule
    assert '"535."' in first
    assert '"550.54.15."' in second


@pytest.mark.parametrize(
    ("kind", "name", "same"),
    [
        (0, H100.name, True),
        (0, "NVIDIA H100 PCIe", True),
        (0, "NVIDIA H100 80GB HBM3 MIG 1g.10gb", False),
        (0, "NVIDIA GH100", False),
        (1, "NVIDIA GeForce RTX 3080", True),
        (1, "NVIDIA GeForce RTX 3080 Ti", False),
        (1, "NVIDIA GeForce RTX 3080 Ti Laptop GPU", False),
    ],
)
def test_a_model_is_no_other_model(kind: int, name: str, *, same: bool) -> None:
    """A 3080 Ti is no 3080, and a slice of an H100 no H100: the rule's pattern is that strict."""
    document = yaml.safe_load(policy("sigstore-policy-controller", asked(*KINDS), NOW))
    rule = document["spec"]["authorities"][0]["attestations"][kind]["policy"]["data"]
    pattern = re.search(r'regex\.match\("(.*?)", input', rule)
    assert pattern is not None
    assert (re.search(pattern[1], name) is not None) is same


def test_kyverno_forbids_whatever_is_not_passed() -> None:
    """It holds every statement to the conditions: kinds cannot be asked for one by one, and are refused."""
    document = yaml.safe_load(policy("kyverno", asked(level="cpu"), NOW))
    (rule,) = document["spec"]["rules"]
    (verify,) = rule["verifyImages"]
    assert verify["type"] == "SigstoreBundle"
    assert verify["required"]
    assert verify["verifyDigest"]
    (attestation,) = verify["attestations"]
    assert attestation["type"] == VERDICT
    told = {one["key"]: one["value"] for one in attestation["conditions"][0]["all"]}
    assert told["{{ verdict.verdict }}"] == "PASSED"
    assert told["{{ verdict.simulated }}"] is False
    assert told["{{ verdict.level }}"] == ["cpu", "gpu", "multi-gpu"]
    with pytest.raises(UsageError, match="Kyverno"):
        policy("kyverno", asked(*KINDS), NOW)


def test_the_command_says_what_it_lacks(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Which controller, whose images and who signed have to be said; then the policy is printed."""
    words = ("--to", "registry.example.org/ml/tf", "--identity", "a@b", "--issuer", "https://c")
    for controller in CONTROLLERS:
        code, out, _ = ran(capsys, "export", "policy", controller, *words)
        assert code == 0
        assert yaml.safe_load(out)["metadata"]["name"] == "envbuilder-verdicts"
    create(tmp_path)
    trusted = ("--to", "registry.example.org/ml/tf", "--key", str(tmp_path / PUBLIC))
    code, out, _ = ran(capsys, "export", "policy", "kyverno", *trusted)
    assert code == 0
    (attestors,) = yaml.safe_load(out)["spec"]["rules"][0]["verifyImages"][0]["attestations"][0]["attestors"]
    assert [one["keys"]["publicKeys"] for one in attestors["entries"]] == [(tmp_path / PUBLIC).read_text()]
    assert ran(capsys, "export", "policy", "sigstore-policy-controller", *trusted)[0] == 2
    assert ran(capsys, "export", "policy", "kyverno", *trusted, "--identity", "a@b")[0] == 2
    assert ran(capsys, "export", "policy", "kyverno")[0] == 2
    assert ran(capsys, "export", "policy", "gatekeeper", *words)[0] == 2
    assert ran(capsys, "export", "policy", *words)[0] == 2


def test_a_key_that_has_ended_is_refused_and_an_end_to_come_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """No controller ends a key: one that `verify` would refuse is in no policy, and another's end stands in it."""
    words = ("export", "policy", "kyverno", "--to", "registry.example.org/ml/tf")
    limits = {"old": datetime.now(UTC) - timedelta(days=1), "good": datetime.now(UTC) + timedelta(days=9), "ever": None}
    for name, limit in limits.items():
        create(tmp_path / name, expires=limit)
    old, good, ever = (("--key", str(tmp_path / name / PUBLIC)) for name in limits)
    code, out, err = ran(capsys, *words, *old, *good)
    assert (code, out) == (2, "")
    assert f"until {(datetime.now(UTC) - timedelta(days=1)):%Y-%m-%d}" in err
    code, out, _ = ran(capsys, *words, *good, *ever)
    assert code == 0
    comments = [line for line in out.splitlines() if line.startswith("# Key")]
    assert len(comments) == 1
    assert f"trusted until {(datetime.now(UTC) + timedelta(days=9)):%Y-%m-%d}" in comments[0]
    assert yaml.safe_load(out)["metadata"]["name"] == "envbuilder-verdicts"
