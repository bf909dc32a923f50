"""A command that only answers leaves no trace: neither where it is run nor in the home; of caches, its own alone."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from envbuilder.cli import root

ROOT = Path(__file__).parents[2]
REPORT = str(ROOT / "tests" / "corpus" / "59-driver-470.txt")
TOO_NEW = "--tensorflow 2.4.1 --cuda 11.2 --driver 460.32.03 --gpu"

ANSWERS = (
    ["choose"],
    ["choose", "--gpu", "T4", "--driver", "470", "--format", "json"],
    ["check", "--tensorflow", "2.20.0", "--driver", "535.104.05", "--gpu", "H100"],
    ["check", *TOO_NEW.split(), "GeForce RTX 3090", "--format", "json"],
    ["plan"],
    ["plan", "tensorflow", "--fleet", str(ROOT / "examples" / "fleets" / "example.yaml"), "--format", "json"],
    ["plan", "--newest", "--driver", "470.57.02", "--gpu", "V100"],
    ["explain", "PTX_JIT"],
    ["explain", "tf2.20.0-py311-cpu-bookworm", "--format", "json"],
    ["catalog", "list"],
    ["catalog", "list", "gpus"],
    ["schema", "verdict"],
    ["doctor", "quickstart"],
    ["doctor", "--format", "json"],
    ["capture", "--script"],
    ["reproduce", REPORT, "--dry-run"],
    ["reproduce", REPORT, "--dry-run", "--format", "json"],
    ["reproduce", REPORT, "--dry-run", "--format", "markdown"],
)
CACHES = (Path("cache"), Path("cache/envbuilder"))


def tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """List everything below a folder with its mode, time of change and content.

    The parsed catalogue may come and go in the user's cache, so that folder's own times are left out.
    """
    return {
        str(path.relative_to(root)): (
            path.stat().st_mode,
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in (root, *root.rglob("*"))
        if not path.match("envbuilder/catalog-*.msgpack") and path.relative_to(root) not in CACHES
    }


@pytest.mark.parametrize("words", ANSWERS, ids=lambda words: " ".join(words).replace(f"{ROOT}/", ""))
def test_answer_writes_nothing(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folders are as they were, to the time of their last change, and stay usable where nothing may be written."""
    for name in ("here", "home", "cache", "temporary"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here").chmod(0o555)
    before = tree(tmp_path)
    done = CliRunner().invoke(root, words)
    assert done.exit_code in {0, 1} or (words[0], done.exit_code) == ("doctor", 5), done.output  # no engine answers
    assert done.stdout.strip()
    assert tree(tmp_path) == before
