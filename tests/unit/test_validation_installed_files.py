"""Every installed file against its RECORD and its locked wheel's; code that nothing brings is named."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from made_images import SITE, Layer, image_of, outside, package, row

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, omissions
from envbuilder.image.wheel_records import WheelRecords
from envbuilder.probes.omit import digest_of_rows
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.package_index import DistFile, IndexUnavailableError, Member
from envbuilder.support import decoding
from envbuilder.validation.checks import CHECKS
from envbuilder.validation.host_checks import run_host_checks
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.installed_files import files

CACHED = f"{SITE}/numpy/__pycache__/__init__.cpython-311.pyc"
NUMPY = {"numpy/__init__.py": b"version = 2\n", "numpy/core.so": b"code"}
DIGEST = "a" * 64
ELF = Path("/proc/self/exe").read_bytes()[:64] + bytes(4096)
LOCK = f"numpy==2.4.6 \\\n    --hash=sha256:{DIGEST}\n"


def errors(*layers: Layer, **more: Any) -> list[Finding]:
    """Compare the files of an image of ours, and keep what makes it fail."""
    return [one for one in files(outside(image_of(*layers), **more)).findings if one.severity is Severity.ERROR]


def test_an_image_as_it_was_installed_has_no_finding() -> None:
    """Files as recorded, with installers' notes, byte code and programs, are what they should be."""
    there = package("numpy", "2.4.6", NUMPY)
    notes = {
        f"{SITE}/numpy-2.4.6.dist-info/INSTALLER": b"uv",
        f"{SITE}/numpy/__pycache__/__init__.cpython-311.pyc": b"x",
    }
    assert errors({**there, **notes}) == []


@pytest.mark.parametrize(
    ("layer", "path"),
    [
        ({f"{SITE}/numpy/__init__.py": b"version = 1\n"}, "numpy/__init__.py"),
        ({f"{SITE}/numpy/core.so": b"cod"}, "numpy/core.so"),
        ({f"{SITE}/numpy/core.so": b""}, "numpy/core.so"),
        ({f"{SITE}/numpy/core.so": b"\0ode"}, "numpy/core.so"),
        ({f"{SITE}/numpy/core.so": None}, "numpy/core.so"),
        ({f"{SITE}/numpy/core.so": "/elsewhere/core.so"}, "numpy/core.so"),
        ({f"{SITE}/numpy": None}, "numpy/"),
        ({f"{SITE}/extra.pth": b"import extra"}, "extra.pth"),
        ({f"{SITE}/numpy/more.py": b"x"}, "numpy/more.py"),
        ({f"{SITE}/sitecustomize.py": b"x"}, "sitecustomize.py"),
        ({f"{SITE}/mine.egg-link": b"/src"}, "mine.egg-link"),
        ({"usr/local/lib/libextra.so": b"x"}, "libextra.so"),
        ({"etc/ld.so.conf.d/x.conf": b"/opt/x\n", "opt/x/libm.so.6": b"x"}, "libm.so.6"),
        ({"root/.local/lib/python3.11/site-packages/usercustomize.py": b"x"}, "usercustomize.py"),
    ],
)
def test_what_differs_is_named_with_its_path(layer: Layer, path: str) -> None:
    """Swapped, truncated, emptied, flipped, missing and foreign files are one finding that names the file."""
    (one,) = errors(package("numpy", "2.4.6", NUMPY), layer)
    assert (one.code, path in one.message) == (Code.FILES_DIFFER, True)


def test_byte_code_that_was_packed_with_a_digest_may_be_made_anew() -> None:
    """A wheel may list a cached .pyc with its digest (NumPy 1.26 does); an installer that compiles writes it anew."""
    cached = "numpy/__pycache__/conv.cpython-311.pyc"
    packed = package("numpy", "1.26.4", {**NUMPY, cached: byte_code(flags=0, modified=1, size=2)})
    assert not errors({**packed, f"{SITE}/{cached}": byte_code(flags=0, modified=3, size=2)})


@pytest.mark.parametrize(
    ("gone", "code"),
    [
        ("nvidia/cufft/lib/libcufft.so.11", Code.MISSING_LIBRARY),
        ("nvidia/cuda_nvcc/bin/ptxas", Code.XLA_TOOLS_MISSING),
        ("nvidia/cuda_nvcc/nvvm/libdevice/libdevice.10.bc", Code.XLA_TOOLS_MISSING),
        ("nvidia/cufft/include/cufft.h", Code.FILES_DIFFER),
    ],
)
def test_what_is_gone_has_the_most_telling_code(gone: str, code: Code) -> None:
    """A missing library or tool is called that, whatever check finds it; every part is listed."""
    (one,) = errors(package("nvidia_x", "1", {gone: b"x", "nvidia/other.py": b"y"}), {f"{SITE}/{gone}": None})
    assert (one.code, gone in one.message) == (code, True)


