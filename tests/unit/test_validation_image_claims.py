"""Claims of an image about itself, compared with its files and this host's records."""

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from device_code import elf, fat_binary
from fake_engine import FakeEngine
from made_images import SITE, context_of, image_of, package
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.engine.port import LayerFile
from envbuilder.errors import UsageError
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image import lockfile, removed_files
from envbuilder.image.names import ENVIRONMENT_LABEL
from envbuilder.validation import validate_request
from envbuilder.validation.image_claims import (
    FORM_LABEL,
    build_note,
    carried_list,
    claims,
    libraries_left_out,
    of_foreign,
)
from envbuilder.validation.image_context import CheckOutput
from envbuilder.validation.image_loader import ImagePython
from envbuilder.validation.judge import mark_consequences
from envbuilder.validation.validate import ValidationRequest
from envbuilder.verdict import CheckResult
from envbuilder.workspace import Workspace, write_atomically

NOTE_2_20 = "build_info = OrderedDict({'cuda_version': '12.5.1', 'cudnn_version': '9', 'is_cuda_build': True})"
NOTE_2_2 = "is_cuda_build = True\ncuda_version_number = '10.1'\ncudnn_version_number = '7'\n"
NOTE_CPU = "build_info = OrderedDict({'is_cuda_build': False})"
NOTE_2_3 = "build_info = collections.OrderedDict([('cuda_version', '10.1'), ('is_cuda_build', True)])"


@pytest.mark.parametrize(
    ("note", "has_code", "gpus", "expected"),
    [
        (NOTE_2_20, False, "all", ("gpu", "12.5.1", "9")),
        (NOTE_2_2, False, "0,1", ("gpu", "10.1", "7")),
        (NOTE_2_3, False, "all", ("gpu", "10.1", None)),
        ("", False, "all", ("cpu", None, None)),
        (NOTE_CPU, False, "all", ("cpu", None, None)),
        (NOTE_CPU, True, "none", ("gpu", None, None)),
    ],
)
def test_facts_of_a_foreign_image_come_from_its_files(
    note: str,
    has_code: bool,  # noqa: FBT001
    gpus: str,
    expected: tuple[str, str | None, str | None],
) -> None:
    named = {"tensorflow/python/platform/build_info.py": note.encode()}
    if has_code:
        named["tensorflow/libtensorflow_framework.so.2"] = elf({".nv_fatbin": fat_binary(90)})
    folders = {path: LayerFile(path, "folder") for path in (SITE, f"{SITE}/tensorflow")}
    image = image_of({**package("tensorflow", "1.99", named), **folders, "usr/lib/libcudart.so.12": b"1"})
    described = context_of(image).image
    installed = ImagePython(image, described).framework
    facts = of_foreign(installed, load(), gpus)
    assert (installed.package, facts.tensorflow, facts.python) == ("tensorflow", "1.99", "3.11")
    assert (facts.flavor, facts.cuda, facts.built_cudnn) == expected
    assert ("flavor" in [one.subject for one in claims(context_of(image)).findings]) is has_code


@pytest.mark.parametrize(
    ("flavor", "note", "found"), [("gpu", "False", 1), ("gpu", "True", 0), ("cpu", "False", 0), ("gpu", "", 0)]
)
def test_cpu_build_in_a_gpu_environment_is_not_a_gpu_build(flavor: str, note: str, found: int) -> None:
    text = f"build_info = {{'is_cuda_build': {note}}}" if note else ""
    named = {"tensorflow/__init__.py": b"1", "tensorflow/python/platform/build_info.py": text.encode()}
    subject = context_of(image_of(package("tensorflow_cpu", "2.20.0", named)), facts={"flavor": flavor})
    findings = [one for one in build_note(subject) if one.code is Code.NOT_A_GPU_BUILD]
    assert len(findings) == found
    libraries = Finding(code=Code.LIBRARY_PATH, severity=Severity.ERROR, subject="libcudart.so.12", message="m")
    red = CheckResult(name="libraries", level="load", outcome="failed", findings=(libraries,))
    (told,) = mark_consequences((red,), CheckOutput(tuple(findings)))
    assert told.outcome == "failed"
    assert told.findings[0].severity is (Severity.WARNING if found else Severity.ERROR)


