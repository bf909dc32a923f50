"""One answer to which index, proxy and certificates are used: the one that pip and uv themselves would give."""

import ast
import os
import shutil
import subprocess
import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

import pytest
from certificates import certificate
from factories import environment
from index_server import Site, serving, wheel
from table_rows import beside, rows
from uv import find_uv_bin

from envbuilder.errors import InfrastructureError, UsageError, redacted
from envbuilder.image import lockfile
from envbuilder.image.host_settings import host_files
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import IndexUnavailableError, PackageIndex
from envbuilder.pypi.index_config import IndexConfig, configured, default_index, for_uv, origin, pip_settings, read

ROOT = Path(__file__).parents[2]
PLACES = beside(__file__)["PLACES"]


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write configuration files by their place, with the folder that they are in."""
    for place in PLACES.values():
        (root / place).parent.mkdir(parents=True, exist_ok=True)
    for place, text in files.items():
        (root / PLACES[place]).write_text(of_folder(root, text))


def of_folder(root: Path, text: str) -> str:
    """Replace ``ROOT`` by a folder, and ``AT`` by the address of the indexes in it."""
    return text.replace("AT/", f"file://{root}/at/").replace("ROOT", str(root))


def environ(root: Path, given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the variables of a user whose home and system folders are in a folder of the test."""
    own = {name: of_folder(root, value) for name, value in (given or {}).items()}
    return {"HOME": str(root / "home"), "XDG_CONFIG_DIRS": str(root / "xdg"), "PATH": os.environ["PATH"], **own}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make an environment in which the real pip runs, to put the environment's own file into."""
    folder = tmp_path_factory.mktemp("real") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    import pip  # noqa: PLC0415 - the real one's folder

    site = next((folder / "lib").glob("python*/site-packages"))
    (site / "real.pth").write_text(f"{Path(pip.__file__).parents[1]}\n")
    return folder


@rows
def test_pips_settings_are_those_that_pip_has(
    files: dict[str, str], given: dict[str, str], python: Path, tmp_path: Path
) -> None:
    write(tmp_path, files)
    own = environ(tmp_path, given)
    site = python / "pip.conf"
    site.write_text(files.get("site", ""))
    program = (
        "from pip._internal.commands.install import InstallCommand as C\n"
        "v = C('install', '').parser.get_default_values()\n"
        "print({name: getattr(v, name) for name in ('index_url', 'extra_index_urls', 'proxy', 'cert')})"
    )
    done = subprocess.run(
        [python / "bin/python", "-c", program], env=own, capture_output=True, text=True, check=True, timeout=60
    )
    theirs = ast.literal_eval(done.stdout.splitlines()[-1])
    mine = pip_settings(own, python)
    assert mine.get("index-url", default_index()) == theirs["index_url"]
    assert mine.get("extra-index-url", "").split() == (theirs["extra_index_urls"] or [])
    assert (mine.get("proxy"), mine.get("cert")) == (theirs["proxy"] or None, theirs["cert"])


def test_broken_file_is_a_mistake_with_its_place(tmp_path: Path) -> None:
    for place, text in (("user", "no section\n"), ("uv user", "[[index]\n")):
        write(tmp_path, {place: text})
        with pytest.raises(UsageError, match="fix"):
            configured(environ(tmp_path), folder=tmp_path / "project", prefix=tmp_path / "venv")
        (tmp_path / PLACES[place]).unlink()


