"""When a verdict that an earlier run left stands for a run of now: under the same terms, for a day, and never else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from factories import H100
from publisher import PushingEngine
from publishing_world import NOW, World, answering
from registries import modern_registry

from envbuilder.attest.keys import create
from envbuilder.matrix import Budgets
from envbuilder.publish.attestation import ValidationTerms
from envbuilder.publish.publish import publish
from envbuilder.registry.reference import Reference
from envbuilder.validation import suite_plan
from envbuilder.verdict import GpuSeen, HostRef, Verdict

HOST = HostRef(driver="535.104.05", gpus=(H100,))
TERMS = ValidationTerms(HOST)


@dataclass
class Publisher:
    world: World
    judged: list[str] = field(default_factory=list)

    def publish(self, terms: ValidationTerms = TERMS, **tools: Any) -> None:
        def judge(reference: Reference) -> Verdict:
            self.judged.append(str(reference))
            return answering()(reference)

        publication = self.world.publication("scratch:1", terms=terms)
        assert publish(publication, self.world.tools(judge, **tools)).published

    @property
    def journal(self) -> Path:
        (path,) = (self.world.folder / "publish").glob("*.jsonl")
        return path


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    with modern_registry() as (address, _):
        engine = PushingEngine()
        engine.add("scratch:1", labels={"number": "1"})
        made = Publisher(World(engine, create(tmp_path / "key"), tmp_path, address, "team/image"))
        made.publish()
        yield made


def test_the_same_terms_are_not_asked_again(publisher: Publisher) -> None:
    publisher.publish()
    publisher.publish(ValidationTerms(HostRef(driver=HOST.driver, gpus=HOST.gpus, kernel="another", cpus=7)))
    assert len(publisher.judged) == 1


@pytest.mark.parametrize(
    "terms",
    [
        ValidationTerms(HostRef(driver="550.54.15", gpus=(H100,))),
        ValidationTerms(HostRef(driver=None, gpus=(H100,))),
        ValidationTerms(HostRef(driver=HOST.driver, gpus=())),
        ValidationTerms(HostRef(driver=HOST.driver, gpus=(H100, H100))),
        ValidationTerms(
            HostRef(driver=HOST.driver, gpus=(GpuSeen(name="NVIDIA A100-SXM4-80GB", compute_capability="8.0"),))
        ),
        replace(TERMS, profile="full"),
        replace(TERMS, gpus="none"),
        replace(TERMS, budgets=Budgets(import_s=1.0)),
    ],
    ids=["driver", "no driver", "no GPU", "two GPUs", "another GPU", "profile", "--gpus", "budgets"],
)
def test_other_terms_are_another_run(publisher: Publisher, terms: ValidationTerms) -> None:
    publisher.publish(terms)
    assert len(publisher.judged) == 2
    publisher.publish(terms)
    assert len(publisher.judged) == 2


def test_another_suite_is_another_run(publisher: Publisher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite_plan, "digest", lambda: "sha256:" + "5" * 64)
    publisher.publish()
    assert len(publisher.judged) == 2


def without_terms(publisher: Publisher) -> dict[str, Any]:
    lines = publisher.journal.read_text()
    assert TERMS.key in lines
    publisher.journal.write_text(lines.replace(f',"terms":"{TERMS.key}"', ""))
    return {}


def damaged(publisher: Publisher) -> dict[str, Any]:
    (path,) = (publisher.world.folder / "publish").glob("*.verdict.json")
    path.write_text(path.read_text()[:100])
    return {}


def a_day_later(_: Publisher) -> dict[str, Any]:
    return {"now": lambda: NOW + timedelta(days=1)}


@pytest.mark.parametrize("happens", [without_terms, damaged, a_day_later])
def test_what_cannot_be_trusted_is_asked_again(
    publisher: Publisher, happens: Callable[[Publisher], dict[str, Any]]
) -> None:
    publisher.publish(**happens(publisher))
    assert len(publisher.judged) == 2