LIST_AT = f"{removed_files.CARRIED}numpy-2.1.3.tsv"
CONTEXT = Path(__file__).parents[2] / "images" / "tf2.20.0-py311-cpu-bookworm"
DOCUMENT = json.loads((CONTEXT / "environment.json").read_bytes())
LIST = "numpy==2.1.3\ttests\tnumpy/tests/\t1\t1\td\n"


@pytest.mark.parametrize(
    ("labels", "carried", "known", "named"),
    [
        ({FORM_LABEL: "runtime", removed_files.LABEL: lockfile.digest(LIST)}, LIST, LIST, []),
        (
            {FORM_LABEL: "runtime", removed_files.LABEL: lockfile.digest(LIST)},
            LIST + " ",
            LIST,
            ["lists of removed files"],
        ),
        ({FORM_LABEL: "runtime", removed_files.LABEL: lockfile.digest(LIST)}, "", LIST, ["lists of removed files"]),
        ({FORM_LABEL: "runtime"}, LIST, "", ["lists of removed files"]),
        ({FORM_LABEL: "runtime", removed_files.LABEL: lockfile.digest(LIST)}, LIST, LIST + " ", [removed_files.LABEL]),
        ({removed_files.LABEL: lockfile.digest(LIST)}, LIST, LIST, [FORM_LABEL]),
    ],
)
def test_contradictory_claims_about_the_variant_are_reported(
    labels: dict[str, str], carried: str, known: str, named: list[str]
) -> None:
    text = msgspec.json.encode({**DOCUMENT, "form": "runtime"})
    there = {"opt/envbuilder/environment.json": text, **({LIST_AT: carried.encode()} if carried else {})}
    said = [one.subject for one in claims(context_of(image_of(there), removed=known, labels=labels)).findings]
    about = [one for one in said if "removed" in one or one == f"label {FORM_LABEL}"]
    assert len(about) == len(named)
    assert all(name in one for name, one in zip(named, about, strict=True))


def test_libraries_in_a_list_of_removed_files_are_reported() -> None:
    """Files that nothing names and whole distributions are; headers and a list that no label names are not."""
    lock = "nvidia-nvshmem-cu12==3\n"
    text = (
        "nvidia-nvshmem-cu12==3\tunnamed\tnvidia/nvshmem/lib/libnvshmem_host.so.3\t1\t1\td\n"
        "nvidia-nvshmem-cu12==3\tcompilers\tnvidia/nvshmem/include/\t1\t1\td\n"
    )
    told = (("nvidia-nvshmem-cu12", "nvidia/nvshmem/lib/libnvshmem_host.so.3"),)
    labels = {removed_files.LABEL: lockfile.digest(text)}
    files = image_of({LIST_AT: text.encode()})
    assert libraries_left_out(text) == libraries_left_out(carried_list(files, labels, lock)) == told
    assert (carried_list(files, {ENVIRONMENT_LABEL: "x"}, lock), libraries_left_out("")) == ("", ())
    assert carried_list(files, {}, lock) == text, "a flattened image has no label at all"


@rows
def test_variant_is_compared_with_the_hosts_record(
    facts: dict[str, Any], said: dict[str, Any], named: list[str]
) -> None:
    labels = {ENVIRONMENT_LABEL: "x", **({FORM_LABEL: str(said["form"])} if "form" in said else {})}
    there = image_of({"opt/envbuilder/environment.json": msgspec.json.encode({**DOCUMENT, **said})})
    about = {one.subject for one in claims(context_of(there, labels=labels, facts=facts)).findings}
    wanted = {f"label {FORM_LABEL}", "environment.json form"} if named else set()
    assert {one for one in about if "form" in one} == wanted