@pytest.mark.parametrize(
    ("env", "workdir", "path"),
    [
        ({"PYTHONPATH": "/opt/vendor"}, "", "opt/vendor/numpy/__init__.py"),
        ({}, "/srv", "srv/numpy/__init__.py"),
        ({}, "/srv", "srv/numpy.py"),
        ({"PYTHONPATH": "vendor"}, "/srv", "srv/vendor/numpy.py"),
        ({"PYTHONPATH": "/opt/venv:../vendor"}, "/srv", "vendor/numpy.py"),
    ],
)
def test_modules_in_front_are_named(env: dict[str, str], workdir: str, path: str) -> None:
    """A module in PYTHONPATH or in the folder that the image starts in takes the place of an installed one."""
    (one,) = errors({**package("numpy", "2.4.6", NUMPY), path: b"x"}, env=env, workdir=workdir)
    assert one.code is Code.FILES_DIFFER
    assert path.split("/numpy", maxsplit=1)[0] in one.message


@pytest.mark.parametrize("value", [":", "/usr/lib:", "lib/..", "/opt;."])
def test_a_loader_that_looks_where_the_image_starts_is_told_of_that_folder(value: str) -> None:
    """An entry that is empty or relative is the folder that the image starts in, whose libraries are then in front."""
    there = {**package("numpy", "2.4.6", NUMPY), "srv/libz.so.1": b"z"}
    (one,) = errors(there, env={"LD_LIBRARY_PATH": value}, workdir="/srv")
    assert "/srv/libz.so.1" in one.message
    assert errors(there, env={"LD_LIBRARY_PATH": "/usr/lib"}, workdir="/srv") == []


def byte_code(*, flags: int, modified: int, size: int) -> bytes:
    """Write the header of a .pyc file (PEP 552)."""
    return b"\xa7\r\r\n" + struct.pack("<III", flags, modified, size) + b"code"


@pytest.mark.parametrize(
    ("flags", "modified", "size", "found"),
    [(0, 5, 12, True), (1, 0, 0, True), (0, 6, 12, False), (0, 5, 13, False)],
)
def test_byte_code_of_a_later_layer(flags: int, modified: int, size: int, *, found: bool) -> None:
    """Byte code that Python would run without a look at the source is named; what it ignores is not."""
    there: dict[str, bytes | LayerFile] = dict(package("numpy", "2.4.6", NUMPY))
    source = NUMPY["numpy/__init__.py"]
    there[f"{SITE}/numpy/__init__.py"] = LayerFile(
        f"{SITE}/numpy/__init__.py", "file", size=len(source), modified=5, pieces=lambda: iter([source])
    )
    cached = {CACHED: byte_code(flags=flags, modified=modified, size=size)}
    assert [one.code for one in errors(there, cached)] == ([Code.FILES_DIFFER] if found else [])
    assert errors({**there, **cached}) == []


def test_a_file_of_the_system_that_is_gone_or_replaced_is_named() -> None:
    """What dpkg brought on either path is deleted or replaced by a later layer; an upgrade brings its own list."""
    base = {
        "var/lib/dpkg/info/libssl3.list": b"/usr/lib/x86_64-linux-gnu/libssl.so.3\n/usr/lib/python3.11/ssl.py\n",
        "usr/lib/x86_64-linux-gnu/libssl.so.3": b"1",
        "usr/lib/python3.11/ssl.py": b"1",
    }
    assert errors(base) == []
    (gone,) = errors(base, {"usr/lib/x86_64-linux-gnu/libssl.so.3": None})
    (other,) = errors(base, {"usr/lib/python3.11/ssl.py": b"2"})
    assert ("libssl.so.3" in gone.message, "ssl.py" in other.message) == (True, True)
    assert errors(base, {**base, "usr/lib/python3.11/ssl.py": b"2"}) == []


def test_an_image_of_others_may_leave_tests_out() -> None:
    """A slim image of others without a package's tests and headers is warned of; without its code it fails."""
    there = package("numpy", "2.4.6", {**NUMPY, "numpy/tests/test_a.py": b"x"})
    foreign: dict[str, Any] = {"facts": {"environment": ""}}
    assert errors(there, {f"{SITE}/numpy/tests/test_a.py": None}, **foreign) == []
    assert len(errors(there, {f"{SITE}/numpy/core.so": None}, **foreign)) == 1
    assert errors({**there, f"{SITE}/mine.py": b"x"}, **foreign) == []


