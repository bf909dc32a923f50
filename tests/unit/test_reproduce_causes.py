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
def test_complaints_are_read_from_prose(text: str, kinds: set[str]) -> None:
    """Each kind is told by words of its own; a command, thanks and a log complain of nothing."""
    assert kinds <= set(complaints(clean(text)))
    assert kinds or not complaints(clean(text))


@pytest.mark.parametrize(
    ("complaint", "named"), [("The first start takes ten minutes.", True), ("The GPU is not detected.", False)]
)
def test_a_forecast_that_explains_something_else_is_a_remark(complaint: str, *, named: bool) -> None:
    """Kernels compiled from PTX explain a slow start; that no GPU is seen they do not, and then they only stand by."""
    document = analyse(f"{complaint}\n\n{GPU_OF_2015}", load()).document
    found = next(row for row in document.predicted if row.code is Code.PTX_JIT)
    assert (found.severity is not Severity.INFO) is named
    assert (Code.PTX_JIT in document.diagnosis.codes) is named


def test_a_missing_gpu_library_does_not_stop_an_import() -> None:
    """A CI without a GPU logs a missing libcudart and goes on: what stops its import is named, and CUDA is not."""
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
def test_a_traceback_that_ends_in_another_package(file: str, last: str, signature: str | None) -> None:
    """An import of TensorFlow that stops in another package's files is that package's, likely and not certainly."""
    found = {row.signature: row for row in find_all(clean(STOPPED.format(file=file, last=last)))}
    traceback_matches = {name for name in found if name.startswith("stopped_in")}
    assert traceback_matches == ({signature} if signature else set())
    assert all(not found[name].exact for name in traceback_matches)


def test_a_traceback_of_something_else_is_left_alone() -> None:
    """Without a frame of TensorFlow in it, NumPy's error is none of TensorFlow's import."""
    text = STOPPED.format(file="numpy/core/x.py", last="TypeError: y").replace("packages/tensorflow", "packages/pandas")
    assert not [row for row in find_all(clean(text)) if row.signature.startswith("stopped_in")]


def test_the_tag_of_a_wheel_is_not_the_python_that_runs() -> None:
    """What runs outweighs what a wheel is for; where no installer took that wheel, the difference is the cause."""
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


def test_a_version_beside_one_that_works_is_open() -> None:
    """A title's CUDA is not judged where the text says that another one works; alone it is."""
    title = "RTX 2080 and Cuda 10.1: GPU not found with tensorflow 2.0.0\n\n"
    alone = analyse(title, load()).document
    assert Code.CUDA_MISMATCH in alone.diagnosis.codes
    both = analyse(f"{title}Update: cuda 10.0 works now.\n", load()).document
    assert [row.value for row in both.reported.works] == ["10.0"]
    assert both.diagnosis.codes == ()
    assert both.nearest is None


def test_a_gpu_that_was_taken_out_is_not_the_one_that_fails() -> None:
    """Of a change from one GPU to another the new one is meant, wherever else the old one is named."""
    text = "I changed the GPU from NVIDIA GTX1050 TI to RTX 2060.\n\nWith the 1050 ti it was quick.\n"
    assert read(text).gpus == ("RTX 2060",)


def test_another_release_has_the_names_of_the_first() -> None:
    """`contrib` is missing in 2.x: beside a stated 1.x another TensorFlow said so; without one it is the cause."""
    line = "ModuleNotFoundError: No module named 'tensorflow.contrib'\n"
    assert analyse(f"tensorflow==2.3.0\n{line}", load()).document.diagnosis.codes == (Code.API_MISMATCH,)
    assert Code.API_MISMATCH not in analyse(f"tensorflow==1.14.0\n{line}", load()).document.diagnosis.codes


@pytest.mark.parametrize(("release", "code"), [("1.3.0", Code.API_MISMATCH), ("2.1.0", Code.PACKAGE_CONFLICT)])
def test_a_tensorflow_without_keras_is_old_or_incomplete(release: str, code: Code) -> None:
    """Before 1.4 there was none; later ones have it, and so files are missing or hidden."""
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
def test_a_way_out_without_another_version(text: str, change: str, command: str) -> None:
    """A package gets the bounds that the release needs; a CUDA that is not found comes as wheels."""
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


def test_needs_of_processors_are_facts() -> None:
    """From 1.5.1 on every release needs AVX, 1.5.0 does not; AVX2 is asked for by 2.4.0 and its candidates alone."""
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
    """Answer a report."""
    return analyse(text, load()).document


def removed_image(image: str) -> str:
    """Write what Docker says of a tag that its registry lacks."""
    return f"docker: Error response from daemon: manifest for {image} not found: manifest unknown: manifest unknown."


@pytest.mark.parametrize("row", ROWS, ids=[row.id for row in ROWS])
def test_rows_have_their_sources_and_days(row: ImageDefect) -> None:
    """Each fact has links with the day of what they say, none before it began, and messages that exist."""
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


def test_names_are_once() -> None:
    """No name stands for two defects."""
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
def test_a_line_that_shows_it_makes_it_the_cause(text: str, code: str, said: str) -> None:
    """The image's defect leads, with the line that shows it, its sources, and no rule's guess beside it."""
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
def test_a_tag_that_moves_is_known_by_the_logs_day(stamp: str, named: Severity | None) -> None:
    """Of its time it is the cause, of another time nothing, and without a stamp a remark that says so."""
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
def test_other_images_and_other_lines_are_left_alone(text: str) -> None:
    """Another tag, another library, another message, or none: no defect of an image is named."""
    assert not [row for row in answer(text).predicted if "known defect" in row.message or "A defect of" in row.message]


def test_no_line_and_the_complaint_is_a_remark() -> None:
    """An image named by somebody who sees no GPU, without any log: said as a remark, and not as the cause."""
    document = answer("No GPU is detected.\ndocker run --gpus all tensorflow/tensorflow:2.18.0-gpu\n")
    found = [row for row in document.predicted if "A defect of" in row.message]
    assert [(row.code, row.severity) for row in found] == [(Code.MISSING_LIBRARY, Severity.INFO)]


def test_the_day_of_a_log() -> None:
    """Both kinds of stamps tell the day; a date in a version does not."""
    for text, day in (
        (DLOPEN.format("W0000 00:00:1736383795.205652  1"), "2025-01-09"),
        (DLOPEN.format("2021-06-17 20:18:13.799235: W"), "2021-06-17"),
        ("tensorflow 2.15.0-dev20230816", None),
    ):
        assert day_of(read(text), match(text)) == day
