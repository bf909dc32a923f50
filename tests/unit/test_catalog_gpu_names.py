"""Texts around a GPU's name are removed, and nothing that may belong to the name."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_rows import rows

from envbuilder.catalog import gpu_names, store
from envbuilder.catalog.rows import Gpu

CATALOG = store.load()
MORE = (
    "{}, 535.104.05, 15360 MiB",
    "pciBusID: 0000:65:00.0 name: {} computeCapability: 9.9",
    "ASUS {}",
    "{} Founders Edition",
)
TEXTS = gpu_names.texts()
LINES = [one.sample.replace("Tesla T4", "{}") for one in (*TEXTS.lines, *TEXTS.counts[:-1])]
LABELS = ("nvidia.com/gpu.product={}", "{}-SHARED", "{}-MIG-1g.10gb", "{}-MIG-1c.3g.40gb-SHARED", "gpu:{}:4")


@given(row=st.sampled_from(CATALOG.gpus), around=st.sampled_from((*LINES, *MORE, *LABELS)))
def test_name_is_found_in_the_text_around_it(row: Gpu, around: str) -> None:
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