class Index:
    """A package index with one wheel, whose RECORD is what it is given; None for one that does not answer."""

    def __init__(self, record: str | None, wheel: bytes = b"", size: int = 1 << 30) -> None:
        self.record, self.wheel, self.bytes = record, wheel, size
        self.asked: list[str] = []

    def files(self, project: str) -> tuple[DistFile, ...]:
        if self.record is None:
            raise IndexUnavailableError("no route")
        name = f"{project}-2.4.6-py3-none-any.whl"
        return (DistFile(project=project, filename=name, url="u", sha256=self.digest),)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.wheel).hexdigest() if self.wheel else DIGEST

    def members(self, file: DistFile) -> tuple[Member, ...]:  # noqa: ARG002 - the port's signature
        return (Member(name="numpy-2.4.6.dist-info/RECORD", packed=1, size=1),)

    def stream(self, file: DistFile, member: Member) -> Iterator[bytes]:  # noqa: ARG002 - the port's signature
        self.asked.append("range")
        yield (self.record or "").encode()

    def whole(self, file: DistFile) -> Iterator[bytes]:  # noqa: ARG002 - the port's signature
        self.asked.append("whole")
        yield from (self.wheel[:10], self.wheel[10:])

    def metadata(self, file: DistFile) -> str:
        raise NotImplementedError

    def member(self, file: DistFile, name: str) -> bytes | None:
        raise NotImplementedError

    def size(self, file: DistFile) -> int:  # noqa: ARG002 - the port's signature
        return self.bytes


def held_against(record: str | None, cache: Path, *layers: Layer) -> list[Finding]:
    """Compare an image of the lock with a wheel's RECORD."""
    subject = outside(image_of(*layers), lock=LOCK)
    return list(files(replace(subject, wheels=WheelRecords(Index(record), Cache(cache)))).findings)


def wheel(**changed: bytes) -> str:
    """Write the wheel's RECORD, with other contents for some files."""
    named = {**NUMPY, "numpy-2.4.6.dist-info/METADATA": b"Name: numpy\nVersion: 2.4.6\n\n"}
    named["numpy-2.4.6.dist-info/WHEEL"] = b"Wheel-Version: 1.0\nTag: py3-none-any\n"
    rows = {path: changed.get(path.rpartition("/")[2].partition(".")[0], content) for path, content in named.items()}
    return "".join(row(path, content) for path, content in rows.items()) + "numpy-2.4.6.dist-info/RECORD,,\n"


def test_a_record_that_was_rewritten_with_the_files_is_found(tmp_path: Path) -> None:
    """Files and RECORD of another build agree with each other, and not with the locked wheel's RECORD."""
    swapped = package("numpy", "2.4.6", {**NUMPY, "numpy/core.so": b"other code"})
    assert held_against(wheel(), tmp_path / "a", package("numpy", "2.4.6", NUMPY)) == []
    (one,) = held_against(wheel(), tmp_path / "a", swapped)
    assert (one.code, one.severity, "core.so" in one.message) == (Code.FILES_DIFFER, Severity.ERROR, True)
    extra = package("numpy", "2.4.6", {**NUMPY, "numpy/more.py": b"x"})
    (more,) = held_against(wheel(), tmp_path / "a", extra)
    assert "more.py" in more.message


def test_what_cannot_be_looked_up_is_unknown_and_what_was_is_kept(tmp_path: Path) -> None:
    """Without an index the verdict says UNKNOWN, never nothing; what was read once needs no index again."""
    there = package("numpy", "2.4.6", NUMPY)
    (unknown,) = held_against(None, tmp_path / "a", there)
    assert (unknown.code, unknown.severity, "numpy" in unknown.message) == (Code.UNKNOWN, Severity.WARNING, True)
    assert held_against(wheel(), tmp_path / "b", there) == []
    assert held_against(None, tmp_path / "b", there) == []


def test_what_a_build_keeps_serves_a_validation_without_an_index(tmp_path: Path) -> None:
    """The wheels that the image's Python may be given are looked up when it is built; a silent index is no error."""
    there = package("numpy", "2.4.6", NUMPY)
    locked = lockfile.parse(LOCK)
    assert WheelRecords(Index(None), Cache(tmp_path)).keep(locked, "3.11", "x86_64") == 0
    assert WheelRecords(None, Cache(tmp_path)).keep(locked, "3.11", "x86_64") == 0
    assert WheelRecords(Index(wheel()), Cache(tmp_path)).keep(locked, "3.11", "x86_64") == 1
    assert held_against(None, tmp_path, there) == []