@pytest.mark.parametrize(
    ("version", "wrong"), [("2.20.0", f"label {ENVIRONMENT_LABEL}"), ("2.19.1", "environment.json id")]
)
def test_files_decide_whether_label_or_document_is_wrong(version: str, wrong: str) -> None:
    text = msgspec.json.encode({**DOCUMENT, "tensorflow": "2.20.0"})
    installed = package("tensorflow", version, {"tensorflow/__init__.py": b"1"})
    there = image_of({"opt/envbuilder/environment.json": text, **installed})
    subject = context_of(there, labels={ENVIRONMENT_LABEL: "other"}, facts={"environment": "other"})
    said = {one.subject for one in claims(replace(subject, lock_is_carried=True)).findings}
    assert {one for one in said if one in (f"label {ENVIRONMENT_LABEL}", "environment.json id")} == {wrong}


def test_flavor_that_differs_from_the_image_is_reported() -> None:
    there = image_of({"opt/envbuilder/environment.json": msgspec.json.encode({**DOCUMENT, "flavor": "gpu"})})
    said = {one.subject for one in claims(context_of(there)).findings}
    assert "environment.json flavor" in said


def test_devel_image_names_no_list_of_removed_files() -> None:
    labels = {removed_files.LABEL: lockfile.digest(LIST)}
    there = image_of({"opt/envbuilder/environment.json": msgspec.json.encode(DOCUMENT), LIST_AT: LIST.encode()})
    said = [one.subject for one in claims(context_of(there, labels=labels, facts={"form": "devel"})).findings]
    assert f"label {removed_files.LABEL}" in said


ID = "tf2.20.0-py311-cpu-bookworm-runtime"
LOCK = f"numpy==2.1.3 --hash=sha256:{'a' * 64}\n"
STEP = "RUN --mount=source=shared/packages/x,target=/run/package sh /run/tools/install x\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace(tmp_path)
    context = made.context(ID)
    context.mkdir(parents=True)
    (context / lockfile.LOCK).write_text(LOCK)
    (context / "Dockerfile").write_text(STEP)
    (context / "environment.json").write_bytes(msgspec.json.encode({**DOCUMENT, "id": ID}))
    write_atomically(made.images / "shared/packages/x" / removed_files.REMOVED, LIST.encode())
    return made


def removed(workspace: Workspace, **labels: str) -> str:
    told = {ENVIRONMENT_LABEL: ID, removed_files.LABEL: lockfile.digest(LIST)}
    names = {"environment": ENVIRONMENT_LABEL, "listed": removed_files.LABEL}
    engine = FakeEngine()
    engine.add("x:1", labels=told | {names[name]: text for name, text in labels.items()})
    return validate_request._of_image(ValidationRequest("x:1"), None, engine, workspace, load()).removed


def test_list_named_by_the_labels_is_the_host_s(workspace: Workspace) -> None:
    assert removed(workspace) == LIST


@pytest.mark.parametrize("labels", [{"listed": ""}, {"environment": ""}, {"environment": f"../images/{ID}"}])
def test_list_with_another_digest_or_name_is_ignored(labels: dict[str, str], workspace: Workspace) -> None:
    assert not removed(workspace, **labels)


def test_tag_of_one_environment_that_names_an_image_of_another_is_refused(workspace: Workspace) -> None:
    engine = FakeEngine()
    for tag, is_refused in ((ID, True), ("latest", False)):
        engine.add(f"team/ours:{tag}", labels={ENVIRONMENT_LABEL: "another-env"})
        with pytest.raises(UsageError, match="another one, another-env") if is_refused else nullcontext():
            validate_request._of_image(ValidationRequest(f"team/ours:{tag}"), None, engine, workspace, load())
