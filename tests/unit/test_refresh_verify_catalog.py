"""Verifying and proposing rows, against an index of small wheels made for it."""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from device_code import elf, fat_binary
from index_server import wheel

from envbuilder.catalog import store
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Contradiction, CudaToolkit, Kernels, Ptx, Search, TensorflowRelease, WheelSet
from envbuilder.errors import NoClaimError, UsageError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import Client
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.package_index import DistFile
from envbuilder.refresh import agreement
from envbuilder.refresh.agreement import Comparison
from envbuilder.refresh.evidence import read
from envbuilder.refresh.holdings import Holdings
from envbuilder.refresh.propose import Proposer, missing, refresh
from envbuilder.refresh.rows_file import as_yaml
from envbuilder.refresh.verify_catalog import run, verify, verify_binary
from envbuilder.support.console import Console

FOLDERS = ("cuda_runtime", "cudnn")
SOURCE: dict[str, Any] = {"source": ("a test",), "verified": "2026-11-20 by a test"}
EXTRA = 'Requires-Dist: nvidia-cudnn-cu12<10,>=9.3; extra == "and-cuda"\n'
EXTRA += 'Requires-Dist: nvidia-cuda-runtime-cu12<13,>=12.5.82; extra == "and-cuda"\n'
INFO = (
    b"import collections\nbuild_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_80', 'compute_90']),"
    b" ('cuda_version', '12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True)])\n"
)
SILENT = b"build_info = {'is_cuda_build': True}\n"

ROW = TensorflowRelease(
    package="tensorflow",
    version="2.20.0",
    gpu=True,
    wheels=(WheelSet(arch="x86_64", pythons=("3.12", "3.13"), glibc="2.17", tag="manylinux2014_x86_64"),),
    requires_python=">=3.9",
    cuda="12.5",
    cudnn="9.3",
    cubins=("8.0", "9.0"),
    ptx=("9.0",),
    kernels=(
        Kernels(origin="hand-written", fat_binaries=1, cubins=("8.0", "9.0"), ptx=(Ptx("sm_90", "8.3"),)),
        Kernels(origin="generated", fat_binaries=1, cubins=("8.0",), ptx=(Ptx("sm_90a", "8.5"),)),
    ),
    finds_cuda="wheels",
    searches=(Search(object="libtensorflow_framework.so.2", folders=FOLDERS),),
    openers=("Cudnn", "Cupti"),
    requires=("numpy>=1.26.0",),
    and_cuda=("nvidia-cudnn-cu12<10,>=9.3", "nvidia-cuda-runtime-cu12<13,>=12.5.82"),
    cuda_wheels=("nvidia-cudnn-cu12==9.3.0.75", "nvidia-cuda-runtime-cu12==12.5.82"),
    libraries=("libcudart.so.12", "libcudnn.so.9"),
    **SOURCE,
)
CUDA = CudaToolkit(
    version="12.5",
    driver="555.42.02",
    minimum_driver="525.60.13",
    first_capability="5.0",
    last_capability="9.0",
    capabilities=("5.0", "9.0"),
    sonames=("libcudart.so.12",),
    **SOURCE,
)
CATALOG = Catalog(tensorflow=(ROW,), cuda=(CUDA,))


RUNPATH = b":".join(b"$ORIGIN/../nvidia/%s/lib" % name.encode() for name in FOLDERS) + b"\0"
_NAMES = b"\0_ZN3tsl8internal18GetCuptiDsoHandleEv\0_ZN3tsl8internal18GetCudnnDsoHandleEv\0GetRocblasDsoHandle\0"
CODE = elf(
    {
        ".dynstr": _NAMES,
        ".nv_fatbin": fat_binary(80, 90, Ptx("sm_90", "8.3")),
        ".rodata": fat_binary(80, Ptx("sm_90a", "8.5")),
    },
    before=RUNPATH,
)