@cache
def packed() -> bytes:
    """Pack the wheel's files and RECORD as a wheel is."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for path, content in NUMPY.items():
            archive.writestr(path, content)
        archive.writestr("numpy-2.4.6.dist-info/RECORD", wheel())
    return made.getvalue()


def proved(index: Index, cache: Path, *, built: bool = False, **changed: bytes) -> tuple[float, list[Code]]:
    """Compare an installed NumPy with its wheel: how many wheels were hashed as a whole, and what was found."""
    lock = f"numpy==2.4.6 \\\n    --hash=sha256:{hashlib.sha256(packed()).hexdigest() if index.wheel else DIGEST}\n"
    there = package("numpy", "2.4.6", {**NUMPY, **{f"numpy/{name}.so": one for name, one in changed.items()}})
    subject = replace(
        outside(image_of(there), lock=lock), wheels=WheelRecords(index, Cache(cache)), is_built_here=built
    )
    looked = files(subject)
    return dict(looked.measurements)["proved"].value, [one.code for one in looked.findings]


def test_a_small_wheel_is_hashed_as_a_whole(tmp_path: Path) -> None:
    """Its RECORD is the locked wheel's, or it is none: bytes of another hash are never believed, and never kept."""
    index = Index(wheel(), packed(), size=len(packed()))
    assert proved(index, tmp_path / "a") == (1, [])
    assert proved(index, tmp_path / "a", core=b"swapped") == (1, [Code.FILES_DIFFER])
    assert index.asked == ["whole"]

    class Liar(Index):
        digest = hashlib.sha256(packed()).hexdigest()  # the page says the locked hash, the file is another one

    lying = Liar(wheel(), packed() + b"x", size=len(packed()) + 1)
    assert proved(lying, tmp_path / "b") == (0, [Code.UNKNOWN])
    assert proved(lying, tmp_path / "b") == (0, [Code.UNKNOWN])
    assert lying.asked == ["whole", "whole"]


def test_a_large_wheel_is_proved_by_a_build_of_ours_alone(tmp_path: Path) -> None:
    """A RECORD read by ranges is as good as the index: until an image that was built here by hash holds just that."""
    assert proved(Index(wheel()), tmp_path) == (0, [])
    assert proved(Index(wheel()), tmp_path, built=True, core=b"swapped") == (0, [Code.FILES_DIFFER])
    assert proved(Index(wheel()), tmp_path) == (0, [])
    assert proved(Index(wheel()), tmp_path, built=True) == (0, [])
    assert proved(Index(None), tmp_path) == (1, [])


def test_an_interpreter_that_a_later_layer_put_there_is_named() -> None:
    """What leads to the Python that the environment was made with is right; another program in its place is not."""
    venv: Layer = {
        "opt/venv/pyvenv.cfg": b"home = /usr/local/bin\n",
        "opt/venv/bin/python": "/usr/local/bin/python3.11",
    }
    there: Layer = {"usr/local/bin/python3.11": ELF, **package("numpy", "2.4.6", NUMPY)}
    assert errors(there, venv) == []
    assert errors({**there, **venv}) == []
    for changed in ({"opt/venv/bin/python": ELF + b"x"}, {"usr/local/bin/python3.11": ELF + b"x"}):
        (one,) = errors(there, venv, changed)
        assert (one.code, one.subject) == (Code.FILES_DIFFER, "python")


def test_a_list_of_preloaded_libraries_is_named_behind_a_link_too() -> None:
    """The loader follows the link; so does the finding."""
    there = package("numpy", "2.4.6", NUMPY)
    for what in (b"/opt/x.so\n", "/opt/preload"):
        (one,) = errors(there, {"etc/ld.so.preload": what, "opt/preload": b"/opt/x.so\n"})
        assert "ld.so.preload" in one.message


def test_an_archive_in_front_is_named() -> None:
    """Python imports from a zip file on its path; what is in it, no RECORD says."""
    there = {**package("numpy", "2.4.6", NUMPY), "opt/m.zip": b"PK"}
    (one,) = errors(there, env={"PYTHONPATH": "/opt/m.zip:/opt/nothing"})
    assert (one.code, one.subject, "/opt/m.zip" in one.message) == (Code.FILES_DIFFER, "PYTHONPATH", True)


def test_a_paths_name_cannot_start_a_line(tmp_path: Path) -> None:
    """A file's name with line breaks and workflow commands stays within its message."""
    (one,) = errors(package("numpy", "2.4.6", NUMPY), {f"{SITE}/a\n::error::x.pth": b"x"})
    assert "\n" not in one.message


LEAN = {"numpy/__init__.py": NUMPY["numpy/__init__.py"], "numpy/core.so": b"co"}
WHOLE = {**NUMPY, "numpy/include/a.h": b"header", "numpy/include/deep/b.h": b"header too"}


def sha(content: bytes) -> str:
    """Return a digest as RECORD writes it."""
    return row("x", content).split(",")[1]


def omitted(**change: Any) -> str:
    """Write the list of an image without numpy's headers and with its object cut, some fields changed."""
    pairs = [(path, sha(WHOLE[path])) for path in WHOLE if "/include/" in path]
    left = {"path": "numpy/include/", "files": 2, "size": 16, "digest": digest_of_rows(pairs), "reason": "compilers"}
    cut = {"path": "numpy/core.so", "size": 4, "digest": sha(b"code"), "left": 2, "becomes": sha(b"co")}
    one = {"name": "numpy", "version": "2.4.6", "left_out": [{**left, **change}], "cut": [{**cut, "reason": "symbols"}]}
    return json.dumps({"lock": "", "distributions": [one]})


