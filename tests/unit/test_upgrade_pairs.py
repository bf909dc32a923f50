"""The row that an upgrade is judged on: what the matrix offers first, then what can be had on this machine."""

import re
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import REPOSITORY as ROOT
from factories import pin
from fake_engine import FakeEngine
from made_bases import IMAGE, PLAIN, WITH_CUDA, keep
from package_folders import MemoryIndex
from table_rows import rows
from upgrades import never, options

from envbuilder.catalog import store
from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.choice import read_matrix
from envbuilder.errors import (
    BaseUnavailableError,
    InfrastructureError,
    NothingSelectedError,
    UnsatisfiableError,
    UsageError,
)
from envbuilder.image import debian
from envbuilder.image.context import ensure_packages, write_context
from envbuilder.matrix import Axes, Matrix, Targets
from envbuilder.support.console import Console
from envbuilder.support.templates import shipped
from envbuilder.upgrade.build import ImageBuilder
from envbuilder.upgrade.pairs import Pair, hosts, pairs, pinned_row
from envbuilder.upgrade.policy import BY_FACTS
from envbuilder.upgrade.text import as_text
from envbuilder.upgrade.upgrade import compare_versions, first_buildable, read_upgrade
from envbuilder.workspace import Workspace

OFFERED = read_matrix(shipped("matrices") / "tensorflow.yaml")
CATALOG = store.load()


def paired(old: str, new: str, **more: Any) -> tuple[Pair, ...]:
    return pairs(options(old, new, **{"matrix": OFFERED, "matrix_given": False, **more}), CATALOG, never)


def test_published_variant_of_the_matrix_comes_first_with_the_newest_python() -> None:
    first, *rest = paired("2.19.1", "2.20.0")
    ids = "tf2.19.1-py311-cpu-bookworm-runtime", "tf2.20.0-py311-cpu-bookworm-runtime"
    assert (first.old.id, first.new.id) == ids
    assert first.offered == {first.old.id, first.new.id}
    others = ("tf2.20.0-py39-cpu-bullseye-runtime", "tf2.20.0-py311-cpu-bookworm", "tf2.20.0-py39-cpu-bullseye")
    assert first.others == tuple(each.new.id for each in rest) == others
    assert first.row == "Python 3.11 on debian-bookworm"
    assert all(each.old.variant == each.new.variant for each in (first, *rest))
    devel, *_ = paired("2.19.1", "2.20.0", selectors=("form=devel",))
    assert (f"{devel.old.id}-runtime", f"{devel.new.id}-runtime") == ids
    gpu, *_ = paired("2.19.1", "2.20.0", flavor="gpu")
    assert (gpu.new.id, len(gpu.offered)) == ("tf2.20.0-py311-cu12.5-cudnn9.3-bookworm-runtime", 2)


def test_selector_chooses_the_row() -> None:
    for selector in ("tf2.20.0-py39-*", "tf2.19.1-py39-*", "os=debian-bullseye", "python=3.9"):
        first, second = paired("2.19.1", "2.20.0", selectors=(selector,))
        assert (first.old.os, first.others) == ("debian-bullseye", (second.new.id,))
    with pytest.raises(NothingSelectedError, match="no environment matches"):
        paired("2.19.1", "2.20.0", selectors=("os=debian-trixie",))


@pytest.mark.parametrize(("old", "new"), [("2.19.1", "2.19.0"), ("2.19.0", "2.19.1")])
def test_version_outside_the_matrix_is_a_proposal(old: str, new: str) -> None:
    first, *_ = paired(old, new)
    assert first.offered == {"tf2.19.1-py311-cpu-bookworm-runtime"}
    assert {first.old.id, first.new.id} == {f"tf2.19.{n}-py311-cpu-bookworm-runtime" for n in (0, 1)}


@rows
def test_versions_without_a_row_get_a_plain_one_unless_a_matrix_is_given(more: dict[str, Any], system: str) -> None:
    first, *_ = paired("2.12.1", "2.13.1", **more)
    assert (first.old.os, first.new.os, first.old.python) == (system, system, first.new.python)
    assert first.offered == frozenset()


def test_pair_without_common_python_raises_with_the_reason() -> None:
    matrix = Matrix(name="m", axes=Axes(tensorflow=("2.15.1",), os=("debian-bookworm",)))
    with pytest.raises(UnsatisfiableError, match=re.escape("2.6.5")):
        paired("2.6.5", "2.15.1", matrix=matrix, matrix_given=True)
    with pytest.raises(UnsatisfiableError, match="private build"):
        paired("2.16.2", "2.20.0+nv")


def test_release_outside_the_catalogue_is_proposed_and_sets_the_distribution_of_both() -> None:
    known = CATALOG.release("2.20.0", "tensorflow")
    assert known is not None
    asked: list[tuple[str, str]] = []

    def propose(version: str, package: str) -> TensorflowRelease:
        asked.append((version, package))
        return msgspec.structs.replace(known, version="2.99.0", reviewed=False)

    both, *_ = pairs(options("2.20.0", "2.99.0"), CATALOG, propose)
    assert asked == [("2.99.0", "tensorflow")]
    assert (both.new.tensorflow, both.proposed) == ("2.99.0", ("tensorflow 2.99.0",))
    assert (both.old.package, both.new.package) == ("tensorflow", "tensorflow")
    wheel = Path("tensorflow_cpu-2.20.0-cp311-cp311-manylinux_2_17_x86_64.whl")
    first, *_ = paired("2.19.1", "2.20.0", wheel=wheel)
    assert (first.old.package, first.new.package) == ("tensorflow-cpu", "tensorflow-cpu")


