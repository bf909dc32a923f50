"""Rows are compared with an index of small wheels, proposed from it, and put into files that people wrote."""

from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from device_code import elf, fat_binary
from file_index import add
from hypothesis import given
from hypothesis import strategies as st
from index_server import Site, serving, wheel
from table_rows import rows

from envbuilder.catalog import store
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import (
    Contradiction,
    CudaToolkit,
    CudnnWheel,
    Kernels,
    PackageRelease,
    Ptx,
    Search,
    TensorflowRelease,
    WheelSet,
)
from envbuilder.errors import NoClaimError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import PackageIndex
from envbuilder.pypi.index_config import IndexConfig
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import agreement
from envbuilder.refresh.agreement import Comparison
from envbuilder.refresh.evidence import read
from envbuilder.refresh.indexed_wheels import IndexedWheels
from envbuilder.refresh.propose import Proposer, missing, refresh
from envbuilder.refresh.rows_file import as_yaml, put
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
BUILD_INFO = "tensorflow/python/platform/build_info.py"
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


HEAD = "Requires-Python: >=3.9\nRequires-Dist: numpy>=1.26.0\n" + EXTRA


@pytest.fixture
def index(tmp_path: Path) -> PackageIndex:
    root = tmp_path / "simple"
    for version, info in (("2.20.0", INFO), ("2.21.0rc0", SILENT)):
        members = {BUILD_INFO: info, "tensorflow/libtensorflow_framework.so.2": CODE}
        for python in ("cp312-cp312", "cp313-cp313"):
            add(root, "tensorflow", version, members, HEAD, python)
    for project, version in (("nvidia-cudnn-cu12", "9.3.0.75"), ("nvidia-cuda-runtime-cu12", "12.5.82")):
        add(root, project, version, {"a": b"b"})
    return PackageIndex(IndexConfig(url=root.as_uri()), Cache(tmp_path / "cache"))


def changed(**fields: Any) -> TensorflowRelease:
    return msgspec.convert(msgspec.to_builtins({**msgspec.structs.asdict(ROW), **fields}), TensorflowRelease)


def compared(index: PackageIndex, **fields: Any) -> dict[str, Comparison]:
    return {one.field: one for one in verify(Catalog(tensorflow=(changed(**fields),)), index)}


def by_binary(index: PackageIndex, **fields: Any) -> dict[str, Comparison]:
    return {one.field: one for one in verify_binary(changed(**fields), IndexedWheels(index), partial(read, index))[0]}


def test_true_row_agrees_in_every_field(index: PackageIndex) -> None:
    found = {field: one.outcome for field, one in compared(index).items()}
    assert found.pop("released") == "unchecked"  # these pages state no day
    assert set(found.values()) == {"agrees"}
    read_from_pages = "wheels requires_python requires and_cuda gpu cuda cudnn cubins ptx cuda_wheels extra_fails_on"
    assert set(found) == set(read_from_pages.split())


NOT_THERE = {"and_cuda": (*ROW.and_cuda, "tensorrt-libs==8.6.1")}
"""A requirement that no wheel meets fails on every Python."""


@rows
def test_field_is_compared(index: PackageIndex, field: str, wrong: Any, outcome: str, *, there: bool) -> None:
    found = compared(index, **{field: wrong}, **({} if there else NOT_THERE))[field]
    assert found.outcome == outcome
    if not there:
        assert found.artefact == "3.12 3.13"


@pytest.mark.parametrize(("says", "outcome"), [("12.5.1", "recorded"), ("12.4", "disagrees")])
def test_contradiction_is_recorded_for_exactly_this_text(index: PackageIndex, says: str, outcome: str) -> None:
    known = Contradiction(field="cuda", says=says, but="means 12.3", source="a test")
    assert compared(index, cuda="12.3", contradictions=(known,))["cuda"].outcome == outcome


def test_wheels_are_compared_as_sets_of_pythons() -> None:
    """The order of a row's Pythons is no disagreement; another Python, glibc or machine is one."""
    (mine,) = ROW.wheels
    turned = msgspec.structs.replace(mine, pythons=mine.pythons[::-1])
    assert agreement.with_wheels(ROW, (turned,)).outcome == "agrees"
    for wrong in ({"pythons": ("3.1", "3.23")}, {"pythons": ("3.12 3.13",)}, {"glibc": "2.27"}, {"arch": "aarch64"}):
        assert agreement.with_wheels(ROW, (msgspec.structs.replace(mine, **wrong),)).outcome == "disagrees", wrong
    assert agreement.with_wheels(ROW, ()).outcome == "disagrees"


def test_row_without_wheels_is_unchecked(index: PackageIndex) -> None:
    found = compared(index, version="2.19.0")
    assert (found["wheels"].outcome, found["requires"].outcome) == ("disagrees", "unchecked")


