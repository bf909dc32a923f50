"""Commands that messages propose as a next step: each is found in the code, and runs in a project."""

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ci_steps import SHIPPED, repository
from command_line import commands, ran
from table_rows import beside

from envbuilder.image import context, lockfile

PACKAGE = Path(__file__).parents[2] / "envbuilder"
DIGEST = "sha256:" + "0" * 64

FILLED = [(old, new.format(SHIPPED=SHIPPED, DIGEST=DIGEST)) for old, new in beside(__file__)["FILLED"]]
"""Placeholders of messages, and their values in the project of this test."""

WORDS = ("gpus", "drivers", "systems", "cuda", "cudnn", "tensorflow", "-", "5", "full", "json")
"""Words that may follow a command, next to options, placeholders and quoted texts; prose ends it."""


def texts() -> Iterator[str]:
    """Yield every text of the package, with the fields of f-strings in braces; docstrings are left out."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if not re.search("envbuilder (?!import )", source := path.read_text()):
            continue
        lines = source.splitlines()
        blocks = ((one, "".join(lines[one.lineno - 1 : one.end_lineno])) for one in ast.parse(source).body)
        nodes = [node for block, text in blocks if "envbuilder " in text for node in ast.walk(block)]
        alone = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        parts = {id(one) for node in nodes if isinstance(node, ast.JoinedStr) for one in node.values}
        for node in nodes:
            if id(node) in alone | parts:
                continue
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(one.value) if isinstance(one, ast.Constant) else field(one) for one in node.values)
    for name in ("codes.yaml", "publish/reasons.yaml", *(f"reproduce/messages/{one.name}" for one in MESSAGES)):
        yield from leaves(yaml.safe_load((PACKAGE / name).read_text()))


MESSAGES = sorted((PACKAGE / "reproduce/messages").glob("*.yaml"))


def field(node: ast.expr) -> str:
    assert isinstance(node, ast.FormattedValue)
    return f"{{{ast.unparse(node.value).replace(' ', '')}}}"


def leaves(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict() | list() | tuple():
            for one in value.values() if isinstance(value, dict) else value:
                yield from leaves(one)


COMMANDS = dict(commands())
ARGUMENT = re.compile(rf"-.+|'.*'|.*\{{.*|[A-Z:]+(?:\.pub)?|~\S+|{'|'.join(map(re.escape, WORDS))}")


def proposed(text: str) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Yield each command of a text with its arguments, up to punctuation or prose.

    In backticks, the bare name of a command that needs arguments is a name, and not a line to copy.
    """
    for found in re.finditer(r"(?<![Bb]y )(?<![Bb]y `)(`?)\benvbuilder ((?:'[^'\n]*'|[^`;,\n])+)", text):
        words = [one.rstrip(".:") for one in re.findall(r"'[^']*'|\S+", found[2])]
        path = next((path for path in COMMANDS if tuple(words[: len(path)]) == path), ())
        rest = tuple(itertools.takewhile(ARGUMENT.fullmatch, words[len(path) :]))
        if path and (rest or not found[1] or not any(one.required for one in COMMANDS[path].params)):
            yield path, rest


PROPOSED = sorted({one for text in texts() for one in proposed(text)})

ELSEWHERE = ("build", "catalog inspect", "catalog refresh", "clean", "doctor", "fleet worker")
OF_IMAGES = ("publish", "run", "upgrade", "validate", "verify")
"""Commands that need an engine, an index or a registry: tests of their own run them to the end."""


def filled(words: tuple[str, ...]) -> list[str]:
    made: list[str] = []
    for word in words:
        plain = word.strip("'")
        value = next((value for pattern, value in FILLED if re.fullmatch(pattern, plain)), plain)
        made.append(value.partition("@")[0] if made and made[-1] == "--to" else value)
    return made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent.sock")
    repository(tmp_path)
    text = (tmp_path / "images" / SHIPPED / "requirements.lock").read_text()
    monkeypatch.setattr(lockfile, "resolve", lambda *_, **__: text)  # without an index
    monkeypatch.setattr(context, "ensure_packages", lambda *_, **__: None)
    assert ran(capsys, "keys", "new", "made")[0] == 0
    next((tmp_path / "made").glob("*.key")).rename(tmp_path / "private.key")
    return tmp_path


@pytest.mark.usefixtures("project")
@pytest.mark.parametrize(("path", "rest"), PROPOSED, ids=" ".join)
def test_proposed_command_runs(
    path: tuple[str, ...], rest: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    words = filled(rest)
    if " ".join(path) in ELSEWHERE + OF_IMAGES:
        COMMANDS[path].make_context(path[-1], list(words))
    else:
        code, out, err = ran(capsys, *path, *words)
        assert code in (0, 1, 8), f"{out}{err}"


def test_proposals_are_found() -> None:
    assert len(PROPOSED) > 30
    assert (("catalog", "list"), ("gpus",)) in PROPOSED
    found = proposed("`envbuilder fleet export` on it; run envbuilder keys new makes one")
    assert list(found) == [(("keys", "new"), ())]


def test_stale_files_of_a_matrix_are_fixed_by_the_proposal(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "matrix.yaml").rename(project / "team.yaml")
    (project / "images" / SHIPPED / "Dockerfile").write_text("FROM scratch\n")
    check = ("render", "--check", "team.yaml")
    code, _, err = ran(capsys, *check)
    assert (code, err) == (1, "stale: 1 files; run `envbuilder render team.yaml`\n")
    assert ran(capsys, "render", "team.yaml")[0] == 0
    assert ran(capsys, *check)[0] == 0
    (project / "images" / SHIPPED / "requirements.lock").unlink()
    code, out, _ = ran(capsys, *check)
    assert (code, f"run envbuilder lock team.yaml -s {SHIPPED}\n" in out) == (1, True)
    assert ran(capsys, "lock", "team.yaml", "-s", SHIPPED)[1] == "1 lock changed, 0 unchanged\n"
    assert ran(capsys, *check)[0] == 0