def order_of_uv(own: dict[str, str], root: Path) -> list[str]:
    """Ask the real uv for its indexes, one by one: each is the first that has a package, and then loses it."""
    found = []
    (root / "wishes.in").write_text("probe\n")
    for _ in range(6):
        words = [find_uv_bin(), "pip", "compile", str(root / "wishes.in"), "--no-header", "--no-annotate"]
        words += ["--quiet", "--python", sys.executable, "--no-cache"]
        done = subprocess.run(
            words, env=own, cwd=root / "project", capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            break
        name = "abcdef"[int(done.stdout.strip().partition("==")[2].partition(".")[0]) - 1]
        found.append(name)
        shutil.rmtree(root / "at" / name / "probe")
    return found


@rows
def test_uvs_indexes_are_those_that_uv_has(files: dict[str, str], given: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    for version, name in enumerate("abcdef", start=1):
        folder = tmp_path / "at" / name / "probe"
        folder.mkdir(parents=True)
        file = f"probe-{version}.0-py3-none-any.whl"
        (folder / file).write_bytes(wheel("probe", f"{version}.0", {"probe.py": b""}))
        (folder / "index.html").write_text(f'<a href="{file}">{file}</a>')
    own = {**environ(tmp_path, given), "UV_OFFLINE": "0"}
    mine = configured({**own, "PIP_CONFIG_FILE": os.devnull}, folder=tmp_path / "project")
    assert [url.rpartition("/")[2] for url in (*mine.extra, mine.url) if url] == order_of_uv(own, tmp_path)
    assert mine.of_pip == ()


@rows
def test_every_client_uses_the_same_main_index(
    files: dict[str, str], given: dict[str, str], main: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, {"global": "[global]\nindex-url = https://system.example/simple\n", **files})
    own = environ(tmp_path, given)
    monkeypatch.chdir(tmp_path / "project")
    found = configured(own)
    assert found.urls[0] == found.addresses[0] == main
    with mock.patch.dict(os.environ, own, clear=True):
        build = host_files()
    assert f"index-url = {main}\n".encode() in build["host/pip.conf"]
    assert f'url = "{main}"\ndefault = true\n'.encode() in build["host/uv.toml"]
    locked = {**own, **for_uv(found, own)}
    assert configured({**locked, "PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": ""}).url == main
    # scripts/setup runs it before any package is installed
    words = [sys.executable, "-S", "-m", "envbuilder.pypi.index_config"]
    shell = subprocess.run(words, env={**own, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True)
    assert (f"export UV_DEFAULT_INDEX={main}\n" in shell.stdout) == (main in found.of_pip)


def test_uv_is_told_what_only_pip_knows(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("x")
    text = f"[global]\nextra-index-url = https://e.example file:///opt/x\nfind-links = /opt/w\ncert = {bundle}\nproxy = http://p:1\n"
    write(tmp_path, {"user": text})
    own = environ(tmp_path, {"UV_EXTRA_INDEX_URL": "https://mine.example"})
    found = configured(own, folder=tmp_path / "project", prefix=tmp_path / "venv")
    told = for_uv(found, own)
    assert told["UV_EXTRA_INDEX_URL"] == "https://mine.example https://e.example"
    assert (told["SSL_CERT_FILE"], told["HTTPS_PROXY"]) == (str(bundle), "http://p:1")
    assert not {"UV_FIND_LINKS", "UV_DEFAULT_INDEX"} & told.keys()
    local = for_uv(found, own, local=True)
    assert (local["UV_EXTRA_INDEX_URL"].split()[-1], local["UV_FIND_LINKS"]) == ("file:///opt/x", "/opt/w")
    assert "SSL_CERT_FILE" not in for_uv(found, {**own, "SSL_CERT_FILE": "/other.pem"})


SECRET = "s3cret%21word"  # noqa: S105 - of no one
CREDENTIALS = "user:" + SECRET
SIGNED = "Basic " + b64encode(b"user:s3cret!word").decode()


def test_catalogue_signs_in_and_keeps_no_credentials(tmp_path: Path) -> None:
    site = Site(secret=SIGNED)
    site.add("probe", "probe-1.0-py3-none-any.whl", wheel("probe", "1.0", {"a": b"b"}))
    with serving(site):
        scheme, _, rest = site.url.partition("://")
        config = IndexConfig(url=f"{scheme}://{CREDENTIALS}@{rest}")
        client = PackageIndex(config, Cache(tmp_path / "cache"))
        (file,) = client.files("probe")
        assert "probe" in client.metadata(file)
    assert set(site.signed) == {SIGNED}
    assert SECRET not in file.url
    kept = b"".join(path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file())
    assert b"s3cret" not in kept


@pytest.mark.parametrize("by_tls", [False, True], ids=["http", "https"])
def test_redirect_takes_no_credentials_along_and_leaves_no_tls(tmp_path: Path, *, by_tls: bool) -> None:
    other = Site()
    other.add("probe", "probe-1.0-py3-none-any.whl", wheel("probe", "1.0", {"a": b"b"}))
    file = certificate(tmp_path) if by_tls else None
    with serving(other), serving(Site(secret=SIGNED), certificate=file) as index:
        index.send_on = other.url.removesuffix("/simple")
        scheme, _, rest = index.url.partition("://")
        config = IndexConfig(url=f"{scheme}://{CREDENTIALS}@{rest}", certificates=str(file) if file else None)
        client = PackageIndex(config, Cache(tmp_path / "cache"))
        if by_tls:
            with pytest.raises(IndexUnavailableError, match="from https to http://127") as refused:
                client.files("probe")
            assert SECRET not in str(refused.value)
        else:
            assert len(client.files("probe")) == 1
    assert set(index.signed) == {SIGNED}
    assert (len(other.asked), other.signed) == (0 if by_tls else 1, [])


@rows
def test_credentials_are_for_a_scheme_a_host_and_a_port(url: str, name: str) -> None:
    config = IndexConfig(url="https://ann:pw@Index.example/simple", extra=("http://bob:pw@local.example:80/",))
    assert config.credentials.get(origin(url), ("", ""))[0] == name


@rows
def test_credentials_are_left_out_of_messages(text: str, shown: str) -> None:
    assert redacted(text) == shown
    error = InfrastructureError(text, hint=text)
    assert str(error) == f"{shown}\n  next: {shown}"
    assert error.args == (shown,)


def test_lock_holds_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(secret=SIGNED)
    site.add("tensorflow-cpu", "tensorflow_cpu-2.20.0-py3-none-any.whl", wheel("tensorflow_cpu", "2.20.0", {"a": b"b"}))
    with serving(site):
        scheme, _, rest = site.url.partition("://")
        write(tmp_path, {"user": f"[global]\nindex-url = {scheme}://{CREDENTIALS}@{rest}\n"})
        for name, value in {**environ(tmp_path), "UV_NO_CACHE": "1"}.items():
            monkeypatch.setenv(name, value)
        for name in [name for name in os.environ if name.startswith("PIP_") or name == "UV_OFFLINE"]:
            monkeypatch.delenv(name)
        monkeypatch.chdir(tmp_path / "project")
        text = lockfile.resolve(environment(package="tensorflow-cpu", requirements=("tensorflow-cpu==2.20.0",)), "2.36")
    assert text.startswith("tensorflow-cpu==2.20.0 --hash=sha256:")
    assert "s3cret" not in text
    assert "http" not in text
    assert SIGNED in site.signed


def test_without_configuration_the_clients_own_default_holds() -> None:
    assert read({"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}).url == default_index()
    assert default_index().startswith("https://")
