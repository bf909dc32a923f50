"""The row that an upgrade is judged on: what the matrix offers first, then what can be had on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine

from envbuilder.catalog import store
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.choice import read_matrix
from envbuilder.errors import InfrastructureError, NothingSelectedError
from envbuilder.image import debian
from envbuilder.image.bases import BaseUnavailableError
from envbuilder.image.names import BASE_KEY_LABEL
from envbuilder.support.console import Console
from envbuilder.upgrade.build import ImageBuilder
from envbuilder.upgrade.job import read_policy
from envbuilder.upgrade.options import UpgradeOptions
from envbuilder.upgrade.pairs import Pair, pair, pairs
from envbuilder.upgrade.upgrade import first_buildable
from envbuilder.workspace import Workspace, shipped

POLICY = read_policy(None, Path())
OFFERED = read_matrix(shipped("matrices") / "tensorflow.yaml")


def never(version: str, package: str) -> TensorflowRelease:
    raise AssertionError(f"{package} {version} is in the catalogue")


def asked(old: str, new: str, **more: Any) -> UpgradeOptions:
    return UpgradeOptions(old=old, new=new, policy=POLICY, **{"matrix": OFFERED, "matrix_given": False, **more})


def rows(old: str, new: str, **more: Any) -> tuple[Pair, ...]:
    return pairs(asked(old, new, **more), store.load(), never)


def test_pairs_of_the_matrix_come_first_with_the_newest_python() -> None:
    first, *rest = rows("2.19.1", "2.20.0")
    assert (first.old.id, first.new.id) == ("tf2.19.1-py311-cpu-bookworm", "tf2.20.0-py311-cpu-bookworm")
    assert first.offered == {first.old.id, first.new.id}
    others = ("tf2.20.0-py39-cpu-bullseye", "tf2.20.0-py311-cpu-bookworm-runtime", "tf2.20.0-py39-cpu-bullseye-runtime")
    assert first.others == tuple(each.new.id for each in rest) == others
    assert first.row == "Python 3.11 on debian-bookworm"


def test_selector_chooses_the_row() -> None:
    for selector in ("tf2.20.0-py39-*", "tf2.19.1-py39-*", "os=debian-bullseye", "python=3.9"):
        first, second = rows("2.19.1", "2.20.0", selectors=(selector,))
        assert (first.old.os, first.others) == ("debian-bullseye", (second.new.id,))
    with pytest.raises(NothingSelectedError, match="no environment matches"):
        rows("2.19.1", "2.20.0", selectors=("os=debian-trixie",))


def test_pair_has_one_variant() -> None:
    found = rows("2.19.1", "2.20.0")
    assert all(each.old.variant == each.new.variant for each in found)
    first, *_ = rows("2.19.1", "2.20.0", selectors=("form=runtime",))
    assert (first.old.id, first.new.id) == (f"{found[0].old.id}-runtime", f"{found[0].new.id}-runtime")


def test_version_outside_the_matrix_is_a_proposal() -> None:
    for old, new in (("2.19.1", "2.19.0"), ("2.19.0", "2.19.1")):
        first = pair(asked(old, new), store.load(), never)
        assert first.offered == {"tf2.19.1-py311-cpu-bookworm"}
        assert {first.old.id, first.new.id} == {"tf2.19.1-py311-cpu-bookworm", "tf2.19.0-py311-cpu-bookworm"}


def test_versions_without_matrix_row_get_a_plain_row() -> None:
    for matrix in (OFFERED, None):
        first = pair(asked("2.12.1", "2.13.1", matrix=matrix), store.load(), never)
        assert (first.old.os, first.old.python, first.offered) == ("debian-bookworm", "3.11", frozenset())
    first = pair(asked("2.12.1", "2.13.1", matrix_given=True), store.load(), never)
    assert first.old.os == "debian-bullseye"


def test_gpu_pairs_are_chosen_like_cpu_pairs() -> None:
    first = pair(asked("2.19.1", "2.20.0", flavor="gpu"), store.load(), never)
    assert first.new.id == "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"
    assert len(first.offered) == 2


class NoRegistry(FakeEngine):
    """An engine on a machine from which no registry answers."""

    def reach(self, reference: str) -> None:
        raise InfrastructureError(f"{reference}: no such host")


def on(*bases: str) -> NoRegistry:
    engine = NoRegistry()
    for suite in bases:
        engine.add(f"envbuilder/base:debian-{suite}", suite.encode(), {BASE_KEY_LABEL: debian.recipe(suite)})
    return engine


@pytest.fixture
def no_mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take the package mirror away, so that nothing can be bootstrapped."""

    def refuse(suite: str, *_: object) -> str:
        raise InfrastructureError(f"no mirror for {suite}")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(debian, "bootstrap", refuse)


@pytest.mark.usefixtures("no_mirror")
def test_row_with_an_available_base_is_chosen(tmp_path: Path) -> None:
    found = rows("2.19.1", "2.20.0")
    for here, chosen in ((("bookworm", "bullseye"), "debian-bookworm"), (("bullseye",), "debian-bullseye")):
        maker = ImageBuilder(Workspace(tmp_path), on(*here), Console(), found[0].catalog)
        assert first_buildable(found, maker).old.os == chosen
    with pytest.raises(BaseUnavailableError):
        first_buildable(found, ImageBuilder(Workspace(tmp_path), on(), Console(), found[0].catalog))
