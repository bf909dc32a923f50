"""Mirrors and repositories of apt by the user's configuration and the real apt; files of this host for build steps."""

import hashlib
import io
import os
import shutil
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from apt_repository import Archive, Signer, served
from factories import resolved
from table_rows import rows

from envbuilder.errors import EnvbuilderError, InfrastructureError, InputError, UsageError
from envbuilder.image import debian, host_settings, system_lock
from envbuilder.image.context import templates
from envbuilder.image.render import render_context
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.pypi.index_config import configured
from envbuilder.workspace import cache_dir

KEY = bytes([0x99]) + b"\x01key"
LOCK = f"tensorflow==2.10.1 \\\n    --hash=sha256:{'d' * 64}\n"
WHEEL = f"nvidia-cudnn-cu11==8.6.0.163 \\\n    --hash=sha256:{'c' * 64}\n"


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "config/envbuilder/config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_debian_is_had_from_the_configured_mirror(config: Path) -> None:
    config.write_text('[apt]\ndebian = "https://m.example.org/debian/"\n')
    lines = ("deb https://m.example.org/debian bookworm main", "deb https://m.example.org/debian bookworm-updates main")
    assert debian.mirror_lines("bookworm") == lines
    config.write_text('[apt]\ndebian = "https://m.example.org/debian"\ndebian-security = "http://s.example.org/x"\n')
    assert debian.mirror_lines("trixie")[-1] == "deb http://s.example.org/x trixie-security main"


