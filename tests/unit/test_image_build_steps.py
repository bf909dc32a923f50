"""The scripts of the build steps, alone: run with a folder in place of the image's root."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import pytest

from envbuilder.engine.archive import MODIFIED
from envbuilder.image.context import templates
from envbuilder.image.render import WITH_HOST
from envbuilder.probes.slimming.remove_files import Row, digest_of_rows

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
        for name in (
            "run/host",
            "run/environment",
            "dev/shm",
            "etc/apt/sources.list.d",
            "etc/ld.so.conf.d",
            "opt/venv/bin",
        ):
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
    """A run of a step: files and programs of the image, words of each call, and what is there afterwards."""

    run: str
    given: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    calls: tuple[str, ...] = ()
    after: Mapping[str, str | None] = field(default_factory=dict)
    fails: bool = False


KEPT = Row("kept", "1.0", "compilers", "kept/include/", 1, 1, digest_of_rows([("kept/include/kept.h", "sha256=b")]))
OF_LOCK = "uv pip install --no-deps --require-hashes -r /run/package/requirements.lock"
PIP = """
[ "$1" != -c ] || { echo /opt/ensurepip; exit; }
mkdir -p /run/uv/bin
echo "$PYTHONPATH $PIP_CONFIG_FILE" >/run/uv/bin/uv
"""
DOWNLOAD = 'case "$*" in *--download-only*) printf deb >/run/apt/archives/git_2_amd64.deb ;; esac'
LOG = "mkdir -p /var/log /var/cache/ldconfig; echo today | tee /var/log/alternatives.log >/var/cache/ldconfig/aux-cache"
NO_TRACE = {"run/apt": None, "var/cache/ldconfig/aux-cache": None}
ARCHIVE = "deb http://d.example x main\n"

STEPS = {
    "finish": Step(
        run="finish worker --non-unique",
        given={"run/environment/environment.json": "{}", "run/environment/cudnn.lock": "a"},
        programs={
            "useradd": "mkdir -p /home/worker; echo worker::20400: >/etc/shadow",
            "chage": "echo worker::18262: >/etc/shadow",
        },
        calls=("useradd --uid 1000 --create-home --non-unique worker", "chage --lastday 2020-01-01 worker"),
        after={"etc/shadow-": "worker::18262:\n", "home/worker": "1777", "var/cache/nv": "1777"}
        | {"opt/envbuilder/environment.json": "{}", "opt/envbuilder/cudnn.lock": "a"}
        | {"opt/envbuilder/system.lock": None},
    ),
    "prepare-base: the base has Python": Step(
        run="prepare-base 3.11 python3",
        programs={"python3.11": '[ "$3" != venv ] || echo made >/opt/venv/pyvenv.cfg'},
        calls=("python3.11 -c", "python3.11 -m venv --without-pip /opt/venv"),
        after={"opt/venv/pyvenv.cfg": "made\n"},
    ),
    "prepare-base: the system's packages bring Python": Step(
        run="prepare-base 3.11 python3 python3-venv",
        given={"var/log/alternatives.log": "before\n"},
        programs={"python3.11": '[ "$2" != -c ]', "apt-get": LOG},
        calls=("python3.11 -c", "apt-get update", "apt-get install python3-venv ca-certificates", "python3.11 -m venv"),
        after={"var/log/alternatives.log": "before\n", **NO_TRACE},
    ),
    "install-uv": Step(
        run="install-uv python3",
        given={"opt/ensurepip/pip-26.3.whl": "", "run/host/pip.conf": "x"},
        programs={"python3": PIP},
        calls=("python3 -c", "python3 -m pip install --no-deps --require-hashes -r /run/tools/tools.lock"),
        after={"run/tools/uv": "/opt/ensurepip/pip-26.3.whl: /run/host/pip.conf\n", "run/uv": None},
    ),
    "install-apt: the files of the lock": Step(
        run="install-apt git=2",
        given={"run/environment/system.lock": f"{sha256(b'deb').hexdigest()}  git_2_amd64.deb\n"},
        programs={"apt-get": f"{DOWNLOAD}\n{LOG}"},
        calls=("apt-get update", "apt-get install --download-only git=2", "apt-get install --no-download git=2"),
        after={"var/log/alternatives.log": None, **NO_TRACE},
    ),
    "install-apt: a file of other bytes": Step(
        run="install-apt git=2",
        given={"run/environment/system.lock": f"{sha256(b'else').hexdigest()}  git_2_amd64.deb\n"},
        programs={"apt-get": DOWNLOAD},
        calls=("apt-get update", "apt-get install --download-only git=2"),
        fails=True,
    ),
    "install-apt: a component and the host's repository": Step(
        run="install-apt --component non-free --repository git",
        given={"etc/apt/sources.list": ARCHIVE, "etc/apt/sources.list.d/debian.sources": "Components: main\n"}
        | {"etc/apt/sources.list.d/cuda.list": "deb http://gone.example x main\n"}
        | {"run/host/apt/further.list": "deb http://v.example /\n", "run/host/ca-certificates.crt": "x"},
        programs={"apt-get": "cat /run/apt/sources.list /run/apt/sources.list.d/* $APT_CONFIG >/run/seen"},
        calls=("apt-get update", "apt-get install git"),
        after={
            "run/seen": "deb http://d.example x main non-free\nComponents: main non-free\ndeb http://v.example /\n"
            'Acquire::https::CAInfo "/run/host/ca-certificates.crt";\n',
            "etc/apt/sources.list": ARCHIVE,
            **NO_TRACE,
        },
    ),
    "install-cudnn": Step(
        run="install-cudnn /opt/cuda/lib",
        given={"opt/cuda/lib/libcudart.so": ""},
        programs={"run/tools/uv": "mkdir -p /opt/cudnn/nvidia/cudnn/lib", "ldconfig": LOG},
        calls=("uv pip install --no-deps --require-hashes -r /run/environment/cudnn.lock", "ldconfig"),
        after={"etc/ld.so.conf.d/cudnn.conf": "/opt/cudnn/nvidia/cudnn/lib\n", **NO_TRACE}
        | {"etc/ld.so.conf.d/cuda-packages.conf": "/opt/cuda/lib\n"},
    ),
    "link-library": Step(run="link-library ../a.so.11 /opt/a.so", after={"opt/a.so": "-> ../a.so.11"}),
    "loader-path": Step(
        run="loader-path cublas n*",
        given={f"{SITE[1:]}/nvidia/{name}/lib/a.so": "" for name in ("cublas", "cufft", "nccl")},
        programs={"ldconfig": LOG},
        calls=("ldconfig",),
        after={"etc/ld.so.conf.d/cuda-wheels.conf": f"{SITE}/nvidia/cublas/lib\n{SITE}/nvidia/nccl/lib\n", **NO_TRACE},
    ),
    "loader-path: no such folder": Step(run="loader-path cublas", fails=True),
    "add-file: into a folder": Step(
        run="add-file conf/a.conf /etc/deep/",
        given={"run/environment/files/conf/a.conf": "a=1\n"},
        after={"etc/deep/a.conf": "a=1\n"},
    ),
    "add-file: as a file": Step(
        run="add-file a.conf /etc/b.conf",
        given={"run/environment/files/a.conf": "a=1\n"},
        after={"etc/b.conf": "a=1\n"},
    ),
    "install: the list's files are removed": Step(
        run="install kept-1.0",
        given={"run/package/removed.tsv": f"{KEPT.line()}\n"},
        calls=(OF_LOCK,),
        after={f"{SITE[1:]}/kept/include": None, "opt/venv/.uv": None}
        | {"opt/envbuilder/removed/kept-1.0.tsv": f"{KEPT.line()}\n"},
    ),
    "install: complete": Step(
        run="install kept-1.0 --complete",
        given={"run/package/removed.tsv": f"{KEPT.line()}\n"},
        calls=(OF_LOCK,),
        after={f"{SITE[1:]}/kept/include/kept.h": "\n", "opt/envbuilder": None},
    ),
    "install: uv fails": Step(run="install a", programs={"run/tools/uv": "exit 2"}, calls=(OF_LOCK,), fails=True),
    "install: the compiler fails": Step(
        run="install a", given={"run/tools/byte_compile.py": "raise SystemExit(3)\n"}, calls=(OF_LOCK,), fails=True
    ),
}


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
