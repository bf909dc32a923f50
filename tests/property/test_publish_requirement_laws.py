"""Laws of `verify`: every word of a requirement is compared with the evidence, or refused."""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import check, failed_verdict, gpu_environment, gpu_verdict, inconclusive_verdict
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from publishing_world import push_image
from registries import modern_registry

from envbuilder.attest import requirements, trust_policy
from envbuilder.attest.envelope import ENVELOPE, KeySealer
from envbuilder.attest.keys import PUBLIC, create
from envbuilder.attest.statements import encode, verdict_statement
from envbuilder.catalog.store import load
from envbuilder.errors import Reason, UsageError
from envbuilder.publish import verify_request
from envbuilder.publish.verification import Verification
from envbuilder.publish.verify_request import VerifyOptions, verify_image
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import Manifest
from envbuilder.registry.reference import parse
from envbuilder.registry.referrers import attach
from envbuilder.verdict import LEVELS, ImageRef, Verdict

FINISHED = (datetime.now(UTC) - timedelta(days=10)).isoformat()
ID = "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"
PASSED = gpu_verdict(environment=gpu_environment(id=ID), started=FINISHED, finished=FINISHED)


@dataclass(frozen=True)
class World:
    """A repository with one image, and the options of a request about it that is accepted."""

    repository: Repository
    image: Manifest
    sealer: KeySealer
    options: VerifyOptions

    def ask(self, **given: Any) -> Verification | UsageError:
        try:
            return verify_image(replace(self.options, **given), load().gpu_names)
        except UsageError as error:
            return error

    def accepts(self, **given: Any) -> bool:
        found = self.ask(**given)
        return isinstance(found, Verification) and found.accepted

    def state(self, verdict: Verdict) -> None:
        about = msgspec.structs.replace(verdict, image=ImageRef(id=self.image.digest, digest=self.image.digest))
        attach(self.repository, self.image, self.sealer.seal(encode(verdict_statement("x", about))), ENVELOPE, {})


def new_world(host: str, folder: Path, verdict: Verdict) -> World:
    repository = Repository(parse(f"{host}/team/image"), {})
    image = push_image(repository, ID)
    ann, bob = (create(folder / name) for name in ("ann", "bob"))
    words: dict[str, Any] = {"level": "gpu", "driver": "535.104", "gpu": "H100 80GB", "max_age": "11d"}
    words |= {"environment": f"{ID}-{image.digest[7:19]}", "tensorflow": "2.20", "threshold": 2}
    keys = (folder / "ann" / PUBLIC, folder / "bob" / PUBLIC)
    options = VerifyOptions(str(repository.reference.at(image.digest)), keys, None, None, **words)
    made = World(repository, image, KeySealer(ann, others=(bob,)), options)
    made.state(verdict)
    return made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with modern_registry() as (host, _):
        yield new_world(host, tmp_path_factory.mktemp("keys"), PASSED)


def leads(text: str, full: str) -> bool:
    """Return True if numbers with dots are the first numbers of others."""
    parts, numbers = text.split("."), full.split(".")
    plain = all(part.isascii() and part.isdigit() for part in parts)
    return plain and [int(part) for part in parts] == [int(number) for number in numbers[: len(parts)]]


def is_gpu(text: str) -> bool:
    words = text.casefold().replace("-", " ").split()
    return "h100" in words and set(words) <= {"nvidia", "h100", "80gb", "hbm3", "sxm", "sxm5"}


MET: dict[str, Callable[[str, World], bool]] = {
    "driver": lambda text, _: leads(text, "535.104.05"),
    "tensorflow": lambda text, _: leads(text, "2.20.0"),
    "gpu": lambda text, _: is_gpu(text),
    "environment": lambda text, world: text in (ID, f"{ID}-{world.image.digest[7:19]}"),
    "max_age": lambda text, _: float(text[:-1]) * {"w": 7, "d": 1, "h": 1 / 24}.get(text[-1], 0) > 10,
    "on": lambda text, _: all(
        is_gpu(part.rpartition("/")[0]) and leads(part.rpartition("/")[2].strip(), "535.104.05")
        for part in text.split(",")
    ),
}
"""What the evidence meets, said a second time and in another way."""

NEAR = {
    "driver": (
        "535",
        "535.104.5",
        "53",
        "5350",
        "550.54",
        "535.104.05.1",
        "v535",
        "535 ",
        "\uff15\uff13\uff15",
        "none",
    ),
    "tensorflow": ("2.20.0", "2", "2.2", "2.20.1", "2.20.0rc1", "2.20.x", "2.20.0+cpu", "v2.20", "02.20"),
    "gpu": (
        "H100",
        "NVIDIA H100 80GB HBM3",
        "H100 SXM5",
        "H100 PCIe",
        "H100 94GB",
        "RTX PRO 6000 Blackwell Workstation Edition",
        "H200",
        "80GB",
        "GH100",
        "H100 Ti",
    ),
    "environment": (ID, f"{ID}-runtime", f"{ID}-0123456789ab", ID.replace("311", "312"), "latest", f"staging-{ID}"),
    "max_age": ("240h", "9d", "2w", "10.5d", "11", "11D", "-11d", "1e3d", "\u0663w"),
    "on": ("H100/535", "H100 PCIe/535", "H100/550", "H100/535,A100/535", "H100/535,", "H100", "/535", "H100/535/1"),
}


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, str]:
    """Draw an option with a near word, or with one character more, less or other than a near word has."""
    option = draw(st.sampled_from(sorted(NEAR)))
    text = draw(st.sampled_from(NEAR[option]))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(text)))
        more = draw(st.text("0123456789.,-/ abdhmnwxABDH", max_size=1))
        text = text[:place] + more + text[place + draw(st.integers(0, 1)) :]
    return option, text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(changed())
