"""Causes of a report's complaint, and known defects of published images."""

from __future__ import annotations

import re
from datetime import date

import pytest

from envbuilder.catalog.store import load
from envbuilder.finding import Code, Severity
from envbuilder.reproduce.analysis import analyse
from envbuilder.reproduce.causes import ImageDefect, day_of, image_defect_rows
from envbuilder.reproduce.document import ReproduceDocument
from envbuilder.reproduce.messages.catalog import get, match
from envbuilder.reproduce.messages.fuzzy import find_all
from envbuilder.reproduce.report.context import complaints
from envbuilder.reproduce.report.read import read
from envbuilder.reproduce.transcript import clean

GPU_OF_2015 = (
    "TensorFlow version: 2.0.0\nPython version: 3.6\nCUDA version: 10.0\ncuDNN version: 7.6\nGPU model: GeForce 940M\n"
)
STOPPED = (
    'Traceback (most recent call last):\n  File "<stdin>", line 1, in <module>\n'
    '  File "/usr/lib/python3.9/site-packages/tensorflow/__init__.py", line 37, in <module>\n'
    "    from tensorflow.python.tools import module_util as _module_util\n"
    '  File "/usr/lib/python3.9/site-packages/{file}", line 9, in <module>\n    something()\n{last}\n'
)


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Tensorflow is not detecting my GPU", {"invisible"}),
        ("Why is my RTX 3060 not used?", {"invisible"}),
        ("TensorFlow 无法识别 GPU", {"invisible"}),
        ("The first epoch takes twenty minutes", {"slow"}),
        ("Training is stuck after one step with 4 GPUs", {"stuck", "several"}),
        ("import tensorflow: Segmentation fault (core dumped)", {"breaks"}),
        ("I can't import tensorflow any more", {"import"}),
        ("ERROR: No matching distribution found for tensorflow", {"installing"}),
        ("How do I build it from source?", {"building"}),
        ("$ pip freeze | grep tensor", set()),
        ("Thank you for the release!", set()),
        ("2024-04-04 14:42:08.1: I cpu_feature_guard.cc:210] in performance-critical operations", set()),
    ],
)
def test_complaint_is_read_from_prose_only(text: str, kinds: set[str]) -> None:
    assert kinds <= set(complaints(clean(text)))
    assert kinds or not complaints(clean(text))


@pytest.mark.parametrize(
    ("complaint", "named"), [("The first start takes ten minutes.", True), ("The GPU is not detected.", False)]
)
def test_forecast_that_does_not_explain_the_complaint_becomes_info(complaint: str, *, named: bool) -> None:
    document = analyse(f"{complaint}\n\n{GPU_OF_2015}", load()).document
    found = next(row for row in document.predicted if row.code is Code.PTX_JIT)
    assert (found.severity is not Severity.INFO) is named
    assert (Code.PTX_JIT in document.diagnosis.codes) is named


def test_missing_gpu_library_is_not_the_cause_of_a_failed_import() -> None:
    text = (
        "import tensorflow fails\n"
        "W dso_loader.cc:64] Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: "
        "cannot open shared object file: No such file or directory\n"
        "TypeError: Descriptors cannot not be created directly.\n"
    )
    document = analyse(f"tensorflow==2.8.0\n{text}", load()).document
    assert document.diagnosis.codes == (Code.PROTOBUF_ABI,)
    assert Code.MISSING_LIBRARY not in {row.code for row in document.predicted}


@pytest.mark.parametrize(
    ("file", "last", "signature"),
    [
        ("google/protobuf/internal/x.py", "TypeError: something new", "stopped_in_protobuf"),
        ("numpy/core/overrides.py", "AttributeError: nobody knows", "stopped_in_numpy"),
        ("h5py/_hl/files.py", "ValueError: nobody knows", "stopped_in_h5py"),
        ("tensorflow/python/x.py", "TypeError: of its own", None),
        ("numpy/core/overrides.py", "ImportError: DLL load failed", None),
    ],
)
def test_traceback_ending_in_another_package_names_that_package(file: str, last: str, signature: str | None) -> None:
    found = {row.signature: row for row in find_all(clean(STOPPED.format(file=file, last=last)))}
    traceback_matches = {name for name in found if name.startswith("stopped_in")}
    assert traceback_matches == ({signature} if signature else set())
    assert all(not found[name].exact for name in traceback_matches)


def test_traceback_without_tensorflow_frame_is_ignored() -> None:
    text = STOPPED.format(file="numpy/core/x.py", last="TypeError: y").replace("packages/tensorflow", "packages/pandas")
    assert not [row for row in find_all(clean(text)) if row.signature.startswith("stopped_in")]


def test_running_python_outranks_the_wheel_tag() -> None:
    text = (
        "pip install tensorflow-1.0.1-cp35-cp35m-win_amd64.whl\nMessage: can not install this wheel\n"
        "python version 3.6\nImportError: No module named 'tensorflow'\n"
    )
    assert read(text).python == "3.6"
    assert read("pip install tensorflow-1.0.1-cp35-cp35m-win_amd64.whl").python == "3.5"
    document = analyse(text, load()).document
    assert document.diagnosis.codes[0] is Code.PYTHON_UNSUPPORTED
    assert "Python 3.5" in document.diagnosis.cause
    assert "Python 3.6" in document.diagnosis.cause


