"""Images that add layers to those of a known environment: additions are listed, changes are errors."""

from dataclasses import replace

import pytest
from made_images import SITE, SYSTEM, Layer, cache_of, context_of, findings_of, image_of, package
from table_rows import rows

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Severity
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.validate import additions

NUMPY = {"numpy/__init__.py": b"version = 2\n", "numpy/core.so": b"code"}
OWN: Layer = {
    **{path: LayerFile(path, "folder") for path in (SITE, f"{SITE}/numpy", f"{SITE}/tensorflow")},
    **SYSTEM,
    **package("numpy", "2.4.6", NUMPY),
    **package("six", "1.17.0", {"six.py": b""}),
    "var/lib/dpkg/status": b"Package: all\nVersion: 1\n",
}
PANDAS = package(
    "pandas", "3.0.1", {"pandas/__init__.py": b"x = 1\n", "../../../bin/pandas": b"#!/opt/venv/bin/python\n"}
)
LOCK = "numpy==2.4.6\nsix==1.17.0\n"
APT: Layer = {
    "var/lib/dpkg/status": b"Package: all\nVersion: 1\n\nPackage: git\nVersion: 1:2.39\n",
    "var/lib/dpkg/info/git.list": b"/usr/bin/git\n",
    "usr/bin/git": b"\x7fELF",
}
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nTWluZQ==\n-----END CERTIFICATE-----\n"
PACKAGED = "usr/share/ca-certificates/mozilla/one.crt"
AUTHORITIES: Layer = {
    "usr/local/share/ca-certificates/company.crt": CERTIFICATE,
    "etc/ssl/certs/ca-certificates.crt": CERTIFICATE,
    "etc/ssl/certs/company.pem": "/usr/local/share/ca-certificates/company.crt",
}


def derived(*layers: Layer, own: int = 1) -> ImageContext:
    below = {**OWN, PACKAGED: CERTIFICATE.replace(b"TWlu", b"WW91")}
    subject = context_of(image_of(below, *layers), lock=LOCK, facts={"locked": (("numpy", "2.4.6"), ("six", "1.17.0"))})
    return replace(subject, own_layers=own, proven=own)


def found(subject: ImageContext, check: str, severity: Severity = Severity.ERROR) -> list[Code]:
    return [one.code for one in findings_of(check, subject) if one.severity is severity]


@pytest.mark.parametrize(
    ("layer", "check", "unknown"),
    [
        (PANDAS, "locked", [Code.LOCK_MISMATCH]),
        (PANDAS, "files", []),
        (AUTHORITIES, "secrets", [Code.SECRET_IN_IMAGE] * 2),
    ],
)
def test_addition_is_an_error_only_above_unknown_layers(layer: Layer, check: str, unknown: list[Code]) -> None:
    assert found(derived(layer), check) == []
    assert found(derived(layer, own=0), check) == unknown


def test_packages_and_folders_of_later_layers_are_listed_with_their_sizes() -> None:
    listed = additions(derived({**PANDAS, **APT, "srv/app/model/weights.bin": bytes(1000)}))
    named = [(one.kind, one.name, one.version) for one in listed]
    assert named == [
        ("package", "pandas", "3.0.1"),
        ("system package", "git", "1:2.39"),
        ("files", "/srv/app", ""),
        ("files", "/var/lib", ""),
    ]
    assert [(one.files, one.size) for one in listed][1:3] == [(1, 4), (1, 1000)]
    assert additions(derived(PANDAS, own=0)) == ()
    assert additions(derived()) == ()


def test_packages_of_another_folder_or_environment_are_listed_by_name() -> None:
    apart: Layer = {path.replace(SITE, "srv/lib"): what for path, what in PANDAS.items() if "/bin/" not in path}
    other: Layer = {path.replace("opt/venv", "opt/other"): what for path, what in package("six", "1.10", {}).items()}
    listed = additions(derived({**apart, **other}))
    assert [(one.name, one.version) for one in listed if one.kind == "package"] == [
        ("pandas", "3.0.1"),
        ("six", "1.10"),
    ]
    assert found(derived(other), "files", Severity.WARNING) == []
    assert (
        found(derived({"opt/other/lib/python3.11/site-packages/_virtualenv.pth": b"import _virtualenv\n"}), "files")
        == []
    )


@rows
def test_library_of_an_addition_is_an_error_if_it_hides_one_below(path: str, *, hides: bool) -> None:
    settings: Layer = {
        "etc/ld.so.conf.d/geo.conf": b"/opt/geo/lib\n",
        "etc/ld.so.cache": cache_of({"libz.so.1": "/opt/geo/lib/libcached.so"}),
    }
    layer: Layer = {path: LayerFile(path, "file", mode=0o644, size=1, pieces=lambda: iter([b"x"]))}
    assert found(derived({**settings, **layer}), "files") == [Code.FILES_DIFFER] * hides


def test_environment_that_is_made_again_in_its_place_is_the_same() -> None:
    settings = OWN["opt/venv/pyvenv.cfg"]
    assert isinstance(settings, bytes)
    again = settings + b"command = /opt/venv/bin/python3 -m venv /opt/venv\n"
    assert found(derived({"opt/venv/pyvenv.cfg": again}), "files") == []
    opened = settings.replace(b"false", b"true")
    assert found(derived({"opt/venv/pyvenv.cfg": opened}), "files") == [Code.FILES_DIFFER]


def test_files_that_a_record_proves_are_not_compared_again() -> None:
    changed = {f"{SITE}/numpy/core.so": b"other code"}
    subject = context_of(image_of({**OWN, **changed}, {"srv/app.py": b""}), lock=LOCK)
    assert found(replace(subject, own_layers=1), "files") == [Code.FILES_DIFFER]
    assert found(replace(subject, own_layers=1, proven=1), "files") == []


@pytest.mark.parametrize(
    ("layer", "check", "code"),
    [
        ({f"{SITE}/numpy/__init__.py": b"version = 1\n"}, "files", Code.FILES_DIFFER),
        (package("pandas", "3", {"numpy/__init__.py": b"version = 3\n"}), "files", Code.FILES_DIFFER),
        (package("pandas", "3", {"numpy/core.py": b"x = 1\n"}), "files", Code.FILES_DIFFER),
        (package("pandas", "3", {"numpy.py": b"x = 1\n"}), "files", Code.FILES_DIFFER),
        ({**PANDAS, f"{SITE}/pandas/__init__.py": b"x = 2\n"}, "files", Code.FILES_DIFFER),
        (package("numpy", "2.0.0", {}), "locked", Code.LOCK_MISMATCH),
        (
            {f"{SITE}/tf_nightly-2.21.0.dist-info/METADATA": b"Name: tf-nightly\nVersion: 2\n"},
            "locked",
            Code.LOCK_MISMATCH,
        ),
    ],
)
def test_addition_that_changes_or_hides_a_lower_layer_is_an_error(layer: Layer, check: str, code: Code) -> None:
    assert code in found(derived(layer), check)


def test_editable_install_is_a_warning() -> None:
    layer = package("team", "1", {"team-1.dist-info/direct_url.json": b'{"dir_info": {"editable": true}}'})
    assert found(derived(layer), "files") == []
    assert Code.FILES_DIFFER in found(derived(layer), "files", Severity.WARNING)
