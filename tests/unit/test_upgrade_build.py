"""The two images of an upgrade: what is committed is used as it lies, and what is made aside changes nothing there."""

import shutil
from dataclasses import dataclass, field
from pathlib import Path

import factories
import msgspec
import pytest
from factories import pin
from fake_engine import FakeEngine
from package_folders import MemoryIndex

from envbuilder.catalog.store import load
from envbuilder.environment import Environment
from envbuilder.image import context, lockfile, system_lock
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.support.console import Console
from envbuilder.upgrade.build import ImageBuilder, LockedImage, reasons
from envbuilder.verdict import CheckResult, Verdict
from envbuilder.workspace import Workspace, folder_contents, write_atomically


@dataclass(frozen=True)
class WithLocks(ImageBuilder):
    """A maker whose resolver answers with texts that were prepared; ``asked`` are the locks that were to be kept."""

    texts: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)

    def _lock(self, environment: Environment, keep: str = "") -> str:  # noqa: ARG002 - the maker's own
        self.asked.append(keep)
        return self.texts[len(self.asked) - 1]


@pytest.fixture
def old() -> Environment:
    return factories.resolved()


@pytest.fixture
def workspace(tmp_path: Path, old: Environment, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(context, "open_index", MemoryIndex)
    return factories.workspace(tmp_path, old.id, "shared/packages")


def maker(workspace: Workspace, *texts: str) -> WithLocks:
    """Make a maker on an engine that holds the base."""
    return WithLocks(workspace, FakeEngine().with_base(), Console(), load(), texts=texts)


def test_committed_image_is_built_from_its_context(workspace: Workspace, old: Environment) -> None:
    (workspace.context(old.id) / "Dockerfile").write_text("FROM envbuilder/base:debian-bookworm\n")
    before = folder_contents(workspace.images)
    made = maker(workspace)
    side = made.lock_old(old)
    assert made.committed_image(old) == side
    assert made.committed_image(msgspec.structs.replace(old, id="tf9.9.9-py311-cpu-bookworm")) is None
    built = made.build(side)
    assert (side.lock_is, built.fresh, built.lock) == ("committed", True, side.lock)
    assert folder_contents(workspace.images) == before
    assert workspace.image_record(old.id).is_file()
    assert not made.build(side).fresh


def test_new_image_is_built_in_a_separate_workspace(workspace: Workspace, old: Environment) -> None:
    text = lockfile.of_context(workspace.context(old.id)) or ""
    closer = text.replace("tensorboard==2.20.0", "tensorboard==2.19.0")
    assert closer != text
    before = folder_contents(workspace.images)
    made = maker(workspace, closer)
    side = made.lock_new(msgspec.structs.replace(old), made.lock_old(old))
    built = made.build(side)
    named = msgspec.structs.replace(old, id=f"{old.id}-after-2.20.0")
    assert side == LockedImage(named, closer, "proposed")
    assert made.asked == [text]
    assert built.record.reference.endswith("-after-2.20.0")
    assert folder_contents(workspace.images) == before
    assert lockfile.of_context(workspace.for_upgrades.context(side.environment.id)) == closer
    assert workspace.for_upgrades.image_record(side.environment.id).is_file()


def test_new_image_uses_an_equal_committed_lock(workspace: Workspace, old: Environment) -> None:
    text = lockfile.of_context(workspace.context(old.id)) or ""
    made = maker(workspace, text + "\n")
    assert made.lock_new(old, LockedImage(old, text, "committed")) == LockedImage(old, text, "committed")
    assert not workspace.for_upgrades.root.exists()


def test_lock_is_stored_before_the_build(workspace: Workspace, old: Environment) -> None:
    text = lockfile.of_context(workspace.context(old.id)) or ""
    shutil.rmtree(workspace.images)
    made = maker(workspace, text)
    first = made.lock_old(old)
    assert (first.lock_is, made.lock_old(old), made.asked) == ("made", first, [""])
    assert not workspace.images.exists()


def test_new_image_keeps_the_system_locks_of_the_old_one(workspace: Workspace) -> None:
    before, after = (
        factories.resolved(tensorflow=version, os="debian-bookworm-cuda", flavor="gpu")
        for version in ("2.12.1", "2.13.1")
    )
    cuda = after.packaged_cuda
    assert cuda is not None
    text = "".join(f"{'a' * 64}  {name}_11.8_amd64.deb\n" for name in cuda.packages)
    wheel = pin("nvidia-cudnn-cu11", "8.6.0.163")
    context = workspace.context(before.id)
    write_atomically(context / SYSTEM_LOCK, text.encode())
    write_atomically(context / CUDNN_LOCK, wheel.encode())
    lock = pin("tensorflow", "2.13.1")
    side = maker(workspace, lock).lock_new(after, LockedImage(before, lock, "committed"))
    aside = workspace.for_upgrades.context(side.environment.id)
    assert system_lock.texts(aside, side.environment) == {SYSTEM_LOCK: text, CUDNN_LOCK: wheel}
    other = msgspec.structs.replace(cuda, cudnn="nvidia-cudnn-cu11==8.9.6.50")
    (aside / CUDNN_LOCK).unlink()
    system_lock.carry_over(context, aside, msgspec.structs.replace(after, system_cuda=other))
    assert not (aside / CUDNN_LOCK).exists()
    (aside / SYSTEM_LOCK).write_text("# mine\n")
    system_lock.carry_over(context, aside, after)
    assert (aside / SYSTEM_LOCK).read_text() == "# mine\n"


def test_skipped_checks_are_one_reason() -> None:
    names = [f"c{number}" for number in range(9)]
    checks = (
        *(CheckResult(name=name, level="cpu", outcome="skipped", observed="needs matmul") for name in names),
        CheckResult(name="matmul", level="cpu", outcome="failed", observed="wrong"),
    )
    told = (*(f"cpu: {name} was not run: needs matmul" for name in names), "cpu: matmul failed: wrong")
    verdict: Verdict = msgspec.structs.replace(
        factories.failed_verdict(), checks=checks, requires=("static", "load", "cpu"), reasons=told
    )
    assert reasons(verdict) == (
        "cpu: matmul failed: wrong",
        "not run because of these: c0, c1, c2, c3, c4, c5 and 3 more",
    )