def add(root: Path, project: str, filename: str, content: bytes) -> None:
    folder = root / project
    folder.mkdir(parents=True, exist_ok=True)
    (folder / filename).write_bytes(content)
    names = sorted(path.name for path in folder.iterdir() if path.name != "index.html")
    digests = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
    links = (f'<a href="{name}#sha256={digests[name]}" data-requires-python="&gt;=3.9">{name}</a>' for name in names)
    (folder / "index.html").write_text("\n".join(links))


def tensorflow(version: str, info: bytes) -> bytes:
    members = {
        "tensorflow/python/platform/build_info.py": info,
        "tensorflow/libtensorflow_framework.so.2": CODE,
    }
    return wheel("tensorflow", version, members, "Requires-Python: >=3.9\nRequires-Dist: numpy>=1.26.0\n" + EXTRA)


@pytest.fixture
def index(tmp_path: Path) -> Client:
    root = tmp_path / "simple"
    for python in ("312", "313"):
        tags = f"cp{python}-cp{python}-manylinux2014_x86_64"
        add(root, "tensorflow", f"tensorflow-2.20.0-{tags}.whl", tensorflow("2.20.0", INFO))
        add(root, "tensorflow", f"tensorflow-2.21.0rc0-{tags}.whl", tensorflow("2.21.0rc0", SILENT))
    for project, version in (("nvidia-cudnn-cu12", "9.3.0.75"), ("nvidia-cuda-runtime-cu12", "12.5.82")):
        name = project.replace("-", "_")
        add(root, project, f"{name}-{version}-py3-none-manylinux2014_x86_64.whl", wheel(name, version, {"a": b"b"}))
    return Client(IndexConfig(url=root.as_uri()), Cache(tmp_path / "cache"))


def outcomes(found: tuple[agreement.Comparison, ...]) -> dict[str, str]:
    return {one.field: one.outcome for one in found}


def test_a_true_row_agrees_in_every_field(index: Client) -> None:
    """Everything that the artefacts say is compared, and a row made from them has no disagreement."""
    found = outcomes(verify(CATALOG, index))
    assert found.pop("released") == "unchecked"  # these pages state no day
    assert set(found.values()) == {"agrees"}
    assert set(found) == {
        "wheels",
        "requires_python",
        "requires",
        "and_cuda",
        "gpu",
        "cuda",
        "cudnn",
        "cubins",
        "ptx",
        "cuda_wheels",
        "extra_fails_on",
    }


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("wheels", (WheelSet(arch="x86_64", pythons=("3.12",), glibc="2.17", tag="x"),)),
        ("requires_python", ">=3.8"),
        ("requires", ("numpy>=1.26.0", "six")),
        ("and_cuda", ("nvidia-cudnn-cu12<10,>=9.3",)),
        ("gpu", False),
        ("cuda", "12.3"),
        ("cudnn", "8.9"),
        ("cubins", ("9.0",)),
        ("ptx", ("8.0",)),
        ("cuda_wheels", ("nvidia-cudnn-cu12==9.4.0.0", "nvidia-cuda-runtime-cu12==12.5.82")),
        ("cuda_wheels", ("nvidia-cuda-runtime-cu12==12.5.82",)),
        ("extra_fails_on", ("3.13",)),
    ],
)
def test_every_wrong_field_is_found(index: Client, field: str, wrong: object) -> None:
    """A row that is wrong in one field disagrees in that field."""
    row = msgspec.structs.replace(ROW, **{field: wrong})
    found = outcomes(verify(Catalog(tensorflow=(row,)), index))
    assert found[field] == "disagrees"


