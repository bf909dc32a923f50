"""What may be asked of `publish` and `report --from` before anything is pushed or read."""

from __future__ import annotations

from pathlib import Path

import pytest
from registries import modern_registry

from envbuilder.attest.keys import PUBLIC, create
from envbuilder.errors import InfrastructureError, PublishError, UsageError
from envbuilder.publish.journal import exclusively
from envbuilder.publish.tags import check_moving, destination, meant_by
from envbuilder.publish.verify_request import fetch
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST
from envbuilder.registry.reference import parse


@pytest.mark.parametrize(
    "tag", ["sha256-" + "a" * 64, "sha256-x.att", "sha512-1", "staging-x", "tf2.20.0-py311-cpu-bookworm"]
)
def test_a_tag_with_a_meaning_of_its_own_is_refused(tag: str) -> None:
    with pytest.raises(UsageError):
        check_moving(("latest", tag))


def test_other_tags_are_free() -> None:
    check_moving(("latest", "stable", "sha256", "tf2.20", "2.20.0-gpu"))


@pytest.mark.parametrize("more", [":latest", "@sha256:" + "a" * 64])
def test_a_tag_in_the_destination_is_refused(more: str) -> None:
    assert destination("a.b/c/d") == parse("a.b/c/d")
    with pytest.raises(UsageError, match="more than a repository"):
        destination(f"a.b/c/d{more}")


def test_a_tag_of_ours_names_its_environment() -> None:
    assert meant_by("tf2.20.0-py311-cu12.5-cudnn9.3-bookworm") == "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm"
    assert meant_by("staging-tf2.20.0-py311-cpu-bookworm") == "tf2.20.0-py311-cpu-bookworm"
    assert [meant_by(tag) for tag in ("latest", "", "tf", "v2.20.0")] == [None] * 4


def test_a_folder_that_cannot_be_written_is_an_error_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(InfrastructureError, match="cannot write"), exclusively(tmp_path / "out" / "publish"):
        pass


def test_a_report_from_nowhere_or_from_strangers_says_so(tmp_path: Path) -> None:
    key = create(tmp_path)
    said: list[str] = []
    with modern_registry() as (host, state):
        Repository(parse(f"{host}/team/image"), {}).put_manifest("one", b"{}", OCI_MANIFEST)
        assert fetch(f"{host}/team/image", (tmp_path / PUBLIC,), said.append).verdicts == ()
        assert key.keyid[:16] in said[0]
        state.missing = True
        with pytest.raises(PublishError, match="no repository"):
            fetch(f"{host}/team/image", (tmp_path / PUBLIC,), said.append)
