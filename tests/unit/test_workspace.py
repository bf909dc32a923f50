"""Files are written whole or not at all, and content keys see every byte."""

import os
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_for

from envbuilder.errors import InfrastructureError, UsageError
from envbuilder.support import decoding
from envbuilder.support.subprocesses import is_gone, owner
from envbuilder.verdict import Measurement
from envbuilder.workspace import (
    Workspace,
    cache,
    cached,
    content_key,
    folder_contents,
    read_document,
    read_stored,
    read_users,
    temporary_folder,
    users_text,
    write_atomically,
    write_document,
)


def test_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InfrastructureError, match="No space left"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


PARTS = st.dictionaries(st.text(max_size=4), st.binary(max_size=4), max_size=3)


@given(PARTS, PARTS)
def test_only_equal_contents_have_equal_keys(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    assert content_key(one) == content_key(dict(reversed(one.items())))
    assert (content_key(one) == content_key(other)) == (one == other)


def test_files_written_below_out_are_found_there(tmp_path: Path) -> None:
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
    assert folder_contents(workspace.bisects) == {"f.json": b"{}"}
    assert folder_contents(tmp_path / "absent") == {}


class _Sealed(msgspec.Struct, frozen=True):
    name: str
    checksum: str = ""


DAMAGE = {"not UTF-8": b'{"value":"\xff"}', "cut": b'{"value":', "empty": b"", "deep": b"[" * 100_000}


@pytest.mark.parametrize("data", DAMAGE.values(), ids=DAMAGE.keys())
def test_damaged_document_is_renamed_and_named(data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.json"
    path.write_bytes(data)
    assert read_document(path, Measurement) is None
    assert (path.exists(), path.with_name("m.json.damaged").read_bytes()) == (False, data)
    assert "renamed to m.json.damaged" in capsys.readouterr().err


def test_document_of_another_version_is_not_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.json"
    path.write_text('{"schema": "envbuilder/other/v9"}')
    assert read_document(path, Measurement) is None
    assert path.exists()
    assert capsys.readouterr().err == ""


def test_checksum_detects_every_changed_byte(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    write_document(path, _Sealed("a name"))
    whole = path.read_bytes()
    assert read_document(path, _Sealed) == _Sealed("a name")
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert read_document(path, _Sealed) in (None, _Sealed("a name"))


def test_cache_returns_intact_data_only_and_its_writes_never_fail(tmp_path: Path) -> None:
    path = tmp_path / "c"
    cache(path, b"content")
    assert cached(path) == b"content"
    whole = path.read_bytes()
    for data in (whole[:-1], whole + b"x", whole[:20] + b"X" + whole[21:], b"", b"content"):
        path.write_bytes(data)
        assert cached(path) is None
    for elsewhere in (tmp_path / "nothing", path / "in a file"):
        assert cached(elsewhere) is None
    cache(path / "in a file", b"content")


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "a[1].json"
    owners = (f"{2**22 + 1}_5", f"{2**22 + 2}_5", owner(), f"{os.getpid()}_5")
    dead, young, alive, another = (tmp_path / f".a[1].json.{name}.99.tmp" for name in owners)
    for left in (dead, young, alive, another):
        left.write_text("part")
    for left in (dead, alive, another):  # another: a container's first process has the same number in every container
        os.utime(left, (0, 0))
    write_atomically(path, b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([path, young, alive])


def test_zombie_is_gone() -> None:
    """A zombie is listed until its parent waits for it, and does nothing any more."""
    with subprocess.Popen(["sleep", "60"]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        name = f"{process.pid}_{stat.read_text().rpartition(')')[2].split()[19]}"
        assert not is_gone(name)
        process.kill()
        wait_for(lambda: is_gone(name), 30)
        assert stat.exists(), "it was not asked yet"


def test_folder_of_a_killed_process_with_a_reused_number_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process number can be reused; the start time tells the processes apart."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    gone, reused = tmp_path / f"envbuilder-a-{2**22 + 1}_5-0xab", tmp_path / f"envbuilder-a-{os.getpid()}_5-0xcd"
    other = tmp_path / f"envbuilder-b-{2**22 + 1}_5-0xab"
    for left in (gone, reused, other):
        left.mkdir()
        (left / "tree").write_text("x")
    with temporary_folder("a") as mine:
        assert sorted(tmp_path.iterdir()) == sorted([mine, other])
        with temporary_folder("a") as second:
            assert mine.is_dir()
            assert second != mine
        gone.mkdir()  # as the program that its process had started does
    assert list(tmp_path.iterdir()) == [other]


@pytest.mark.parametrize("folder", [False, True], ids=["a file for a folder", "a folder for the file"])
def test_obstacle_of_a_write_is_named(tmp_path: Path, *, folder: bool) -> None:
    path = tmp_path / "out" / "a.json"
    if folder:
        path.mkdir(parents=True)
    else:
        path.parent.write_text("")
    with pytest.raises(InfrastructureError, match=r"a\.json") as caught:
        write_atomically(path, b"")
    assert caught.value.exit_code == 5
    assert caught.value.hint


def test_every_file_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe that nobody writes to is not waited for, and a large file is not read."""
    monkeypatch.setattr(decoding, "LARGE", 1 << 20)
    pipe, device, sparse = (tmp_path / name for name in ("pipe", "device", "sparse"))
    os.mkfifo(pipe)
    device.symlink_to("/dev/zero")
    sparse.touch()
    os.truncate(sparse, 3 << 30)
    for path, why in ((pipe, "a pipe or a terminal"), (device, "larger than 1 MB"), (sparse, "larger than 1 MB")):
        with pytest.raises(InfrastructureError, match=why):
            read_stored(path)
    assert (cached(pipe), cached(device)) == (None, None)
    for path, read in ((device, read_users), (sparse, users_text)):
        with pytest.raises(UsageError, match="larger than 1 MB"):
            read(path)
    threading.Thread(target=pipe.write_bytes, args=(b"content",), daemon=True).start()
    assert read_users(pipe) == b"content"


def test_file_name_that_is_not_text_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "d.json"
    write_document(path, {"path": os.fsdecode(b"/a/\xff")})
    assert read_document(path, dict[str, str]) == {"path": "/a/\ufffd"}
