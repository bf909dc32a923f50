"""What is fuzzed beside files: a cluster's nodes, the command line's words, and what programs in an image answer."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from fuzz_target import Target, file, read_all

from envbuilder.attest.kinds import parse_kinds
from envbuilder.catalog import store
from envbuilder.compat.check import check
from envbuilder.compat.plan import plan
from envbuilder.compat.selectors import select
from envbuilder.compat.words import Words, question
from envbuilder.errors import EnvbuilderError
from envbuilder.image import lockfile
from envbuilder.jobs import fleet_hosts
from envbuilder.matrix import Matrix
from envbuilder.publish import journal
from envbuilder.support import decoding
from envbuilder.support.yaml_reader import parse_yaml, read_yaml
from envbuilder.upgrade import compare, user_tests
from envbuilder.upgrade.observe import Output
from envbuilder.upgrade.observed import Operation
from envbuilder.upgrade.policy import Policy
from envbuilder.validation import image_claims, image_files
from envbuilder.workspace import shipped


def _nodes(data: bytes) -> None:
    """Read the same bytes as Kubernetes' nodes and as Slurm's, and write the fleet down again."""
    for read in (fleet_hosts.of_kubernetes, fleet_hosts.of_slurm):
        with contextlib.suppress(EnvbuilderError):
            fleet_hosts.as_yaml(read(data).fleet)


def _nodes_seeds() -> list[bytes]:
    labels = {
        "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "nvidia.com/cuda.driver-version.full": "535.104.05",
        "nvidia.com/gpu.count": "8",
        "kubernetes.io/arch": "amd64",
        "nvidia.com/mig.strategy": "single",
    }
    nodes = [{"metadata": {"name": f"n{number}", "labels": labels}} for number in range(3)]
    return [
        json.dumps({"items": nodes}).encode(),
        b"n1|gpu:a100:4(S:0-1)|driver-535.104.05,mem\nn2|(null)|(null)\nn3|gpu:h100:8|nvidia-550\n",
    ]


def _policy(data: bytes) -> None:
    parse_yaml(data, "p.yaml", Policy)


_MANY = ("gpus", "capabilities", "packages")


def _asked(data: bytes) -> None:
    """Ask a question of which each line is a field and its words."""
    lines = (decoding.lossy(line)[:400].partition(" ") for line in data.split(b"\n"))
    words = {name: text for name, _, text in lines if name in Words.__struct_fields__ and text}
    given: dict[str, Any] = {name: (text,) if name in _MANY else text for name, text in words.items()}
    given |= {name: text for name, text in (("avx", True), ("install", None), ("arch", None)) if name in given}
    check(question(Words(**{"tensorflow": "2.20.0", **given})), store.load())


def _asked_seeds() -> list[bytes]:
    return [
        b"tensorflow 2.20.0\npython 3.11\ncuda 12.5\ncudnn 9.3\ndriver 535.104.05\ngpus H100\npackages numpy==2.0.0\nas_of 2026-11-20",
        b"tensorflow 2.10.0\npackage tensorflow-gpu\npython 3.8\ncuda 11.2\ndriver R470\ngpus NVIDIA A100-SXM4-80GB\nnumpy 1.19.2",
        b"tensorflow 2.4.1\ngpus GeForce RTX 3090 | MIG 1g.5gb\nprotobuf 3.20.0\nos debian-bookworm",
        b"tensorflow 2.20.0\ncapabilities 8.0\nbase_image nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04",
    ]


def _selected(data: bytes) -> None:
    """Take a text as a selector, and as kinds of host."""
    text = decoding.lossy(data)[:2000]
    environments = plan(read_yaml(shipped("matrices") / "quickstart.yaml", Matrix), store.load()).environments
    for ask in (lambda: select(environments, (text,)), lambda: parse_kinds(text, lambda name: name or None)):
        with contextlib.suppress(EnvbuilderError):
            ask()


def _journal(data: bytes) -> None:
    for entry in journal._read(file("journal.jsonl", data)):
        assert entry.step


def _tests(data: bytes) -> None:
    """Read the lines of the runner of a user's tests."""
    user_tests.results(cast("Output", SimpleNamespace(stdout=decoding.lossy(data), wrong="")))


def _tests_seeds() -> list[bytes]:
    lines = [
        {"name": "a::b", "outcome": "passed", "message": ""},
        {"name": "a::c", "outcome": "failed", "message": "x"},
    ]
    return [b"\n".join(json.dumps(line).encode() for line in [*lines, {"end": True}])]


def _outputs(data: bytes) -> None:
    """Compare results whose bytes an image made."""
    for precision in ("float64", "float32"):
        old, new = (
            Operation(name="a", precision=precision, error=0.0, values=text)
            for text in (decoding.lossy(data), base64.b64encode(zlib.compress(data)).decode())
        )
        compare.drift_of(compare._values(old), compare._values(new))


def _claims(data: bytes) -> None:
    """Read the document and the lock that an image carries."""
    files = cast("image_files.ImageFiles", SimpleNamespace(content=lambda _: data))
    told = image_claims.document(files)
    if told is not None:
        image_claims.contradicts_itself(told)
    if carried := image_claims.carried_lock(files):
        lockfile.parse(carried)


def _record(data: bytes) -> None:
    """Read a kept record of a layer, packed or not."""
    for kept in (data, zlib.compress(data, 1)):
        image_files._unpacked(kept)


def _record_seeds() -> list[bytes]:
    from made_images import package, record  # noqa: PLC0415

    made = record(package("a", "1", {"a/__init__.py": b"x = 1\n"}))
    packed = msgspec.msgpack.encode(made)
    return [packed, zlib.compress(packed, 1)]


ANSWERS: tuple[Target, ...] = (
    Target("nodes", _nodes_seeds, _nodes),
    Target("policy", read_all("policies/*.yaml"), _policy),
    Target("question", _asked_seeds, _asked),
    Target("selector", lambda: [b"tf2.2*", b"tensorflow=2.20.0", b"H100/535, A100/550.54", b"flavor=[!c]*"], _selected),
    Target(
        "journal",
        lambda: [b'{"step":"pushed","digest":"sha256:1"}\n{"step":"moved","tags":{"a":"sha256:2"}}\n{"step":"prom'],
        _journal,
    ),
    Target("user-tests", _tests_seeds, _tests),
    Target("outputs", lambda: [base64.b64encode(zlib.compress(b"\0" * 800)), b"\0\0\xf0\x7f" * 40], _outputs),
    Target("claims", read_all("images/*cpu*/environment.json", "images/*cpu*/requirements.lock"), _claims),
    Target("record", _record_seeds, _record),
)
