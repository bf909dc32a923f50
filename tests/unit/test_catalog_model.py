"""The facts: every row is whole, sourced and consistent, is found by the words people use, and can be shown."""

import re
import subprocess
import sys
import typing
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from laws import examples
from packaging.requirements import Requirement
from table_rows import beside, rows

from envbuilder import versions
from envbuilder.catalog import gpu_code, gpu_names, library_search, store
from envbuilder.catalog.model import DISTRIBUTIONS, Catalog
from envbuilder.catalog.rows import Gpu, Ptx, Tables, TensorflowRelease
from envbuilder.cli import catalog_listing as listing
from envbuilder.cli.catalog_listing import as_text, list_catalog, names_of
from envbuilder.refresh.rows_file import as_yaml
from envbuilder.support import tables

CATALOG = store.load()
TABLES = tuple(Catalog.__struct_fields__)
GPU_BUILDS = [row for row in CATALOG.tensorflow if row.gpu]


@pytest.mark.parametrize("table", TABLES)
def test_every_row_has_its_source(table: str) -> None:
    rows = getattr(CATALOG, table)
    assert rows
    for row in rows:
        assert row.source, row
        assert all(row.source), row
        assert re.match(r"^20\d\d-\d\d-\d\d |^not verified", row.verified), row


@pytest.mark.parametrize("table", TABLES)
def test_rows_survive_being_written(table: str) -> None:
    rows = getattr(CATALOG, table)
    text = f"{table}:\n{as_yaml(rows)}"
    assert getattr(store.parse(((table, text.encode()),)), table) == rows


def test_keys_are_unique() -> None:
    for names in (
        [(row.package, versions.key(row.version)) for row in CATALOG.tensorflow],
        [row.version for row in CATALOG.cuda],
        [row.version for row in CATALOG.cudnn],
        [row.package for row in CATALOG.cudnn_wheels],
        [row.branch for row in CATALOG.drivers],
        [row.name for row in CATALOG.gpus],
        [row.name for row in CATALOG.systems],
        [row.name for row in CATALOG.images],
    ):
        assert len(names) == len(set(names))


def test_key_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"gpus\.yaml:2"):
        store.parse((("gpus.yaml", b"gpus:\n- name: A\n  name: B\n"),))