def test_repository_is_the_variable_the_file_or_the_default(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_settings.repository() == "envbuilder/tensorflow"
    config.write_text('[images]\nrepository = "team/tensorflow"\n')
    assert host_settings.repository() == "team/tensorflow"
    (config.parent / "envbuilder.toml").write_text('repository = "project/tensorflow"\n')
    monkeypatch.chdir(config.parent)
    assert host_settings.repository() == "project/tensorflow"
    monkeypatch.setenv(host_settings.REPOSITORY, "registry.example.org:5000/team")
    assert host_settings.repository() == "registry.example.org:5000/team"
    for wrong in ("team/tensorflow:1", "Team", "-x", "a b", "a/../b"):
        monkeypatch.setenv(host_settings.REPOSITORY, wrong)
        with pytest.raises(
            UsageError, match=r"TF_ENVBUILDER_REPOSITORY '.*': not in the form of the example\n"
        ) as refused:
            host_settings.repository()
        assert refused.value.hint == "write team/tensorflow, without a tag"


def test_host_without_a_mirror_takes_that_of_its_base_or_says_so(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not config.exists()
    monkeypatch.setenv("HOME", str(config))
    monkeypatch.setenv("XDG_CONFIG_HOME", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert host_settings.config_file() == config / ".config/envbuilder/config.toml"
    assert cache_dir() == config / ".cache/envbuilder"
    monkeypatch.setattr(debian, "_codename", lambda: "")
    with pytest.raises(InfrastructureError, match="no mirror of Debian") as failed:
        system_lock.resolve("bookworm", ("git",))
    assert str(config) in (failed.value.hint or "")
    bases = config.parents[2] / "cache/envbuilder/bases"
    bases.mkdir(parents=True)
    text = b"deb [trusted=yes] http://d.example.org/debian bookworm main\n# deb x\n"
    text += b"deb http://s.example.org/debian bookworm-security main\n"
    tar = bases / f"debian-bookworm-{debian.recipe('bookworm')[:12]}.tar"
    with tarfile.open(tar, "w") as archive:
        for name, content in (("./etc/hosts", b""), ("./etc/apt/sources.list", text)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    expected = (
        "deb http://d.example.org/debian bookworm main",
        "deb http://s.example.org/debian bookworm-security main",
    )
    assert debian.lines_of_base("bookworm", bases) == expected
    assert debian.lines_of_base("trixie", bases) == ()
    tar.write_bytes(b"no tar")
    assert debian.lines_of_base("bookworm", bases) == ()


@pytest.mark.parametrize("armoured", [False, True])
def test_repository_is_an_address_and_a_key(config: Path, *, armoured: bool) -> None:
    key = config.parent / "key"
    key.write_bytes(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nx\n" if armoured else KEY)
    config.write_text(
        f'[apt.repositories.nvidia-bullseye]\nurl = "https://p.example.org/cuda/x86_64/"\nkey = "{key}"\n'
    )
    name = f"nvidia-bullseye.{'asc' if armoured else 'gpg'}"
    line = f"deb [arch=amd64 signed-by=/k/{name}] https://p.example.org/cuda/x86_64 /\n"
    files = host_settings.repository_files("nvidia-bullseye", "/k")
    assert files == {"further.list": line.encode(), name: key.read_bytes()}
    files = host_settings.host_files(repository="nvidia-bullseye")
    assert files["host/apt/further.list"].decode() == line.replace("/k/", "/run/host/apt/")
    assert files[f"host/apt/{name}"] == key.read_bytes()
    config.write_text(config.read_text() + 'suite = "stable main"\n')
    assert host_settings.repository_files("nvidia-bullseye", "/k")["further.list"].endswith(b"x86_64 stable main\n")


@rows
def test_table_of_another_form_is_refused(config: Path, text: str) -> None:
    config.write_bytes(text.encode("latin-1"))
    with pytest.raises(EnvbuilderError, match=r"config\.toml") as failed:
        (host_settings.mirrors if "mirrors" in text else host_settings.apt)()
    assert failed.value.hint
    assert "secret" not in str(failed.value) + failed.value.hint


@pytest.mark.parametrize("key", ["/nowhere/key.gpg", "/etc/passwd", "/dev/zero", "/etc"])
def test_file_that_is_not_a_key_is_refused(config: Path, key: str) -> None:
    config.write_text(f'[apt.repositories.nvidia-bullseye]\nurl = "https://p.example.org/x"\nkey = "{key}"\n')
    with pytest.raises(UsageError, match=key):
        host_settings.repository_files("nvidia-bullseye", "/k")


@rows
def test_tensorflow_gets_the_cuda_that_it_was_built_with(suite: str, tensorflow: str, cuda: str) -> None:
    """It comes from the vendor's packages, by their names, and no wheel of CUDA is in the environment."""
    found = resolved(os=f"debian-{suite}-nvidia", tensorflow=tensorflow, flavor="gpu")
    assert (found.cuda, found.cuda_wheels, found.packaged_cuda.component) == (cuda, (), "")
    assert found.packaged_cuda.repository == f"nvidia-{suite}"
    assert f"cuda-cudart-{cuda.replace('.', '-')}" in found.pinned_packages


def test_dockerfile_asks_the_hosts_repository_and_names_none() -> None:
    wanted = resolved(os="debian-bullseye-nvidia", tensorflow="2.10.1", flavor="gpu")
    text = f"{'a' * 64}  cuda-cudart-11-2_11.2.152-1_amd64.deb\n"
    files = render_context(wanted, LOCK, templates(), system={SYSTEM_LOCK: text, CUDNN_LOCK: WHEEL})
    told = files[f"{wanted.id}/Dockerfile"].decode()
    assert "sh /run/tools/install-apt --repository " in told
    assert "cuda-cudart-11-2=11.2.152-1" in told
    folders = "/usr/local/cuda-11.2/targets/x86_64-linux/lib /usr/local/cuda-11.2/extras/CUPTI/lib64"
    assert f"sh /run/tools/install-cudnn {folders}\n" in told
    link = "/usr/local/cuda-11.2/targets/x86_64-linux/lib/libnvrtc.so"
    assert f"sh /run/tools/link-library libnvrtc.so.11.2 {link}\n" in told
    assert "non-free" not in told
    assert "http" not in told


@pytest.mark.parametrize(
    "evil", ["/opt/x; reboot", "/opt/$(id)", "/opt/x\nRUN id", "opt/x", "/", "/opt/../etc", "/opt/x y", ""]
)
def test_no_folder_of_a_package_reaches_a_shell(evil: str) -> None:
    wanted = resolved(os="debian-bullseye-nvidia", tensorflow="2.10.1", flavor="gpu")
    cuda = msgspec.structs.replace(wanted.packaged_cuda, folders=(evil,))  # type: ignore[type-var]
    locks = {SYSTEM_LOCK: f"{'a' * 64}  cuda-cudart-11-2_11.2_amd64.deb\n", CUDNN_LOCK: WHEEL}
    with pytest.raises(ValueError, match="not fit for a Dockerfile"):
        render_context(msgspec.structs.replace(wanted, system_cuda=cuda), LOCK, templates(), system=locks)


@pytest.fixture
def sites(tmp_path: Path, config: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Archive, Archive]]:
    """Make a mirror of Debian and a vendor's repository, each signed by its own key, and configure both."""
    if not all(map(shutil.which, ("gpg", "apt-get", "dpkg-deb"))):
        pytest.skip("gpg, apt-get and dpkg-deb are Debian's")
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    signers = Signer(tmp_path / "gpg1"), Signer(tmp_path / "gpg2")
    for part in ("debian", "vendor"):
        (tmp_path / "www" / part).mkdir(parents=True)
    ours = Archive(tmp_path / "www/debian", signers[0], "Debian", "bookworm")
    updates = Archive(tmp_path / "www/debian", signers[0], "Debian", "bookworm-updates")
    vendor = Archive(tmp_path / "www/vendor", signers[1], "NVIDIA")
    for name in ("apt", "usr-is-merged", *debian.PACKAGES):
        ours.add(name, "1.0", more="Essential: yes\nPriority: required\n")
    ours.add("libstdc++6", "12")
    updates.add("nothing", "1")
    updates.publish()
    monkeypatch.setattr(system_lock, "_KEYRING", str(signers[0].public(tmp_path / "debian.gpg")))
    key = signers[1].public(tmp_path / "vendor.asc", armoured=True)
    with served(tmp_path / "www") as address:
        config.write_text(
            f'[apt]\ndebian = "{address}/debian"\n'
            f'[apt.repositories.nvidia-bookworm]\nurl = "{address}/vendor"\nkey = "{key}"\n'
        )
        yield ours, vendor


def test_real_apt_pins_the_vendors_packages(sites: tuple[Archive, Archive], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the base has already is not pinned, and noted if it was asked for."""
    ours, vendor = sites
    runtime = vendor.add("cuda-cudart-12-5", "12.5.82-1", more="Depends: cuda-toolkit-config-common, libstdc++6\n")
    shared = vendor.add("cuda-toolkit-config-common", "12.5.82-1", arch="all")
    vendor.add("libstdc++6", "99")
    vendor.add("git", "99")
    vendor.add("mawk", "1", more="Provides: awk\n")
    git = ours.add("git", "1:2.39")
    for site in sites:
        site.publish()
    standard = ours.held["main"][5][0].read_bytes()
    asked = ("cuda-cudart-12-5", "git", "python3")
    text = system_lock.resolve("bookworm", asked, repository="nvidia-bookworm")
    assert text.startswith("# in the base: python3\n")
    found = {package.pin: package.sha256 for package in system_lock.parse(text)}
    assert found == {
        "cuda-cudart-12-5=12.5.82-1": runtime,
        "cuda-toolkit-config-common=12.5.82-1": shared,
        "git=1:2.39": git,
        "libstdc++6=12": hashlib.sha256(standard).hexdigest(),
    }
    with pytest.raises(InputError, match="awk: no package of this name"):
        system_lock.resolve("bookworm", ("git", "awk"), repository="nvidia-bookworm")
    with pytest.raises(InfrastructureError, match="Unable to locate package nowhere"):
        system_lock.resolve("bookworm", ("nowhere",))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InfrastructureError, match="cannot be pinned here"):
        system_lock.resolve("bookworm", ("git",))


@pytest.mark.parametrize("what", ["another key", "a list that was changed", "no signature", "not there"])
def test_real_apt_believes_no_repository_past_its_key(sites: tuple[Archive, Archive], config: Path, what: str) -> None:
    ours, vendor = sites
    vendor.add("cuda-cudart-12-5", "12.5.82-1")
    for site in sites:
        site.publish()
    match what:
        case "another key":
            config.write_text(config.read_text().replace("vendor.asc", "debian.gpg"))
        case "a list that was changed":
            for name in ("Packages", "Packages.gz"):
                (vendor.root / name).write_bytes(b"Package: x\n")
        case "no signature":
            (vendor.root / "InRelease").unlink()
        case _:
            config.write_text(config.read_text().replace('/vendor"', '/elsewhere"'))
    with pytest.raises(InfrastructureError, match="E:") as failed:
        system_lock.resolve("bookworm", ("cuda-cudart-12-5",), repository="nvidia-bookworm")
    assert "apt cannot resolve" in failed.value.message
    assert ours.root.is_dir()


def test_repository_that_nobody_configured_is_said_before_apt_is_asked(config: Path) -> None:
    config.write_text('[apt]\ndebian = "https://m.example.org/debian"\n')
    with pytest.raises(UsageError, match=r"apt\.repositories\.nvidia-bookworm") as failed:
        system_lock.resolve("bookworm", ("cuda-cudart-12-5",), repository="nvidia-bookworm")
    assert "key" in (failed.value.hint or "")


def files_with(settings: Mapping[str, str], **given: Any) -> dict[str, bytes]:
    with mock.patch.dict(os.environ, {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1", **settings}, clear=True):
        return host_settings.host_files(**given)


def test_named_bundle_wins(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_bytes(b"-----BEGIN CERTIFICATE-----\n")
    assert files_with({"SSL_CERT_FILE": str(bundle)})["host/ca-certificates.crt"] == bundle.read_bytes()


@pytest.mark.parametrize("index", ["file:///opt/index", "https://x\n[evil]", 'https://x"', "", "ftp://x"])
def test_index_that_a_step_cannot_use_is_left_out(index: str) -> None:
    assert not {"host/pip.conf", "host/uv.toml"} & files_with({"PIP_INDEX_URL": index}).keys()


def test_further_indexes_those_of_a_matrix_and_the_proxy_reach_both_installers(tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    extra = "extra-index-url = https://one.example/simple\n  file:///opt/index [evil] https://two.example/simple\n"
    config.write_text(f"[global]\nindex-url = https://main.example/simple\n{extra}proxy = http://proxy.example:3128\n")
    files = files_with({"PIP_CONFIG_FILE": str(config)}, indexes=("https://team.example/simple",))
    pip = {"UV_NO_CONFIG": "1", "PIP_CONFIG_FILE": str(tmp_path / "host.conf")}
    (tmp_path / "host.conf").write_bytes(files["host/pip.conf"])
    (tmp_path / "uv.toml").write_bytes(files["host/uv.toml"])
    for environ in (pip, {"PIP_CONFIG_FILE": os.devnull, "UV_CONFIG_FILE": str(tmp_path / "uv.toml")}):
        found = configured(environ)
        assert found.url == "https://main.example/simple"
        assert found.extra == tuple(f"https://{name}.example/simple" for name in ("team", "one", "two"))
    uv = tomllib.loads(files["host/uv.toml"].decode())
    assert uv["http-proxy"] == uv["https-proxy"] == configured(pip).proxy == "http://proxy.example:3128"
    assert uv["index-strategy"] == "unsafe-best-match"