def test_version_of_the_title_is_open_if_another_one_works() -> None:
    title = "RTX 2080 and Cuda 10.1: GPU not found with tensorflow 2.0.0\n\n"
    alone = analyse(title, load()).document
    assert Code.CUDA_MISMATCH in alone.diagnosis.codes
    both = analyse(f"{title}Update: cuda 10.0 works now.\n", load()).document
    assert [row.value for row in both.reported.works] == ["10.0"]
    assert both.diagnosis.codes == ()
    assert both.nearest is None


def test_replaced_gpu_is_not_the_failing_one() -> None:
    text = "I changed the GPU from NVIDIA GTX1050 TI to RTX 2060.\n\nWith the 1050 ti it was quick.\n"
    assert read(text).gpus == ("RTX 2060",)


def test_contrib_error_with_stated_1x_means_another_tensorflow() -> None:
    line = "ModuleNotFoundError: No module named 'tensorflow.contrib'\n"
    assert analyse(f"tensorflow==2.3.0\n{line}", load()).document.diagnosis.codes == (Code.API_MISMATCH,)
    assert Code.API_MISMATCH not in analyse(f"tensorflow==1.14.0\n{line}", load()).document.diagnosis.codes


@pytest.mark.parametrize(("release", "code"), [("1.3.0", Code.API_MISMATCH), ("2.1.0", Code.PACKAGE_CONFLICT)])
def test_missing_keras_means_old_release_or_missing_files(release: str, code: Code) -> None:
    text = f"tensorflow=={release}\nAttributeError: module 'tensorflow' has no attribute 'keras'\n"
    assert analyse(text, load()).document.diagnosis.codes[0] is code


NO_CUDNN = (
    "TensorFlow version: 2.15.0\nPython version: 3.11\nCUDA version: 12.2\ncuDNN version: 8.9\nUbuntu 22.04\n"
    "W dso_loader.cc:64] Could not load dynamic library 'libcudnn.so.8'; dlerror: libcudnn.so.8: cannot open\n"
)


@pytest.mark.parametrize(
    ("text", "change", "command"),
    [
        (
            "tensorflow==2.8.0\nPython 3.8\nTypeError: Descriptors cannot not be created directly.\n",
            "protobuf as installed → <3.21",
            "pip install 'protobuf<3.21'",
        ),
        (
            NO_CUDNN,
            "install CUDA of the system → pinned CUDA wheels",
            "nvidia-cudnn-cu12==8.9",
        ),
    ],
)
def test_fix_without_another_version_adds_bounds_or_wheels(text: str, change: str, command: str) -> None:
    document = analyse(text, load()).document
    assert document.nearest is not None
    assert document.nearest.changes == (change,)
    assert any(command in line for line in document.nearest.commands)


def test_a_kernel_that_the_driver_refuses_found_its_libraries() -> None:
    """A log of a kernel that was handed to the driver rules out that CUDA's libraries were not found.

    From CY-CHENYUE/ComfyUI-Molmo#26: nvcc of 11.7 stands beside libraries of 12 that wheels brought.
    """
    text = (
        "Name: tensorflow\nVersion: 2.18.0\nCuda compilation tools, release 11.7, V11.7.99\n"
        "2025-02-01 13:44:34.523685: W tensorflow/compiler/mlir/tools/kernel_gen/tf_gpu_runtime_wrappers.cc:40] "
        "'cuModuleLoadData(&module, data)' failed with 'CUDA_ERROR_UNSUPPORTED_PTX_VERSION'\n"
    )
    document = analyse(text, load()).document
    assert [row.code for row in document.predicted if row.severity is Severity.ERROR] == [Code.PTX_TOO_NEW]
    assert Code.PTX_TOO_NEW in document.diagnosis.codes


@pytest.mark.parametrize(
    ("release", "way"), [("2.4.0", ("tensorflow 2.4.0 → 2.4.1",)), ("2.5.0", None), ("1.5.0", None)]
)
def test_what_one_release_alone_asks_of_the_processor(release: str, way: tuple[str, ...] | None) -> None:
    """2.4.0 needs AVX2 and the release after it does not: that is the way out, and of other releases there is none."""
    text = f"tensorflow=={release}\nPython 3.8\nimport tensorflow: Illegal instruction (core dumped)\n"
    document = analyse(text, load()).document
    assert document.diagnosis.codes[0] is Code.CPU_FEATURE_MISSING
    assert (document.nearest.changes if document.nearest else None) == way


def test_avx_requirements_match_the_catalogue() -> None:
    catalog = load()
    versions = ("1.5.0", "1.5.1", "2.4.0rc1", "2.4.1", "what")
    needs = {version: {row.feature for row in catalog.processor_needs_of(version)} for version in versions}
    assert needs == {"1.5.0": set(), "1.5.1": {"avx"}, "2.4.0rc1": {"avx", "avx2"}, "2.4.1": {"avx"}, "what": set()}