def lean_against(listed: str, cache: Path, there: Layer, record: str = "") -> list[Finding]:
    """Compare an image with its locked wheel, which has headers, and with a list of what it leaves out."""
    rows = "".join(row(path, content) for path, content in WHOLE.items() if path not in NUMPY)
    subject = outside(image_of(there), lock=LOCK, omissions=listed)
    told = WheelRecords(Index((record or wheel()) + rows), Cache(cache))
    return [one for one in files(replace(subject, wheels=told)).findings if one.severity is Severity.ERROR]


def test_what_the_list_leaves_out_is_not_missing(tmp_path: Path) -> None:
    """Listed files that are gone, and listed rests of others, are as they should be; without the list they fail."""
    assert lean_against(omitted(), tmp_path, package("numpy", "2.4.6", LEAN)) == []
    assert len(lean_against("", tmp_path, package("numpy", "2.4.6", LEAN))) == 2
    whole = lean_against("", tmp_path, package("numpy", "2.4.6", WHOLE))
    assert whole == []


@pytest.mark.parametrize(
    ("there", "named"),
    [
        ({**LEAN, "numpy/core.so": b"cx"}, "core.so"),
        ({**LEAN, "numpy/core.so": b"code"}, "core.so"),
        ({**LEAN, "numpy/include/a.h": b"header"}, "a.h"),
        ({**LEAN, "numpy/include/a.h": b"another"}, "a.h"),
        ({"numpy/core.so": b"co"}, "__init__.py"),
    ],
)
def test_what_is_not_as_listed_differs(there: dict[str, bytes], named: str, tmp_path: Path) -> None:
    """A file that is cut otherwise or not at all, that is there though listed, or gone unlisted, is found."""
    found = lean_against(omitted(), tmp_path, package("numpy", "2.4.6", there))
    assert found
    assert {one.code for one in found} == {Code.FILES_DIFFER}
    assert any(named in one.message for one in found)


@pytest.mark.parametrize("change", [{"files": 3}, {"digest": "sha256=x"}, {"path": "numpy/"}, {"path": "nump"}])
def test_a_list_that_was_made_for_another_wheel_excuses_nothing(change: dict[str, Any], tmp_path: Path) -> None:
    """A row that is not, file for file, what the locked wheel brings is an error, and its files count as missing."""
    found = lean_against(omitted(**change), tmp_path, package("numpy", "2.4.6", LEAN))
    assert any("include" in one.message or "numpy/" in one.message for one in found)


def test_a_list_in_the_image_excuses_nothing(tmp_path: Path) -> None:
    """What an image says itself that it lacks is not believed: the host's list alone counts."""
    there = {**package("numpy", "2.4.6", LEAN), "opt/envbuilder/omissions.json": omitted().encode()}
    assert len(lean_against("", tmp_path, there)) == 2


def carrying(there: Layer, listed: str, label: str, cache: Path) -> ImageContext:
    """Put an image that carries a list and has a label before the checks, on a host that has no list."""
    named = {"opt/envbuilder/omissions.json": listed.encode(), **there}
    subject = outside(image_of(named), lock=LOCK, labels={omissions.LABEL: label})
    rows = "".join(row(path, content) for path, content in WHOLE.items() if path not in NUMPY)
    return replace(subject, wheels=WheelRecords(Index(wheel() + rows), Cache(cache)))


def own_list(**change: Any) -> str:
    """Write the list that an image of our lock carries."""
    return json.dumps({**json.loads(omitted(**change)), "lock": lockfile.digest(LOCK)})


def test_a_list_that_only_the_image_has_decides_nothing(tmp_path: Path) -> None:
    """Where all else is as recorded, nothing is an error and nothing passes: the check says on whose word, and why."""
    subject = carrying(package("numpy", "2.4.6", LEAN), own_list(), lockfile.digest(own_list()), tmp_path)
    (result,), _ = run_host_checks(subject, [check for check in CHECKS if check.name == "files"])
    (one,) = [one for one in result.findings if one.subject == omissions.OMISSIONS]
    assert (result.outcome, one.code, one.severity) == ("skipped", Code.UNKNOWN, Severity.WARNING)
    assert "its own list only" in result.observed
    assert not [one for one in result.findings if one.severity is Severity.ERROR]
    known = replace(subject, omissions=own_list())
    (result,), _ = run_host_checks(known, [check for check in CHECKS if check.name == "files"])
    assert (result.outcome, [one for one in result.findings if one.subject == omissions.OMISSIONS]) == ("passed", [])


