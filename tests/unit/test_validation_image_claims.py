"""What a build's own note says of CUDA is read in every form that releases wrote it in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from made_images import SITE, image_of, outside, package

from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, omissions
from envbuilder.validation.image_claims import (
    FORM_LABEL,
    claims,
    left_out_of,
    libraries_left_out,
    says_cuda,
    without_cuda,
)
from envbuilder.validation.judge import Causes, mark_consequences
from envbuilder.verdict import CheckResult


@pytest.mark.parametrize(
    ("note", "says"),
    [
        ("build_info = collections.OrderedDict([('cuda_version', '12.5.1'), ('is_cuda_build', True)])", True),
        ("build_info = collections.OrderedDict([('is_cuda_build', False), ('is_rocm_build', False)])", False),
        ('build_info = {"cuda_version": "11.2", "is_cuda_build": True}', True),
        ("is_cuda_build = False\n", False),
        ("is_rocm_build = True\n", None),
        ("", None),
    ],
)
def test_build_record_of_every_release_is_read(note: str, says: bool | None) -> None:  # noqa: FBT001
    files = image_of({f"{SITE}/tensorflow/python/platform/build_info.py": note.encode()})
    assert says_cuda(files) is says


@pytest.mark.parametrize(
    ("flavor", "note", "found"),
    [("gpu", "False", 1), ("gpu", "True", 0), ("cpu", "False", 0), ("gpu", "", 0)],
)
def test_cpu_build_in_a_gpu_environment_is_not_a_gpu_build(flavor: str, note: str, found: int) -> None:
    text = f"build_info = {{'is_cuda_build': {note}}}" if note else ""
    named = {"tensorflow/__init__.py": b"1", "tensorflow/python/platform/build_info.py": text.encode()}
    subject = outside(image_of(package("tensorflow_cpu", "2.20.0", named)), facts={"flavor": flavor})
    findings = list(without_cuda(subject))
    assert [one.code for one in findings] == [Code.NOT_A_GPU_BUILD] * found
    libraries = Finding(code=Code.LIBRARY_PATH, severity=Severity.ERROR, subject="libcudart.so.12", message="m")
    red = CheckResult(name="libraries", level="load", outcome="failed", findings=(libraries,))
    (told,) = mark_consequences((red,), Causes(tuple(findings)))
    assert told.outcome == "failed"
    assert told.findings[0].severity is (Severity.WARNING if found else Severity.ERROR)


LIST_AT = "opt/envbuilder/omissions.json"
CONTEXT = Path(__file__).parents[2] / "images" / "tf2.20.0-py311-cpu-bookworm"
DOCUMENT = json.loads((CONTEXT / "environment.json").read_bytes())
LIST = '{"schema": "envbuilder/omissions/v1"}'


@pytest.mark.parametrize(
    ("labels", "carried", "known", "named"),
    [
        ({FORM_LABEL: "runtime", omissions.LABEL: lockfile.digest(LIST)}, LIST, LIST, []),
        ({FORM_LABEL: "runtime", omissions.LABEL: lockfile.digest(LIST)}, LIST + " ", LIST, ["list of omissions"]),
        ({FORM_LABEL: "runtime", omissions.LABEL: lockfile.digest(LIST)}, "", LIST, ["list of omissions"]),
        ({FORM_LABEL: "runtime"}, LIST, "", ["list of omissions"]),
        ({FORM_LABEL: "runtime", omissions.LABEL: lockfile.digest(LIST)}, LIST, LIST + " ", [omissions.LABEL]),
        ({omissions.LABEL: lockfile.digest(LIST)}, LIST, LIST, [FORM_LABEL]),
    ],
)
def test_contradictory_claims_about_the_variant_are_reported(
    labels: dict[str, str], carried: str, known: str, named: list[str]
) -> None:
    text = msgspec.json.encode({**DOCUMENT, "form": "runtime"})
    there = {"opt/envbuilder/environment.json": text, **({LIST_AT: carried.encode()} if carried else {})}
    said = [one.subject for one in claims(outside(image_of(there), omissions=known, labels=labels)).findings]
    about = [one for one in said if "omissions" in one or one == f"label {FORM_LABEL}"]
    assert len(about) == len(named)
    assert all(name in one for name, one in zip(named, about, strict=True))


def test_removed_libraries_come_from_the_list_of_removed_files() -> None:
    left = (
        omissions.LeftOut("nvidia/nvshmem/lib/libnvshmem_host.so.3", 1, 1, "d", "unnamed"),
        omissions.LeftOut("nvidia/nvshmem/include/", 1, 1, "d", "compilers"),
    )
    lock = "a==1\n"
    text = omissions.write(
        omissions.Omissions(
            lock=lockfile.digest(lock), distributions=(omissions.OfDistribution("nvidia-nvshmem-cu12", "3", left),)
        )
    )
    told = (("nvidia-nvshmem-cu12", "nvidia/nvshmem/lib/libnvshmem_host.so.3"),)
    labels = {omissions.LABEL: lockfile.digest(text)}
    files = image_of({LIST_AT: text.encode()})
    assert libraries_left_out(text) == left_out_of(files, labels, lock) == told
    assert left_out_of(files, {}, lock) == libraries_left_out("") == ()


@pytest.mark.parametrize(
    ("facts", "said", "named"),
    [
        ({"form": "runtime"}, {"form": "runtime"}, []),
        ({"form": "runtime"}, {}, ["form"]),
        ({"form": "devel"}, {}, []),
        ({"form": "devel"}, {"form": "runtime"}, ["form"]),
        ({}, {"form": "runtime"}, []),
    ],
)
def test_variant_is_compared_with_the_hosts_record(
    facts: dict[str, Any], said: dict[str, Any], named: list[str]
) -> None:
    labels = {FORM_LABEL: str(said["form"])} if "form" in said else {}
    there = image_of({"opt/envbuilder/environment.json": msgspec.json.encode({**DOCUMENT, **said})})
    about = {one.subject for one in claims(outside(there, labels=labels, facts=facts)).findings}
    wanted = {f"label {FORM_LABEL}", "environment.json form"} if named else set()
    assert {one for one in about if "form" in one} == wanted


def test_complete_image_must_not_name_a_list_of_removed_files() -> None:
    labels = {omissions.LABEL: lockfile.digest(LIST)}
    there = image_of({"opt/envbuilder/environment.json": msgspec.json.encode(DOCUMENT), LIST_AT: LIST.encode()})
    said = [one.subject for one in claims(outside(there, labels=labels, facts={"form": "devel"})).findings]
    assert f"label {omissions.LABEL}" in said
