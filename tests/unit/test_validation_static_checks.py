"""Checks of packages and libraries on an image's files, and of its system's packages against their lock."""

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from factories import resolved
from made_images import SITE, SYSTEM, Layer, context_of, errors, image_of, package, row
from table_rows import rows

from envbuilder.engine.port import LayerFile
from envbuilder.environment import Additions
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, system_lock
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.probes.suite import loader
from envbuilder.validation.image_claims import carried_system_locks, claims
from envbuilder.validation.image_context import CheckOutput, ImageContext
from envbuilder.validation.image_loader import ImagePython
from envbuilder.validation.installed_files import files
from envbuilder.validation.judge import mark_consequences
from envbuilder.validation.layer_scan import MAX_KEPT
from envbuilder.validation.static_checks import (
    _missing,
    complete,
    consistent,
    for_another_python,
    locked,
    no_stub,
    only_one,
    tools,
    versions,
)
from envbuilder.validation.suite_plan import CHECKS, Facts, select
from envbuilder.validation.validate import run_host_checks

VENV = {"opt/venv/pyvenv.cfg": b"home = /usr/bin\nversion_info = 3.11.2\ninclude-system-site-packages = false\n"}
FRAMEWORK: Layer = {
    f"{SITE}/tensorflow": LayerFile(f"{SITE}/tensorflow", "folder"),
    SITE: LayerFile(SITE, "folder"),
    **VENV,
}
LIBRARIES = "usr/lib/x86_64-linux-gnu"
MODULE = f"{SITE}/one.cpython-311-x86_64-linux-gnu.so"


def real_object() -> bytes:
    folder = Path(importlib.util.find_spec("msgspec").origin or "").parent
    return next(folder.glob("*.so")).read_bytes()


def real_library(name: str) -> bytes:
    found, _ = loader.Search().find(name)
    assert found is not None
    return Path(found).read_bytes()


def codes(
    look: Callable[[ImageContext], CheckOutput], *layers: Layer, facts: Mapping[str, Any] | None = None, **image: Any
) -> Any:
    subject = context_of(image_of(FRAMEWORK, *layers), facts=facts, **image)
    return [(one.code.value, one.subject) for one in look(subject).findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        ({}, []),
        (package("six", "1.16.0", {"six.py": b""}), ["six"]),
        ({f"{SITE}/six.egg-info/PKG-INFO": b"Name: six\nVersion: 1\n"}, ["six"]),
        ({f"{SITE}/six-1.egg-info": b"Name: six\nVersion: 1\n"}, ["six"]),
        ({f"{SITE}/numpy-2.4.6.dist-info/METADATA": b"Name: numpy\nVersion: 2.1.3\n"}, ["numpy"]),
        (package("numpy", "2.1.3", {}), ["numpy"]),
        (package("pip", "24.0", {}), ["pip"]),
        ({"usr/lib/python3/dist-packages/six-1.egg-info": b"Name: six\nVersion: 1\n"}, []),
    ],
)
def test_packages_that_differ_from_the_lock_are_reported(layer: Layer, names: list[str]) -> None:
    base = {f"{SITE}/numpy-2.4.6.dist-info": LayerFile(f"{SITE}/numpy-2.4.6.dist-info", "folder")}
    found = codes(locked, {**base, **package("numpy", "2.4.6", {})}, layer, facts={"locked": (("numpy", "2.4.6"),)})
    assert found == [("LOCK_MISMATCH", name) for name in names]


def test_removed_metadata_is_one_finding() -> None:
    names = ("a", "c", "d", "e", "f")
    there = {path: file for name in names for path, file in package(name, "1", {f"{name}.py": b"1"}).items()}
    gone = [path for path in there if path.endswith("/METADATA")]
    removal = {path: LayerFile(path, "deleted") for path in gone}
    facts = {"locked": tuple((name, "1") for name in names)}
    assert codes(locked, there, removal, facts=facts) == [("LOCK_MISMATCH", "metadata")]


@rows
def test_requirement_markers_use_the_image_s_python(requirement: str, code: str | None) -> None:
    user = {f"{SITE}/a-1.dist-info/METADATA": f"Name: a\nVersion: 1\nRequires-Dist: {requirement}\n".encode()}
    there = {
        **package("numpy", "2.4.6", {}),
        **package("old", "2004d-1", {}),
        **package("tensorflow-cpu", "2.20.0", {}),
    }
    assert codes(consistent, there, user, facts={"python": "3.12"}) == ([(code, "a")] if code else [])