@pytest.mark.parametrize(
    ("there", "listed", "label"),
    [
        ({**LEAN, "numpy/core.so": b"cx"}, own_list(), ""),
        ({"numpy/core.so": b"co"}, own_list(), ""),
        (LEAN, own_list(files=3), ""),
        (LEAN, own_list(), "sha256:" + "0" * 64),
        (LEAN, omitted(), ""),
        (LEAN, "{", ""),
    ],
)
def test_what_an_images_own_list_does_not_say_differs(
    there: dict[str, bytes], listed: str, label: str, tmp_path: Path
) -> None:
    """Other bytes, files gone beyond it, rows that are no wheel's, a label or lock of another list, and damage fail."""
    subject = carrying(package("numpy", "2.4.6", there), listed, label or lockfile.digest(listed), tmp_path)
    assert {one.code for one in files(subject).findings if one.severity is Severity.ERROR} == {Code.FILES_DIFFER}


@pytest.mark.parametrize("size", [-1, 1 << 60, 10**400])
def test_no_list_counts_what_no_image_can_lack(size: int) -> None:
    """Sums of what somebody else wrote are bounded before anything is added up or printed."""
    with pytest.raises(decoding.DamagedError):
        omissions.parse(omitted(size=size))


def test_libraries_in_the_layers_of_a_registry_s_base_are_its_own() -> None:
    """A library that no package brings is the base's where this host knows that layer for its; above it, a stray."""
    stray = {"usr/local/lib/libours.so.1": b"\x7fELF"}
    for of_base, named in ((1, False), (0, True)):
        subject = replace(outside(image_of(stray, {"opt/x": b""})), of_base=of_base)
        said = [one.message for one in files(subject).findings]
        assert any("libours" in text for text in said) is named
    above = replace(outside(image_of({"opt/x": b""}, stray)), of_base=1)
    assert any("libours" in one.message for one in files(above).findings)


def test_byte_code_in_the_layers_of_a_registry_s_base_is_its_own() -> None:
    """Who made a base ran its Python in a later step of theirs: nothing to find there, and a stray above it."""
    there, cached = package("numpy", "2.4.6", NUMPY), {CACHED: byte_code(flags=1, modified=0, size=0)}
    for of_base, named in ((2, False), (1, True), (0, True)):
        subject = replace(outside(image_of(there, cached, {"opt/x": b""})), of_base=of_base)
        assert any("byte code" in one.message for one in files(subject).findings) is named


PYTHON: Layer = {
    "usr/bin/python3.11": ELF,
    "opt/venv/bin/python": "/usr/bin/python3.11",
    "opt/venv/pyvenv.cfg": b"home = /usr/bin\ninclude-system-site-packages = false\n",
    "var/lib/dpkg/info/python3.11.list": b"/usr/bin/python3.11\n/usr/bin/dirname\n/bin/sh\n",
    "usr/bin/dirname": b"#!/bin/sh\n",
    "bin/sh": b"#!/bin/bash\n",
}


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({"opt/venv/pyvenv.cfg": None}, "pyvenv.cfg is missing"),
        ({"opt/venv/pyvenv.cfg": b"version = 3.11\n"}, "names no home"),
        ({"opt/venv/pyvenv.cfg": b"home = /opt/other/bin\n"}, "/opt/other/bin"),
        ({"opt/venv/bin/pyvenv.cfg": b"home = /usr/bin\n"}, "next to the interpreter"),
        ({"usr/bin/pyvenv.cfg": b"home = /opt\n"}, "next to the interpreter"),
        ({"usr/bin/pybuilddir.txt": b"/opt/build"}, "pybuilddir.txt"),
        ({"opt/venv/bin/dirname": b"#!/bin/sh\n"}, "before the system's in PATH: /opt/venv/bin/dirname"),
        ({"opt/venv/bin/dirname": "/opt/mine", "opt/mine": b"#!/bin/sh\n"}, "before the system's"),
        ({"bin/sh": b"#!/bin/dash\n"}, "a later layer replaced: /bin/sh"),
        ({"usr/bin/dirname": "/opt/mine"}, "a later layer replaced: /usr/bin/dirname"),
    ],
)
def test_what_starts_another_python_or_program_is_named(layer: Layer, named: str) -> None:
    """Python's note of its home, files next to it, and programs before the system's."""
    path = {"PATH": "/opt/venv/bin:/usr/bin:/bin"}
    good = {**PYTHON, **package("numpy", "2.4.6", NUMPY)}
    assert errors(good, env=path) == []
    (one,) = errors(good, layer, env=path)
    assert one.code is Code.FILES_DIFFER
    assert named in one.message