@rows
def test_field_is_compared_with_the_library(index: PackageIndex, field: str, wrong: Any, artefact: str) -> None:
    found = by_binary(index, **{field: wrong})
    assert {name for name, one in found.items() if one.outcome == "disagrees"} == {field}
    assert found[field].artefact.endswith(artefact)
    assert found["kernels"].note == "2 fat binaries in 1 shared objects"


def test_true_row_agrees_with_the_library(index: PackageIndex) -> None:
    found = by_binary(index)
    assert set(found) == {"kernels", "cubins", "ptx", "searches", "finds_cuda", "openers"}
    assert {one.outcome for one in found.values()} == {"agrees"}
    with pytest.raises(NoClaimError):
        by_binary(index, version="2.19.0")


def test_opened_library_without_a_searched_folder_disagrees(index: PackageIndex) -> None:
    found = by_binary(index, libraries=(*ROW.libraries, "libcusolver.so.11"))
    assert (found["searches"].outcome, found["finds_cuda"].outcome) == ("agrees", "disagrees")
    assert (found["finds_cuda"].catalog, found["finds_cuda"].artefact) == ("wheels", "partly")


def test_every_release_is_read_once_and_a_missing_wheel_stops_no_other(index: PackageIndex, tmp_path: Path) -> None:
    gone = msgspec.structs.replace(ROW, version="2.19.0")
    catalog = Catalog(tensorflow=(gone, ROW))
    first = run(catalog, index, (), Console(), binary=True, kept=Cache(tmp_path))
    assert [(one.row, one.outcome) for one in first.comparisons[:2]] == [
        ("tensorflow 2.19.0", "unchecked"),
        ("tensorflow 2.20.0", "agrees"),
    ]
    (reading,) = first.readings
    packed = sum(one.compress_size for one in index.members(wheel_of(index)) if one.filename.endswith(".so.2"))
    assert (reading.bytes_read, reading.kept) == (packed, False)
    second = run(catalog, index, (), Console(), binary=True, kept=Cache(tmp_path))
    assert second.comparisons == first.comparisons
    assert second.readings == (msgspec.structs.replace(reading, kept=True),)
    assert "1 wheels, 0.0 GB of shared objects, 0 s (1 of them read before)" in agreement.as_text(second)


def test_each_distribution_of_a_release_is_read(index: PackageIndex, tmp_path: Path) -> None:
    twin = msgspec.structs.replace(ROW, package="tensorflow-gpu")
    plain = msgspec.structs.replace(ROW, package="tensorflow-cpu", gpu=False)
    found = run(Catalog(tensorflow=(ROW, twin, plain)), index, (), Console(), binary=True, kept=Cache(tmp_path))
    outcome = {one.row: one.outcome for one in found.comparisons}
    assert outcome == {"tensorflow 2.20.0": "agrees", "tensorflow-gpu 2.20.0": "unchecked"}


def test_stored_evidence_of_a_wheel_is_of_its_bytes_only(index: PackageIndex, tmp_path: Path) -> None:
    kept, file = Cache(tmp_path / "kept"), wheel_of(index)
    assert [read(index, file, kept)[1] for _ in range(2)] == [False, True]
    for other in ("0" * 64, ""):
        assert not read(index, msgspec.structs.replace(file, sha256=other), kept)[1]
    for path in (one for one in (tmp_path / "kept").rglob("*") if one.is_file()):
        path.write_bytes(b"damaged")
    found, was_kept = read(index, file, kept)
    assert (was_kept, found.kernels, found.openers) == (False, ROW.kernels, ROW.openers)


def wheel_of(index: PackageIndex) -> DistFile:
    return next(one for one in index.files("tensorflow") if "2.20.0-cp313" in one.filename)


def test_missing_release_is_proposed_complete(index: PackageIndex) -> None:
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
    assert row.source[-1].endswith(f" fat binaries in all shared objects of {row.source[0].partition(':')[0]}")
    assert "inferred" in row.note
    assert "disagrees" not in {one.outcome for one in verify(Catalog(tensorflow=(row,)), index)}
    text = b"tensorflow:\n" + as_yaml([row]).encode()
    assert store.parse((("tensorflow.yaml", text),)).tensorflow == (row,)


def test_local_wheel_is_described(index: PackageIndex) -> None:
    file = next(one for one in index.files("tensorflow") if "2.21.0rc0-cp313" in one.filename)
    row = Proposer(CATALOG, index, "2026-11-20").describe(file)
    assert [one.pythons for one in row.wheels] == [("3.13",)]
    assert row.cubins == ("8.0", "9.0")


def test_proposed_cpu_build_agrees_with_its_wheel(tmp_path: Path) -> None:
    members = {BUILD_INFO: b"build_info = {'is_cuda_build': False}\n"}
    add(tmp_path, "tensorflow-cpu", "2.22.0", members, EXTRA, "cp313-cp313")
    index = PackageIndex(IndexConfig(url=tmp_path.as_uri()), Cache(tmp_path / "cache"))
    row = Proposer(CATALOG, index, "2026-11-20").propose("2.22.0", "tensorflow-cpu")
    found = {one.field: one.outcome for one in verify(Catalog(tensorflow=(row,)), index)}
    assert found["and_cuda"] == "recorded"
    assert "disagrees" not in found.values()


