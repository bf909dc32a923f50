"""Reading what wheels say of themselves."""

import pytest

from envbuilder.refresh import artefact
from envbuilder.refresh.artefact import BuildInfo, capability, wheel_name, wheel_sets

OLD = """Metadata-Version: 2.1
Name: tensorflow
Version: 2.10.1
Requires-Python: >=3.7
Requires-Dist: numpy (>=1.20)
Requires-Dist: protobuf (<3.20,>=3.9.2)

Requires-Dist: nothing (the description begins above)
"""

NEW = """Metadata-Version: 2.4
Requires-Python: >=3.9
Requires-Dist: numpy<2.0.0,>=1.26.0; python_version >= "3.12"
Requires-Dist: NVIDIA_cublas_cu12==12.3.4.1; extra == "and-cuda"
Requires-Dist: tensorflow-io; python_version < "3.12" and extra == "and-cuda"
Requires-Dist: other; extra == "gcs-filesystem"
"""


def test_requirements_of_both_styles() -> None:
    old, new = artefact.metadata(OLD), artefact.metadata(NEW)
    assert old.requires == ("numpy>=1.20", "protobuf<3.20,>=3.9.2")
    assert (old.requires_python, new.requires_python) == (">=3.7", ">=3.9")
    assert new.requires == ('numpy<2.0.0,>=1.26.0; python_version >= "3.12"',)
    assert new.and_cuda == ("nvidia-cublas-cu12==12.3.4.1", 'tensorflow-io; python_version < "3.12"')


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            (
                "import collections\nbuild_info = collections.OrderedDict([('cuda_compute_capabilities', ['sm_60', "
                "'compute_90']), ('cuda_version', '12.5.1'), ('cudnn_version', '9'), ('is_cuda_build', True)])"
            ),
            BuildInfo(gpu=True, cuda="12.5.1", cudnn="9", cubins=("6.0", "9.0"), ptx=("9.0",)),
        ),
        (
            "is_cuda_build = True\ncuda_version_number = '10.0'\ncudnn_version_number = '7'\nmsvcp = __import__('os')",
            BuildInfo(gpu=True, cuda="10.0", cudnn="7"),
        ),
        ("build_info = {'is_cuda_build': False}", BuildInfo(gpu=False)),
        ("", BuildInfo()),
    ],
)
def test_build_info_of_every_era(source: str, expected: BuildInfo) -> None:
    assert artefact.build_info(source) == expected


@pytest.mark.parametrize(
    ("code", "text"), [("sm_35", "3.5"), ("compute_80", "8.0"), ("sm_120", "12.0"), ("sm_90a", "9.0"), ("7.5", "7.5")]
)
def test_capabilities(code: str, text: str) -> None:
    assert capability(code) == text


def test_wheel_names() -> None:
    modern = wheel_name("tensorflow-2.20.0-cp313-cp313-manylinux_2_17_x86_64.manylinux2014_x86_64.whl")
    assert (modern.python, modern.arch, modern.glibc, modern.version) == ("3.13", "x86_64", "2.17", "2.20.0")
    oldest = wheel_name("tensorflow-1.13.1-cp27-cp27mu-manylinux1_x86_64.whl")
    assert (oldest.python, oldest.glibc) == ("2.7", "2.5")
    anywhere = wheel_name("nvidia_cudnn_cu12-9.3.0.75-py3-none-manylinux2014_x86_64.whl")
    assert (anywhere.python, anywhere.glibc) == ("", "2.17")
    for other in ("tensorflow-2.20.0-cp313-cp313-win_amd64.whl", "tensorflow-gpu-2.12.0.tar.gz", "linux-notes.txt"):
        assert wheel_name(other) is None


def test_source_distributions() -> None:
    assert artefact.source_version("tensorflow-gpu-2.12.0.tar.gz") == "2.12.0"
    assert artefact.source_version("tensorflow-2.20.0-cp313-cp313-manylinux2014_x86_64.whl") is None
    assert artefact.source_version("notes.txt") is None


def test_wheels_are_grouped_by_machine() -> None:
    names = [
        wheel_name(f"tensorflow-2.21.0-cp{python}-cp{python}-manylinux_2_27_{arch}.whl")
        for arch in ("aarch64", "x86_64")
        for python in ("310", "39")
    ]
    sets = wheel_sets(name for name in names if name)
    assert [(one.arch, one.pythons, one.glibc) for one in sets] == [
        ("x86_64", ("3.9", "3.10"), "2.27"),
        ("aarch64", ("3.9", "3.10"), "2.27"),
    ]