@pytest.mark.parametrize("folder", ["dist-packages", "site-packages"])
def test_a_system_s_python_linked_below_usr_local_needs_no_note(folder: str) -> None:
    """Packages below /usr/local are the system's Python's, and a link to that beside them is no environment."""
    numpy = {
        path.replace("opt/venv/", "usr/local/").replace("site-packages", folder): content
        for path, content in package("numpy", "2.4.6", NUMPY).items()
    }
    linked: Layer = {"usr/bin/python3.11": ELF, "usr/local/bin/python": "/usr/bin/python3.11"}
    assert any(path.startswith("usr/local/lib/") for path in numpy)
    assert not any("pyvenv.cfg" in one.message for one in errors({**linked, **numpy}))
    noted = errors({**linked, **numpy, "usr/local/pyvenv.cfg": b"home = /opt\n"})
    assert any("pyvenv.cfg sends Python" in one.message for one in noted)


def test_an_environment_of_a_registry_s_base_is_its_own() -> None:
    """What a base made of its Python is its affair; a note that is deleted or changed above it is not."""
    there: Layer = {**PYTHON, **package("numpy", "2.4.6", NUMPY)}
    bare = {path: content for path, content in there.items() if path != "opt/venv/pyvenv.cfg"}
    note = "opt/venv/pyvenv.cfg"
    for layers, of_base, named in (
        ((bare, {"opt/x": b""}), 1, False),
        ((bare, {"opt/x": b""}), 0, True),
        ((there, {note: None}), 1, True),
        ((there, {note: b"home = /opt/other/bin\n"}), 1, True),
    ):
        found = files(replace(outside(image_of(*layers)), of_base=of_base)).findings
        assert any("pyvenv.cfg" in one.message for one in found) is named


def test_an_environment_may_have_its_own_pip_and_the_system_its_links() -> None:
    """Programs that every Python has beside itself, and links that end at programs of the system, belong to it."""
    path = {"PATH": "/opt/venv/bin:/usr/bin:/bin"}
    lists: Layer = {"var/lib/dpkg/info/pip.list": b"/usr/bin/pip3\n/usr/bin/dirname\n", "usr/bin/pip3": b"#!x"}
    more: Layer = {"opt/venv/bin/pip3": b"#!/opt/venv/bin/python\n", "opt/venv/bin/dirname": "/usr/bin/dirname"}
    assert errors({**PYTHON, **lists, **more, **package("numpy", "2.4.6", NUMPY)}, env=path) == []


def test_programs_in_the_layers_of_a_registry_s_base_are_its_own() -> None:
    """A base that changed a program of its system is the base's affair; what is above it is not."""
    path = {"PATH": "/opt/venv/bin:/usr/bin:/bin"}
    good = {**PYTHON, **package("numpy", "2.4.6", NUMPY)}
    stacked = image_of({**PYTHON}, {"bin/sh": b"#!/bin/dash\n"}, good, {"opt/venv/lib/x": b""})
    above = image_of({**PYTHON}, good, {"bin/sh": b"#!/bin/dash\n"})
    for there, count in ((stacked, 0), (above, 1)):
        found = files(replace(outside(there, env=path), of_base=2)).findings
        assert len([one for one in found if one.severity is Severity.ERROR]) == count


def test_lists_that_a_layer_deleted_still_say_what_is_the_system_s() -> None:
    """Whoever deletes all lists to save room makes no file a stranger; one that is gone is a package that is gone."""
    stdlib = {"usr/lib/python3.11/json/__init__.py": b"x", "usr/lib/x86_64-linux-gnu/libz.so.1": b"z"}
    listed = b"/usr/lib/python3.11/json/__init__.py\n/usr/lib/x86_64-linux-gnu/libz.so.1\n"
    lists = {"var/lib/dpkg/info/python.list": listed}
    there = {**PYTHON, **stdlib, **lists, **package("numpy", "2.4.6", NUMPY)}
    assert errors(there, {"var/lib/dpkg": None}) == []
    (one,) = errors(there, {"var/lib/dpkg": None}, {"usr/lib/x86_64-linux-gnu/libz.so.1": b"y"})
    assert "libz.so.1" in one.message
    gone: Layer = dict.fromkeys((*lists, *stdlib))
    assert errors(there, gone) == [], "a package that was removed with its list took its files along"


@pytest.mark.parametrize("folder", ["glibc-hwcaps/x86-64-v3", "haswell", "tls", "haswell/avx512_1"])
def test_a_library_for_some_processors_is_in_front_too(folder: str) -> None:
    """The loader looks below each of its folders first, by what the processor has."""
    library = {f"opt/lib/{folder}/libz.so.1": b"z"}
    there = {**PYTHON, **package("numpy", "2.4.6", NUMPY), **library}
    (one,) = errors(there, env={"LD_LIBRARY_PATH": "/opt/lib"})
    assert "libz.so.1" in one.message
    assert errors(there) == [], "nobody told the loader of that folder"


def test_an_interpreter_without_its_libraries_is_named() -> None:
    """What the interpreter itself needs is a library that is missing, not a crash that nobody explains."""
    real = Path("/proc/self/exe").resolve().read_bytes()
    there = {**PYTHON, "usr/bin/python3.11": real, **package("numpy", "2.4.6", NUMPY)}
    found = errors(there)
    assert {one.code for one in found} == {Code.MISSING_LIBRARY}
    assert all("interpreter" in one.message for one in found)


