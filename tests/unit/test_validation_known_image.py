"""Known images: what equals a record or differs from it, which are not read, and what was added to one."""

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import pytest
from factories import check, digest, environment, failed_verdict, verdict, workspace
from fake_engine import FakeEngine
from made_images import SITE, SYSTEM, cache_of, context_of, findings_of, image_of, package, record
from made_images import Layer as ImageLayer
from table_rows import rows

from envbuilder.catalog.store import load
from envbuilder.engine.port import Image, Layer, LayerFile, LayerStream
from envbuilder.finding import Code, Severity
from envbuilder.image.build import digests_of
from envbuilder.image.context import build_files
from envbuilder.image.names import BASE_DIGEST_LABEL, BASE_NAME_LABEL, ENVIRONMENT_LABEL, HOST_LABELS, reference
from envbuilder.validation import known_image, suite_plan, validate_request, verdict_store
from envbuilder.validation import validate as validate_module
from envbuilder.validation.image_context import ImageContext
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.known_image import KnownImage, describe, differences
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.validation.validate import ValidationRequest, additions, validate
from envbuilder.validation.verdict_store import validate_and_record
from envbuilder.verdict import CheckResult, Verdict
from envbuilder.workspace import read_document, write_atomically, write_document

HOST_CHECKS = tuple(one for one in CHECKS if one.group == "host")
HOST_NAMES = {one.name for one in HOST_CHECKS}
RESULTS = tuple(check(one.name, level="static") for one in HOST_CHECKS)
CONTEXT = digest("the build files")
SETTINGS: dict[str, object] = {
    "env": ("PATH=/opt/venv/bin", "TF_CPP_MIN_LOG_LEVEL=1"),
    "user": "envbuilder",
    "cmd": ("python",),
    "working_dir": "/home/envbuilder",
    "labels": {},
}
BASE = Image(
    id=digest("base"),
    tags=(),
    digests=(),
    size=0,
    labels={"org.envbuilder.base.key": "of this host"},
    env={},
    user="",
    architecture="amd64",
    layers=(Layer(digest("base layer"), 1),),
    history=("",),
)
OURS = replace(
    BASE,
    id=digest("ours"),
    labels={**BASE.labels, BASE_NAME_LABEL: "debian:one", BASE_DIGEST_LABEL: digest("one"), "title": "ours"},
    layers=(
        *BASE.layers,
        Layer(digest("b"), 1, "RUN /bin/sh -c install b # buildkit"),
        Layer(digest("c"), 1, "COPY c /"),
    ),
    history=("CMD python", "COPY c /", "RUN install b", *BASE.history),
    settings=SETTINGS,
)
FILES: tuple[dict[str, bytes | str], ...] = ({}, {"usr/lib/b.py": b"b"}, {"c": b"c", "link": "c"})


def read(*layers: Any) -> ImageFiles:
    return ImageFiles(tuple(record(layer) for layer in layers or FILES))


def unread() -> ImageFiles:
    raise AssertionError("the image's files were read")


KNOWN = describe(OURS, BASE, read(), RESULTS, CONTEXT)


def found(image: Image, files: Callable[[], ImageFiles] = unread, base: Image | None = BASE) -> tuple[str, ...]:
    return differences(KNOWN, image, base, HOST_CHECKS, files)


def test_equal_image_is_not_read() -> None:
    assert found(OURS) == ()
    assert found(replace(OURS, labels={**OURS.labels, **dict.fromkeys(HOST_LABELS, "another")})) == ()


@rows
def test_each_different_setting_is_named(settings: dict[str, object], expected: list[str]) -> None:
    assert found(replace(OURS, settings={**SETTINGS, **settings})) == tuple(expected)


def test_labels_architecture_and_instructions_are_compared() -> None:
    assert found(replace(OURS, labels={**OURS.labels, "title": "others"})) == ("label title",)
    assert found(replace(OURS, architecture="arm64")) == ("architecture",)
    assert found(replace(OURS, history=("RUN true", *OURS.history))) == ("history",)
    assert found(replace(OURS, history=(*OURS.history, "ENV TOKEN=1"))) == ("history",)


