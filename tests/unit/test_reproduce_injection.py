"""Reports that try to be more than text: none reaches a shell, a Dockerfile, a requirement or a simulated host."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.matrix import Matrix
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.rebuild import dockerfile, requirement, word
from envbuilder.reproduce.report.reported import SCALARS
from envbuilder.simulated import profile

BASE = "tensorflow 2.15.1\npython 3.11\nnumpy==2.0.0\ndriver 535.104.05\nRTX 3090\n"
MARK = "pwned"
ATTEMPTS = yaml.safe_load((Path(__file__).parents[1] / "hostile" / "reports.yaml").read_text())

_LINE = re.compile(
    r"(?:#.*|ARG BASE|FROM (?:\$\{BASE\}|[a-z0-9/:.-]+)|USER (?:root|envbuilder)"
    r"|COPY tools\.lock /run/tools\.lock|RUN --mount=\S+ \\"
    r"|    (?:if \[|  export|export|apt-get|python3 -m|/run/tools|rm -rf).*|      export.*)\Z"
)
_TOKENS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]=<>,!~*-]*|--rm|--gpus|-it|all")


def test_injection_corpus_has_over_thirty_attempts() -> None:
    assert len(set(ATTEMPTS)) >= 30


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=range(len(ATTEMPTS)))
@pytest.mark.parametrize("before", ["", BASE], ids=["alone", "in a report"])
def test_injection_reaches_no_output(attempt: str, before: str, tmp_path: Path) -> None:
    document = analyse(before + attempt, load()).document
    recipe, near, said = document.recipe, document.nearest, document.reported
    for value in (*filter(None, map(said.__getattribute__, SCALARS)), *said.gpus, *said.packages.values()):
        assert re.fullmatch(r"[^-\s\0;|&$`'\"\\<>#][^\n\r\0;|&$`'\"\\<>#]*", value, re.ASCII), value
    assert MARK not in recipe.dockerfile + recipe.host + " ".join(recipe.deviations) + (recipe.base or "")
    for line in recipe.dockerfile.splitlines():
        assert _LINE.match(line), line
    for pin in recipe.deviations:
        assert re.fullmatch(r"[a-z0-9.-]+==[0-9][A-Za-z0-9.+]*", pin, re.ASCII), pin
    if recipe.host:
        assert profile.parse(recipe.host, load()).fail == ()
    if near is None:
        return
    for command in near.commands:
        assert MARK not in command
        assert all(_TOKENS.fullmatch(token) for token in shlex.split(command)), command
    if near.matrix:
        path = tmp_path / "nearest.yaml"
        path.write_text(near.matrix)
        assert isinstance(read_matrix(path), Matrix)
        assert MARK not in yaml.safe_dump(yaml.safe_load(near.matrix))


EVIL = ("a b", "a;b", "a'b", 'a"b', "a\nb", "$(a)", "`a`", "-a", "", "../a b", "a\\", "a|b", "a&b", "a\u00e9", "a\x00")


@pytest.mark.parametrize(
    "write", [word, requirement, lambda text: dockerfile((f"a=={text}",)), lambda text: dockerfile((), text, "a==1")]
)
@pytest.mark.parametrize("text", EVIL)
def test_dockerfile_writer_rejects_unsafe_words(text: str, write: Callable[[str], object]) -> None:
    with pytest.raises(ValueError, match="not"):
        write(text)