def test_a_recorded_contradiction_is_no_disagreement(index: Client) -> None:
    """A contradiction holds for exactly what the artefact says now: when it says something else, it is found again."""
    known = Contradiction(field="cuda", says="12.5.1", but="means 12.3", source="a test")
    wrong = msgspec.structs.replace(ROW, cuda="12.3", contradictions=(known,))
    assert outcomes(verify(Catalog(tensorflow=(wrong,)), index))["cuda"] == "recorded"
    other = msgspec.structs.replace(known, says="12.4")
    stale = msgspec.structs.replace(wrong, contradictions=(other,))
    assert outcomes(verify(Catalog(tensorflow=(stale,)), index))["cuda"] == "disagrees"


def test_an_extra_that_cannot_be_resolved_is_found(index: Client) -> None:
    """A requirement of the extra that no wheel meets fails on every Python."""
    row = msgspec.structs.replace(ROW, and_cuda=(*ROW.and_cuda, "tensorrt-libs==8.6.1"))
    found = {one.field: one for one in verify(Catalog(tensorflow=(row,)), index)}
    assert found["extra_fails_on"].artefact == "3.12 3.13"


@pytest.mark.parametrize(
    ("pythons", "fails", "outcome"),
    [
        (("3.1", "3.12", "3.13"), ("3.12", "3.13"), "disagrees"),  # the same characters as what fails
        (("3.12", "3.13"), ("3.13", "3.12"), "agrees"),
        (("3.12", "3.13"), ("3.21", "3.13"), "disagrees"),
        (("3.12", "3.13"), ("3.123",), "disagrees"),
        (("3.12", "3.13"), (), "disagrees"),
    ],
)
def test_pythons_that_fail_are_compared_as_versions(
    index: Client, pythons: tuple[str, ...], fails: tuple[str, ...], outcome: str
) -> None:
    """A row agrees where it names the same Pythons in any order, and not where it uses the same characters."""
    wheels = (msgspec.structs.replace(ROW.wheels[0], pythons=pythons),)
    extra = (*ROW.and_cuda, "tensorrt-libs==8.6.1")
    row = msgspec.structs.replace(ROW, wheels=wheels, and_cuda=extra, extra_fails_on=fails)
    assert outcomes(verify(Catalog(tensorflow=(row,)), index))["extra_fails_on"] == outcome


def test_wheels_are_compared_as_sets_of_pythons() -> None:
    """The order of a row's Pythons is no disagreement; another Python, glibc or machine is one."""
    (mine,) = ROW.wheels
    turned = msgspec.structs.replace(mine, pythons=mine.pythons[::-1])
    assert agreement.with_wheels(ROW, (turned,)).outcome == "agrees"
    for wrong in ({"pythons": ("3.1", "3.23")}, {"pythons": ("3.12 3.13",)}, {"glibc": "2.27"}, {"arch": "aarch64"}):
        assert agreement.with_wheels(ROW, (msgspec.structs.replace(mine, **wrong),)).outcome == "disagrees", wrong
    assert agreement.with_wheels(ROW, ()).outcome == "disagrees"


def test_a_row_without_wheels_is_unchecked(index: Client) -> None:
    """A release that the index does not hold is said to be unchecked, and its wheels to be gone."""
    row = msgspec.structs.replace(ROW, version="2.19.0")
    found = outcomes(verify(Catalog(tensorflow=(row,)), index))
    assert (found["wheels"], found["requires"]) == ("disagrees", "unchecked")


def binary(row: TensorflowRelease, index: Client) -> tuple[Comparison, ...]:
    """Compare one row with its wheel's libraries."""
    return verify_binary(row, Holdings(index), partial(read, index))[0]


