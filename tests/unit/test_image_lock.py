"""Locks by the real uv, on indexes of loopback: a matrix's own index precedes all others. And how a lock is read."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import resolved
from index_server import Site, serving, wheel

from envbuilder.environment import Additions, Environment
from envbuilder.errors import InfrastructureError, UnsatisfiableError
from envbuilder.image import lockfile
from envbuilder.support import subprocesses

FRAMEWORK = "tensorflow-cpu"


@dataclass(frozen=True)
class Indexes:
    """A team's own index, a mirror that this host is set to, and the public one."""

    own: Site
    mirror: Site
    public: Site


def put(site: Site, name: str, version: str, needs: str = "") -> None:
    told = f"Requires-Dist: {needs}\n" if needs else ""
    file = name.replace("-", "_")
    site.add(name, f"{file}-{version}-py3-none-any.whl", wheel(file, version, {f"{file}.py": version.encode()}, told))


@pytest.fixture(params=["", "unsafe-best-match", "pip", "UV_INDEX", "uv.toml"])
def indexes(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Indexes]:
    for name in ("UV_EXTRA_INDEX_URL", "UV_INDEX", "UV_INDEX_STRATEGY", "UV_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    pip, uv = tmp_path / "pip.conf", tmp_path / "uv.toml"
    pip.write_text("")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(pip))
    monkeypatch.setenv("UV_NO_CACHE", "1")
    monkeypatch.delenv("UV_OFFLINE", raising=False)  # loopback is all that is asked
    with ExitStack() as stack:
        own, mirror, public = (stack.enter_context(serving(Site())) for _ in range(3))
        monkeypatch.setenv("UV_DEFAULT_INDEX", public.url)
        match request.param:
            case "unsafe-best-match":
                monkeypatch.setenv("UV_INDEX_STRATEGY", "unsafe-best-match")
                monkeypatch.setenv("UV_EXTRA_INDEX_URL", mirror.url)
            case "pip":
                pip.write_text(f"[global]\nextra-index-url = {mirror.url}\n")
            case "UV_INDEX":
                monkeypatch.setenv("UV_INDEX", mirror.url)
            case "uv.toml":
                uv.write_text(f'index-strategy = "unsafe-best-match"\n[[index]]\nurl = "{mirror.url}"\n')
                monkeypatch.setenv("UV_CONFIG_FILE", str(uv))
        put(public, FRAMEWORK, "2.20.0")
        yield Indexes(own, mirror, public)


def environment(own: Site, *packages: str) -> Environment:
    return resolved(additions=Additions(packages=packages, indexes=(own.url,)), variant="runtime")


def test_public_package_is_taken_only_if_the_own_index_lacks_it(indexes: Indexes) -> None:
    put(indexes.own, "team-tool", "1.0", "team-base")
    put(indexes.own, "team-base", "1.0", "plain")
    put(indexes.public, "plain", "3.0")
    for site in (indexes.mirror, indexes.public):
        put(site, "team-tool", "9.9")
        put(site, "team-base", "9.9")
    text = lockfile.resolve(environment(indexes.own, "team-tool>=1"), "2.36")
    found = {package.name: package.version for package in lockfile.parse(text)}
    assert found == {FRAMEWORK: "2.20.0", "team-tool": "1.0", "team-base": "1.0", "plain": "3.0"}
    assert all(len(package.hashes) == 1 for package in lockfile.parse(text))


def test_version_that_the_own_index_lacks_is_no_reason_to_ask_another(indexes: Indexes) -> None:
    put(indexes.own, "team-tool", "1.0")
    put(indexes.public, "team-tool", "9.9")
    with pytest.raises(UnsatisfiableError, match="team-tool"):
        lockfile.resolve(environment(indexes.own, "team-tool>=2"), "2.36")


def test_refresh_is_an_option_of_uv_whose_whole_answer_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def run(words: list[str], **_: object) -> subprocesses.CompletedProgram:
        asked.append(words)
        return SimpleNamespace(code=1, error_text="\n".join(map(str, range(9))))  # type: ignore[return-value]

    monkeypatch.delenv("UV_OFFLINE", raising=False)
    monkeypatch.setattr(subprocesses, "run", run)
    for refresh in (False, True):
        with pytest.raises(InfrastructureError, match="\n0\n"):
            lockfile.resolve(resolved(), "2.36", refresh=refresh)
        assert ("--refresh" in asked[-1]) is refresh


A, B = "sha256:" + "a" * 64, "sha256:" + "b" * 64
TEXT = f"""\
numpy==2.1.3 \\
    --hash={A} \\
    --hash={B}
Nvidia_cuBLAS.cu12==12.5.3.2 ; sys_platform == 'linux' \\
    --hash={B}
"""


def test_packages_are_read_with_normalised_names_and_all_hashes() -> None:
    numpy, cublas = lockfile.parse(TEXT)
    assert (numpy.name, numpy.version, numpy.hashes) == ("numpy", "2.1.3", (A, B))
    assert (cublas.name, cublas.version, cublas.hashes) == ("nvidia-cublas-cu12", "12.5.3.2", (B,))


@pytest.mark.parametrize("line", ["numpy>=1", "-e .", "--index-url x", "numpy @ file:///x"])
def test_line_that_pins_nothing_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a pinned package"):
        lockfile.parse(line + "\n")
