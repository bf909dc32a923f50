"""Code that a hostile author puts where Python or the loader takes it: each way is named, whoever seems to vouch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_images import SITE, SYSTEM, Layer, cache_of, image_of, outside, package, row

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.installed_files import files
from envbuilder.validation.layer_scan import Binary
from envbuilder.validation.secret_checks import secrets
from envbuilder.validation.unowned_files import _wrong_cache_entries

EVIL = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096) + b"evil"
GOOD: Layer = {**SYSTEM, **package("numpy", "2.4.6", {"numpy/__init__.py": b"version = 2\n"})}
ARCH = "usr/lib/x86_64-linux-gnu"
PYC = b"byte code"


def errors(*layers: Layer, **more: Any) -> list[Finding]:
    """Judge a small whole image of ours with these layers above it, and keep what makes it fail."""
    return [one for one in files(outside(image_of(GOOD, *layers), **more)).findings if one.severity is Severity.ERROR]


def test_the_small_system_is_as_it_should_be() -> None:
    """What the attacks start from has nothing amiss."""
    assert errors() == []


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({f"{ARCH}/libz.so.1": "/opt/libz.so.1", "opt/libz.so.1": EVIL}, "libz.so.1"),
        ({f"{ARCH}/gconv/GBK.so": EVIL}, "gconv/GBK.so"),
        ({f"{ARCH}/gconv/MINE.so": EVIL}, "gconv/MINE.so"),
        ({f"{ARCH}/gconv/gconv-modules.d/mine.conf": b"module A// B// /opt/x 1\n"}, "mine.conf"),
        ({f"{ARCH}/ossl-modules/mine.so": EVIL}, "ossl-modules/mine.so"),
        ({f"{ARCH}/engines-3/mine.so": EVIL}, "engines-3/mine.so"),
        ({"usr/lib/ssl/openssl.cnf": b"[engine]\n"}, "usr/lib/ssl/openssl.cnf"),
        ({"usr/lib/ssl/openssl.cnf": "/opt/openssl.cnf"}, "usr/lib/ssl/openssl.cnf"),
        ({f"{ARCH}/glibc-hwcaps/x86-64-v3/libz.so.1": EVIL}, "glibc-hwcaps"),
        ({"usr/lib/glibc-hwcaps/x86-64-v3/libz.so.1": EVIL}, "glibc-hwcaps"),
        ({"usr/lib64/glibc-hwcaps/x86-64-v3/libz.so.1": EVIL}, "glibc-hwcaps"),
        ({"etc/ld.so.preload": "/opt/nothing"}, "ld.so.preload"),
        ({"usr/lib64/python311.zip": b"PK"}, "python311.zip"),
        ({"usr/lib64/python3.11/sitecustomize.py": b"x"}, "sitecustomize.py"),
        ({"usr/local/lib/python3.11/sitecustomize.so": EVIL}, "sitecustomize.so"),
        ({"usr/local/lib/python3.11/sitecustomize/__init__.pyc": PYC}, "sitecustomize/__init__.pyc"),
        ({"usr/local/lib/python3.11/usercustomize/__init__.abi3.so": EVIL}, "usercustomize/__init__.abi3.so"),
        ({f"{SITE}/sitecustomize.so": EVIL}, "sitecustomize.so"),
    ],
)
def test_what_is_loaded_without_being_asked_for_is_named(layer: Layer, named: str) -> None:
    """Libraries by link, by charset, by processor and by setting, and what Python runs at its start: one finding."""
    (one,) = errors(layer)
    assert one.code is Code.FILES_DIFFER
    assert named in one.message


def test_a_library_that_is_written_twice_is_named() -> None:
    """What it is held to is what its package brought, not what a layer in between wrote."""
    swapped = {f"{ARCH}/libz.so.1.2": EVIL}
    (one,) = errors(swapped, swapped)
    assert "libz.so.1.2" in one.message


def test_a_later_package_s_file_may_come_to_a_layer_once_more() -> None:
    """What changes a file's mode copies it into a later layer: it is still what its newer package brought."""
    newer: Layer = {f"{ARCH}/libz.so.1.2": b"newer", "var/lib/dpkg/info/zlib.list": f"/{ARCH}/libz.so.1.2\n".encode()}
    assert errors(newer, {f"{ARCH}/libz.so.1.2": b"newer"}) == []
    assert len(errors(newer, {f"{ARCH}/libz.so.1.2": b"other"})) == 1


def test_a_preload_is_named_where_its_folder_is_a_link() -> None:
    """The loader follows the link; a search for the plain path would not."""
    moved: Layer = {f"opt/{path}": content for path, content in SYSTEM.items() if path.startswith("etc/")}
    assert errors({"etc": "/opt/etc", **moved}) == []
    (one,) = errors({"etc": "/opt/etc", **moved, "opt/etc/ld.so.preload": b"/opt/x.so\n"})
    assert "ld.so.preload" in one.message