ROWS = image_defect_rows()
APT = (
    "W: GPG error: https://developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64  InRelease: The "
    "following signatures couldn't be verified because the public key is not available: NO_PUBKEY A4B469963BF863CC"
)
NO_MODULE = "ModuleNotFoundError: No module named 'tensorflow'"
DLOPEN = "{} gpu_device.cc:2344] Cannot dlopen some GPU libraries. Please make sure the missing libraries are installed"
SKIPPING = "Skipping registering GPU devices..."


def answer(text: str) -> ReproduceDocument:
    return analyse(text, load()).document


def removed_image(image: str) -> str:
    return f"docker: Error response from daemon: manifest for {image} not found: manifest unknown: manifest unknown."


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_image_defects_have_sources_dates_and_messages(row: ImageDefect) -> None:
    first, last = date.fromisoformat(row.since), date.fromisoformat(row.until or "2100-01-01")
    assert first <= last
    assert row.sources
    for source in row.sources:
        assert source.url.startswith(("https://github.com/", "https://gitlab.com/"))
        assert first <= date.fromisoformat(source.date) <= last
        assert source.says.endswith(".")
    assert row.fix.endswith(".")
    assert row.shows
    for signature in row.shows:
        assert get(signature).code is not None
    assert re.compile(row.images)


def test_image_defect_ids_are_unique() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS) >= 7


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        (
            f"docker run tensorflow/tensorflow:2.18.0-gpu\n{DLOPEN.format('W')}\n{SKIPPING}",
            "MISSING_LIBRARY",
            "cuDNN 8.9",
        ),
        (f"docker run tensorflow/tensorflow:2.2.0-gpu\n{APT}", "NOT_INSTALLABLE", "changed the key"),
        (removed_image("nvidia/cuda:11.0-base-ubuntu20.04"), "NOT_INSTALLABLE", "six months after"),
        (
            f"docker run nvidia/cuda nvidia-smi\n{removed_image('nvidia/cuda:latest')}",
            "NOT_INSTALLABLE",
            "tag latest",
        ),
        (removed_image("gcr.io/tensorflow/tensorflow:latest-gpu"), "NOT_INSTALLABLE", "no longer at gcr.io"),
    ],
)
def test_image_defect_proved_by_a_line_is_the_first_cause(text: str, code: str, said: str) -> None:
    document = answer(text)
    assert document.diagnosis.codes[0] == code
    assert document.diagnosis.confidence == "certain"
    assert said in document.diagnosis.cause
    assert document.diagnosis.line
    lead = document.predicted[0]
    assert lead.sources
    assert [row.code for row in document.predicted if row.severity is Severity.ERROR] == [lead.code]


@pytest.mark.parametrize(
    ("stamp", "named"),
    [
        ("2025-01-09 10:00:00.100000: W", Severity.ERROR),
        ("W0000 00:00:1736383795.205652  747392", Severity.ERROR),
        ("2023-01-09 10:00:00.100000: W", None),
        ("W", Severity.INFO),
    ],
)
def test_moving_tag_is_dated_by_the_log(stamp: str, named: Severity | None) -> None:
    document = answer(f"docker run tensorflow/tensorflow:latest-gpu\n{DLOPEN.format(stamp)}\n")
    found = [row for row in document.predicted if "libcudnn.so.9" in row.message]
    assert [row.severity for row in found] == ([named] if named else [])
    assert all(("is unknown" in row.message) == (named is Severity.INFO) for row in found)


@pytest.mark.parametrize(
    "text",
    [
        f"docker run tensorflow/tensorflow:2.17.0-gpu\n{DLOPEN.format('W')}",
        "docker run tensorflow/tensorflow:2.18.0-gpu\nCould not load dynamic library 'libcublas.so.12'",
        f"docker run tensorflow/tensorflow:2.18.0-gpu\n{NO_MODULE}",
        removed_image("floydhub/dl-docker:gpu"),
        f"pip install tensorflow==2.18.0\n{DLOPEN.format('W')}",
        "docker run tensorflow/tensorflow:2.2.0-gpu\nIt is fine, how do I train?",
    ],
)
def test_other_images_and_messages_have_no_defect(text: str) -> None:
    assert not [row for row in answer(text).predicted if "known defect" in row.message or "A defect of" in row.message]


def test_image_defect_without_log_is_info() -> None:
    document = answer("No GPU is detected.\ndocker run --gpus all tensorflow/tensorflow:2.18.0-gpu\n")
    found = [row for row in document.predicted if "A defect of" in row.message]
    assert [(row.code, row.severity) for row in found] == [(Code.MISSING_LIBRARY, Severity.INFO)]


def test_day_of_reads_both_timestamp_formats() -> None:
    for text, day in (
        (DLOPEN.format("W0000 00:00:1736383795.205652  1"), "2025-01-09"),
        (DLOPEN.format("2021-06-17 20:18:13.799235: W"), "2021-06-17"),
        ("tensorflow 2.15.0-dev20230816", None),
    ):
        assert day_of(read(text), match(text)) == day
