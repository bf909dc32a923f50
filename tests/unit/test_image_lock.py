"""Locks of packages by the real uv, where a matrix's own index precedes all others; locks of the system by apt."""

from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
from factories import resolved
from index_server import Site, serving, wheel
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.environment import Additions, Environment
from envbuilder.errors import InfrastructureError, InputError, UnsatisfiableError
from envbuilder.image import lockfile, system_lock
from envbuilder.image.context import ensure_system_locks, templates
from envbuilder.image.render import render_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK, SystemPackage
from envbuilder.support import subprocesses
from envbuilder.support.dpkg_status import versions
from envbuilder.workspace import Workspace

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


CATALOG = load()
GIT, CUDART = "a" * 64, "b" * 64
LOCKED = f"{GIT}  git_1%3a2.39.5-0+deb12u3_amd64.deb\n{CUDART}  libcudart11.0_11.8.89~11.8.0-5~deb12u1_amd64.deb\n"
WHEEL = f"nvidia-cudnn-cu11==8.6.0.163 \\\n    --hash=sha256:{'c' * 64}\n"
LOCK = f"tensorflow==2.13.1 \\\n    --hash=sha256:{'d' * 64}\n"


def asking(os: str = "debian-bookworm", *packages: str, flavor: str = "cpu") -> Environment:
    return resolved(tensorflow="2.13.1", os=os, flavor=flavor, additions=Additions(system_packages=packages))


def test_lock_names_versions_as_apt_takes_them() -> None:
    git, cudart = system_lock.parse(LOCKED)
    assert git == SystemPackage("git", "1:2.39.5-0+deb12u3", GIT, "git_1%3a2.39.5-0+deb12u3_amd64.deb")
    assert git.pin == "git=1:2.39.5-0+deb12u3"
    assert cudart.pin == "libcudart11.0=11.8.89~11.8.0-5~deb12u1"


@rows
def test_line_that_is_not_one_of_a_lock_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a pinned package"):
        system_lock.parse(line + "\n")


@rows
def test_lock_counts_while_it_pins_the_packages(tmp_path: Path, packages: tuple[str, ...], *, stands: bool) -> None:
    (tmp_path / SYSTEM_LOCK).write_text(f"# in the base: python3\n{LOCKED}")
    with nullcontext() if stands else pytest.raises(InputError, match="does not pin"):
        assert system_lock.absent(tmp_path, asking("debian-bookworm", *packages)) == ()


def test_environment_that_asks_for_nothing_needs_no_lock(tmp_path: Path) -> None:
    assert system_lock.absent(tmp_path, asking()) == ()
    assert asking("python-3.11", "git").pinned_packages == ()


def test_damaged_lock_is_a_mistake_with_its_place(tmp_path: Path) -> None:
    (tmp_path / SYSTEM_LOCK).write_text("git\n")
    with pytest.raises(InputError, match=SYSTEM_LOCK):
        system_lock.absent(tmp_path, asking("debian-bookworm", "git"))


def test_cuda_of_packages_needs_both_locks(tmp_path: Path) -> None:
    wanted = asking("debian-bookworm-cuda", flavor="gpu")
    lines = [f"{CUDART}  {name}_11.8_amd64.deb\n" for name in wanted.packaged_cuda.packages]
    (tmp_path / SYSTEM_LOCK).write_text("".join(lines))
    assert system_lock.absent(tmp_path, wanted) == (CUDNN_LOCK,)
    (tmp_path / CUDNN_LOCK).write_text(WHEEL.replace("8.6.0.163", "8.5.0.96"))
    with pytest.raises(InputError, match=CUDNN_LOCK):
        system_lock.absent(tmp_path, wanted)
    (tmp_path / CUDNN_LOCK).write_text(WHEEL)
    assert system_lock.absent(tmp_path, wanted) == ()
    assert system_lock.texts(tmp_path, wanted) == {SYSTEM_LOCK: "".join(lines), CUDNN_LOCK: WHEEL}


def test_nothing_is_installed_that_the_base_has() -> None:
    wanted = asking("debian-bookworm", "python3")
    files = render_context(wanted, LOCK, templates(), system={SYSTEM_LOCK: "# in the base: python3\n"})
    assert "install-apt" not in files[f"{wanted.id}/Dockerfile"].decode()


def test_stale_lock_of_the_system_is_never_changed_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asking("debian-bookworm", "git", "curl")
    workspace = Workspace(tmp_path)
    path = workspace.context(asked.id) / SYSTEM_LOCK
    fresh = LOCKED + f"{GIT}  curl_7_amd64.deb\n"
    monkeypatch.setattr(system_lock, "resolve", lambda *_: fresh)
    path.parent.mkdir(parents=True)
    path.write_text(LOCKED)
    with pytest.raises(InputError, match="does not pin") as failed:
        ensure_system_locks(asked, CATALOG, workspace)
    assert failed.value.hint == f"envbuilder lock -s {asked.id}"
    assert path.read_text() == LOCKED
    ensure_system_locks(asked, CATALOG, workspace, renew=True)
    assert path.read_text() == fresh
    path.unlink()
    ensure_system_locks(asked, CATALOG, workspace)
    assert path.read_text() == fresh


def test_dockerfile_takes_these_bytes_alone() -> None:
    wanted = asking("debian-bookworm", "git")
    files = render_context(wanted, LOCK, templates(), system={SYSTEM_LOCK: LOCKED})
    text = files[f"{wanted.id}/Dockerfile"].decode()
    assert "sh /run/tools/install-apt git=1:2.39.5-0+deb12u3 libcudart11.0=11.8.89~11.8.0-5~deb12u1\n" in text
    assert "org.envbuilder.system=" in text
    assert "non-free" not in text
    assert files[f"{wanted.id}/{SYSTEM_LOCK}"].decode() == LOCKED


def test_dockerfile_lays_cudnn_beside_the_packages_cuda() -> None:
    wanted = asking("debian-bookworm-cuda", flavor="gpu")
    files = render_context(wanted, LOCK, templates(), system={SYSTEM_LOCK: LOCKED, CUDNN_LOCK: WHEEL})
    text = files[f"{wanted.id}/Dockerfile"].decode()
    assert "ARG BASE=envbuilder/base:debian-bookworm\n" in text
    assert "--component non-free" in text
    assert text.endswith('CMD ["python"]\n')
    assert "sh /run/tools/install-cudnn\n" in text
    assert "sh /run/tools/link-library libnvrtc.so.11.2 /usr/lib/x86_64-linux-gnu/libnvrtc.so\n" in text
    assert "nvidia-cudnn" not in files[f"{wanted.id}/requirements.lock"].decode()


@rows
def test_package_that_is_set_up_is_installed(status: str | None, *, installed: bool) -> None:
    text = "Package: a\nArchitecture: amd64\nVersion: 1\n" + (f"Status: {status}\n" if status else "")
    assert versions(text) == ({"a": "1"} if installed else {})