def with_layers(*names: str) -> Image:
    return replace(OURS, layers=(*BASE.layers, *(Layer(digest(name), 1, f"COPY {name} /") for name in names)))


def test_another_tar_format_of_the_same_entries_is_equal() -> None:
    swapped_order = {"link": "c", "c": b"c"}
    assert (
        found(with_layers("b in another format", "c in another format"), partial(read, *FILES[:2], swapped_order)) == ()
    )


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        (({"usr/lib/b.py": b"bad"}, FILES[2]), ("layer 1 above the base (install b)",)),
        ((FILES[1], {"c": b"c", "link": "b"}), ("layer 2 above the base (COPY c /)",)),
        ((FILES[1], FILES[2], {"d": b"d"}), ("layer 3 above the base (COPY 2 /)",)),
        ((FILES[1],), ("layer 2 above the base (COPY c /)",)),
        ((), ("layer 1 above the base (install b)", "layer 2 above the base (COPY c /)")),
    ],
    ids=["a file", "a link", "one more", "one less", "none"],
)
def test_different_layer_is_named(layers: tuple[Any, ...], expected: tuple[str, ...]) -> None:
    assert found(with_layers(*map(str, range(len(layers)))), partial(read, {}, *layers)) == expected


@pytest.mark.parametrize("field", ["mode", "uid", "size", "modified", "has_capabilities"])
def test_every_property_of_an_entry_counts(field: str) -> None:
    layer = record({"a": b"a"})
    changed = msgspec.structs.replace(layer, rows=(msgspec.structs.replace(layer.rows[0], **{field: 7}),))
    assert known_image.entries(changed) != known_image.entries(layer)


def test_unknown_base_or_a_new_check_is_a_difference() -> None:
    assert found(OURS, base=None) == ("its lowest layers are not a base that this host has",)
    fewer = msgspec.structs.replace(KNOWN, checks={})
    assert differences(fewer, OURS, BASE, HOST_CHECKS, unread) == ("it lacks a check of this suite",)


def test_record_of_other_build_files_or_a_damaged_one_does_not_count() -> None:
    written = msgspec.json.encode(KNOWN)
    assert known_image.parse(written, CONTEXT) == KNOWN
    assert known_image.parse(written, digest("a changed lock")) is None
    assert known_image.parse(written[:-9], CONTEXT) is None
    assert known_image.parse(b"", CONTEXT) is None
    assert known_image.parse(msgspec.json.encode(msgspec.structs.replace(KNOWN, files="")), "") is None


@dataclass
class CountingEngine(FakeEngine):
    reads: int = 0

    @contextmanager
    def layer_files(self, *references: str, without: Collection[int] = ()) -> Iterator[Iterator[LayerStream]]:
        self.reads += 1
        with super().layer_files(*references, without=without) as streams:
            yield streams


def validated(image: Image, **given: Any) -> tuple[dict[str, CheckResult], int]:
    """Validate an image whose record is `KNOWN`; return its checks on the host and how often its files were read."""
    engine = CountingEngine(_store={"ours:1": image, "base:1": BASE})
    request = ValidationRequest("ours:1", environment=environment(), base_id=BASE.id, context=CONTEXT, known=KNOWN)
    found = validate(engine, replace(request, **given))
    return {one.name: one for one in found.checks if one.name in HOST_NAMES}, engine.reads


def test_static_checks_of_a_known_image_pass_by_its_record() -> None:
    checks, reads = validated(OURS)
    assert reads == 0
    assert {one.outcome for one in checks.values()} == {"passed"}
    suite = suite_plan.digest().removeprefix("sha256:")[:16]
    assert all(f"suite {suite}" in one.observed for one in checks.values())


