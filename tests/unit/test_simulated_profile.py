"""Profiles of simulated hosts: the grammar, and what follows from driver, GPU and failure."""

import pytest
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.errors import NoClaimError, UsageError
from envbuilder.simulated import profile as profiles
from envbuilder.simulated.profile import Profile


def parse(text: str) -> Profile:
    return profiles.parse(text, load())


def test_driver_brings_its_branchs_cuda_and_the_gpu_its_capability() -> None:
    host = parse("driver=470.57.02,gpu=A100,gpus=8")
    assert (host.driver, host.libcuda, host.cuda) == ("470.57.02", "470.57.02", "11.4")
    assert len(host.gpus) == len(host.visible) == 8
    assert host.gpus[0].compute_capability == "8.0"
    assert host.gpus[0].name.startswith("NVIDIA A100")
    assert parse("driver=535.104.05,gpu=NVIDIA A100-SXM4-80GB").gpus[0].name == "NVIDIA A100-SXM4-80GB"
    assert host.forced == ()
    assert parse("driver=470.57.02,libcuda=555.42.02,gpu=A100").cuda == "12.5"


def test_different_gpus_stand_side_by_side() -> None:
    host = parse("driver=535.104.05,gpu=A100,gpu=T4,memory=7")
    assert [gpu.compute_capability for gpu in host.gpus] == ["8.0", "7.5"]
    assert {gpu.memory for gpu in host.gpus} == {7 << 30}


@pytest.mark.parametrize(
    ("text", "forced"),
    [
        ("driver=535.104.05,gpu=A100,fail=driver-mismatch", (("cuInit", 803), ("nvmlInit_v2", 18))),
        ("driver=535.104.05,gpu=A100,fail=forward-compat", (("cuInit", 804),)),
        ("driver=535.104.05,gpu=A100,fail=unknown-error", (("cuInit", 999),)),
        ("driver=535.104.05,gpu=A100,fail=not-ready", (("cuInit", 802),)),
        ("driver=535.104.05,gpu=A100,fail=cuMemAlloc_v2:2,fail=cuInit:719", (("cuMemAlloc_v2", 2), ("cuInit", 719))),
        ("driver=535.104.05,libcuda=470.57.02,gpu=A100", (("cuInit", 803),)),
        ("driver=470.57.02,libcuda=555.42.02,gpu=RTX 3090", (("cuInit", 804),)),
        ("driver=470.57.02,libcuda=555.42.02,gpu=A100", ()),
        ("driver=460.32.03,libcuda=555.42.02,gpu=A100", (("cuInit", 803),)),
    ],
)
def test_answers_follow_from_the_failure_or_the_combination(text: str, forced: tuple[tuple[str, int], ...]) -> None:
    """A library newer than the kernel module works only as forward compatibility allows."""
    assert parse(text).forced == forced


@pytest.mark.parametrize(
    "text",
    [
        "driver=470.57.02,gpu=H100",  # newer than the branch
        "driver=590.44.01,gpu=V100",  # dropped by the branch
        "driver=470.57.02,gpu=A100,fail=no-device",
    ],
)
def test_gpu_that_the_driver_does_not_serve_is_not_visible(text: str) -> None:
    host = parse(text)
    assert len(host.gpus) == 1
    assert host.visible == ()
    assert "gpu " not in profiles.statements(host)


@rows
def test_profile_that_does_not_fit_the_grammar_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        parse(text)
    assert profiles.EXAMPLE in refused.value.hint


@pytest.mark.parametrize("text", ["driver=999.1.1,gpu=A100", "driver=470.57.02,gpu=Voodoo 3"])
def test_host_that_the_catalogue_lacks_gives_no_claim(text: str) -> None:
    with pytest.raises(NoClaimError):
        parse(text)


def test_statements_hold_what_the_libraries_read() -> None:
    lines = profiles.statements(parse("driver=525.60.13,gpu=Tesla T4,fail=ecc")).splitlines()
    assert lines[:2] == ["driver 525.60.13", "cuda 12000"]
    assert "force cuDevicePrimaryCtxRetain 214" in lines
    assert any(line.startswith("gpu 7.5 80 ") and line.endswith(" 1 Tesla T4") for line in lines)
