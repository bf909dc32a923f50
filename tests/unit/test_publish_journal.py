"""The journal of publishing, and what the commands publish, verify, keys and export refuse before any work."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from factories import check, failed_verdict, inconclusive_verdict, verdict
from hypothesis import given
from hypothesis import strategies as st

from envbuilder.attest.keys import PRIVATE, PUBLIC
from envbuilder.cli import root
from envbuilder.errors import EnvbuilderError, PublishError, UsageError
from envbuilder.publish.journal import Journal, JournalEntry
from envbuilder.publish.publish_all import allowance, sealer_of
from envbuilder.publish.tags import staging_tag
from envbuilder.publish.verify_request import duration
from envbuilder.registry.manifests import Manifest, config_digest
from envbuilder.registry.reference import parse
from envbuilder.workspace import Workspace, write_document


@given(st.integers(min_value=0, max_value=400))
def test_a_line_that_a_kill_cut_short_is_not_there(tmp_path_factory, cut: int) -> None:
    path = tmp_path_factory.mktemp("journal") / "j.jsonl"
    journal = Journal(path)
    steps = [
        JournalEntry(step="staged", digest="a"),
        JournalEntry(step="validated", digest="a"),
        JournalEntry(step="done", digest="a"),
    ]
    for entry in steps:
        journal.note(entry)
    data = path.read_bytes()
    path.write_bytes(data[:cut])
    left = Journal(path)
    whole = data[:cut].count(b"\n") + (data[:cut].endswith(b"}") if cut < len(data) else 0)
    assert left.entries == tuple(steps[:whole])
    left.note(JournalEntry(step="pinned", digest="b"))
    assert Journal(path).entries == (*steps[:whole], JournalEntry(step="pinned", digest="b"))
    assert Journal(path).last("pinned") == JournalEntry(step="pinned", digest="b")


def test_a_staging_tag_is_a_valid_tag() -> None:
    for name in ("tf2.20.0-py311-cpu-bookworm", "x" * 300):
        assert parse("registry.example.org/a").at(staging_tag(name)).tag.startswith("staging-")


def test_an_index_has_no_configuration() -> None:
    assert config_digest(Manifest("x", b'{"config":{"digest":"sha256:1"}}', "d")) == "sha256:1"
    assert config_digest(Manifest("x", b'{"manifests":[]}', "d")) == ""
    assert config_digest(Manifest("x", b"no json", "d")) == ""


@given(st.text(max_size=8))
def test_any_text_is_a_duration_or_a_usage_error(text: str) -> None:
    try:
        assert duration(text) >= 0
    except UsageError:
        return
    assert text[-1] in "smhdw"


def test_durations_have_units() -> None:
    assert [duration(text) for text in ("90d", "12h", "30m", "45s", "2w")] == [7_776_000, 43_200, 1_800, 45, 1_209_600]
    with pytest.raises(UsageError):
        duration("90")


def test_nothing_but_inconclusive_can_be_allowed() -> None:
    assert allowance(("inconclusive", "inconclusive")) == ("inconclusive",)
    for word in ("failed", "simulated", "FAILED"):
        with pytest.raises(PublishError):
            allowance((word,))


def test_somebody_has_to_sign() -> None:
    for keys, keyless in (((), False), ((Path("k"),), True)):
        with pytest.raises(UsageError, match="--key"):
            sealer_of(keys, keyless=keyless, environment={})


def test_keyless_without_its_package_says_what_to_install() -> None:
    with pytest.raises(EnvbuilderError) as caught:
        sealer_of((), keyless=True, environment={}).seal(b"{}")
    assert "--key" in str(caught.value)


def run(*words: str, expect: type[BaseException] | None = None) -> str:
    answer = CliRunner().invoke(root, list(words), standalone_mode=False)
    if expect is not None:
        assert isinstance(answer.exception, expect), answer.exception
        return str(answer.exception)
    assert answer.exception is None, answer.exception
    return answer.output


def test_keys_are_made_and_shown(tmp_path) -> None:
    made = run("keys", "new", str(tmp_path))
    assert run("keys", "show", str(tmp_path / PUBLIC)).splitlines()[0] in made
    assert stat.S_IMODE((tmp_path / PRIVATE).stat().st_mode) == 0o600
    assert "never overwritten" in run("keys", "new", str(tmp_path), expect=UsageError)


def test_a_protected_key_by_the_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ENVBUILDER_KEY_PASSWORD", "secret")
    run("keys", "new", str(tmp_path))
    assert b"ENCRYPTED" in (tmp_path / PRIVATE).read_bytes()
    with pytest.raises(PublishError):
        sealer_of((tmp_path / PRIVATE,), keyless=False, environment={})
    assert sealer_of((tmp_path / PRIVATE,), keyless=False, environment={"ENVBUILDER_KEY_PASSWORD": "secret"})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a.b/c:d",), "no trusted signer"),
        (("a.b/c:d", "--identity", "x"), "belong together"),
        (("image", "--key", "KEY"), "names no registry"),
        (("a.b/c:d", "--key", "KEY", "--driver", "new"), "not a driver"),
        (("a.b/c:d", "--key", "KEY", "--max-age", "long"), "not a duration"),
        (("a.b/c:d", "--key", "absent.pub"), "absent.pub"),
    ],
)
def test_verify_refuses_words_that_do_not_fit(tmp_path, words, message) -> None:
    run("keys", "new", str(tmp_path))
    given_words = [str(tmp_path / PUBLIC) if word == "KEY" else word for word in words]
    assert message in run("verify", *given_words, expect=UsageError)


@pytest.fixture
def workspace(tmp_path, monkeypatch) -> Workspace:
    monkeypatch.chdir(tmp_path)
    made = Workspace(tmp_path)
    levels = (check("labels", level="static"), check("libraries", level="load"), check())
    unproved = inconclusive_verdict(level="cpu", checks=(*levels, check("matmul", "skipped", level="gpu")))
    for one in (verdict(), unproved):
        assert one.environment is not None
        write_document(made.results(one.environment.id) / "verdict.json", one)
    write_document(made.out / "controls" / "x" / "verdict.json", failed_verdict())
    return made


def test_export_speaks_of_what_is_in_out(workspace) -> None:
    assert "1 PASSED, 1 INCONCLUSIVE" in run("export", "markdown")
    assert "1 PASSED" in (only := run("export", "markdown", "-s", "flavor=cpu"))
    assert "INCONCLUSIVE" not in only
    run("export", "junit", "-o", "x/junit.xml")
    assert (workspace.root / "x" / "junit.xml").read_text().count("<testsuite ") == 2


def test_export_refuses_what_is_no_verdict(workspace) -> None:
    (workspace.root / "other.json").write_text("{}")
    assert "other.json" in run("export", "junit", "other.json", expect=EnvbuilderError)
    assert "no verdict" in run("export", "junit", "--store", "empty.sqlite3", expect=EnvbuilderError)


def test_report_writes_a_page(workspace) -> None:
    path = workspace.root / run("report", "-o", "page").strip()
    assert "tf2.20.0-py311-cpu-bookworm" in path.read_text()
    assert (workspace.out / "history.sqlite3").is_file()
    assert "1 PASSED" in run("export", "markdown", "--since", "2026-01-01")