def test_the_library_itself_is_compared(index: Client) -> None:
    """Kernels, machine code, PTX and RUNPATH are read from the library; a row that claims more disagrees."""
    assert set(outcomes(binary(ROW, index)).items()) == {
        ("kernels", "agrees"),
        ("cubins", "agrees"),
        ("ptx", "agrees"),
        ("searches", "agrees"),
        ("finds_cuda", "agrees"),
        ("openers", "agrees"),
    }
    boastful = msgspec.structs.replace(ROW, cubins=("8.0", "9.0", "12.0"))
    assert outcomes(binary(boastful, index))["cubins"] == "disagrees"
    hand, generated = ROW.kernels
    for wrong in (
        msgspec.structs.replace(generated, ptx=(Ptx("sm_90", "8.5"),)),
        msgspec.structs.replace(generated, ptx=(Ptx("sm_90a", "8.3"),)),
        msgspec.structs.replace(generated, cubins=("8.0", "9.0")),
        msgspec.structs.replace(generated, fat_binaries=2),
    ):
        found = {one.field: one for one in binary(msgspec.structs.replace(ROW, kernels=(hand, wrong)), index)}
        assert found["kernels"].outcome == "disagrees"
        assert found["kernels"].artefact.endswith("1 generated: 8.0, sm_90a 8.5")
        assert found["kernels"].note == "2 fat binaries in 1 shared objects"
    with pytest.raises(NoClaimError):
        binary(msgspec.structs.replace(ROW, version="2.19.0"), index)


def test_a_library_that_is_opened_and_not_looked_for_is_found(index: Client) -> None:
    """A row that opens one library more than the RUNPATH finds disagrees, as does one that claims another RUNPATH."""
    more = msgspec.structs.replace(ROW, libraries=(*ROW.libraries, "libcusolver.so.11"))
    found = {one.field: one for one in binary(more, index)}
    assert (found["searches"].outcome, found["finds_cuda"].outcome) == ("agrees", "disagrees")
    assert (found["finds_cuda"].catalog, found["finds_cuda"].artefact) == ("wheels", "partly")
    claims = (Search(object="libtensorflow_framework.so.2", folders=(*FOLDERS, "cusolver")),)
    wrong = msgspec.structs.replace(ROW, searches=claims)
    assert outcomes(binary(wrong, index))["searches"] == "disagrees"


def test_what_the_opener_opens_is_compared(index: Client) -> None:
    """A row that leaves a function out, or claims one more, disagrees."""
    for wrong in ((), ("Cudnn",), ("Cudnn", "Cupti", "Nvrtc")):
        found = {one.field: one for one in binary(msgspec.structs.replace(ROW, openers=wrong), index)}
        assert found["openers"].outcome == "disagrees"
        assert found["openers"].artefact == "Cudnn Cupti"


def test_every_release_is_read_once_and_a_missing_wheel_stops_no_other(index: Client, tmp_path: Path) -> None:
    """Without versions all GPU builds are read; a second run reads nothing anew and gives the same comparisons."""
    gone = msgspec.structs.replace(ROW, version="2.19.0")
    catalog = Catalog(tensorflow=(gone, ROW))
    first = run(catalog, index, (), Console(), binary=True, kept=Cache(tmp_path))
    assert [(one.row, one.outcome) for one in first.comparisons[:2]] == [
        ("tensorflow 2.19.0", "unchecked"),
        ("tensorflow 2.20.0", "agrees"),
    ]
    (reading,) = first.readings
    packed = sum(one.packed for one in index.members(wheel_of(index)) if one.name.endswith(".so.2"))
    assert (reading.bytes_read, reading.kept) == (packed, False)
    second = run(catalog, index, (), Console(), binary=True, kept=Cache(tmp_path))
    assert second.comparisons == first.comparisons
    assert second.readings == (msgspec.structs.replace(reading, kept=True),)
    assert "1 wheels, 0.0 GB of shared objects, 0 s (1 of them read before)" in agreement.as_text(second)


def test_each_distribution_of_a_release_is_read(index: Client, tmp_path: Path) -> None:
    """tensorflow-gpu's own wheel is asked for, whatever tensorflow's of the same version says; a CPU build is not."""
    twin = msgspec.structs.replace(ROW, package="tensorflow-gpu")
    plain = msgspec.structs.replace(ROW, package="tensorflow-cpu", gpu=False)
    found = run(Catalog(tensorflow=(ROW, twin, plain)), index, (), Console(), binary=True, kept=Cache(tmp_path))
    outcome = {one.row: one.outcome for one in found.comparisons}
    assert outcome == {"tensorflow 2.20.0": "agrees", "tensorflow-gpu 2.20.0": "unchecked"}


