"""The scripts of the build steps, alone: run with a folder in place of the image's root."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
import yaml

from envbuilder.engine.archive import MODIFIED
from envbuilder.image.context import templates
from envbuilder.image.host_settings import WITH_HOST

OLD = 1_500_000_000
PLACES = r"(?<![\w/.}])/(?=(?:opt|run|etc|var|proc|sys|home|dev/shm|usr/share)\b)"
SITE = "/opt/venv/lib/python3.11/site-packages"
UV = rf"""
mkdir -p /opt/venv/.uv {SITE}/kept/include {SITE}/kept-1.0.dist-info
echo 'x = {{1, 2}}' >{SITE}/kept/__init__.py
echo "print 'Python 2'" >{SITE}/kept/template.py
echo >{SITE}/kept/include/kept.h
printf 'kept/__init__.py,sha256=a,9\nkept/include/kept.h,sha256=b,1\n' >{SITE}/kept-1.0.dist-info/RECORD
"""


class Root:
    """A folder in which steps run as if it were the root of an image."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folders = "run/host run/environment dev/shm etc/apt/sources.list.d etc/ld.so.conf.d opt/venv/bin"
        for name in folders.split():
            (folder / name).mkdir(parents=True)
        for name, text in templates().items():
            if name.startswith("steps/"):
                self.write(name.replace("steps/", "run/tools/"), text if name.endswith(".py") else self.moved(text))
        (folder / "opt/venv/bin/python").symlink_to(sys.executable)
        self.write("run/package/requirements.lock", "kept==1.0\n")
        self.program("run/tools/uv", UV)

    def moved(self, text: str) -> str:
        return re.sub(PLACES, f"{self.folder}/", text).replace("find / ", f"find {self.folder} ")

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def program(self, name: str, text: str) -> None:
        """Put a program of the image in its place: it records its call, and does what ``text`` says."""
        self.write(name, self.moved(f'#!/bin/sh\necho "${{0##*/}} $*" >>/run/calls\n{text}\n')).chmod(0o755)

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a step on a root whose files are old: what it writes has the fixed time, and the rest stays as it is."""
        before = set(self.folder.rglob("*"))
        for path in before:
            os.utime(path, (OLD, OLD), follow_symlinks=False)
        script, *others = map(self.moved, words)
        given = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", **environment}
        command = ["/bin/sh", str(self.folder / "run/tools" / script), *others]
        done = subprocess.run(command, env=given, cwd=self.folder, capture_output=True, text=True, check=False)
        assert (self.folder / "opt/venv/bin/python").lstat().st_mtime == OLD, "no step writes it"
        for path in self.folder.rglob("*") if done.returncode == 0 else ():
            if path.relative_to(self.folder).parts[0] not in ("run", "dev"):
                assert path.lstat().st_mtime == MODIFIED or (path in before and path.lstat().st_mtime == OLD), path
        return done

    def state(self, name: str) -> str | None:
        """Return the text of a file, the mode of a folder, the target of a link; None if there is nothing."""
        path = self.folder / name
        if path.is_symlink():
            return f"-> {path.readlink()}"
        if path.is_dir():
            return f"{path.stat().st_mode & 0o7777:o}"
        return path.read_text().replace(str(self.folder), "") if path.exists() else None


@pytest.fixture
def root(tmp_path: Path) -> Root:
    return Root(tmp_path)


@dataclass(frozen=True, kw_only=True)
class Step:
    """A row of test_image_build_steps.yaml, whose first lines explain the fields."""

    run: str
    given: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    after: Mapping[str, str | None] = field(default_factory=dict)
    fails: bool = False


STEPS = msgspec.convert(yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()), dict[str, Step])


@pytest.mark.parametrize("name", STEPS)
def test_step_calls_programs_and_leaves_files(root: Root, name: str) -> None:
    step = STEPS[name]
    for path, text in step.given.items():
        root.write(path, text)
    for program, text in step.programs.items():
        root.program(program if "/" in program else f"bin/{program}", text)
    done = root.run(*step.run.split())
    assert (done.returncode != 0) is step.fails, done.stderr
    lines = (root.state("run/calls") or "").splitlines()
    assert len(lines) == len(step.calls), lines
    for line, call in zip(map(str.split, lines), step.calls, strict=True):
        words = iter(line)
        assert all(word in words for word in call.split()), lines
    assert {path: root.state(path) for path in step.after} == step.after


def test_every_script_is_run() -> None:
    scripts = {name.removeprefix("steps/") for name, text in templates().items() if text.startswith("#!/bin/sh")}
    assert {step.run.split()[0] for step in STEPS.values() if not step.fails} == scripts


def test_python_takes_the_byte_code_of_install_as_current(root: Root) -> None:
    """A source of another Python is reported."""
    done = root.run("install", "kept-1.0")
    assert done.returncode == 0, done.stderr
    assert "template.py" in done.stdout
    kept = root.folder / SITE[1:] / "kept"
    (code,) = (kept / "__pycache__").iterdir()
    before = code.read_bytes()
    words = [sys.executable, "-v", "-c", "import kept"]
    seen = subprocess.run(words, cwd=kept.parent, capture_output=True, text=True, check=True)
    assert "code object from" in seen.stderr
    assert code.read_bytes() == before


def test_byte_code_does_not_depend_on_variables_of_the_base(root: Root) -> None:
    """One hash seed, and no other place or date for byte code, whatever the base sets."""
    given = {"PYTHONHASHSEED": "7", "PYTHONPYCACHEPREFIX": f"{root.folder}/elsewhere", "PYTHONHOME": "/nowhere"}
    show = "import os; print('seen', sorted(name for name in os.environ if 'PYTHON' in name or 'SOURCE' in name))\n"
    root.write("run/tools/byte_compile.py", show + "print(os.environ['PYTHONHASHSEED'])\n")
    done = root.run("install", "kept-1.0", **given)
    assert "seen ['PYTHONHASHSEED']\n0\n" in done.stdout, done.stderr


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
def test_host_settings_export_files(
    root: Root, present: tuple[str, ...], told: dict[str, str], *, inline: bool
) -> None:
    for name in ("ca-certificates.crt", "pip.conf", "uv.toml"):
        root.write(f"run/host/{name}", "x" if name in present else "")
    script = f"{root.moved(WITH_HOST.partition(chr(10))[2])}\n" if inline else '. "$(dirname "$0")/host-settings"\n'
    root.write("run/tools/show", f"{script}env\n")
    found = dict(line.split("=", 1) for line in root.run("show").stdout.splitlines() if "=" in line)
    expected = {name: str(root.folder / "run/host" / file) for name, file in told.items()}
    assert {name: value for name, value in found.items() if "CERT" in name or "CONFIG" in name} == expected
