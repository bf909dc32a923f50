"""The example admission policies of the documentation."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml
from factories import A100, H100, failed_verdict, gpu_verdict, inconclusive_verdict, verdict

from envbuilder.attest.statements import VERDICT, VerdictPredicate, verdict_statement
from envbuilder.support import decoding
from envbuilder.verdict import GpuSeen, HostRef, Verdict

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
def test_example_is_valid_by_the_controllers_own_definition(controller: str) -> None:
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


def admits(rule: str, judged: Verdict, **predicate: object) -> bool:
    """Evaluate a rule by an interpreter of Rego v1."""
    regopy = pytest.importorskip("regopy")
    content = json.loads(msgspec.json.encode(VerdictPredicate(verdict=judged, allowed=("inconclusive",))))
    interpreter = regopy.Interpreter()
    interpreter.add_module("policy", rules()[rule])
    interpreter.set_input({"predicateType": VERDICT, "predicate": content} | predicate)
    answer = json.loads(str(interpreter.query("admitted := data.sigstore.isCompliant")))
    return bool(answer["bindings"]["admitted"])


def on(*gpus: GpuSeen, driver: str = "535.104.05") -> HostRef:
    return HostRef(driver=driver, gpus=gpus)


@pytest.mark.parametrize(
    ("judged", "admitted"),
    [
        (gpu_verdict(host=on(H100)), True),
        (gpu_verdict(host=on(H100, H100), level="multi-gpu"), True),
        (gpu_verdict(host=on(A100, H100)), True),
        (gpu_verdict(host=on(A100)), False),
        (gpu_verdict(host=on()), False),
        (gpu_verdict(host=on(H100, driver="5350.1")), False),
        (gpu_verdict(host=on(H100, driver="550.54")), False),
        (gpu_verdict(host=on(H100), level="cpu"), False),
        (gpu_verdict(host=on(H100), simulated=True, verdict="INCONCLUSIVE"), False),
        (gpu_verdict(host=on(H100), verdict="FAILED"), False),
        (gpu_verdict(host=on(H100), verdict="INCONCLUSIVE"), False),
        (gpu_verdict(host=on(msgspec.structs.replace(H100, name="NVIDIA H100 PCIe"))), True),
        (gpu_verdict(host=on(msgspec.structs.replace(H100, name="NVIDIA H100 80GB HBM3 MIG 1g.10gb"))), False),
        (gpu_verdict(host=on(msgspec.structs.replace(H100, name="NVIDIA H100 Ti"))), False),
        (gpu_verdict(host=on(msgspec.structs.replace(H100, name="NVIDIA GH100"))), False),
    ],
)
def test_rule_of_rego_admits_what_passed_on_its_host_class(judged: Verdict, *, admitted: bool) -> None:
    assert set(rules()) == {"h100-535", "a100-550"}
    assert admits("h100-535", judged) is admitted
    assert not admits("h100-535", judged, predicateType="https://example.org/other")
    assert not admits("a100-550", judged)
    assert admits("a100-550", gpu_verdict(host=on(A100, driver="550.54.14")))


@pytest.mark.parametrize(
    ("judged", "admitted"),
    [(gpu_verdict(), True), (verdict(), False), (failed_verdict(), False), (inconclusive_verdict(), False)],
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
