"""What an upgrade is asked for: a matrix's own bases, and all that it adds, are known to it as to a build."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from made_bases import DIGEST, PLAIN, WITH_CUDA, keep

from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.catalog.store import load
from envbuilder.engine.fake import FakeEngine
from envbuilder.environment import Environment
from envbuilder.errors import InputError
from envbuilder.image import system_lock
from envbuilder.image.context import write_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.support.console import Console
from envbuilder.upgrade.build import LockedSide, Maker
from envbuilder.upgrade.job import UpgradeOptions, read_request
from envbuilder.upgrade.pairs import Pair, pair, pinned_row
from envbuilder.workspace import Workspace, write_atomically

CATALOG = load()
LOCK = f"tensorflow==2.13.1 \\\n    --hash=sha256:{'d' * 64}\n"
WHEEL = f"nvidia-cudnn-cu11==8.6.0.163 \\\n    --hash=sha256:{'c' * 64}\n"
MATRIX = """\
name: ours
bases:
  corp: {{image: 'registry.example.org:5000/hardened/ubuntu@{digest}'}}
axes: {{tensorflow: [2.12.1, 2.13.1], os: [{os}], flavor: [{flavor}]}}
{more}
"""


def never(version: str, package: str) -> TensorflowRelease:
    """Propose nothing: both releases are in the catalogue."""
    raise AssertionError(f"{package} {version}")


def asked(root: Path, facts: BaseFacts | None, os: str, flavor: str, more: str = "") -> Pair:
    """Find the two sides of 2.12.1 and 2.13.1 that a matrix offers."""
    if facts is not None:
        keep(root, facts)
    text = MATRIX.format(digest=DIGEST, os=os, flavor=flavor, more=more)
    (root / "ours.yaml").write_text(
        text if facts is not None else "\n".join(text.splitlines()[:1] + text.splitlines()[3:])
    )
    options = UpgradeOptions(old="2.12.1", new="2.13.1", matrix="ours.yaml", flavor=flavor)
    request, known = read_request(options, root, CATALOG)
    found = pair(request, known, never)
    assert pinned_row(request, known).os == os
    return found


@pytest.mark.parametrize(
    ("facts", "os", "flavor"),
    [
        (PLAIN, "corp", "cpu"),
        (PLAIN, "corp", "gpu"),
        (WITH_CUDA, "corp", "gpu"),
        (None, "debian-bookworm-cuda", "gpu"),
        (None, "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04", "gpu"),
    ],
)
def test_both_sides_stand_on_the_base_that_the_matrix_names(
    tmp_path: Path, facts: BaseFacts | None, os: str, flavor: str
) -> None:
    """A base of one's own, with CUDA or without, a published one, and the system's packages: offered on both sides."""
    found = asked(tmp_path, facts, os, flavor)
    assert (found.old.os, found.new.os, set(found.offered)) == (os, os, {found.old.id, found.new.id})
    assert (found.old.tensorflow, found.new.tensorflow, found.old.flavor) == ("2.12.1", "2.13.1", flavor)
    brings = facts is WITH_CUDA or os != "corp"
    assert bool(found.new.cuda_wheels) == (flavor == "gpu" and not brings)


def test_a_base_that_nobody_looked_into_is_said(tmp_path: Path) -> None:
    """An upgrade refuses it with the command that looks into it, as a plan does."""
    text = MATRIX.format(digest=DIGEST, os="corp", flavor="cpu", more="")
    (tmp_path / "ours.yaml").write_text(text)
    with pytest.raises(InputError) as failed:
        read_request(UpgradeOptions(old="2.12.1", new="2.13.1", matrix="ours.yaml"), tmp_path, CATALOG)
    assert "catalog look" in (failed.value.hint or "")


def test_what_a_matrix_adds_is_found_beside_it(tmp_path: Path) -> None:
    """A side that is made aside has the files and the template of the matrix: they lie where the command was given."""
    (tmp_path / "app.conf").write_text("a=1\n")
    (tmp_path / "own.j2").write_text('{% extends "Dockerfile.j2" %}{% block as_root %}RUN echo ours\n{% endblock %}\n')
    found = asked(tmp_path, PLAIN, "corp", "cpu", "files: {app.conf: /etc/app.conf}\ntemplate: own.j2\n")
    aside = Workspace(tmp_path).for_upgrades
    write_context(found.new, LOCK, aside)
    assert "RUN echo ours" in (aside.context(found.new.id) / "Dockerfile").read_text()
    assert (aside.context(found.new.id) / "files/app.conf").read_text() == "a=1\n"


class Locked(Maker):
    """A maker whose resolver answers with one text."""

    def _lock(self, environment: Environment, keep: str) -> str:  # noqa: ARG002 - the maker's own
        return LOCK


def test_the_new_side_has_the_system_of_the_old_one(tmp_path: Path) -> None:
    """The old side's locks of the system go with it, where they pin what it asks for; another cuDNN's does not."""
    found = asked(tmp_path, None, "debian-bookworm-cuda", "gpu")
    workspace = Workspace(tmp_path)
    cuda = found.new.packaged_cuda
    assert cuda is not None
    text = "".join(f"{'a' * 64}  {name}_11.8_amd64.deb\n" for name in cuda.packages)
    context = workspace.context(found.old.id)
    write_atomically(context / SYSTEM_LOCK, text.encode())
    write_atomically(context / CUDNN_LOCK, WHEEL.encode())
    maker = Locked(workspace, FakeEngine(), Console(), CATALOG)
    side = maker.locked_new(found.new, LockedSide(found.old, LOCK, committed=True))
    aside = workspace.for_upgrades.context(side.environment.id)
    assert system_lock.of_context(aside, side.environment) == {SYSTEM_LOCK: text, CUDNN_LOCK: WHEEL}
    other = msgspec.structs.replace(cuda, cudnn="nvidia-cudnn-cu11==8.9.6.50")
    (aside / CUDNN_LOCK).unlink()
    system_lock.carry_over(context, aside, msgspec.structs.replace(found.new, system_cuda=other))
    assert not (aside / CUDNN_LOCK).exists()
    (aside / SYSTEM_LOCK).write_text("# mine\n")
    system_lock.carry_over(context, aside, found.new)
    assert (aside / SYSTEM_LOCK).read_text() == "# mine\n"
