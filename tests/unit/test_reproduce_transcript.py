"""Reports of any size and encoding: what decides is found wherever it stands, on the line where it stands."""

import io
import time
import tracemalloc
from pathlib import Path

import pytest
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.errors import UsageError
from envbuilder.reproduce import transcript
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.messages.catalog import find
from envbuilder.reproduce.report.context import pauses
from envbuilder.reproduce.transcript import LARGEST, clean, encoding_of, read_text

MISSING = (
    "W dso_loader.cc:64] Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open shared "
    "object file: No such file or directory"
)


def of_bytes(data: bytes) -> str:
    return read_text(io.BytesIO(data))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_every_encoding_that_shells_write(encoding: str) -> None:
    """PowerShell writes UTF-16, with or without a mark; the same report reads the same."""
    text = f"TensorFlow version: 2.12.0\r\nPython version: 3.10\r\n{MISSING}\r\n"
    assert of_bytes(text.encode(encoding)).replace("\ufeff", "") == text.removesuffix("\n")


def test_zeros_alone_are_no_utf_16() -> None:
    assert encoding_of(bytes(4096)) == "utf-8"
    assert of_bytes(bytes(range(256)) * 40)
    assert of_bytes(b"") == ""


def large(size: int, at: int) -> bytes:
    """Make a training log of some size, with the decisive line at a place in its middle."""
    row = "2023-01-01 00:00:{:02d}.000001: I tensorflow/core/common_runtime/executor.cc:1197] step {} loss 0.5 on GPU\n"
    lines = [row.format(number % 60, number) for number in range(size // 100)]
    lines[at] = f"{MISSING}\n"
    lines[0] = "tensorflow 2.12.0\n"
    return "".join(lines).encode()


@pytest.mark.parametrize("at", [100, 50_000, -3])
def test_large_log_is_answered_with_its_own_line_numbers(at: int) -> None:
    data = large(LARGEST + (5 << 20), at)
    document = analyse(of_bytes(data), load()).document
    wanted = at + 1 if at >= 0 else data.count(b"\n") + at + 1
    assert (document.diagnosis.line, document.reported.tensorflow) == (wanted, "2.12.0")


@pytest.mark.parametrize("megabytes", [20, pytest.param(50, marks=pytest.mark.full)])
def test_large_log_takes_little_time_and_memory(megabytes: int, tmp_path: Path) -> None:
    path = tmp_path / "large.log"
    path.write_bytes(large(megabytes << 20, 90_000))
    catalog = load()
    analyse(MISSING, catalog)
    start = time.process_time()
    with path.open("rb") as stream:
        text = read_text(stream)
    document = analyse(text, catalog).document
    assert time.process_time() - start < 6  # twice what it takes on a slow machine that does other work
    assert document.diagnosis.line == 90_001
    tracemalloc.start()
    with path.open("rb") as stream:
        read_text(stream)
    assert tracemalloc.get_traced_memory()[1] < 150 << 20
    tracemalloc.stop()


def test_line_without_an_end_is_cut() -> None:
    text = of_bytes(b"x" * (10 << 20) + b"\ntensorflow 2.12.0\n")
    assert len(text) < 20_000
    assert text.endswith("\ntensorflow 2.12.0")


@rows
def test_ordinary_sentences_are_no_messages(text: str) -> None:
    assert not find(clean(text))


def test_text_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transcript, "MOST", 1 << 20)
    for data in (b"\0" * (2 << 20), b"y\n" * (1 << 20)):
        with pytest.raises(UsageError, match="larger than 1 MB"):
            transcript.read_text(io.BytesIO(data))


def test_damaged_stamp_does_not_hide_the_pause_around_it() -> None:
    stamps = ("2024-01-01 10:00:00.1", "2024-13-01 10:00:01.1", "2024-01-01 10:03:00.1")
    (pause,) = pauses(clean("".join(f"{stamp}: I tensorflow\n" for stamp in stamps)))
    assert (pause.line, pause.seconds) == (1, 180.0)
