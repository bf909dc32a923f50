"""Files are written whole or not at all, and content keys see every byte."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.verdict import Measurement
from envbuilder.workspace import (
    Workspace,
    content_key,
    find_matrix,
    folder_contents,
    read_document,
    shipped,
    write_atomically,
    write_document,
)


def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the disk fails half-way, the old file stands and nothing is left beside it."""
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InfrastructureError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_cut_document_is_no_document(tmp_path: Path) -> None:
    """A document that was cut, or is of another kind, reads as absent rather than as something."""
    path = tmp_path / "m.json"
    write_document(path, Measurement(1.5, "s"))
    assert read_document(path, Measurement) == Measurement(1.5, "s")
    path.write_bytes(path.read_bytes()[:-10])
    assert read_document(path, Measurement) is None
    assert read_document(tmp_path / "absent.json", Measurement) is None


@given(st.dictionaries(st.text(max_size=8), st.binary(max_size=8), max_size=4))
def test_keys_do_not_depend_on_order(parts: dict[str, bytes]) -> None:
    """The same contents in another order have the same key."""
    assert content_key(parts) == content_key(dict(reversed(parts.items())))


@given(
    st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3),
    st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3),
)
def test_different_contents_have_different_keys(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    """No two different sets of files share a key, wherever bytes move between names and contents."""
    assert (content_key(one) == content_key(other)) == (one == other)


def test_a_matrix_is_found_by_path_and_by_name(tmp_path: Path) -> None:
    """A matrix in the folder wins; one that ships is found from anywhere; a wrong name lists what ships."""
    assert find_matrix(None, tmp_path) == shipped("matrices") / "quickstart.yaml"
    assert find_matrix("matrices/tensorflow.yaml", tmp_path) == shipped("matrices") / "tensorflow.yaml"
    own = tmp_path / "own.yaml"
    own.write_text("name: own\n")
    assert find_matrix("own.yaml", tmp_path) == own
    with pytest.raises(UsageError, match=r"no such matrix(.|\n)*quickstart"):
        find_matrix("quickstrat", tmp_path)


def test_what_is_written_below_out_is_found_there(tmp_path: Path) -> None:
    """Each list finds the documents of its own kind, sorted, and none of another's."""
    workspace = Workspace(tmp_path)
    paths = {
        workspace.verdicts: (workspace.verdict("a"), workspace.verdict("b")),
        workspace.image_records: (workspace.image_record("b"),),
        workspace.control_verdicts: (workspace.control("broken") / "verdict.json",),
        workspace.upgrades: (workspace.upgrade("1_2_cpu"),),
    }
    others = (
        workspace.for_upgrades.verdict("a"),
        workspace.for_reports.image_record("c"),
        workspace.for_reports.root / "verdict.json",
        workspace.report_matrix("d"),
        workspace.report_build("e") / "context" / "Dockerfile",
        workspace.bisects / "f.json",
        workspace.publication("b") / "verdict.json",
    )
    for path in (*(path for every in paths.values() for path in every), *others):
        write_atomically(path, b"{}")
        assert path.is_relative_to(workspace.out)
    for listed, wanted in paths.items():
        assert listed() == wanted


def test_folders_are_below_the_root(tmp_path: Path) -> None:
    """Contexts and results stand under images/ and out/."""
    workspace = Workspace(tmp_path)
    write_atomically(workspace.context("a") / "host/README", b"x")
    assert folder_contents(workspace.context("a")) == {"host/README": b"x"}
    assert workspace.results("a") == tmp_path / "out" / "a"
    assert folder_contents(tmp_path / "absent") == {}
    assert msgspec.json.encode(Measurement(1, "s"))