def test_report_puts_disagreements_first() -> None:
    one = agreement.Comparison(row="tensorflow 2.20.0", field="cuda", outcome="agrees", catalog="12.5", artefact="12.5")
    bad = msgspec.structs.replace(one, field="ptx", outcome="disagrees")
    document = agreement.VerifyDocument(comparisons=(one, bad))
    lines = agreement.as_text(document).splitlines()
    assert lines[0].startswith("DISAGREES")
    assert lines[-1].endswith("1 disagree")
    assert len(agreement.as_text(document, everything=True).splitlines()) == 3


DAY = "2025-08-13"
"""The day that the index of the tests states for every file."""

DAYS = Catalog(
    tensorflow=(TensorflowRelease(package="tensorflow", version="2.20.0", gpu=False, released=DAY, **SOURCE),),
    cudnn_wheels=(CudnnWheel(package="nvidia-cudnn-cu12", versions=("9.3.0.75",), uploaded=(DAY,), **SOURCE),),
    package_releases=(PackageRelease(bound="numpy<2", version="2.0.0", released=DAY, python="3.9", **SOURCE),),
)


@rows
def test_upload_days_are_compared_if_the_index_states_them(
    table: str, field: str, wrong: object, outcomes: list[str], tmp_path: Path, *, json: bool
) -> None:
    site = Site(json=json)
    for name, version in (("tensorflow", "2.20.0"), ("nvidia_cudnn_cu12", "9.3.0.75"), ("numpy", "2.0.0")):
        file = f"{name}-{version}-cp313-cp313-manylinux2014_x86_64.whl"
        site.add(name.replace("_", "-"), file, wheel(name, version, {"a": b"b"}))
    (row,) = getattr(DAYS, table)
    catalog = msgspec.structs.replace(DAYS, **{table: (msgspec.structs.replace(row, **{field: wrong}),)})
    with serving(site) as here:
        found = verify(catalog, PackageIndex(IndexConfig(url=here.url), Cache(tmp_path)))
    days = {one.row: one.outcome for one in found if one.field in {"released", "uploaded"}}
    assert [days[name] for name in ("tensorflow 2.20.0", "nvidia-cudnn-cu12", "numpy 2.0.0")] == outcomes


SHIPPED = store.load()
TABLES = {"cuda": "cuda.yaml", "cudnn": "cudnn.yaml", "cudnn_wheels": "cudnn.yaml", "tensorflow": "tensorflow.yaml"}


@pytest.mark.parametrize("table", TABLES)
def test_row_takes_the_place_of_the_one_that_it_renews(table: str) -> None:
    text = store.path_of(TABLES[table]).read_text(encoding="utf-8")
    before = store.parse(((TABLES[table], text.encode()),))
    rows = getattr(before, table)
    renewed = msgspec.structs.replace(rows[1], verified="2030-01-01 by a test", note="renewed")
    changed = put(text, table, renewed)
    after = store.parse(((TABLES[table], changed.encode()),))
    assert getattr(after, table) == (rows[0], renewed, *rows[2:])
    for name in before.__struct_fields__:
        assert name == table or getattr(after, name) == getattr(before, name)
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        line for line in changed.splitlines() if line.startswith("#")
    ]


@pytest.mark.parametrize("table", TABLES)
def test_new_row_has_the_place_of_its_version_and_the_style_of_its_table(table: str) -> None:
    text = store.path_of(TABLES[table]).read_text(encoding="utf-8")
    rows = getattr(store.parse(((TABLES[table], text.encode()),)), table)
    name = "package" if table == "cudnn_wheels" else "version"
    new = msgspec.structs.replace(rows[-1], **{name: "99.9"})
    after = store.parse(((TABLES[table], put(text, table, new).encode()),))
    assert getattr(after, table) == (*rows, new)
    assert put(text, table, rows[1]) == put(text, table, rows[-1]) == text
    if name == "version":
        assert put(text.replace(as_yaml(rows[-2:-1]), ""), table, rows[-2]) == text
    if table == "cudnn_wheels":
        assert "\n# The first releases that wheels without an upper bound cannot load.\npackage_releases:" in put(
            text, table, new
        )


def test_file_that_is_not_there_is_begun() -> None:
    row = SHIPPED.tensorflow[0]
    assert store.parse((("new.yaml", put("", "tensorflow", row).encode()),)).tensorflow == (row,)


@given(st.text() | st.sampled_from(["no", "a: b", "a:", "a ", "it's", "1.0", "[a", "a #b", "-", "null", "a,b"]))
def test_every_text_is_read_as_it_was(text: str) -> None:
    row = msgspec.structs.replace(SHIPPED.tensorflow[0], note=text, requires=(text, text))
    assert yaml.safe_load(as_yaml([row]))[0].get("note", "") == text
    assert yaml.safe_load(as_yaml([row]))[0]["requires"] == [text, text]