def test_two_distributions_of_the_framework_are_a_conflict() -> None:
    there = {**package("tensorflow-cpu", "2.20.0", {}), **package("tensorflow", "2.20.0", {})}
    assert codes(consistent, there) == [("PACKAGE_CONFLICT", "tensorflow")]
    checks = [one for one in CHECKS if one.name in ("packages", "claims")]
    marked = mark_consequences(*run_host_checks(context_of(image_of(FRAMEWORK, there)), checks))
    told = [one for result in marked for one in result.findings if "(follows from PACKAGE_CONFLICT" in one.message]
    assert {(one.code, one.severity, one.fix) for one in told} == {(Code.IMAGE_CLAIM, Severity.WARNING, "")}


def test_dependencies_are_searched_only_in_the_image() -> None:
    module: Layer = {MODULE: real_object()}
    for own in (module, {"usr/lib/python3.11/lib-dynload/_x.cpython-311-x86_64-linux-gnu.so": real_object()}):
        assert ("MISSING_LIBRARY", "libc.so.6") in codes(complete, own)
    system: Layer = {
        f"{LIBRARIES}/{name}": real_library(name) for name in ("libc.so.6", "libm.so.6", "libpthread.so.0")
    }
    assert codes(complete, module, system) == []
    assert codes(versions, module, system) == []
    old: Layer = {f"{LIBRARIES}/libc.so.6": real_object()}
    assert {code for code, _ in codes(versions, module, old)} == {"GLIBC_TOO_OLD"}


def test_damaged_library_is_not_missing() -> None:
    cut: Layer = {f"{LIBRARIES}/libc.so.6": real_library("libc.so.6")[:-4096], MODULE: real_object()}
    assert ("MISSING_LIBRARY", "libc.so.6") not in codes(complete, cut)


def test_second_cuda_on_the_loader_path_is_reported() -> None:
    code = real_object()
    first: Layer = {f"{LIBRARIES}/libcudart.so.12": code}
    second: Layer = {"opt/cuda/libcudart.so.12": code + b"x"}
    path = {"LD_LIBRARY_PATH": "/opt/cuda"}
    assert codes(only_one, first, second, env=path) == [("TWO_CUDA_STACKS", "libcudart")]
    assert codes(only_one, first, second) == []
    assert codes(only_one, first, {"opt/cuda/libcudart.so.12": f"/{LIBRARIES}/libcudart.so.12"}, env=path) == []


def test_stub_on_the_loader_path_is_reported() -> None:
    stub: Layer = {"usr/local/cuda/lib64/stubs/libcuda.so": b"x", "opt/d/libcuda.so.1": real_object()}
    assert codes(no_stub, stub) == []
    assert codes(no_stub, stub, env={"LD_LIBRARY_PATH": "/opt/d"}) == [("STUB_LIBCUDA", "libcuda.so.1")]
    on_path = codes(no_stub, stub, env={"LD_LIBRARY_PATH": "/usr/local/cuda/lib64/stubs"})
    assert on_path == [("STUB_LIBCUDA", "libcuda.so")]


DRIVER = f"{LIBRARIES}/libcuda.so.550.54.15"


@pytest.mark.parametrize(
    ("layer", "env"),
    [
        ({DRIVER: b"\x7fELF" + b"x" * (1 << 20), f"{LIBRARIES}/libcuda.so.1": "libcuda.so.550.54.15"}, {}),
        ({f"{LIBRARIES}/libcuda.so.1": "libcuda.so.550.54.15"}, {}),
        ({f"{LIBRARIES}/libnvidia-ml.so.1": b""}, {}),
        ({"opt/d/libcuda.so.1": b"x" * (1 << 20)}, {"LD_LIBRARY_PATH": "/opt/d"}),
        ({"usr/lib64/libnvidia-nvvm.so.570.124.06": b"x"}, {}),
    ],
)
def test_driver_libraries_in_the_image_are_reported(layer: Layer, env: dict[str, str]) -> None:
    assert codes(no_stub, layer, env=env) == [("DRIVER_MISMATCH", "driver")]
    (warned,) = no_stub(context_of(image_of(FRAMEWORK, layer), env=env, facts={"environment": ""})).findings
    assert (warned.code.value, warned.severity) == ("DRIVER_MISMATCH", Severity.WARNING)