@pytest.mark.parametrize("hashes", ["", f" \\\n    --hash=sha256:{'b' * 64}"], ids=["no hash", "another hash"])
def test_a_lock_of_the_image_s_own_is_no_witness(hashes: str, tmp_path: Path) -> None:
    """Whoever changes a file, its RECORD, the lock and the label together is found by what the index has.

    A host's own lock is believed, and what cannot be looked up is unknown.
    """
    there = package("numpy", "2.4.6", NUMPY)
    lock = f"numpy==2.4.6{hashes}\n"
    cached = WheelRecords(Index(wheel()), Cache(tmp_path))
    own = replace(outside(image_of(there), lock=lock), wheels=cached)
    carried = replace(own, lock_is_carried=True)
    (one,) = [one for one in files(carried).findings if one.severity is Severity.ERROR]
    assert (one.code, one.subject) == (Code.FILES_DIFFER, "numpy")
    assert "only the lock in the image describes the files of numpy 2.4.6" in one.message
    assert [one.code for one in files(own).findings] == [Code.UNKNOWN]
    silent = files(replace(carried, wheels=WheelRecords(None, Cache(tmp_path)))).findings
    assert [one.code for one in silent] == [Code.UNKNOWN if hashes else Code.FILES_DIFFER]


@pytest.mark.parametrize(
    ("name", "is_cuda"),
    [
        *(
            (f"lib{stem}.so.11", True)
            for stem in ("cudart", "cublasLt", "cusolverMg", "cupti", "cuinj64", "nvrtc", "nccl")
        ),
        *((f"lib{stem}.so.11", True) for stem in ("nvJitLink", "nvToolsExt", "nppial", "cufile", "cudnn_ops_infer")),
        *((f"lib{stem}.so.4", False) for stem in ("curl", "curl-gnutls", "cups", "cue", "culmus", "nv", "ncurses")),
    ],
)
def test_which_libraries_are_nvidia_s(name: str, *, is_cuda: bool) -> None:
    """A curl that nobody brought is a stray; a CUDA library is another check's, under a code of its own."""
    there = {f"usr/lib/x86_64-linux-gnu/{name}": b"\x7fELF"}
    said = [one.message for one in files(outside(image_of(there))).findings]
    assert any(name in text for text in said) is not is_cuda


def test_code_in_the_layers_of_a_registry_s_base_is_its_own() -> None:
    """A Red Hat base has modules without a record in its Python's own folder; the same above the base is a stray."""
    stray = {"usr/lib/python3.9/site-packages/dnf/__init__.py": b"", "etc/python3.9/sitecustomize.py": b""}
    for of_base, named in ((1, False), (0, True)):
        subject = replace(outside(image_of(stray, {"opt/x": b""})), of_base=of_base)
        assert any("dnf" in one.message for one in files(subject).findings) is named


def test_a_program_that_an_installer_made_is_as_it_was_made() -> None:
    """Its RECORD may be written anew with it; a package that comes again in a later layer may bring others."""
    made = b"#!/opt/venv/bin/python\nfrom tool import main\n"
    path, leaf = "opt/venv/bin/tool", "../../../bin/tool"
    files = {
        "tool.py": b"def main(): pass\n",
        "tool-1.0.dist-info/entry_points.txt": b"[console_scripts]\ntool = tool:main\n",
    }

    def installed(program: bytes) -> dict[str, bytes]:
        there = package("tool", "1.0", files)
        record = f"{SITE}/tool-1.0.dist-info/RECORD"
        return {**there, record: there[record] + row(leaf, program).encode(), path: program}

    good, other = installed(made), installed(made + b"import os\n")
    record = f"{SITE}/tool-1.0.dist-info/RECORD"
    assert errors(good, {path: made}) == []
    assert errors(good, other) == []
    silent = package("tool", "1.0", files)[record]
    for told in (other[record], silent):
        (one,) = errors(good, {path: other[path], record: told})
        assert (one.code, path in one.message) == (Code.FILES_DIFFER, True)


def test_a_digest_that_is_not_compared_is_told() -> None:
    """A row of another algorithm vouches for nothing here, and the answer says for how many files that holds."""
    there = package("numpy", "2.4.6", NUMPY)
    record = f"{SITE}/numpy-2.4.6.dist-info/RECORD"
    told = there[record].replace(b"sha256=", b"sha512=", 2)
    (one,) = files(outside(image_of({**there, record: told, f"{SITE}/numpy/__init__.py": b"other"}))).findings
    assert (one.code, one.severity) == (Code.UNKNOWN, Severity.WARNING)
    assert "2 files of numpy 2.4.6" in one.message
