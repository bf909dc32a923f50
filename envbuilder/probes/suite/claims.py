"""Check what an image says of itself, in labels and files, against what is in it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from typing import Any

from . import tensorflow_files
from .answer import Answer, Facts, Finding, finding, judged, skipped

FOLDER = "/opt/envbuilder"


def labels(facts: Facts) -> Answer:
    """Compare labels, the environment document and the lock that the image carries with what is installed."""
    said = facts.get("labels") or {}
    document = _json(os.path.join(FOLDER, "environment.json"))
    if not document:
        return skipped("the image carries no environment document")
    package, version = tensorflow_files.distribution()
    python = "{0}.{1}".format(*sys.version_info[:2])
    rows = (
        ("label org.envbuilder.environment", said.get("org.envbuilder.environment"), facts["environment"]),
        ("environment.json id", document.get("id"), facts["environment"]),
        ("environment.json python", document.get("python"), python),
        ("environment.json tensorflow", document.get("tensorflow"), version),
        ("environment.json package", document.get("package"), package),
        ("label org.opencontainers.image.version", said.get("org.opencontainers.image.version"), version),
        ("lock in the image", lock_digest(), facts.get("lock")),
        ("label org.envbuilder.lock", said.get("org.envbuilder.lock"), facts.get("lock")),
    )
    findings = [_claim(name, claimed, actual) for name, claimed, actual in rows if not _agree(claimed, actual)]
    observed = "; ".join(one["message"] for one in findings) or "{0} claims hold".format(len(rows))
    return judged(findings, "every claim holds", observed)


def _agree(claimed: object, actual: object) -> bool:
    return claimed == actual or (not actual and not claimed)


def lock_digest() -> str | None:
    """Return the digest of the lock that the image carries; None where it carries none."""
    try:
        with open(os.path.join(FOLDER, "requirements.lock"), "rb") as stream:
            return "sha256:" + hashlib.sha256(stream.read()).hexdigest()
    except OSError:
        return None


def _json(path: str) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as stream:
            document: dict[str, Any] = json.load(stream)
            return document
    except (OSError, ValueError):
        return {}


def _claim(name: str, claimed: object, actual: object) -> Finding:
    text = "{0} says {1}, and it is {2}".format(name, claimed, actual)
    return finding("IMAGE_CLAIM", name, text, str(actual), str(claimed), "build the image anew from its context")


CONDITION = re.compile(r"^(cuda|driver|arch|brand|name|cudadriver|gpuarch)(=|!=|<|<=|>|>=)([\w.]+)$")


def requirement(facts: Facts) -> Answer:
    """Read the image's start-up requirement: it must parse, ask for no more than is needed, and be in force."""
    env = facts.get("image_env") or {}
    given = {name: value for name, value in env.items() if name.startswith("NVIDIA_REQUIRE_")}
    findings = []
    for name, value in sorted(given.items()):
        findings += _requirement(name, value, facts)
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in ("", "0", "false"):
        text = "NVIDIA_DISABLE_REQUIRE is set: a driver that is too old is found out by TensorFlow, or not at all"
        findings.append(finding("CONTAINER_REQUIREMENT", "NVIDIA_DISABLE_REQUIRE", text, severity="warning"))
    observed = "; ".join("{0}={1}".format(*pair) for pair in sorted(given.items())) or "no requirement"
    return judged(findings, "a requirement that admits the drivers that work", observed)


def alternatives(value: str) -> list[list[tuple[str, ...]]]:
    """Split a requirement: spaces are OR, commas are AND; a list of lists of (name, operator, value)."""
    rows = []
    for word in value.split():
        terms = [CONDITION.match(term) for term in word.split(",")]
        rows.append([term.groups() for term in terms if term is not None])
        if len(rows[-1]) != len(terms):
            raise ValueError(word)
    return rows


def _requirement(name: str, value: str, facts: Facts) -> list[Finding]:
    try:
        rows = alternatives(value)
    except ValueError as error:
        text = "{0} cannot be read at {1}: the container will not start".format(name, error)
        return [finding("CONTAINER_REQUIREMENT", name, text, found=value, fix="write it as cuda>=12.0")]
    built = facts.get("cuda")
    if not built or not rows:
        return []
    floors = [[number for key, sign, number in row if key == "cuda" and sign in (">=", "=", ">")] for row in rows]
    if all(row and _numbers(row[0]) > _numbers(built) for row in floors):
        text = "{0}={1} asks for more than CUDA {2}, which is what is in the image".format(name, value, built)
        return [finding("CONTAINER_REQUIREMENT", name, text, "cuda>=" + built, value, "ask for the image's own CUDA")]
    major = built.split(".")[0]
    plain = [row for row in rows if all(key == "cuda" for key, _, _ in row)]
    narrow = len(rows) == 1 and plain and _numbers(plain[0][0][2]) > [int(major), 0]
    if int(major) >= 11 and narrow:
        text = "{0}={1} refuses drivers that minor-version compatibility admits".format(name, value)
        wanted = "cuda>={0}.0".format(major)
        return [finding("CONTAINER_REQUIREMENT", name, text, wanted, value, severity="warning")]
    return []


def _numbers(text: str) -> list[int]:
    return [int(part) for part in re.findall(r"[0-9]+", text)]