def test_cache_is_a_convenience(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fresh = store.load.__wrapped__
    assert fresh() == CATALOG
    (kept,) = (tmp_path / "envbuilder").iterdir()
    assert fresh() == CATALOG
    kept.write_bytes(b"\xc1 damaged")
    assert fresh() == CATALOG
    assert kept.read_bytes()[:1] != b"\xc1"
    monkeypatch.setenv("XDG_CACHE_HOME", str(kept))
    assert fresh() == CATALOG


@pytest.mark.parametrize("row", GPU_BUILDS, ids=lambda row: f"{row.package}-{row.version}")
def test_gpu_builds_are_complete(row: TensorflowRelease) -> None:
    assert row.cuda
    assert row.cudnn
    assert row.cubins
    assert row.ptx
    assert row.libraries
    toolkit = CATALOG.toolkit(row.cuda)
    assert CATALOG.cudnn_row(row.cudnn) is not None
    assert row.finds_cuda == library_search.finds_cuda(row.libraries, row.searches)
    assert bool(row.searches) == (row.finds_cuda != "system")
    assert set(row.ptx) <= set(row.cubins)
    assert row.kernels
    assert row.cubins == gpu_code.cubins(row.kernels)
    assert row.ptx == gpu_code.ptx(row.kernels)
    assert all(one.target and one.isa for kind in row.kernels for one in kind.ptx)
    source = "fat binaries in all shared objects of tensorflow"
    wanted = f"{row.package} {row.version}: one source has to say '<number> {source}-<rest of the wheel's name>.whl'"
    assert any(source in text for text in row.source), f"{wanted}, none of {row.source}"
    has_generated = versions.at_least(row.version, "2.4")
    assert [kind.origin for kind in row.kernels] == ["hand-written", "generated"][: 1 + has_generated]
    assert set(row.cubins) <= set(toolkit.capabilities)
    assert set(row.libraries) - set(toolkit.sonames) == {f"libcudnn.so.{versions.major(row.cudnn)}"}
    for text in (*row.requires, *row.caps, *row.and_cuda):
        Requirement(text)


@pytest.mark.parametrize("row", [row for row in GPU_BUILDS if row.cuda_wheels], ids=lambda row: row.version)
def test_cuda_wheels_are_what_it_was_built_with(row: TensorflowRelease) -> None:
    """Every CUDA wheel is pinned exactly, within the extra's own bounds, at the row's CUDA and cuDNN lines.

    Each library that the release opens is in one of them.
    """
    assert all(re.fullmatch(r"nvidia-[a-z0-9-]+==[0-9.]+", pin) for pin in row.cuda_wheels)
    pins = dict(pin.split("==") for pin in row.cuda_wheels)
    for bound in map(Requirement, row.and_cuda):
        if bound.name in pins:
            assert bound.specifier.contains(pins[bound.name]), (bound, pins[bound.name])
    major = versions.major(row.cuda or "0")
    assert versions.minor(pins[f"nvidia-cuda-runtime-cu{major}"]) == row.cuda
    assert versions.is_prefix(row.cudnn or "", pins[f"nvidia-cudnn-cu{major}"])
    brought = {re.sub(r"^nvidia-|-cu\d+$", "", name).replace("-", "_") for name in pins}
    assert {library_search.folder_of(soname) for soname in row.libraries} <= brought


def test_vetted_releases_are_pinned() -> None:
    """Every GPU release since the extra exists (2.14) has its CUDA wheels; 2.12 is the first with any."""
    for row in GPU_BUILDS:
        if row.package == "tensorflow":
            assert bool(row.cuda_wheels) == versions.at_least(row.version, "2.12"), row.version


def test_toolkits_move_forward() -> None:
    """A newer toolkit's own driver is never older, and no toolkit's floor is above its own driver."""
    known = [(row, row.driver) for row in CATALOG.cuda if row.driver is not None]
    assert [row.version for row in CATALOG.cuda if row.driver is None] == ["13.5"]  # no source names it
    for (_, older), (_, newer) in pairwise(known):
        assert versions.at_least(newer, older)
    for row, driver in known:
        assert versions.at_least(driver, row.minimum_driver), row.version
    for row in CATALOG.cuda:
        assert row.capabilities[0] == row.first_capability
        assert row.capabilities[-1] == row.last_capability


def test_drivers_move_forward() -> None:
    """A newer branch brings a CUDA that is not older; it never knows fewer new GPUs, only drops old ones.

    Jetson's branch knows the module's own GPU alone.
    """
    assert [row.branch for row in CATALOG.drivers if row.kind == "Jetson"] == ["540"]
    for older, newer in pairwise(row for row in CATALOG.drivers if row.kind != "Jetson"):
        assert int(newer.branch) > int(older.branch)
        assert versions.at_least(newer.cuda, older.cuda)
        assert versions.at_least(newer.first_capability, older.first_capability)
        assert versions.at_least(newer.last_capability, older.last_capability)


def test_every_toolkit_s_own_driver_has_a_branch() -> None:
    for row in CATALOG.cuda:
        if row.driver is None:
            continue
        assert versions.at_least(CATALOG.branch(row.driver).cuda, row.version)


@rows
def test_gpus_as_people_write_them(text: str, capability: str) -> None:
    assert getattr(CATALOG.gpu(text), "compute_capability", None) == capability


NO_GPUS = (
    "|GPU|NVIDIA|Radeon RX 7900|RTX 9999|Intel UHD 620|80GB|Tesla|12 monkeys|2x|name:|GPU 0:|RTX 3090 Banana|H100 II"
)


@pytest.mark.parametrize("text", NO_GPUS.split("|"))
def test_unknown_text_is_not_a_gpu(text: str) -> None:
    """An unknown word may belong to another model."""
    assert CATALOG.gpu(text) is None


@given(row=st.sampled_from(CATALOG.gpus), upper=st.booleans(), gap=st.sampled_from([" ", "  ", "-"]))
def test_every_name_of_a_gpu_leads_to_its_capability(row: Gpu, *, upper: bool, gap: str) -> None:
    for name in (row.name, *row.smi_names, *row.aliases):
        text = (name.upper() if upper else name.lower()).replace(" ", gap)
        found = CATALOG.gpu(text)
        assert found is not None, text
        assert found.compute_capability == row.compute_capability, (text, found.name)


def test_windows_numbers_stand_between_their_branch_and_the_next() -> None:
    """A number of Windows belongs to one branch, which is older than it; the next branch of Linux is newer."""
    desktop = [row for row in CATALOG.drivers if row.kind != "Jetson"]
    for row, following in pairwise(desktop):
        for number in row.windows:
            assert int(row.branch) < int(number) < int(following.branch)
            assert CATALOG.branch(f"{number}.12") is row
    assert CATALOG.branch("445.75") is None  # Windows alone had such a branch
    assert CATALOG.branch("537.58") is CATALOG.branch("R535")


@given(st.text(max_size=300))
@example("2.20:")
def test_lookups_take_any_text(text: str) -> None:
    for name in ("gpu", "cudnn_row", "toolkit", "branch", "system", "image", "plain_image", "release", "version"):
        getattr(CATALOG, name)(text)
    gpu_names.other_vendor(text)
    assert gpu_names.read(text).names or not text.strip()


def test_lines_are_found_by_longer_versions() -> None:
    toolkit, found = CATALOG.toolkit("V11.2.152"), CATALOG.cudnn_row("8.1.1.33")
    assert (toolkit.version, found.version) == ("11.2", "8.1")
    assert CATALOG.toolkit("12.7") is None
    assert CATALOG.cudnn_row("99.1") is None
    branch = CATALOG.branch("R535")
    assert branch is not None
    assert branch is CATALOG.branch("535.104.05")


@rows
def test_cubins_run_upward_within_a_major(built: str, device: str, *, runs: bool) -> None:
    """Machine code runs on the same major from its own minor on; PTX on anything newer, with an a on its own alone."""
    assert gpu_code.has_machine_code((built,), device) is runs
    plain = f"sm_{built.replace('.', '')}"
    assert gpu_code.compiles_for(Ptx(plain, "8.5"), device) is (built <= device or device == "12.0")
    assert gpu_code.compiles_for(Ptx(f"{plain}a", "8.5"), device) is (built == device)
    assert gpu_code.compiles_for(Ptx(f"{plain}f", "8.5"), device) is runs
    assert not gpu_code.compiles_for(Ptx(None, "8.5"), device)


def test_release_is_found_in_its_own_catalogue() -> None:
    assert all(CATALOG.release(row.version, row.package) is row for row in CATALOG.tensorflow)
    assert Catalog().release("2.20.0") is None


def test_start_up_is_fast() -> None:
    program = (
        "import msgspec, time; t = time.process_time()\n"
        "from envbuilder.catalog import store\n"
        "assert store.load().release('2.20.0')\n"
        "print(time.process_time() - t)"
    )
    spent = [
        float(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
        for _ in range(3)
    ]
    assert min(spent) < 0.6, spent


@pytest.mark.parametrize("kind", typing.get_type_hints(Tables).values(), ids=str)
def test_kind_of_fact_without_chosen_columns_is_shown_whole(kind: object) -> None:
    row_type = typing.get_args(kind)[0]
    titles = [title for title, _ in listing.own_columns(row_type)]
    own = set(row_type.__struct_fields__) - {"source", "verified", "note"}
    assert {title.replace(" ", "_") for title in titles} == own
    for row in [row for table in TABLES for row in getattr(CATALOG, table) if type(row) is row_type]:
        assert all(isinstance(read(row), str) and read(row) for _, read in listing.own_columns(row_type))


def test_every_file_of_the_folder_is_read_and_no_table_is_passed_over() -> None:
    assert {path.name for path in store.files()} == {path.name for path in Path(store.__file__).parent.glob("*.yaml")}
    assert [path.name for path in store.files()[:3]] == [f"{name}.yaml" for name in DISTRIBUTIONS]
    with pytest.raises(ValueError, match="unknown field `pythons`"):
        store.parse((("pythons.yaml", b"pythons:\n- version: '3.11'\n"),))


@rows
def test_official_image_is_its_system(name: str, system: str, python: str, glibc: str) -> None:
    found = CATALOG.plain_image(name)
    assert (found.system.name, found.system.python, found.system.glibc) == (system, python, glibc)


@pytest.mark.parametrize("name", ["alpine", "alpine:3.20", "python:3.11-alpine", "python:3.11-alpine3.19"])
def test_alpine_differs_from_an_unknown_image(name: str) -> None:
    """No wheel loads on it, whatever its version."""
    found = CATALOG.plain_image(name)
    assert found.system is None
    assert found.other == CATALOG.other_system("alpine")


UNKNOWN = "python python:latest python:3 python:slim python:3.12-slim-buster python:2.7-slim debian debian:stable"
UNKNOWN += " debian:12-backports ubuntu:30.04 busybox:1 mycompany/python:3.11 nginx:alpine"


@pytest.mark.parametrize("name", UNKNOWN.split())
def test_image_is_unknown_if_its_tag_does_not_name_it(name: str) -> None:
    assert CATALOG.plain_image(name) is None
    assert CATALOG.image(name) is None


KNOWN = CATALOG.image("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04")


@rows
def test_image_of_another_flavour_has_the_same_requirement(tag: str, flavor: str, cudnn: str | None) -> None:
    """It has cuDNN only if its tag says so; a registry and a digest change nothing."""
    found = CATALOG.image(f"docker.io/nvidia/cuda:{tag}@sha256:{'0' * 64}")
    assert found is not None
    assert found == CATALOG.image(f"nvidia/cuda:{tag}")
    assert (found.flavor, found.cudnn, found.require_cuda) == (flavor, cudnn, KNOWN.require_cuda)
    assert CATALOG.flavor(found).name == flavor
    assert CATALOG.image(f"nvidia/cuda:{tag.replace('12.6.3', '12.6.9')}") is None


def test_every_published_image_has_a_flavour() -> None:
    assert {row.flavor for row in CATALOG.images} <= {row.name for row in CATALOG.image_flavors}


@rows
def test_loader_folders_of_releases(version: str, expected: list[str]) -> None:
    """Folders that GPUs need, and with the wheels those opened on demand: CUPTI up to 2.19, NVRTC in 2.22.0rc0."""
    release = CATALOG.release(version)
    assert release is not None
    assert library_search.loader_folders(release, release.cuda_wheels) == tuple(expected)
    assert library_search.loader_folders(release) == tuple(set(expected) - {"cuda_cupti", "cuda_nvrtc"})


def test_loader_folders_leave_out_what_a_borrowed_set_lacks() -> None:
    """An environment's wheels may be another release's; a missing folder would fail its build."""
    release = CATALOG.release("2.18.1")
    assert release is not None
    borrowed = tuple(pin for pin in release.cuda_wheels if "cupti" not in pin)
    assert len(borrowed) == len(release.cuda_wheels) - 1
    assert library_search.loader_folders(release, borrowed) == ()


def test_openers_of_every_release_include_the_libraries_that_it_was_seen_to_open() -> None:
    """Functions are read from the bytes, libraries from a run. 1.13 opens few by itself: most are linked."""
    for row in (row for row in CATALOG.tensorflow if row.kernels):
        if row.version.startswith("1.13."):
            assert row.openers == ("Cublas", "Cudnn", "Cufft", "Curand")
            continue
        assert "Cupti" in row.openers, row
        assert set(row.openers) <= library_search.WHEEL_FOLDERS.keys(), row
        folders = {library_search.WHEEL_FOLDERS[name] for name in row.openers}
        assert {library_search.folder_of(soname) for soname in row.libraries} <= folders, row


MORE = beside(__file__)["names in other texts"]
TEXTS = gpu_names.texts()
LINES = [one.sample.replace("Tesla T4", "{}") for one in (*TEXTS.lines, *TEXTS.counts[:-1])]
LABELS = ("nvidia.com/gpu.product={}", "{}-SHARED", "{}-MIG-1g.10gb", "{}-MIG-1c.3g.40gb-SHARED", "gpu:{}:4")


@pytest.mark.parametrize("around", [*LINES, *MORE, *LABELS])
def test_name_is_found_in_the_text_around_it(around: str) -> None:
    for row in CATALOG.gpus:
        for name in row.smi_names if around in LABELS else (row.name, *row.smi_names):
            alone = CATALOG.gpu(name)
            written = re.sub("[()]", "", name).replace(" ", "-") if around in LABELS else name
            found = CATALOG.gpu(around.format(written))
            assert (found and found.compute_capability) == (alone and alone.compute_capability), around.format(written)


@pytest.mark.parametrize("one", [*TEXTS.lines, *TEXTS.labels, *TEXTS.counts], ids=lambda one: one.of)
def test_pattern_matches_its_sample(one: gpu_names.Around) -> None:
    found = re.search(one.pattern, one.sample, re.IGNORECASE)
    assert found is not None
    assert CATALOG.gpu(found[1]) == CATALOG.gpu(one.sample) == CATALOG.gpu("Tesla T4")


@rows
def test_another_vendor_is_named_only_where_the_text_says_so(text: str, vendor: str | None) -> None:
    assert gpu_names.other_vendor(text) == vendor


@given(row=st.sampled_from(CATALOG.gpus))
def test_no_gpu_of_the_catalogue_is_another_vendors(row: Gpu) -> None:
    for name in (row.name, *row.smi_names, *row.aliases):
        assert CATALOG.gpu(name) is not None or gpu_names.other_vendor(name) is None


@rows
def test_series_of_a_virtual_gpu_says_whether_it_has_cuda(text: str, series: str) -> None:
    assert gpu_names.read(text).series == series


@pytest.mark.parametrize("width", [None, 80])
@pytest.mark.parametrize("table", TABLES)
def test_every_table_can_be_shown_with_its_sources(
    table: str, width: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_terminal_width", lambda: width)
    document = list_catalog(CATALOG, table)
    plain, whole = as_text(document, table), as_text(document, table, sources=True)
    rows = getattr(CATALOG, table)
    own, every = ([one for one in text.splitlines() if not one.startswith("    ")] for text in (plain, whole))
    assert own == every
    assert whole.count("\n    source: ") == sum(len(row.source) for row in rows)
    assert whole.count("\n    verified: ") == len(rows)


@examples(25)
@given(data=st.data())
def test_row_is_found_by_each_of_its_names(data: st.DataObject) -> None:
    row = data.draw(st.sampled_from(CATALOG.gpus))
    name = data.draw(st.sampled_from(list(names_of(row))))
    assert row in list_catalog(CATALOG, "gpus", (name.upper().replace("[", "[[]"),)).catalog.gpus