@pytest.mark.parametrize(
    ("layer", "env"),
    [
        (
            {"usr/local/cuda-12.4/compat/libcuda.so.550.54.15": b"x" * (1 << 20)},
            {"LD_LIBRARY_PATH": "/usr/local/cuda-12.4/compat"},
        ),
        ({"opt/d/libcuda.so.1": b"x" * (1 << 20)}, {}),
        ({f"{LIBRARIES}/libnvidia-container.so.1": b"x", f"{LIBRARIES}/libnvidia-egl-wayland.so.1": b"x"}, {}),
        ({f"{LIBRARIES}/libcudart.so.12": b"x", f"{LIBRARIES}/libcuda.so": b"x"}, {}),
    ],
)
def test_libraries_similar_to_a_driver_are_not_reported(layer: Layer, env: dict[str, str]) -> None:
    assert no_stub(context_of(image_of(FRAMEWORK, layer), env=env)).findings == ()


def test_xla_tools_are_searched_where_xla_searches() -> None:
    device = f"{SITE}/nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc"
    whole: Layer = {f"{SITE}/nvidia/cuda_nvcc/bin/ptxas": b"x", device: b"BC\xc0\xde"}
    assert codes(tools, whole) == []
    assert codes(tools, {device: b"x"}) == [("XLA_TOOLS_MISSING", "ptxas")]
    assert codes(tools, {device: b"x", "opt/bin/ptxas": b"x"}, env={"PATH": "/opt/bin"}) == []
    plain = LayerFile("opt/bin/ptxas", "file", mode=0o644, size=1, pieces=lambda: iter([b"x"]))
    assert codes(tools, {device: b"x", "opt/bin/ptxas": plain}, env={"PATH": "/opt/bin"}) != []
    flags = {"XLA_FLAGS": "--xla_gpu_cuda_data_dir=/opt/cuda"}
    moved: Layer = {"opt/cuda/bin/ptxas": b"x", "opt/cuda/nvvm/libdevice/libdevice.10.bc": b"x"}
    assert codes(tools, moved, env=flags) == []


@pytest.mark.parametrize(
    ("settings", "others"), [(b"include-system-site-packages = true\n", True), (b"home = /usr\n", False)]
)
def test_virtual_environment_sees_system_packages_only_if_configured(settings: bytes, others: bool) -> None:  # noqa: FBT001
    system = "usr/lib/python3/dist-packages"
    layer: Layer = {"opt/venv/pyvenv.cfg": settings, system: LayerFile(system, "folder")}
    subject = context_of(image_of(FRAMEWORK, layer))
    assert ImagePython(subject.files, subject.image).sites == ((SITE, system) if others else (SITE,))


def test_missing_tools_of_a_base_accepted_without_them_are_a_warning() -> None:
    strict = tools(context_of(image_of(FRAMEWORK), facts={"flavor": "gpu"}))
    known = tools(context_of(image_of(FRAMEWORK), facts={"flavor": "gpu", "without_tools": True}))
    assert {one.severity for one in strict.findings} == {Severity.ERROR}
    assert {one.severity for one in known.findings} == {Severity.WARNING}
    assert [one.subject for one in strict.findings] == [one.subject for one in known.findings] != []


@rows
def test_packages_for_another_python_are_reported(tag: str, found: int) -> None:
    there = image_of(package("lxml", "1.0", {"lxml/__init__.py": b"1"}, tag=tag))
    told = list(for_another_python(context_of(there)))
    assert [one.code for one in told] == [Code.PACKAGE_CONFLICT] * found
    assert [one.severity for one in for_another_python(context_of(there, facts={"environment": ""}))] == (
        [Severity.WARNING] * found
    )


def test_loader_cache_too_large_to_read_is_reported() -> None:
    padded: Layer = {**SYSTEM, "etc/ld.so.cache": b"glibc-ld.so.cache1.1" + bytes(MAX_KEPT)}
    found = [one for one in files(context_of(image_of(padded))).findings if one.subject == "unread files"]
    assert [(one.severity, "/etc/ld.so.cache" in one.message) for one in found] == [(Severity.ERROR, True)]
    decoys: Layer = {f"srv/{number}.pth": bytes(MAX_KEPT) for number in range(8)}
    (one,) = (
        one
        for one in files(context_of(image_of(SYSTEM, {**decoys, "etc/ld.so.conf.d/x.conf": b"/opt/x\n"}))).findings
        if one.subject == "unread files"
    )
    assert "etc/ld.so.conf.d/x.conf" in one.message