@example(("gpu", "NVIDIAH100"))
def test_changed_word_is_accepted_only_if_the_evidence_meets_it(world: World, change: tuple[str, str]) -> None:
    option, text = change
    alone = {"driver": None, "gpu": None} if option == "on" else {}
    if world.accepts(**{option: text}, **alone):
        assert MET[option](text.strip(), world), change


def test_every_word_is_met_by_itself_and_shown(world: World) -> None:
    full = world.ask()
    assert isinstance(full, Verification)
    assert full.accepted, full
    for option in ("level", "driver", "gpu", "environment", "tensorflow"):
        found = world.ask(**{option: "cpu" if option == "level" else None})  # a GPU requires its level
        assert isinstance(found, Verification)
        assert found.accepted
        assert found.demanded != full.demanded, f"--{option} is not in the answer"
    assert world.accepts(driver=None, gpu=None, on="H100 80GB/535, H100 SXM/535.104.05")
    assert [world.accepts(threshold=count) for count in (-1, 0, 1, 2, 3)] == [False, False, True, True, False]
    assert [world.accepts(keys=world.options.keys[:count]) for count in (0, 1, 2)] == [False, False, True]
    assert [world.accepts(level=level) for level in LEVELS] == [True, True, True, True, False]


CONTRADICTIONS: dict[str, tuple[Reason, Any]] = {
    "environment": (Reason.OTHER_ENVIRONMENT, {"environment": ID.replace("311", "312")}),
    "tensorflow": (Reason.OTHER_ENVIRONMENT, {"tensorflow": "2.19"}),
    "tag": (Reason.OTHER_ENVIRONMENT, {"image": ":tf2.19@"}),
    "age": (Reason.EXPIRED, {"max_age": "9d"}),
    "level": (Reason.LEVEL_TOO_LOW, {"level": "multi-gpu"}),
    "driver": (Reason.OTHER_DRIVER, {"driver": "550"}),
    "gpu": (Reason.OTHER_GPU, {"gpu": "H100 PCIe"}),
    "failed": (Reason.FAILED, failed_verdict),
    "inconclusive": (Reason.INCONCLUSIVE, inconclusive_verdict),
    "inconsistent": (Reason.INCONSISTENT, lambda **more: gpu_verdict(**more, checks=(check("import", "failed"),))),
}
"""A request, or a verdict, that only this comparison refuses."""


@pytest.mark.parametrize(("name", "reason", "contradiction"), [(name, *one) for name, one in CONTRADICTIONS.items()])
def test_without_one_comparison_a_contradiction_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: Reason, contradiction: Any
) -> None:
    words = dict(contradiction) if isinstance(contradiction, dict) else {}
    about = {"environment": PASSED.environment, "host": PASSED.host, "level": "gpu"}
    about |= {"started": FINISHED, "finished": FINISHED}
    with modern_registry() as (host, _):
        world = new_world(host, tmp_path, PASSED if words else contradiction(**about))
        words |= {"image": world.options.image.replace("@", words["image"])} if "image" in words else {}
        found = world.ask(**words)
        assert isinstance(found, Verification)
        assert [refusal.reason for refusal in found.refusals] == [reason]
        compared = requirements.comparisons
        monkeypatch.setattr(trust_policy, "comparisons", lambda *given: [o for o in compared(*given) if o[0] != name])
        assert world.accepts(**words)


def test_without_the_comparison_of_images_another_image_is_accepted(world: World, monkeypatch) -> None:
    other = {"environment": f"{ID}-0123456789ab"}
    assert not world.accepts(**other)
    monkeypatch.setattr(verify_request, "_other_image", lambda *_: ())
    assert world.accepts(**other)


def test_every_comparison_has_its_contradiction() -> None:
    """A simulated verdict cannot be stated: the table of attacks has it."""
    named = set(re.findall(r'yield "(\w+)"', inspect.getsource(requirements.comparisons)))
    assert named == {*CONTRADICTIONS, "unreal"}


def test_every_option_is_compared() -> None:
    """Words are in `NEAR`; the others are tried one by one above and below, and an identity needs its issuer."""
    by_value = {"image", "keys", "level", "threshold", "identity", "issuer"}
    assert {one.name for one in fields(VerifyOptions)} == {*NEAR, *by_value}


def test_every_part_of_the_image_s_name_is_compared(world: World) -> None:
    """Another image of the repository and another tag are not accepted."""
    other = push_image(world.repository, "other", b"another layer")
    name, digest = world.repository.reference.name, world.image.digest
    accepted = (f":{ID}", f"@{digest}", f":{ID}@{digest}")
    refused = (":other", f":{ID}@{other.digest}", f"@{other.digest}", f":{ID.replace('311', '312')}", "")
    for text in (*accepted, *refused):
        assert world.accepts(image=f"{name}{text}") == (text in accepted), text
