"""Write policies by which a cluster admits only images with a trusted verdict: for two admission controllers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from envbuilder.attest.demand import moment, rank
from envbuilder.attest.keys import PublicKey
from envbuilder.attest.kinds import Kind
from envbuilder.attest.statement import VERDICT
from envbuilder.errors import UsageError
from envbuilder.support import decoding
from envbuilder.verdict import LEVELS, Level

CONTROLLERS = ("kyverno", "sigstore-policy-controller")
FULCIO, REKOR = "https://fulcio.sigstore.dev", "https://rekor.sigstore.dev"
"""Sigstore's public instances, which keyless signing uses."""


@dataclass(frozen=True)
class Admission:
    """What is admitted: images of a repository, with a verdict that someone trusted signed, on each kind of host.

    Trusted is an identity of an issuer, or one of ``keys``, for ever: no controller ends a key. ``level`` is what a
    verdict has to have reached; without kinds one verdict from anywhere is enough.
    """

    repository: str
    identity: str
    issuer: str
    level: Level
    on: tuple[Kind, ...] = ()
    keys: tuple[PublicKey, ...] = ()


def policy(controller: str, asked: Admission, now: datetime) -> str:
    """Write the policy as YAML, with the days on which its keys end as comments.

    Raises UsageError for a key that has ended, and for what the controller has no words for: kinds of host, or keys.
    """
    ended = [key for key in asked.keys if key.expires and moment(key.expires) < now]
    if ended:
        told = ", ".join(f"{key.keyid[:16]} until {key.expires}" for key in ended)
        raise UsageError(
            f"a key is trusted no more: {told}", hint="leave it out: the controller would trust it without limit"
        )
    made = _kyverno(asked) if controller == "kyverno" else _sigstore(asked)
    head = f"# Written by `envbuilder export policy {controller}`. `envbuilder verify` asks more: docs/publish.md.\n"
    head += "".join(
        f"# Key {key.keyid[:16]} is to be trusted until {key.expires}: then take it out, the controller does not.\n"
        for key in asked.keys
        if key.expires
    )
    return head + decoding.lossy(msgspec.yaml.encode(made))


_BOARD = "([ -](PCIe|PCIE|SXM[0-9]*|NVL|[0-9]+GB|HBM[0-9]+[eE]?))*"
"""What may follow a model in the name that its driver gives it: how it is mounted and its memory, and not ``Ti``."""


def _sigstore(asked: Admission) -> dict[str, Any]:
    """Return a ClusterImagePolicy: of each kind some statement has to satisfy its rule."""
    if asked.keys:
        raise UsageError(
            "sigstore-policy-controller reads a bundle only where it was signed keylessly",
            hint="--identity and --issuer; or take Kyverno, which reads what keys signed",
        )
    wanted = asked.on or (Kind(),)
    return {
        "apiVersion": "policy.sigstore.dev/v1beta1",
        "kind": "ClusterImagePolicy",
        "metadata": {"name": "envbuilder-verdicts"},
        "spec": {
            "images": [{"glob": f"{asked.repository}{end}"} for end in ("@*", ":*")],
            "mode": "enforce",
            "authorities": [
                {
                    "name": "envbuilder",
                    "signatureFormat": "bundle",
                    "keyless": {
                        "url": FULCIO,
                        "identities": [{"issuer": asked.issuer, "subject": asked.identity}],
                    },
                    "ctlog": {"url": REKOR},
                    "attestations": [
                        {
                            "name": f"passed-{number}",
                            "predicateType": VERDICT,
                            "policy": {"type": "rego", "data": _rego(kind, asked.level)},
                        }
                        for number, kind in enumerate(wanted)
                    ],
                }
            ],
        },
    }


def _rego(kind: Kind, level: Level) -> str:
    """Write the rule that one statement has to satisfy, in Rego; texts are written as JSON, which Rego reads alike."""
    lines = [
        f"input.predicateType == {json.dumps(VERDICT)}",
        'input.predicate.verdict.verdict == "PASSED"',
        "input.predicate.verdict.simulated == false",
        f"input.predicate.verdict.level == {json.dumps(_levels(level))}[_]",
    ]
    if kind.gpu:
        words = json.dumps(f"(^|[ -]){kind.gpu.replace(' ', '[ -]')}{_BOARD}$")
        lines += [
            f'startswith(concat("", [input.predicate.verdict.host.driver, "."]), {json.dumps(kind.driver + ".")})',
            f"regex.match({words}, input.predicate.verdict.host.gpus[_].name)",
        ]
    body = "\n".join(f"  {line}" for line in lines)
    return f"# {kind}\npackage sigstore\n\ndefault isCompliant = false\n\nisCompliant {{\n{body}\n}}\n"


def _levels(level: Level) -> list[str]:
    return [one for one in LEVELS if rank(one) >= rank(level)]


def _kyverno(asked: Admission) -> dict[str, Any]:
    """Return a ClusterPolicy: every statement of ours has to satisfy the conditions, so that a FAILED forbids."""
    if asked.on:
        raise UsageError(
            "Kyverno holds every statement to its conditions, and has no words for one of each kind of host",
            hint="leave --on out: then no statement may be anything but PASSED; or take sigstore-policy-controller",
        )
    told = (("verdict", "Equals", "PASSED"), ("simulated", "Equals", False), ("level", "AnyIn", _levels(asked.level)))
    conditions = [
        {"key": f"{{{{ verdict.{field} }}}}", "operator": operator, "value": value} for field, operator, value in told
    ]
    entries: list[dict[str, Any]] = [
        {"keys": {"publicKeys": key.pem, "rekor": {"ignoreTlog": True}, "ctlog": {"ignoreSCT": True}}}
        for key in asked.keys
    ]
    if asked.identity:
        entries += [{"keyless": {"subject": asked.identity, "issuer": asked.issuer, "rekor": {"url": REKOR}}}]
    verify = {
        "type": "SigstoreBundle",
        "imageReferences": [f"{asked.repository}{end}" for end in ("@*", ":*")],
        "failureAction": "Enforce",
        "mutateDigest": True,
        "verifyDigest": True,
        "required": True,
        "attestations": [
            {"type": VERDICT, "attestors": [{"count": 1, "entries": entries}], "conditions": [{"all": conditions}]}
        ],
    }
    rule = {
        "name": "passed",
        "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
        "verifyImages": [verify],
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "envbuilder-verdicts"},
        "spec": {"background": False, "webhookConfiguration": {"failurePolicy": "Fail"}, "rules": [rule]},
    }