BASE = {"python3": "3.11.2-1+b1", "libc6": "2.36-9"}
LOCKED = {"git": "1:2.39.5-0+deb12u3", "libcudart11.0": "11.8.89~11.8.0-5~deb12u1"}
OF_SYSTEM = "".join(f"{'a' * 64}  {name}_{version.replace(':', '%3a')}_amd64.deb\n" for name, version in LOCKED.items())
CUDNN = f"nvidia-cudnn-cu11==8.6.0.163 \\\n    --hash=sha256:{'c' * 64}\n"
DPKG, INFO = "var/lib/dpkg/status", "opt/cudnn/nvidia_cudnn_cu11-8.6.0.163.dist-info"
LIBRARY = "nvidia/cudnn/lib/libcudnn.so.8"
STATED = "Package: {0}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {1}\n"


def status(packages: dict[str, str]) -> bytes:
    return "\n".join(STATED.format(*pair) for pair in packages.items()).encode()


def cudnn(version: str = "8.6.0.163") -> dict[str, bytes]:
    told = f"Name: nvidia-cudnn-cu11\nVersion: {version}\n\n".encode()
    leaf = f"nvidia_cudnn_cu11-{version}.dist-info"
    record = row(LIBRARY, b"cudnn") + row(f"{leaf}/METADATA", told) + f"{leaf}/RECORD,,\n{leaf}/INSTALLER,,\n"
    there = {LIBRARY: b"cudnn", f"{leaf}/METADATA": told, f"{leaf}/RECORD": record.encode(), f"{leaf}/INSTALLER": b"uv"}
    return {f"opt/cudnn/{path}": what for path, what in there.items()}


def subject(*layers: Layer, system: dict[str, str] | None = None, above: int = 1, **more: Any) -> ImageContext:
    texts = {SYSTEM_LOCK: OF_SYSTEM} if system is None else system
    return replace(context_of(image_of({DPKG: status(BASE)}, *layers), **more), system=texts, locked_above=above)


