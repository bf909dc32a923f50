"""What the documents name exists: files, commands with their options, make targets, links and their anchors."""

import itertools
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from console_pages import commands, fits, output_of

from envbuilder.cli import root

TOP = Path(__file__).parents[2]
GENERATED = {TOP / "docs" / "reference" / "cli.md"}
PAGES = sorted(
    {TOP / "README.md", TOP / "CONTRIBUTING.md", *TOP.glob("te*/README.md"), *(TOP / "docs").rglob("*.md")} - GENERATED
)

_SPAN = re.compile(r"`([^`\n]+)`")
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_FOLDERS = "benchmarks|docs|envbuilder|examples|images|matrices|scripts|templates|tests"
_PATH = re.compile(rf"^(?:{_FOLDERS})/(?!.*/v\d$)[\w./*<>{{}},-]*$")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_TARGET = re.compile(r"^make ([a-z-]+)")


def spans(text: str) -> list[str]:
    return _SPAN.findall(_FENCE.sub("", text))


def command_lines(text: str) -> list[str]:
    """Give every line of a page that calls ``envbuilder``, in fences and inline, continuation lines joined."""
    lines = [line for _, body in _FENCE.findall(text) for line in body.replace("\\\n", " ").splitlines()]
    found = [line.strip().removeprefix("$ ") for line in (*lines, *spans(text))]
    return [line for line in found if re.match(r"^envbuilder [a-z]", line)]


def words(line: str) -> list[str]:
    """Split a command line up to a comment, a pipe or a redirection; an ellipsis is left out."""
    lexer = shlex.shlex(re.sub(r"[…\[\]]", " ", line), posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    return list(itertools.takewhile(lambda word: word not in ("|", ">", ";", "&&", ">>"), lexer))


def unknown_in(line: str) -> str:
    """Say what a command line names that the command line does not have; '' where there is nothing."""
    _, *rest = words(line)
    command: click.Command = root
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name, *rest = rest
        if re.search(r"[A-Z<…]", name):
            return ""
        child = command.get_command(click.Context(command), name.split("|")[0].rstrip(",.:"))
        if child is None:
            return f"no command {name!r}"
        command = child
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= {"--help", "-h", "--version"}
    if "--" in rest:
        rest = rest[: rest.index("--")]
    given = [word.split("=")[0] for word in rest if re.match(r"^--?[a-z]", word)]
    return next((f"no option {option} of {command.name}" for option in given if option not in known), "")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_commands_in_documents_exist(page: Path) -> None:
    wrong = {line: problem for line in command_lines(page.read_text()) if (problem := unknown_in(line))}
    assert not wrong


def test_some_commands_are_found() -> None:
    assert len(command_lines((TOP / "README.md").read_text())) > 10
    assert unknown_in("envbuilder check --tensorflow 2.20.0 --gpus H100") == "no option --gpus of check"
    assert unknown_in("envbuilder chekc") == "no command 'chekc'"
    assert not unknown_in("envbuilder upgrade --bisect 2.12.1 2.20.0 -- python --version")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_paths_in_documents_exist(page: Path) -> None:
    named = [span.rstrip(".,") for span in spans(page.read_text()) if _PATH.match(span)]
    gone = [path for path in named if not list(TOP.glob(re.sub(r"<[^>]*>|\{[^}]*\}", "*", path.rstrip("/"))))]
    assert not gone


def test_readme_needs_five_commands_and_shows_what_they_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tuple(commands((TOP / "README.md").read_text()))
    (_, init, cd, run, start), others = page[:5], page[5:]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.txt").write_text("tensorflow 2.20.0\nDriver Version: 470.256.02\nGPU: A100-SXM4-80GB\n")
    assert [words(one.command)[1] for one in others] == ["choose", "check", "reproduce"]
    for command, output in (init, *others):
        assert fits(output, printed := output_of(command)), printed
    assert f"next: {cd.command} && {run.command}" in init.output
    monkeypatch.chdir(words(cd.command)[1])
    (row,) = json.loads(output_of("envbuilder plan --format github"))["include"]
    assert start.command == f"docker run --rm -it --gpus all envbuilder/tensorflow:{row['tag']}"
    assert run.output.endswith(f"next: {start.command}\n")


def test_page_is_not_compared_loosely() -> None:
    assert fits("a\n  …\nb\n", "a\n1\n2\nb\n")
    assert fits("a\n…\nb\n", "a\nb\n")
    assert not fits("a …\n", "a 1\nb\n")


def slugs(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(TOP)))
def test_links_in_documents_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if not re.match(r"^[a-z]+:", link):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            assert target.exists(), link
            assert not anchor or anchor in slugs(target), link


def test_make_targets_in_documents_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (TOP / "Makefile").read_text(), re.MULTILINE))
    texts = [page.read_text() for page in PAGES]
    lines = [line for text in texts for _, body in _FENCE.findall(text) for line in body.splitlines()]
    lines += [span for text in texts for span in spans(text)]
    named = {found[1] for line in lines if (found := _TARGET.match(line))}
    assert named
    assert named <= targets


def test_generated_pages_are_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, TOP / "scripts" / "reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, f"run scripts/reference.py: {checked.stderr}"


_INSTALL = re.compile(
    r"\b(?:pip3? install|pipx (?:install|run)|uvx|uv (?:tool (?:install|run)|add|pip install))\b([^\n;&|`]*)"
)
_STRANGER = re.compile(r"""(?:^|[\s'"])envbuilder(?=[\s'"\[=<>~!]|$)""")


def test_no_line_installs_a_foreign_project() -> None:
    """``envbuilder`` on the package index is another project; this one is ``tf-envbuilder``."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=TOP, capture_output=True, text=True, check=True).stdout
    paths = [TOP / name for name in listed.split("\0") if name and not name.startswith("images/")]
    texts = [path.read_bytes().decode(errors="replace") for path in paths if path.is_file()]
    words = [
        found[1].replace("--from tf-envbuilder envbuilder", "") for text in texts for found in _INSTALL.finditer(text)
    ]
    assert sum("tf-envbuilder" in one for one in words) > 5
    assert [one for one in words if _STRANGER.search(one)] == []
    assert _STRANGER.search(" 'envbuilder[publish]'")
    assert not _STRANGER.search(" 'tf-envbuilder[publish]'")
