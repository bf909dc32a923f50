"""The scripts of the build steps, alone: run with a folder in place of the image's root."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from envbuilder.engine.archive import MODIFIED
from envbuilder.image.context import templates
from envbuilder.image.removed_files import REMOVED
from envbuilder.image.render import WITH_HOST
from envbuilder.probes.slimming.remove_files import Row, digest_of_rows

UV = """\
#!/bin/sh
echo "$@" >> {root}/run/calls
[ ! -e {root}/run/fails ] || exit 2
mkdir -p {cache} {site}/kept/include {site}/kept-1.0.dist-info
echo 'x = {{1, 2}}' > {site}/kept/__init__.py
echo "print 'Python 2'" > {site}/kept/template.py
echo > {site}/kept/include/kept.h
printf 'kept/__init__.py,sha256=a,9\\nkept/include/kept.h,sha256=b,1\\n' > {site}/kept-1.0.dist-info/RECORD
"""


class Root:
    """A folder in which steps run as if it were the root of an image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "opt/venv/lib/python3.11/site-packages"
        for name in ("run/tools", "run/host", "run/package", "run/environment", "opt/venv/bin", "etc"):
            (folder / name).mkdir(parents=True)
        for name, text in templates().items():
            if name.startswith("steps/"):
                self.write(
                    f"run/tools/{name.removeprefix('steps/')}", text if name.endswith(".py") else self.moved(text)
                )
        self.program("run/tools/uv", UV.format(root=folder, site=self.site, cache=folder / "opt/venv/.uv"))
        (folder / "opt/venv/bin/python").symlink_to(sys.executable)
        self.write(
            "run/package/requirements.lock", "# kept-1.0: 10 bytes, 1 of them removed in runtime images\nkept==1.0\n"
        )

    def moved(self, text: str) -> str:
        moved = re.sub(r"(?<![\w/.}])/(?=(?:opt|run|etc|var|proc|sys)\b)", f"{self.folder}/", text)
        return moved.replace("find / ", f"find {self.folder} ")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str, text: str) -> None:
        self.write(name, text).chmod(0o755)

    def run(self, script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = ["/bin/sh", str(self.folder / "run/tools" / script), *words]
        given = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", **environment}
        return subprocess.run(command, env=given, cwd=self.folder, capture_output=True, text=True, check=False)

    def written(self) -> dict[str, int]:
        every = self.folder.rglob("*")
        own = (path for path in every if not path.is_relative_to(self.folder / "run") and path.name != "python")
        return {str(path.relative_to(self.folder)): int(path.lstat().st_mtime) for path in own}


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


def test_install_leaves_byte_code_and_one_time(root: Root) -> None:
    """The cache is gone, a source of another Python is reported, and Python takes the byte code as current."""
    done = root.run("install", "kept-1.0")
    assert done.returncode == 0, done.stderr
    assert "template.py" in done.stdout
    assert "--require-hashes" in (root.folder / "run/calls").read_text()
    assert not (root.folder / "opt/venv/.uv").exists()
    (code,) = (root.site / "kept/__pycache__").iterdir()
    found = {name: time for name, time in root.written().items() if name.startswith("opt/venv/lib")}
    assert set(found.values()) == {MODIFIED}
    before = code.read_bytes()
    words = [sys.executable, "-v", "-c", "import kept"]
    seen = subprocess.run(words, cwd=root.site, capture_output=True, text=True, check=True)
    assert "code object from" in seen.stderr
    assert code.read_bytes() == before


def removing(root: Root) -> None:
    row = Row("kept", "1.0", "compilers", "kept/include/", 1, 1, digest_of_rows([("kept/include/kept.h", "sha256=b")]))
    root.write(f"run/package/{REMOVED}", f"{row.line()}\n")


def test_install_removes_what_the_list_names_and_keeps_the_list(root: Root) -> None:
    removing(root)
    assert root.run("install", "kept-1.0").returncode == 0
    assert not (root.site / "kept/include").exists()
    kept = root.folder / "opt/envbuilder/removed/kept-1.0.tsv"
    assert kept.read_text() == (root.folder / "run/package" / REMOVED).read_text()


def test_install_complete_removes_nothing(root: Root) -> None:
    removing(root)
    assert root.run("install", "kept-1.0", "--complete").returncode == 0
    assert (root.site / "kept/include/kept.h").exists()
    assert not (root.folder / "opt/envbuilder").exists()


@pytest.mark.parametrize("broken", ["uv", "list", "compiler"])
def test_install_fails_when_a_part_of_it_fails(root: Root, broken: str) -> None:
    if broken == "uv":
        root.write("run/fails", "")
    elif broken == "list":
        root.write(f"run/package/{REMOVED}", "kept==2.0\ttests\tkept/\t1\t1\tsha256=x\n")
    else:
        root.write("run/tools/byte_compile.py", "raise SystemExit(3)\n")
    assert root.run("install", "kept-1.0").returncode != 0


def test_byte_code_does_not_depend_on_variables_of_the_base(root: Root) -> None:
    """One hash seed, and no other place or date for byte code, whatever the base sets."""
    given = {"PYTHONHASHSEED": "7", "PYTHONPYCACHEPREFIX": f"{root.folder}/elsewhere", "PYTHONHOME": "/nowhere"}
    show = "import os; print('seen', sorted(name for name in os.environ if 'PYTHON' in name or 'SOURCE' in name))\n"
    root.write("run/tools/byte_compile.py", show + "print(os.environ['PYTHONHASHSEED'])\n")
    done = root.run("install", "kept-1.0", **given)
    assert "seen ['PYTHONHASHSEED']\n0\n" in done.stdout, done.stderr


def test_add_file_places_a_file_and_its_folders_with_one_time(root: Root) -> None:
    root.write("run/environment/files/conf/a.conf", "a=1\n")
    for target, place in (("etc/deep/", "etc/deep/a.conf"), ("etc/b.conf", "etc/b.conf")):
        assert (
            root.run("add-file", "conf/a.conf", str(root.folder / target) + "/" * target.endswith("/")).returncode == 0
        )
        assert (root.folder / place).read_text() == "a=1\n"
        assert root.written()[place] == MODIFIED
    assert root.written()["etc/deep"] == MODIFIED


@pytest.mark.parametrize(
    ("present", "told"),
    [
        ((), {}),
        (("ca-certificates.crt",), {"SSL_CERT_FILE": "ca-certificates.crt", "PIP_CERT": "ca-certificates.crt"}),
        (("pip.conf",), {"PIP_CONFIG_FILE": "pip.conf"}),
        (("uv.toml",), {"UV_CONFIG_FILE": "uv.toml"}),
    ],
)
@pytest.mark.parametrize("inline", [False, True])
def test_host_settings_export_the_files_that_are_there(
    root: Root, present: tuple[str, ...], told: dict[str, str], *, inline: bool
) -> None:
    for name in ("ca-certificates.crt", "pip.conf", "uv.toml"):
        root.write(f"run/host/{name}", "x" if name in present else "")
    script = f"{root.moved(WITH_HOST.partition(chr(10))[2])}\n" if inline else '. "$(dirname "$0")/host-settings"\n'
    root.write("run/tools/show", f"{script}env\n")
    found = dict(line.split("=", 1) for line in root.run("show").stdout.splitlines() if "=" in line)
    expected = {name: str(root.folder / "run/host" / file) for name, file in told.items()}
    assert {name: value for name, value in found.items() if "CERT" in name or "CONFIG" in name} == expected


def test_older_files_keep_their_time(root: Root) -> None:
    """What a base or a wheel dates stays: a step that touched it would copy files of the layers below."""
    old = root.write("opt/venv/old", "")
    os.utime(old, (1_500_000_000,) * 2)
    assert root.run("install", "kept-1.0").returncode == 0
    assert root.written()["opt/venv/old"] == 1_500_000_000