def test_python_s_own_library_may_be_moved_and_not_be_changed() -> None:
    """A folder that became a link holds what its packages brought, by another path."""
    place = "usr/lib/python3.11"
    moved: Layer = {path.replace(place, "opt/p"): content for path, content in SYSTEM.items() if path.startswith(place)}
    assert errors({place: "/opt/p", **moved}) == []
    (one,) = errors({place: "/opt/p", **moved, "opt/p/os.py": b"other"})
    assert "a later layer replaced: /opt/p/os.py" in one.message


def test_a_python_that_no_package_brought_is_held_to_its_first_layer() -> None:
    """Its library lies below /usr/local, where no list of the system's speaks of it; byte code may come and go."""
    own: Layer = {"usr/local/lib/python3.11/os.py": b"own", "usr/local/lib/python3.11/os.pyc": PYC}
    assert errors(own, {"usr/local/lib/python3.11/os.pyc": b"other"}) == []
    (one,) = errors(own, {"usr/local/lib/python3.11/os.py": b"other"})
    assert "usr/local/lib/python3.11/os.py" in one.message


@pytest.mark.parametrize(
    ("place", "unlocked_libraries"),
    [
        ("srv/x-site-packages", {f"{SITE}/zz.pth": b"import os\n"}),
        ("srv/x-site-packages", {"usr/local/lib/libz.so.1": EVIL}),
        ("opt/venv/lib/python3.11/dist-packages", {f"{SITE}/zz.pth": b"import os\n"}),
        ("opt/venv/lib/python3.11/dist-packages", {"opt/venv/bin/dirname": b"#!/bin/sh\n"}),
        ("usr/local/lib/python3.11/site-packages", {"usr/local/lib/libz.so.1": EVIL}),
        ("usr/lib/python3/dist-packages", {f"{ARCH}/libmine.so.1": EVIL}),
    ],
)
def test_a_record_accounts_for_nothing_but_its_own(place: str, unlocked_libraries: dict[str, bytes]) -> None:
    """A distribution that no Python of the image sees, or whose RECORD leads out of its folder, vouches for nothing."""
    rows = "".join(row(f"/{path}", content) for path, content in unlocked_libraries.items())
    vouching: Layer = {
        f"{place}/mine-1.dist-info/RECORD": rows.encode(),
        f"{place}/mine-1.dist-info/METADATA": b"Name: mine\nVersion: 1\n\n",
    }
    (one,) = errors({**vouching, **unlocked_libraries}, env={"PATH": "/opt/venv/bin:/usr/bin"})
    assert one.code is Code.FILES_DIFFER
    assert next(iter(unlocked_libraries)) in one.message


def test_a_record_hides_no_secret_outside_its_folder() -> None:
    """A package's own examples are no secret; what its RECORD says of a home folder makes nothing there public."""
    secret = b"machine a.example login b password hunter2\n"
    rows = row("/root/.netrc", secret).encode()
    info = {f"{SITE}/mine-1.dist-info/RECORD": rows, f"{SITE}/mine-1.dist-info/METADATA": b"Name: mine\nVersion: 1\n\n"}
    found = secrets(outside(image_of(GOOD, {"root/.netrc": secret, **info}))).findings
    assert [one.code for one in found if one.severity is Severity.ERROR] == [Code.SECRET_IN_IMAGE]


def test_a_library_s_name_makes_none_of_cuda_of_it() -> None:
    """In a folder that the loader was told of, what is called like CUDA's is CUDA's by its own soname as well."""
    layer: Layer = {
        **GOOD,
        "etc/ld.so.conf.d/x.conf": b"/opt/x\n",
        "opt/x/libcudamine2.so": EVIL,
        "opt/x/libcudart2.so": EVIL,
    }
    there = image_of(layer)
    for name, soname in (("libcudamine2.so", "libz.so.1"), ("libcudart2.so", "libcudart2.so.1")):
        seen = there.paths[f"opt/x/{name}"]
        told = msgspec.structs.replace(seen.row, binary=Binary(soname=soname))
        there.paths[f"opt/x/{name}"] = msgspec.structs.replace(seen, row=told)
    (one,) = (one for one in files(outside(there)).findings if one.severity is Severity.ERROR)
    assert ("libcudamine2.so" in one.message, "libcudart2.so" in one.message) == (True, False)


def test_the_loader_s_cache_leads_to_what_it_names() -> None:
    """A file of another name and soname is led astray to; one whose soname is the name asked for is not."""
    there = image_of(
        {
            **GOOD,
            "opt/libcudamine.so": EVIL,
            "opt/libtrue-1.2.so": EVIL,
            "etc/ld.so.cache": cache_of({"libz.so.1": "/opt/libcudamine.so", "libtrue.so.1": "/opt/libtrue-1.2.so"}),
        }
    )
    named = msgspec.structs.replace(there.paths["opt/libtrue-1.2.so"].row, binary=Binary(soname="libtrue.so.1"))
    there.paths["opt/libtrue-1.2.so"] = msgspec.structs.replace(there.paths["opt/libtrue-1.2.so"], row=named)
    assert list(_wrong_cache_entries(outside(there))) == ["opt/libcudamine.so"]