@pytest.mark.parametrize("given", [{"fresh": True}, {"profile": "full"}, {"known": None}, {"base_id": digest("x")}])
def test_files_are_read_on_request_and_without_record_or_base(
    given: dict[str, object], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checks, reads = validated(OURS, **given)
    assert reads == 1
    assert "equal the record" not in checks["files"].observed


def test_different_image_is_read_and_its_difference_reported(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checks, reads = validated(replace(OURS, settings={**SETTINGS, "user": "root"}, user="root"))
    assert reads == 1
    assert "record does not prove the image (user); about the record nothing" in checks["claims"].observed


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ({}, f"digests of their packages only: envbuilder build {environment().id}, and validate again"),
        ({"built": OURS.id}, "to renew the record, delete image.json"),
        ({"base_layers": tuple(one.diff_id for one in BASE.layers)}, "about the record nothing needs to be done"),
    ],
    ids=["unknown base", "built here", "recorded base"],
)
def test_note_about_the_record_says_what_to_do(
    given: dict[str, Any], then: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    checks, _ = validated(OURS, base_id=digest("of another host"), **given)
    assert "(its lowest layers are not a base that this host has)" in checks["claims"].observed
    assert then in checks["claims"].observed


@pytest.mark.parametrize("layers", [(), ("more", "and more")])
def test_layers_of_a_record_are_found_below_additions_and_on_another_base(layers: tuple[str, ...]) -> None:
    above = tuple(Layer(digest(name), 1) for name in layers)
    image = replace(OURS, layers=(*OURS.layers, *above))
    assert known_image.place(KNOWN, image) == range(1, 3)
    rebased = replace(image, layers=(Layer(digest("one"), 1), Layer(digest("two"), 1), *image.layers[1:]))
    assert known_image.place(KNOWN, rebased) == range(2, 4)
    assert not known_image.place(KNOWN, replace(image, layers=(*image.layers[:2], *above)))
    assert not known_image.place(None, image)


def test_layer_on_a_known_image_is_an_addition_on_another_host(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(validate_module, "read_image", lambda *_: read(*FILES, {"srv/app.py": b"x"}))
    image = replace(OURS, layers=(*OURS.layers, Layer(digest("more"), 1)))
    for base_id, is_proven in ((BASE.id, True), (digest("of another host"), False)):
        request = ValidationRequest("x", environment=environment(), base_id=base_id, context=CONTEXT, known=KNOWN)
        engine = FakeEngine(_store={"x": image, "base:1": BASE})
        target = validate_module._Target(engine, image, request, has_gpus=False)
        context = target._context(1 if is_proven else 0)
        assert (context.own_layers, context.proven) == (3, 3 if is_proven else 0)
        found = validate(engine, request)
        assert [(one.kind, one.name) for one in found.additions] == [("files", "/srv/app.py")]


def test_flattened_image_without_labels_is_of_its_document(monkeypatch: pytest.MonkeyPatch) -> None:
    files = read(*FILES, {"opt/envbuilder/environment.json": msgspec.json.encode(environment())})
    monkeypatch.setattr(validate_module, "read_image", lambda *_: files)
    for labels, expected in (({}, environment()), ({ENVIRONMENT_LABEL: "other"}, None)):
        request, image = ValidationRequest("x", catalog=load()), replace(OURS, labels=labels)
        assert validate_module._Target(FakeEngine(), image, request, has_gpus=False).environment == expected


def test_image_on_recorded_layers_is_of_its_environment_without_a_build_on_this_host(tmp_path: Any) -> None:
    there, own = workspace(tmp_path), environment()
    files = {"environment.json": msgspec.json.encode(own), "Dockerfile": b"FROM x", "requirements.lock": b""}
    for name, content in files.items():
        write_atomically(there.context(own.id) / name, content)
    key = known_image.key_of(digests_of(build_files(own.id, there)))
    write_document(there.known_image(own.id), msgspec.structs.replace(KNOWN, files=key))
    image = replace(OURS, labels={ENVIRONMENT_LABEL: own.id}, layers=(*OURS.layers, Layer(digest("more"), 1)))
    for layers, expected in ((image.layers, own.id), (image.layers[:2], None)):
        engine = FakeEngine(_store={"x:1": replace(image, layers=layers)})
        request = validate_request._of_image(ValidationRequest("x:1"), None, engine, there, load())
        assert (request.environment and request.environment.id) == expected


def test_image_on_the_environments_image_of_this_engine_has_additions_without_a_record(tmp_path: Any) -> None:
    labels = {ENVIRONMENT_LABEL: environment().id}
    more = replace(OURS, id=digest("more"), labels=labels, layers=(*OURS.layers, Layer(digest("more"), 1)))
    engine = FakeEngine(_store={"x:1": more, reference(environment().id): OURS, "y:1": replace(OURS, labels=labels)})
    for name, built in (("x:1", OURS.id), ("y:1", "")):
        request = validate_request._of_image(ValidationRequest(name), None, engine, workspace(tmp_path), load())
        assert (request.environment, request.built) == (None, built)


@pytest.mark.parametrize(
    ("before", "found", "built", "written"),
    [
        (None, verdict(), True, True),
        (None, verdict(), False, False),
        (None, failed_verdict(), True, False),
        (KNOWN, verdict(), True, False),
        (msgspec.structs.replace(KNOWN, checks={}), verdict(), True, True),
    ],
    ids=["none yet", "an image of another build", "a failed image", "of these files", "without a new check"],
)
def test_record_is_written_for_new_build_files_only(
    before: KnownImage | None,
    found: Verdict,
    *,
    built: bool,
    written: bool,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def looked(engine: object, request: object, *, on_look: Callable[[KnownImage], None], **more: object) -> Verdict:
        on_look(KNOWN)
        return found

    monkeypatch.setattr(verdict_store, "validate", looked)
    place = workspace(tmp_path)
    request = ValidationRequest(
        "sha256:1", environment=found.environment, built=found.image.id if built else digest("other"), known=before
    )
    validate_and_record(request, FakeEngine(), place, on_progress=lambda _: None)
    stored = read_document(place.known_image(found.environment.id), KnownImage)
    assert stored == (KNOWN if written else None)


NUMPY = {"numpy/__init__.py": b"version = 2\n", "numpy/core.so": b"code"}
OWN: ImageLayer = {
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
APT: ImageLayer = {
    "var/lib/dpkg/status": b"Package: all\nVersion: 1\n\nPackage: git\nVersion: 1:2.39\n",
    "var/lib/dpkg/info/git.list": b"/usr/bin/git\n",
    "usr/bin/git": b"\x7fELF",
}
CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nTWluZQ==\n-----END CERTIFICATE-----\n"
PACKAGED = "usr/share/ca-certificates/mozilla/one.crt"
AUTHORITIES: ImageLayer = {
    "usr/local/share/ca-certificates/company.crt": CERTIFICATE,
    "etc/ssl/certs/ca-certificates.crt": CERTIFICATE,
    "etc/ssl/certs/company.pem": "/usr/local/share/ca-certificates/company.crt",
}


def derived(*layers: ImageLayer, own: int = 1) -> ImageContext:
    below = {**OWN, PACKAGED: CERTIFICATE.replace(b"TWlu", b"WW91")}
    subject = context_of(image_of(below, *layers), lock=LOCK, facts={"locked": (("numpy", "2.4.6"), ("six", "1.17.0"))})
    return replace(subject, own_layers=own, proven=own)


def added(subject: ImageContext, check: str, severity: Severity = Severity.ERROR) -> list[Code]:
    return [one.code for one in findings_of(check, subject) if one.severity is severity]


@pytest.mark.parametrize(
    ("layer", "check", "unknown"),
    [
        (PANDAS, "locked", [Code.LOCK_MISMATCH]),
        (PANDAS, "files", []),
        (AUTHORITIES, "secrets", [Code.SECRET_IN_IMAGE] * 2),
    ],
)
def test_addition_is_an_error_only_above_unknown_layers(layer: ImageLayer, check: str, unknown: list[Code]) -> None:
    assert added(derived(layer), check) == []
    assert added(derived(layer, own=0), check) == unknown


def test_packages_and_folders_of_later_layers_are_listed_with_their_sizes() -> None:
    four = {f"srv/app/model/{number}": bytes(250) for number in range(4)}
    listed = additions(derived({**PANDAS, **APT, **four}))
    named = [(one.kind, one.name, one.version) for one in listed]
    assert named == [
        ("package", "pandas", "3.0.1"),
        ("system package", "git", "1:2.39"),
        ("files", "/srv/app", ""),
        ("files", "/var/lib/dpkg/info/git.list", ""),
        ("files", "/var/lib/dpkg/status", ""),
    ]
    assert [(one.files, one.size) for one in listed][1:3] == [(1, 4), (4, 1000)]
    assert additions(derived(PANDAS, own=0)) == ()
    assert additions(derived()) == ()


def test_packages_of_another_folder_or_environment_are_listed_by_name() -> None:
    apart: ImageLayer = {path.replace(SITE, "srv/lib"): what for path, what in PANDAS.items() if "/bin/" not in path}
    other: ImageLayer = {
        path.replace("opt/venv", "opt/other"): what for path, what in package("six", "1.10", {}).items()
    }
    listed = additions(derived({**apart, **other}))
    assert [(one.name, one.version) for one in listed if one.kind == "package"] == [
        ("pandas", "3.0.1"),
        ("six", "1.10"),
    ]
    assert added(derived(other), "files", Severity.WARNING) == []
    assert (
        added(derived({"opt/other/lib/python3.11/site-packages/_virtualenv.pth": b"import _virtualenv\n"}), "files")
        == []
    )


@rows
def test_library_of_an_addition_is_an_error_if_it_hides_one_below(path: str, *, hides: bool) -> None:
    settings: ImageLayer = {
        "etc/ld.so.conf.d/geo.conf": b"/opt/geo/lib\n",
        "etc/ld.so.cache": cache_of({"libz.so.1": "/opt/geo/lib/libcached.so"}),
    }
    layer: ImageLayer = {path: LayerFile(path, "file", mode=0o644, size=1, pieces=lambda: iter([b"x"]))}
    assert added(derived({**settings, **layer}), "files") == [Code.FILES_DIFFER] * hides


def test_environment_that_is_made_again_in_its_place_is_the_same() -> None:
    settings = OWN["opt/venv/pyvenv.cfg"]
    assert isinstance(settings, bytes)
    again = settings + b"command = /opt/venv/bin/python3 -m venv /opt/venv\n"
    assert added(derived({"opt/venv/pyvenv.cfg": again}), "files") == []
    opened = settings.replace(b"false", b"true")
    assert added(derived({"opt/venv/pyvenv.cfg": opened}), "files") == [Code.FILES_DIFFER]


def test_files_that_a_record_proves_are_not_compared_again() -> None:
    changed = {f"{SITE}/numpy/core.so": b"other code"}
    subject = context_of(image_of({**OWN, **changed}, {"srv/app.py": b""}), lock=LOCK)
    assert added(replace(subject, own_layers=1), "files") == [Code.FILES_DIFFER]
    assert added(replace(subject, own_layers=1, proven=1), "files") == []


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
def test_addition_that_changes_or_hides_a_lower_layer_is_an_error(layer: ImageLayer, check: str, code: Code) -> None:
    assert code in added(derived(layer), check)


def test_editable_install_is_a_warning() -> None:
    layer = package("team", "1", {"team-1.dist-info/direct_url.json": b'{"dir_info": {"editable": true}}'})
    assert added(derived(layer), "files") == []
    assert Code.FILES_DIFFER in added(derived(layer), "files", Severity.WARNING)
