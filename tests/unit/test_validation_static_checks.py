"""Checks of packages and libraries on an image's files."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from made_images import SITE, SYSTEM, Layer, context_of, image_of, package
from table_rows import rows

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Severity
from envbuilder.probes.suite import loader
from envbuilder.validation.image_context import CheckOutput, ImageContext
from envbuilder.validation.image_loader import ImagePython
from envbuilder.validation.installed_files import files
from envbuilder.validation.layer_scan import MAX_KEPT
from envbuilder.validation.static_checks import (
    complete,
    consistent,
    for_another_python,
    locked,
    no_stub,
    only_one,
    tools,
    versions,
)

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


@rows
def test_requirement_markers_use_the_image_s_python(requirement: str, code: str | None) -> None:
    user = {f"{SITE}/a-1.dist-info/METADATA": f"Name: a\nVersion: 1\nRequires-Dist: {requirement}\n".encode()}
    there = {**package("numpy", "2.4.6", {}), **package("old", "2004d-1", {})}
    assert codes(consistent, there, user, facts={"python": "3.12"}) == ([(code, "a")] if code else [])


def test_dependencies_are_searched_only_in_the_image() -> None:
    module: Layer = {MODULE: real_object()}
    assert ("MISSING_LIBRARY", "libc.so.6") in codes(complete, module)
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