def test_targets_of_the_matrix_are_the_default_fleet() -> None:
    matrix = Matrix(name="m", axes=Axes(tensorflow=("2.18.1",)), targets=Targets(drivers=("535.104.05",), gpus=("T4",)))
    assert [(host.driver, host.gpus) for host in hosts(options("1", "2", matrix=matrix))] == [("535.104.05", ("T4",))]
    assert hosts(options("1", "2")) == ()


def test_row_of_a_bisection_serves_both_ends() -> None:
    for selectors, variant in (((), "runtime"), (("form=devel",), "devel")):
        row = pinned_row(options("2.12.1", "2.20.0", selectors=selectors), CATALOG)
        assert (row.python, row.os, row.variant) == ("3.11", "debian-bookworm", variant)


class NoRegistry(FakeEngine):
    """An engine on a machine from which no registry answers."""

    def reach(self, reference: str) -> None:
        raise InfrastructureError(f"{reference}: no such host")


def on(*bases: str) -> NoRegistry:
    engine = NoRegistry()
    for suite in bases:
        engine.with_base(suite.encode(), suite)
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
    found = paired("2.19.1", "2.20.0")
    for here, chosen in ((("bookworm", "bullseye"), "debian-bookworm"), (("bullseye",), "debian-bullseye")):
        maker = ImageBuilder(Workspace(tmp_path), on(*here), Console(), found[0].catalog)
        assert first_buildable(found, maker).old.os == chosen
    with pytest.raises(BaseUnavailableError):
        first_buildable(found, ImageBuilder(Workspace(tmp_path), on(), Console(), found[0].catalog))


def given(old: str, new: str, **more: Any) -> dict[str, Any]:
    """Make the values of a command line."""
    return {"old": old, "new": new, **dict.fromkeys(("matrix", "fleet", "policy", "rounds")), **more}


def asked(root: Path, facts: BaseFacts | None, os: str, flavor: str, more: str = "") -> Pair:
    """Find the two images of 2.12.1 and 2.13.1 that a matrix offers on a system or on a base of its own."""
    text = f"axes: {{tensorflow: [2.12.1, 2.13.1], os: [{os}], flavor: [{flavor}]}}\n{more}"
    if facts is not None:
        keep(root, facts)
        text = f"bases:\n  corp: {{image: '{IMAGE}'}}\n{text}"
    (root / "ours.yaml").write_text(f"name: ours\n{text}")
    wanted, known = read_upgrade(given("2.12.1", "2.13.1", matrix="ours.yaml", flavor=flavor), root, CATALOG)
    assert pinned_row(wanted, known).os == os
    return pairs(wanted, known, never)[0]


@rows
def test_pair_uses_the_base_of_the_matrix(
    tmp_path: Path, facts: str | None, os: str, flavor: str, *, wheels: bool
) -> None:
    found = asked(tmp_path, {"plain": PLAIN, "with CUDA": WITH_CUDA}.get(facts or ""), os, flavor)
    assert (found.old.os, found.new.os, set(found.offered)) == (os, os, {found.old.id, found.new.id})
    assert (found.old.tensorflow, found.new.tensorflow, found.old.flavor) == ("2.12.1", "2.13.1", flavor)
    assert bool(found.new.cuda_wheels) is wheels


def test_proposed_image_has_the_files_and_template_of_the_matrix(tmp_path: Path) -> None:
    (tmp_path / "app.conf").write_text("a=1\n")
    (tmp_path / "own.j2").write_text('{% extends "Dockerfile.j2" %}{% block as_root %}RUN echo ours\n{% endblock %}\n')
    found = asked(tmp_path, PLAIN, "corp", "cpu", "files: {app.conf: /etc/app.conf}\ntemplate: own.j2\n")
    aside = Workspace(tmp_path).for_upgrades
    lock = pin("tensorflow", "2.13.1")
    ensure_packages(found.new, lock, CATALOG, aside, MemoryIndex())
    write_context(found.new, lock, aside)
    assert "RUN echo ours" in (aside.context(found.new.id) / "Dockerfile").read_text()
    assert (aside.context(found.new.id) / "files/app.conf").read_text() == "a=1\n"


@rows
def test_dry_run_answers_and_never_adopts(old: str, host: tuple[str, str], decision: str, sentence: str) -> None:
    gpu, driver = host
    values = given(old, "2.20.0", gpu=(gpu,) if gpu else (), driver=driver, dry_run=True, flavor=None)
    asked, known = read_upgrade(values, ROOT, CATALOG)
    began = time.process_time()
    found = compare_versions(asked, ROOT, Console(), known)
    assert time.process_time() - began < 1
    assert (found.decision, found.flavor) == (decision, "gpu" if gpu else "cpu")
    assert as_text(found).splitlines()[0].endswith(sentence)
    assert "not inspected" in as_text(found)
    assert {clause.clause for clause in found.clauses} == set(BY_FACTS)
    assert bool(found.would_decide) is (decision == "UNDECIDED")


@rows
def test_option_that_has_no_effect_is_a_usage_error(more: dict[str, Any], message: str) -> None:
    bisect = more.pop("bisect", False)
    paths = {name: ROOT / more[name] for name in ("fleet", "wheel") if name in more}
    with pytest.raises(UsageError, match=message):
        read_upgrade(given("2.15.1", "latest", **(more | paths)), ROOT, CATALOG, bisect=bisect)


def test_versions_may_be_ranges() -> None:
    wanted, _ = read_upgrade(given("~=2.12.0", "latest", tensorflow="<2.19"), ROOT, CATALOG, bisect=True)
    assert (wanted.old, wanted.new, wanted.tensorflow) == ("2.12.1", CATALOG.final_versions[-1], "2.18.1")
    for text in (">=9", "", "2,20,0"):
        with pytest.raises(UsageError, match=f"'{text}': not a version"):
            read_upgrade(given("2.12.1", text), ROOT, CATALOG)