def told(what: ImageContext) -> list[tuple[str, str]]:
    return [(one.code.value, one.subject) for one in locked(what).findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize(
    ("there", "wrong"),
    [
        ({**BASE, **LOCKED}, []),
        ({**BASE, **LOCKED, "git": "1:2.39.2-1"}, ["git"]),
        ({**BASE, "git": LOCKED["git"]}, ["libcudart11.0"]),
        ({**BASE, **LOCKED, "curl": "7"}, ["curl"]),
        ({**BASE, **LOCKED, "libc6": "2.36-10"}, ["libc6"]),
        ({**LOCKED, "python3": BASE["python3"]}, ["libc6"]),
        ({**BASE, **LOCKED, **dict.fromkeys("abcdefg", "1")}, ["a", "b", "c", "d", "system packages"]),
    ],
)
def test_system_packages_must_equal_base_and_lock(there: dict[str, str], wrong: list[str]) -> None:
    assert told(subject({DPKG: status(there)})) == [("LOCK_MISMATCH", name) for name in wrong]


@pytest.mark.parametrize(
    "stated",
    [
        b"Package: git\nStatus: deinstall ok config-files\nVersion: 1:2.39.5-0+deb12u3\n",
        b"Package: git\nStatus: install ok half-configured\nVersion: 1:2.39.5-0+deb12u3\n",
        b"Package: git\nStatus: install ok installed\nArchitecture: arm64\nVersion: 1:2.39.5-0+deb12u3\n",
        b"Package: git\nStatus: install ok installed\n",
    ],
)
def test_package_that_is_not_fully_installed_is_absent(stated: bytes) -> None:
    rest = status({**BASE, "libcudart11.0": LOCKED["libcudart11.0"]})
    assert told(subject({DPKG: rest + b"\n" + stated}, above=0)) == [("LOCK_MISMATCH", "git")]


@pytest.mark.parametrize("gone", [{DPKG: None}, {"var/lib/dpkg": None}, {DPKG: "/dev/null"}, {DPKG: b""}])
def test_image_without_dpkg_status_does_not_pass(gone: Layer) -> None:
    assert {code for code, _ in told(subject({DPKG: status({**BASE, **LOCKED})}, gone))} == {"LOCK_MISMATCH"}


def test_locked_package_of_the_base_must_be_installed() -> None:
    asked = {SYSTEM_LOCK: "# in the base: libc6=2.36-9\n# in the base: perl\n"}
    assert told(subject(system=asked)) == [("LOCK_MISMATCH", "perl")]
    other = {SYSTEM_LOCK: "# in the base: libc6=2.36-8\n"}
    assert told(subject(system=other)) == [("LOCK_MISMATCH", "libc6")]


@pytest.mark.parametrize("base", [{}, {"libc6": "2.36-9"}])
def test_unlocked_packages_are_allowed_above_an_unknown_base(base: dict[str, str]) -> None:
    more = {DPKG: status({**BASE, **LOCKED, "curl": "7"})}
    assert told(replace(subject(more, above=0), locked_above=0)) == []
    without = replace(context_of(image_of({DPKG: status(base)}, more)), system={SYSTEM_LOCK: OF_SYSTEM}, locked_above=1)
    assert told(without) == []


def test_foreign_image_has_no_lock() -> None:
    assert "locked" not in {one.name for one in select(Facts(flavor="cpu"))}


def test_missing_library_names_the_package_that_needs_it_and_debian_s() -> None:
    there = {**package("opencv-python", "4", {"cv2/cv2.abi3.so": b"x"}), DPKG: status({"libc6": "2.36"})}
    place = (f"/{SITE}/cv2/cv2.abi3.so", "cv2.abi3.so", list[str]())
    one = _missing(context_of(image_of(there)), "libGL.so.1", [place], brought=False)
    assert ("cv2.abi3.so of opencv-python" in one.message, "install -y libgl1 " in one.fix) == (True, True)


def test_control_characters_in_package_names_are_escaped() -> None:
    found = locked(subject({DPKG: status({**BASE, **LOCKED, "x\x1b[2J": "1\x07"})})).findings
    assert [one.code for one in found] == [Code.LOCK_MISMATCH]
    assert all(character.isprintable() for one in found for character in one.message + one.subject + one.found)


def of_cudnn(*layers: Layer, system: dict[str, str] | None = None) -> list[Finding]:
    texts = {SYSTEM_LOCK: OF_SYSTEM, CUDNN_LOCK: CUDNN} if system is None else system
    what = subject({DPKG: status({**BASE, **LOCKED})}, *layers, system=texts)
    found = (*files(what).findings, *locked(what).findings)
    return [one for one in found if one.severity is Severity.ERROR]


def test_cudnn_as_installed_has_no_finding() -> None:
    assert of_cudnn(cudnn(), {"opt/cudnn/.lock": b""}) == []


@pytest.mark.parametrize(
    ("layer", "code", "name"),
    [
        ({f"opt/cudnn/{LIBRARY}": b"other"}, "FILES_DIFFER", "nvidia-cudnn-cu11"),
        ({f"opt/cudnn/{LIBRARY}": None}, "MISSING_LIBRARY", "libcudnn.so.8"),
        ({f"{INFO}/RECORD": None}, "FILES_DIFFER", "nvidia-cudnn-cu11"),
        (
            {"opt/cudnn/nvidia/cudnn/lib/libcudnn_more.so.8": b"x"},
            "FILES_DIFFER",
            "libraries of no package next to cuDNN's",
        ),
        ({"opt/cudnn/lib/libz.so.1": "/lib/libz.so.1"}, "FILES_DIFFER", "libraries of no package next to cuDNN's"),
        (cudnn(version="8.5.0.96"), "LOCK_MISMATCH", "nvidia-cudnn-cu11"),
        ({INFO: None}, "LOCK_MISMATCH", "nvidia-cudnn-cu11"),
        ({"opt/cudnn/more-1.dist-info/METADATA": b"Name: more\nVersion: 1\n"}, "LOCK_MISMATCH", "more"),
    ],
)
def test_changed_cudnn_is_reported_under_its_code(layer: Layer, code: str, name: str) -> None:
    found = [(one.code.value, one.subject) for one in of_cudnn(cudnn(), layer)]
    assert (code, name) in found
    assert {each for each, _ in found} <= {code, "FILES_DIFFER"}


@pytest.mark.parametrize(
    ("carried", "label", "wrong"),
    [
        (OF_SYSTEM, OF_SYSTEM, []),
        (OF_SYSTEM.replace("2.39.5", "2.39.6"), OF_SYSTEM, ["system.lock in the image"]),
        (OF_SYSTEM, "another", ["label org.envbuilder.system"]),
        (None, OF_SYSTEM, ["system.lock in the image"]),
    ],
)
def test_system_lock_of_the_image_must_be_the_host_s(carried: str | None, label: str | None, wrong: list[str]) -> None:
    layer: Layer = {"opt/envbuilder/system.lock": carried.encode()} if carried is not None else {}
    labels = {"org.envbuilder.system": lockfile.digest(label)} if label is not None else {}
    found = [one.subject for one in claims(subject(layer, labels=labels)).findings if "system" in one.subject]
    assert sorted(found) == sorted(wrong)
    assert system_lock.digest({SYSTEM_LOCK: OF_SYSTEM}) == lockfile.digest(OF_SYSTEM)


@pytest.mark.parametrize("carried", [None, b"", b"\xff", b"git\n", b"a  git_1_amd64.deb\n"])
def test_image_with_system_packages_must_contain_a_valid_lock(carried: bytes | None) -> None:
    document = msgspec.json.encode(resolved(additions=Additions(system_packages=("git",))))
    layer: dict[str, bytes] = {"opt/envbuilder/environment.json": document}
    layer |= {"opt/envbuilder/system.lock": carried} if carried is not None else {}
    what = subject(layer, system={})
    what = replace(what, system=carried_system_locks(what.files), lock_is_carried=True)
    assert "system.lock in the image" in [one.subject for one in claims(what).findings]


def test_rewritten_dpkg_list_does_not_hide_a_swapped_library() -> None:
    path, listed = "usr/lib/x86_64-linux-gnu/libcufft.so.10", "var/lib/dpkg/info/libcufft10.list"
    packages = {**BASE, "libcufft10": "11.8"}
    own: Layer = {DPKG: status(packages), path: b"1", listed: f"/{path}\n".encode()}
    again: Layer = {path: b"2", listed: f"/{path}\n\n".encode(), DPKG: status(packages)}
    upgraded: Layer = {**again, DPKG: status({**packages, "libcufft10": "11.9"})}
    (swapped,) = errors(own, again)
    assert (swapped.code, path in swapped.message) == (Code.FILES_DIFFER, True)
    assert errors(own, upgraded) == []


def test_list_of_an_unknown_package_does_not_hide_a_swapped_library() -> None:
    path = "usr/lib/x86_64-linux-gnu/libz.so.1"
    own: Layer = {
        DPKG: status({**BASE, "zlib1g": "1"}),
        path: b"1",
        "var/lib/dpkg/info/zlib1g:amd64.list": f"/{path}\n".encode(),
    }
    claimed: Layer = {path: b"2", "var/lib/dpkg/info/mine.list": f"/{path}\n".encode()}
    assert [(one.code, path in one.message) for one in errors(own, claimed)] == [(Code.FILES_DIFFER, True)]
    whole = replace(
        context_of(image_of(own, {**claimed, DPKG: status({**BASE, "zlib1g": "1", "mine": "1"})})), locked_above=1
    )
    assert told(whole) == [("LOCK_MISMATCH", "mine")]


@pytest.mark.parametrize("layer", [b"2", None, "/opt/libcufft.so.11"])
def test_changed_library_of_a_package_below_usr_local_is_reported(layer: bytes | str | None) -> None:
    folder = "usr/local/cuda-12.5/targets/x86_64-linux/lib"
    own: Layer = {
        DPKG: status({**BASE, "libcufft-12-5": "11.2"}),
        f"{folder}/libcufft.so.11": b"1",
        "var/lib/dpkg/info/libcufft-12-5.list": f"/{folder}/libcufft.so.11\n".encode(),
        "usr/local/cuda": "cuda-12.5",
        "etc/ld.so.conf.d/cuda-packages.conf": b"/usr/local/cuda/targets/x86_64-linux/lib\n",
    }
    assert errors(own) == []
    found = errors(own, {f"{folder}/libcufft.so.11": layer})
    assert [(one.code, "libcufft.so.11" in one.message) for one in found] == [(Code.FILES_DIFFER, True)]


def test_what_another_python_or_no_system_package_brought_is_named() -> None:
    user, added = "home/a/.local/lib/python3.11/site-packages", {**package("pip", "1", {})}
    added |= {path.replace(SITE, user): data for path, data in package("humanize", "4", {}).items()}
    looked = consistent(replace(context_of(image_of(FRAMEWORK, added)), own_layers=1))
    assert [one.found for one in looked.findings] == [f"/{user}"]
    of_a: Layer = {DPKG: b"Package: a\nStatus: deinstall ok config-files\n", "var/lib/dpkg/info/a.list": b"/etc/a\n"}
    assert image_of(of_a).system.layers == {"etc/a": 0}
    there = image_of({**FRAMEWORK, **of_a, MODULE: real_object()}, {"opt/v/libc.so.6": real_object()})
    (one,) = versions(context_of(there, env={"LD_LIBRARY_PATH": "/opt/v"})).findings
    assert (one.subject, "leave /opt/v/libc.so.6 out" in one.fix) == ("libc.so.6", True)