def test_what_is_kept_of_a_wheel_is_of_its_bytes_alone(index: Client, tmp_path: Path) -> None:
    """Another digest, no digest and a damaged file are read again."""
    kept, file = Cache(tmp_path / "kept"), wheel_of(index)
    assert [read(index, file, kept)[1] for _ in range(2)] == [False, True]
    for other in ("0" * 64, ""):
        assert not read(index, msgspec.structs.replace(file, sha256=other), kept)[1]
    for path in (one for one in (tmp_path / "kept").rglob("*") if one.is_file()):
        path.write_bytes(b"damaged")
    found, was_kept = read(index, file, kept)
    assert (was_kept, found.kernels, found.openers) == (False, ROW.kernels, ROW.openers)


def wheel_of(index: Client) -> DistFile:
    """Return the wheel that stands for the row."""
    return next(one for one in index.files("tensorflow") if "2.20.0-cp313" in one.filename)


def test_what_is_missing_is_proposed_whole(index: Client) -> None:
    """A release without a row is proposed with every field, from the library where build_info is silent."""
    assert missing(CATALOG, index) == ("2.21.0rc0",)
    (row,) = refresh(Proposer(CATALOG, index, "2026-11-20"), ()).proposals
    assert (row.version, row.reviewed, row.gpu) == ("2.21.0rc0", False, True)
    assert (row.cuda, row.cudnn, row.finds_cuda) == ("12.5", "9.3", "wheels")
    assert row.searches == ROW.searches
    assert row.openers == ROW.openers
    assert (row.cubins, row.ptx) == (("8.0", "9.0"), ("9.0",))
    assert row.kernels == ROW.kernels
    assert set(row.cuda_wheels) == {"nvidia-cuda-runtime-cu12==12.5.82", "nvidia-cudnn-cu12==9.3.0.75"}
    assert row.libraries == ROW.libraries
    assert "inferred" in row.note
    found = outcomes(verify(Catalog(tensorflow=(row,)), index))
    assert "disagrees" not in found.values()
    text = b"tensorflow:\n" + as_yaml([row]).encode()
    assert store.parse((("tensorflow.yaml", text),)).tensorflow == (row,)


def test_a_local_wheel_is_described(index: Client) -> None:
    """A wheel file without an index page gives the same row for its own Python."""
    file = next(one for one in index.files("tensorflow") if "2.21.0rc0-cp313" in one.filename)
    row = Proposer(CATALOG, index, "2026-11-20").describe(file)
    assert [one.pythons for one in row.wheels] == [("3.13",)]
    assert row.cubins == ("8.0", "9.0")


def test_only_tensorflow_is_proposed(index: Client) -> None:
    """Another package is a usage error, a version that is not there no claim."""
    with pytest.raises(UsageError):
        refresh(Proposer(CATALOG, index, "2026-11-20"), (), "numpy")
    with pytest.raises(NoClaimError):
        Proposer(CATALOG, index, "2026-11-20").propose("9.9.9")


def test_the_report_puts_disagreements_first() -> None:
    """A person sees what needs them first and the sum last; what agrees is shown on request alone."""
    one = agreement.Comparison(row="tensorflow 2.20.0", field="cuda", outcome="agrees", catalog="12.5", artefact="12.5")
    bad = msgspec.structs.replace(one, field="ptx", outcome="disagrees")
    document = agreement.VerifyDocument(comparisons=(one, bad))
    lines = agreement.as_text(document).splitlines()
    assert lines[0].startswith("DISAGREES")
    assert lines[-1].endswith("1 disagree")
    assert len(agreement.as_text(document, everything=True).splitlines()) == 3
