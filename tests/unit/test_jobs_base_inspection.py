"""Facts of a base image from its files."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from fake_engine import FakeEngine
from made_images import Layer, image_of
from made_objects import cudnn_part, run_time, shared_object

from envbuilder.catalog.base_facts import BaseFacts, as_system
from envbuilder.catalog.store import load
from envbuilder.engine.port import Image, LayerFile
from envbuilder.errors import InfrastructureError
from envbuilder.jobs.base_inspection import found_in, inspect_base
from envbuilder.probes.suite import loader

CATALOG = load()
PINNED = "registry.example.org/team/base@sha256:" + "a" * 64
IMAGE = Image(id="sha256:1", tags=(), digests=(PINNED,), size=0, labels={}, env={}, user="", architecture="amd64")
LIB = "usr/lib/x86_64-linux-gnu"
DEBIAN: Layer = {
    "etc/os-release": b'PRETTY_NAME="Debian GNU/Linux 12"\nID=debian\nVERSION_ID="12"\n',
    "usr/bin/apt-get": b"#!",
    f"{LIB}/libc.so.6": Path(loader.Search().find("libc.so.6")[0] or "").read_bytes(),
}
PYTHON: Layer = {
    "usr/bin/python3.11": b"#!",
    "usr/bin/python3": "python3.11",
    "usr/lib/python3.11/venv/__init__.py": b"",
}
CUDA: Layer = {
    f"{LIB}/libcudart.so.11.0": "libcudart.so.11.8.89",
    f"{LIB}/libcudart.so.11.8.89": run_time(11080),
    f"{LIB}/libcublas.so.11": shared_object("libcublas.so.11"),
    f"{LIB}/libcudnn.so.8": shared_object("libcudnn.so.8"),
    f"{LIB}/libcudnn_ops_infer.so.8": cudnn_part((8, 6, 0)),
}


def found(*layers: Layer, name: str = "", **image: object) -> BaseFacts:
    return found_in(image_of(*layers), replace(IMAGE, **image), PINNED, CATALOG, name=name)  # type: ignore[arg-type]


def test_plain_base_has_system_libc_python_and_installer() -> None:
    facts = found(DEBIAN, PYTHON)
    assert (facts.system, facts.release, facts.libc, facts.packages) == ("debian", "12", "glibc", "apt")
    assert [(one.version, one.path, one.venv) for one in facts.pythons] == [("3.11", "/usr/bin/python3.11", True)]
    assert (facts.cuda, facts.cudnn, facts.libraries, facts.refused) == ("", "", (), "")
    assert facts.image == PINNED
    assert facts.digest == "sha256:" + "a" * 64
    assert facts.libc_version.startswith("2.")


def test_cuda_version_of_a_base_comes_from_files_that_the_loader_finds() -> None:
    facts = found(DEBIAN, PYTHON, {**CUDA, f"{LIB}/libcudart.so.11.0": "libcudart.so.11.8.89"})
    assert (facts.cuda, facts.cudnn) == ("11.8", "8.6.0")
    assert {one.soname for one in facts.libraries} >= {"libcudart.so.11.0", "libcublas.so.11", "libcudnn.so.8"}


def test_file_name_of_a_cuda_runtime_is_ignored() -> None:
    assert found(DEBIAN, PYTHON, CUDA, {f"{LIB}/libcudart.so.11.8.89": run_time(11020)}).cuda == "11.2"


def test_libraries_outside_the_loader_path_do_not_belong_to_the_base() -> None:
    lost = {path.replace(LIB, "opt/cuda/lib"): what for path, what in CUDA.items()}
    wheels = {path.replace(LIB, "usr/lib/python3/site-packages/nvidia"): what for path, what in CUDA.items()}
    assert found(DEBIAN, PYTHON, lost, wheels).libraries == ()
    assert found(DEBIAN, PYTHON, lost, env={"LD_LIBRARY_PATH": "/opt/cuda/lib"}).cuda == "11.8"


def test_base_has_xla_tools_and_forward_compatibility_libraries() -> None:
    devel = {
        "usr/local/cuda-11.8/bin/ptxas": b"\x7fELF",
        "usr/local/cuda-11.8/nvvm/libdevice/libdevice.10.bc": b"BC",
        "usr/local/cuda-11.8/compat/libcuda.so.1": b"",
    }
    facts = found(DEBIAN, PYTHON, CUDA, devel)
    assert (facts.tools, facts.forward_compat) == (True, True)
    assert (found(DEBIAN, PYTHON, CUDA).tools, found(DEBIAN, PYTHON, CUDA).forward_compat) == (False, False)
    del devel["usr/local/cuda-11.8/nvvm/libdevice/libdevice.10.bc"]
    assert not found(DEBIAN, PYTHON, CUDA, devel).tools


RED_HAT: Layer = {
    "etc/os-release": b'ID="rhel"\nVERSION_ID="9.4"\n',
    "usr/bin/dnf": b"#!",
    "usr/lib64/libc.so.6": DEBIAN[f"{LIB}/libc.so.6"],
}
ALPINE: Layer = {"etc/os-release": b"ID=alpine\nVERSION_ID=3.20.1\n", "lib/ld-musl-x86_64.so.1": b"", "sbin/apk": b""}


@pytest.mark.parametrize(
    ("layers", "architecture", "says"),
    [
        ((ALPINE,), "amd64", "its C library is musl"),
        ((ALPINE, PYTHON), "amd64", "its C library is musl"),
        (({"bin/tool": b"#!"},), "amd64", "its C library is none that is known"),
        ((DEBIAN, PYTHON), "arm64", "it is for aarch64"),
        ((RED_HAT,), "amd64", "it holds no Python, and dnf instead of apt"),
        ((RED_HAT, {"usr/bin/python3.11": b"#!"}), "amd64", "Python 3.11 without venv"),
        (({**DEBIAN, "etc/os-release": b"ID=\n"},), "amd64", "its os-release does not say"),
    ],
)
def test_unusable_base_is_refused_with_the_reason(layers: tuple[Layer, ...], architecture: str, says: str) -> None:
    assert says in found(*layers, architecture=architecture).refused


def test_red_hat_base_with_python_needs_no_dnf() -> None:
    python = {"usr/bin/python3.11": b"#!", "usr/lib/python3.11/venv/__init__.py": b""}
    facts = found(RED_HAT, python)
    assert facts.refused == ""
    row = as_system("ubi", facts, None, CATALOG.systems)
    assert (row.python, row.package_source) == ("3.11", "")


def test_debian_base_without_python_gets_the_one_of_its_release() -> None:
    facts = found(DEBIAN)
    row = as_system("corp", facts, None, CATALOG.systems)
    assert (row.python, row.package_source, row.image) == ("3.11", "debian", PINNED)
    assert as_system("corp", facts, "3.9", CATALOG.systems) is None


def test_newest_python_of_a_base_is_used_unless_one_is_named() -> None:
    both = {"usr/local/bin/python3.9": b"#!", "usr/local/lib/python3.9/venv/__init__.py": b""}
    facts = found(DEBIAN, PYTHON, both)
    row, named = (as_system("corp", facts, wanted, CATALOG.systems) for wanted in (None, "3.9"))
    assert row.pythons == ("3.11", "3.9")
    assert named.pythons == ("3.9",)


def test_file_without_execute_permission_is_not_a_python() -> None:
    data = LayerFile("usr/bin/python3.11", "file", mode=0o644, size=0)
    assert found(DEBIAN, {**PYTHON, "usr/bin/python3.11": data}).pythons == ()


def test_base_that_differs_from_its_catalogue_row_is_reported_by_field() -> None:
    name = "nvidia/cuda:11.8.0-cudnn8-runtime-ubuntu22.04"
    env = {"NVIDIA_REQUIRE_CUDA": CATALOG.image(name).require_cuda}
    facts = found(DEBIAN, PYTHON, CUDA, {f"{LIB}/libcudart.so.11.8.89": run_time(11020)}, name=name, env=env)
    differing = {one.field: (one.catalog, one.image) for one in facts.disagreements}
    assert differing["cuda"] == ("11.8", "11.2")
    assert differing["cudnn"][1] == "8.6.0"
    assert "require_cuda" not in differing
    assert found(DEBIAN, PYTHON, CUDA, name="other/image:1").disagreements == ()


def test_image_without_a_digest_cannot_be_a_base() -> None:
    engine = FakeEngine()
    engine.add("made-here:1")
    with pytest.raises(InfrastructureError, match="has no digest"):
        inspect_base(engine, "made-here:1", CATALOG, pytest.fail)


def test_missing_base_is_pulled_and_known_by_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    engine = FakeEngine()
    made = replace(engine.add("other:1"), digests=(PINNED,))
    fresh = FakeEngine(registry={PINNED: made})
    said: list[str] = []
    facts = inspect_base(fresh, PINNED, CATALOG, said.append)
    assert facts.image == PINNED
    assert said == [f"pulling {PINNED}"]
    assert "none that is known" in facts.refused
    assert msgspec.json.decode(msgspec.json.encode(facts), type=BaseFacts) == facts
