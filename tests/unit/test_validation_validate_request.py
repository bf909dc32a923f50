"""An image that is named by a reference is held to this host's own list, where that is the one its labels name."""

from __future__ import annotations

from pathlib import Path

import pytest

from envbuilder.engine.port import Image
from envbuilder.image import lockfile, removed_files
from envbuilder.validation.image_claims import ENVIRONMENT_LABEL
from envbuilder.validation.validate_request import left_out
from envbuilder.workspace import Workspace, write_atomically

ID = "tf2.20.0-py311-cpu-bookworm-runtime"
LOCK = f"numpy==2.4.6 --hash=sha256:{'a' * 64}\n"
STEP = "RUN --mount=source=shared/packages/x,target=/run/package sh /run/tools/install x\n"
LIST = "numpy==2.4.6\ttests\tnumpy/tests/\t1\t1\td\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    context = made.context(ID)
    context.mkdir(parents=True)
    (context / lockfile.LOCK).write_text(LOCK)
    (context / "Dockerfile").write_text(STEP)
    write_atomically(made.images / "shared/packages/x" / removed_files.REMOVED, LIST.encode())
    return made


def image(**labels: str) -> Image:
    told = {ENVIRONMENT_LABEL: ID, removed_files.LABEL: lockfile.digest(LIST)}
    told |= {
        {"environment": ENVIRONMENT_LABEL, "listed": removed_files.LABEL}[name]: text for name, text in labels.items()
    }
    return Image(id="sha256:1", tags=(), digests=(), size=0, labels=told, env={}, user="", architecture="amd64")


def test_list_named_by_the_labels_is_the_host_s(workspace: Workspace) -> None:
    assert left_out(image(), workspace) == LIST


@pytest.mark.parametrize(
    "labels",
    [
        {"listed": ""},
        {"listed": "sha256:" + "0" * 64},
        {"environment": ""},
        {"environment": "tf2.19.1-py311-cpu-bookworm-runtime"},
        {"environment": f"../images/{ID}"},
        {"environment": f"x/../{ID}"},
        {"environment": "."},
    ],
)
def test_list_with_another_digest_or_name_is_ignored(labels: dict[str, str], workspace: Workspace) -> None:
    assert not left_out(image(**labels), workspace)


def test_list_of_another_lock_is_ignored(workspace: Workspace) -> None:
    (workspace.context(ID) / lockfile.LOCK).write_text(LOCK.replace("2.4.6", "2.4.7"))
    assert not left_out(image(), workspace)
    assert not left_out(None, workspace)


def test_a_damaged_list_is_not_used(workspace: Workspace) -> None:
    path = workspace.images / "shared/packages/x" / removed_files.REMOVED
    path.write_text("x\n")
    assert not left_out(image(listed=lockfile.digest("x\n")), workspace)
