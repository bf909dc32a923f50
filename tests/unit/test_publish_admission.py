"""The example admission policies of the documentation."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from factories import H100, failed_verdict, gpu_verdict, inconclusive_verdict, verdict

from envbuilder.attest.statements import VERDICT, VerdictPredicate, verdict_statement
from envbuilder.support import decoding
from envbuilder.verdict import Verdict

TESTS = Path(__file__).parents[1]
CRDS, EXAMPLES = TESTS / "data" / "crds", TESTS.parent / "docs" / "ci" / "admission"


def example(controller: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((EXAMPLES / f"{controller}.yaml").read_text())
    return document


def closed(schema: Any) -> Any:
    """Forbid what a schema does not name, as an API server with strict validation does."""
    if isinstance(schema, dict):
        inner = {key: closed(value) for key, value in schema.items()}
        return {"additionalProperties": False, **inner} if "properties" in inner else inner
    return [closed(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize("controller", ["kyverno", "sigstore-policy-controller"])
def test_an_example_is_valid_by_the_controllers_own_definition(controller: str) -> None:
    document = example(controller)
    definition = yaml.safe_load((CRDS / f"{document['kind'].lower()[:-1]}ies.yaml").read_text())
    group, _, version = document["apiVersion"].partition("/")
    assert (definition["spec"]["group"], definition["spec"]["names"]["kind"]) == (group, document["kind"])
    served = next(one for one in definition["spec"]["versions"] if one["name"] == version and one["served"])
    schema = closed(served["schema"]["openAPIV3Schema"]["properties"]["spec"])
    jsonschema.validate(document["spec"], schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**document["spec"], "image": []}, schema)


def rules() -> dict[str, str]:
    (authority,) = example("sigstore-policy-controller")["spec"]["authorities"]
    assert authority["signatureFormat"] == "bundle", "the form that keyless publishing attaches"
    assert {one["predicateType"] for one in authority["attestations"]} == {VERDICT}
    return {one["name"]: one["policy"]["data"] for one in authority["attestations"]}


def test_each_host_class_has_a_rule_of_its_own() -> None:
    assert set(rules()) == {"h100-535", "a100-550"}
    for name, rule in rules().items():
        assert "default isCompliant = false" in rule
        assert 'verdict.verdict == "PASSED"' in rule
        assert "verdict.simulated == false" in rule
        assert '["gpu", "multi-gpu"][_]' in rule
        assert f'"{name.partition("-")[2]}."' in rule


@pytest.mark.parametrize(
    ("name", "same"),
    [
        (H100.name, True),
        ("NVIDIA H100 PCIe", True),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", False),
        ("NVIDIA H100 Ti", False),
        ("NVIDIA GH100", False),
    ],
)
def test_a_rule_takes_one_model_of_gpu(name: str, *, same: bool) -> None:
    pattern = re.search(r'regex\.match\("(.*?)", input', rules()["h100-535"])
    assert pattern is not None
    assert (re.search(pattern[1], name) is not None) is same


@pytest.mark.parametrize(
    ("judged", "admitted"),
    [
        (gpu_verdict(), True),
        (verdict(), True),
        (verdict(level="load"), False),
        (failed_verdict(), False),
        (inconclusive_verdict(), False),
    ],
)
def test_kyverno_admits_what_passed(judged: Verdict, *, admitted: bool) -> None:
    """Kyverno compares every attached verdict with the conditions."""
    (rule,) = example("kyverno")["spec"]["rules"]
    (verify,) = rule["verifyImages"]
    assert (verify["type"], verify["required"], verify["verifyDigest"]) == ("SigstoreBundle", True, True)
    (attestation,) = verify["attestations"]
    assert attestation["type"] == VERDICT
    predicate = json.loads(bytes(verdict_statement("r.example/a", judged, allowed=("inconclusive",)).predicate))
    assert decoding.from_json(json.dumps(predicate), VerdictPredicate).verdict == judged

    def holds(condition: dict[str, Any]) -> bool:
        value: Any = predicate
        for part in condition["key"].strip("{} ").split("."):
            value = value[part]
        expected = condition["value"]
        return bool(value in expected if condition["operator"] == "AnyIn" else value == expected)

    assert all(holds(one) for one in attestation["conditions"][0]["all"]) is admitted
