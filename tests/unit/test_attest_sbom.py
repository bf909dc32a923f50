"""The bill of materials: what is found in an image's files, and the published shape of the document."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from factories import digest, tar
from layered_engine import saved
from packageurl import PackageURL
from table_rows import beside

from envbuilder.attest import sbom
from envbuilder.attest.sbom import ImagePackage, ImagePackages, bom
from envbuilder.engine.layers import layers
from envbuilder.image import lockfile
from envbuilder.image.removed_files import Removed
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.layer_scan import scan

TEXTS = beside(__file__)

NUMPY = "Metadata-Version: 2.4\nName: NumPy\nVersion: 2.1.3\nLicense-Expression: BSD-3-Clause\n\nName: not-this\n"
CUBLAS = "Metadata-Version: 2.1\nName: nvidia-cublas-cu12\nVersion: 12.5.3.2\nLicense: NVIDIA Proprietary Software\n"
SITE = "opt/venv/lib/python3.11/site-packages"
LOCK = (
    f"numpy==2.1.3 \\\n    --hash=sha256:{'a' * 64} \\\n    --hash=sha256:{'b' * 64}\n"
    f"nvidia-cublas-cu12==12.5.3.2 \\\n    --hash=sha256:{'c' * 64}\n"
)


BASE = {
    "var/lib/dpkg/status": TEXTS["status"],
    "usr/lib/os-release": 'ID=debian\nVERSION_CODENAME="bookworm"\n',
    "bin/x": b"\0",
}
VENV: dict[str, bytes | str] = {
    f"{SITE}/numpy-2.1.3.dist-info/METADATA": NUMPY,
    f"{SITE}/numpy/data.bin": b"\0" * 5_000_000,
}
CUDA = {f"{SITE}/nvidia_cublas_cu12-12.5.3.2.dist-info/METADATA": CUBLAS}


def read(*layers: Mapping[str, Any]) -> ImagePackages:
    return found_in(*map(tar, layers))


def found_in(*archives: bytes) -> ImagePackages:
    files = ImageFiles(tuple(scan(layer) for layer in layers([saved(archives)])))
    return sbom.read(files.contents.items(), files.content)


def test_packages_of_every_kind_are_found() -> None:
    contents = read(BASE, VENV, CUDA)
    assert (contents.distribution, contents.release) == ("debian", "bookworm")
    assert contents.packages == (
        ImagePackage("deb", "libc6", "2.36-9+deb12u10", "amd64"),
        ImagePackage("deb", "libcudnn9-cuda-12", "9.3.0.75-1", "amd64"),
        ImagePackage("pypi", "numpy", "2.1.3", "", ("BSD-3-Clause",), True),
        ImagePackage("pypi", "nvidia-cublas-cu12", "12.5.3.2", "", ("NVIDIA Proprietary Software",)),
    )


def test_package_that_a_later_layer_deletes_or_replaces_is_absent() -> None:
    newer = NUMPY.replace("2.1.3", "2.2.0")
    upgraded = {f"{SITE}/.wh.numpy-2.1.3.dist-info": b"", f"{SITE}/numpy-2.2.0.dist-info/METADATA": newer}
    emptied = {f"{SITE}/.wh..wh..opq": b"", f"{SITE}/nvidia_cublas_cu12-12.5.3.2.dist-info/METADATA": CUBLAS}
    found = read(BASE, VENV, upgraded)
    assert [p.version for p in found.packages if p.name == "numpy"] == ["2.2.0"]
    found = read(BASE, VENV, emptied)
    assert [p.name for p in found.packages if p.kind == "pypi"] == ["nvidia-cublas-cu12"]
    swapped = read(upgraded, BASE, VENV)
    assert sorted(p.version for p in swapped.packages if p.name == "numpy") == ["2.1.3", "2.2.0"]


def document() -> dict[str, Any]:
    contents = read(BASE, VENV, CUDA)
    made = bom("registry.example.org/team/image", digest("image"), contents, lockfile.parse(LOCK))
    decoded: dict[str, Any] = json.loads(msgspec.json.encode(made))
    return decoded


def test_document_is_cyclonedx() -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps(document())) is None
    assert validator.validate_str(json.dumps({**document(), "components": [{"name": "x"}]})) is not None


def test_components_say_what_they_are() -> None:
    parts = {component["name"]: component for component in document()["components"]}
    marked = {n for n, c in parts.items() if {"name": "envbuilder:cuda", "value": "true"} in c.get("properties", [])}
    assert marked == {"libcudnn9-cuda-12", "nvidia-cublas-cu12"}
    assert parts["libc6"]["purl"] == "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64&distro=bookworm"
    assert parts["nvidia-cublas-cu12"]["hashes"] == [{"alg": "SHA-256", "content": "c" * 64}]
    assert "hashes" not in parts["numpy"]
    assert parts["numpy"]["licenses"] == [{"expression": "BSD-3-Clause"}]


def test_removed_files_are_listed_with_reason_and_size() -> None:
    row = Removed(reason="tests", path="numpy/tests/", files=3, size=700, digest="d")
    cut = Removed(reason="symbols", path="numpy/a.so", files=1, size=900, digest="a", left=300, becomes="b")
    part = next(one for one in document()["components"] if one["name"] == "numpy")
    listed = {("numpy", part["version"]): (row, cut)}
    contents = read(BASE, VENV, CUDA)
    made = json.loads(
        msgspec.json.encode(bom("a.b/c", digest("image"), contents, lockfile.parse(LOCK), left_out=listed))
    )
    said = [
        {"name": "envbuilder:left-out:symbols", "value": "1 files, 600 bytes"},
        {"name": "envbuilder:left-out:tests", "value": "3 files, 700 bytes"},
    ]
    lacking = [one["name"] for one in made["components"] if "left-out" in json.dumps(one)]
    assert made["metadata"]["component"]["properties"] == said
    assert lacking == ["numpy"]
    assert all(one in next(c for c in made["components"] if c["name"] == "numpy")["properties"] for one in said)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made)) is None


def test_licences_are_those_of_the_packages_own_files() -> None:
    filed = "Name: a\nVersion: 1\nClassifier: License :: OSI Approved :: MIT License\n"
    files = {
        "var/lib/dpkg/status": TEXTS["status"],
        "usr/share/doc/libc-bin/copyright": TEXTS["copyright"],
        "usr/share/doc/libcudnn9-cuda-12/copyright": "All rights reserved.\nLicense: nothing\n",
        f"{SITE}/a-1.dist-info/METADATA": filed,
        f"{SITE}/b-1.dist-info/METADATA": "Name: b\nVersion: 1\n",
    }
    link = tar(files, {"usr/share/doc/libc6": "libc-bin"})
    found = found_in(link)
    assert {package.name: package.licences for package in found.packages} == {
        "libc6": ("LGPL-2.1+ and BSD-3-clause", "GPL-2+ with exception"),
        "libcudnn9-cuda-12": (),
        "a": ("MIT License",),
        "b": (),
    }


EPOCHS = """Package: bsdutils
Status: install ok installed
Architecture: amd64
Source: util-linux (2.38.1-5+deb12u3)
Version: 1:2.38.1-5+deb12u3~x
"""


def test_package_urls_are_what_others_write() -> None:
    files = {**BASE, "var/lib/dpkg/status": TEXTS["status"] + "\n" + EPOCHS}
    contents = read(files, VENV, CUDA)
    made = bom("registry.example.org:5000/team/image", digest("image"), contents, lockfile.parse(LOCK))
    decoded = json.loads(msgspec.json.encode(made))
    urls = [decoded["metadata"]["component"]["purl"], *(part.get("purl", "") for part in decoded["components"])]
    known = [url for url in urls if url]
    assert any(url.startswith("pkg:deb/debian/bsdutils@1:2.38.1-5%2Bdeb12u3~x?") for url in known)
    assert [PackageURL.from_string(url).to_string() for url in known] == known
    assert len(known) >= 5


def test_requirement_of_a_package_is_an_edge_to_a_present_one() -> None:
    status = (
        "Package: app\nVersion: 1\nArchitecture: amd64\nPre-Depends: libc6 (>= 2.3), absent\n"
        "Depends: nothing | libcudnn9-cuda-12:any (= 9)\n\n"
    )
    framework = (
        "Name: framework\nVersion: 1\nRequires-Dist: NumPy<3,>=1; python_version >= '3.9'\n"
        "Requires-Dist: nvidia-cublas-cu12; python_version < '3.9'\nRequires-Dist: gast; extra == 'dev'\n"
        "Requires-Dist: not a requirement ;;\nRequires-Dist: absent\n"
    )
    layer = {"var/lib/dpkg/status": status + TEXTS["status"], f"{SITE}/framework-1.dist-info/METADATA": framework}
    contents = read({**BASE, **layer}, VENV, CUDA)
    made = bom("a.b/c", digest("image"), contents, ())
    graph = {str(edge["ref"]): edge["dependsOn"] for edge in made["dependencies"]}
    ref = {part["name"]: part["bom-ref"] for part in made["components"]}
    assert graph[ref["app"]] == tuple(sorted((ref["libc6"], ref["libcudnn9-cuda-12"])))
    assert graph[ref["framework"]] == (ref["numpy"],)
    assert graph[ref["numpy"]] == ()
    assert set(graph) == {digest("image"), *(part["bom-ref"] for part in made["components"] if "purl" in part)}
    encoded = msgspec.json.encode(made).decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(encoded) is None


def test_two_copies_of_a_version_are_one_component() -> None:
    bundled = {f"{SITE}/setuptools/_vendor/numpy-2.1.3.dist-info/METADATA": NUMPY.replace("BSD-3-Clause", "MIT")}
    contents = read(VENV, bundled)
    assert len(contents.packages) == 2
    assert [part["name"] for part in bom("a.b/c", digest("image"), contents, ())["components"]] == ["numpy"]
