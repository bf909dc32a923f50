"""System packages and cuDNN compared with their locks."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from factories import resolved
from made_images import Layer, context_of, errors, image_of, row

from envbuilder.environment import Additions
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, system_lock
from envbuilder.image.system_lock import CUDNN_LOCK, SYSTEM_LOCK
from envbuilder.validation.image_claims import carried_system_locks, claims
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.installed_files import files
from envbuilder.validation.static_checks import locked

BASE = {"python3": "3.11.2-1+b1", "libc6": "2.36-9"}
LOCKED = {"git": "1:2.39.5-0+deb12u3", "libcudart11.0": "11.8.89~11.8.0-5~deb12u1"}
SYSTEM = "".join(f"{'a' * 64}  {name}_{version.replace(':', '%3a')}_amd64.deb\n" for name, version in LOCKED.items())
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
    texts = {SYSTEM_LOCK: SYSTEM} if system is None else system
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
    without = replace(context_of(image_of({DPKG: status(base)}, more)), system={SYSTEM_LOCK: SYSTEM}, locked_above=1)
    assert told(without) == []


def test_foreign_image_has_no_system_lock() -> None:
    assert told(subject({DPKG: status({})}, facts={"environment": ""})) == []


def test_control_characters_in_package_names_are_escaped() -> None:
    found = locked(subject({DPKG: status({**BASE, **LOCKED, "x\x1b[2J": "1\x07"})})).findings
    assert [one.code for one in found] == [Code.LOCK_MISMATCH]
    assert all(character.isprintable() for one in found for character in one.message + one.subject + one.found)


def of_cudnn(*layers: Layer, system: dict[str, str] | None = None) -> list[Finding]:
    texts = {SYSTEM_LOCK: SYSTEM, CUDNN_LOCK: CUDNN} if system is None else system
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
        (SYSTEM, SYSTEM, []),
        (SYSTEM.replace("2.39.5", "2.39.6"), SYSTEM, ["system.lock in the image"]),
        (SYSTEM, "another", ["label org.envbuilder.system"]),
        (None, SYSTEM, ["system.lock in the image"]),
    ],
)
def test_system_lock_of_the_image_must_be_the_host_s(carried: str | None, label: str | None, wrong: list[str]) -> None:
    layer: Layer = {"opt/envbuilder/system.lock": carried.encode()} if carried is not None else {}
    labels = {"org.envbuilder.system": lockfile.digest(label)} if label is not None else {}
    found = [one.subject for one in claims(subject(layer, labels=labels)).findings if "system" in one.subject]
    assert sorted(found) == sorted(wrong)
    assert system_lock.digest({SYSTEM_LOCK: SYSTEM}) == lockfile.digest(SYSTEM)


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
