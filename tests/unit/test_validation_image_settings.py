"""Variables, settings, user and entry point of an image."""

import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from made_images import SITE, Layer, context_of, file, folder, image_of, package
from table_rows import rows

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.image_settings import configuration, requirement
from envbuilder.validation.judge import mark_consequences
from envbuilder.validation.suite_plan import CHECKS
from envbuilder.validation.validate import run_host_checks
from envbuilder.verdict import CheckResult

ROOT: Layer = {
    "opt/venv/bin/python": b"#!",
    "usr/bin/jq": b"#!",
    "etc/passwd": b"root:x:0:0::/:/bin/sh\nenvbuilder:x:1000:1000::/:/bin/sh\n",
    "opt/libx.so": b"x",
    **package("tensorflow", "2.20.0", {"tensorflow/__init__.py": b"1"}),
    f"{SITE}/tensorflow": "/elsewhere",
}
PATH, OF_D = {"PATH": "/opt/venv/bin:/usr/bin"}, {"var/lib/dpkg/info/d.list": b"/usr/bin/d\n"}


def configured(
    *layers: Layer, env: Mapping[str, str] | None = None, flavor: str = "cpu", **image: Any
) -> list[Finding]:
    facts = {"python": "3.11", "flavor": flavor}
    return list(
        configuration(context_of(image_of(*layers), env={**PATH, **(env or {})}, facts=facts, **image)).findings
    )


@rows
def test_start_up_requirement_must_be_valid_and_admit_newer_drivers(env: dict[str, str], severities: list[str]) -> None:
    looked = requirement(context_of(image_of(), env=env, facts={"flavor": "gpu", "cuda": "12.5"}))
    assert [one.severity.value for one in looked.findings] == severities
    assert {one.code for one in looked.findings} <= {Code.CONTAINER_REQUIREMENT}


def test_foreign_image_needs_no_start_up_requirement() -> None:
    facts = {"flavor": "gpu", "cuda": "12.5", "environment": ""}
    assert requirement(context_of(image_of(), env={}, facts=facts)).findings == ()


@rows
def test_variable_that_breaks_the_image_is_the_only_error(name: str, value: str) -> None:
    errors = [one for one in configured(ROOT, env={name: value}, flavor="gpu") if one.severity is Severity.ERROR]
    code = Code.XLA_TOOLS_MISSING if "data_dir" in value else Code.IMAGE_CONFIGURATION
    hides_gpus = name.endswith(("_VISIBLE_DEVICES", "_DRIVER_CAPABILITIES"))
    assert [(one.code, one.subject) for one in errors] == [(Code.GPU_NOT_VISIBLE if hides_gpus else code, name)]


@pytest.mark.parametrize(
    ("image", "subject"),
    [
        ({"entrypoint": ("/no/such/program",)}, "entry point"),
        ({"entrypoint": ("nosuch",)}, "entry point"),
        ({"command": ("/opt/venv/bin/jupyter",)}, "command"),
        ({"user": "nobodyknows"}, "USER"),
    ],
)
def test_missing_entry_point_command_or_user_is_an_error(image: dict[str, Any], subject: str) -> None:
    (one,) = configured(ROOT, **image)
    assert (one.code, one.severity, one.subject) == (Code.IMAGE_CONFIGURATION, Severity.ERROR, subject)


@pytest.mark.parametrize(
    ("script", "image", "text"),
    [
        (file("app/a.sh", 0o700), {}, "may not be executed by envbuilder (mode 700)"),
        (file("app/a.sh", 0o644), {"user": "root"}, "may not be executed by root (mode 644)"),
        (file("app/a.sh", 0o700), {"user": "root"}, ""),
        ({"app/a.sh": b"#!/bin/nosh\n"}, {}, "cannot start: '/bin/nosh'"),
        (file("app/a.sh", 0o755), {}, ""),
    ],
)
def test_program_of_the_entry_point_is_one_that_its_user_may_execute(
    script: Layer, image: dict[str, Any], text: str
) -> None:
    found = configured({**ROOT, **script}, entrypoint=("/app/a.sh",), command=("python",), **image)
    errors = [one.message for one in found if one.severity is Severity.ERROR and one.code is Code.IMAGE_CONFIGURATION]
    assert [text in message for message in errors] == [True] * bool(text)


@pytest.mark.parametrize(
    ("mode", "command", "is_closed"),
    [
        (0o600, ("python", "train.py"), True),
        (0o600, ("/bin/sh", "-c", "python train.py"), True),
        (0o644, ("python", "train.py"), False),
    ],
)
def test_script_of_the_command_that_its_user_may_not_read_is_an_error(
    mode: int, command: tuple[str, ...], *, is_closed: bool
) -> None:
    found = configured({**ROOT, "bin/sh": b"", **file("app/train.py", mode)}, command=command, workdir="/app")
    assert [one.code for one in found if "/app/train.py" in one.message] == [Code.USER_START] * is_closed


@rows
def test_health_check_without_its_program_is_a_warning(test: list[str], *, is_reported: bool) -> None:
    found = configured(ROOT, settings={"healthcheck": {"Test": test}})
    assert ["is not in the image" in one.message for one in found if one.severity is Severity.WARNING] == [
        True
    ] * is_reported


@rows
def test_start_that_names_what_is_not_there_is_a_warning(line: str, image: dict[str, Any], text: str) -> None:
    files = {path: name.encode() for path, name in image.pop("files", {}).items()}
    words = shlex.split(line) if line[:1] != "/" else ("/bin/sh", "-c", line[1:])
    there: Layer = {**ROOT, f"{SITE}/uvicorn/__main__.py": b"1", "app/a.py": b"1", "srv/train.py": b"1", **files}
    found = configured(there, **{"command": words, "workdir": "/app", **image})
    told = [one.message + one.fix for one in found if one.severity is Severity.WARNING]
    assert [text in one for one in told] == [True] * bool(text)


@rows
def test_command_that_starts_the_system_s_python_is_a_warning(line: str, words: list[str], *, is_other: bool) -> None:
    text = line.encode() + b"\n"
    script = LayerFile("app/a.py", "file", mode=0o755, size=len(text), pieces=lambda: iter([text]))
    layer = {**ROOT, "usr/bin/d": script, "app/a.py": script, **file("usr/bin/python3", 0o755), **OF_D}
    told = [one for one in configured(layer, command=tuple(words), workdir="/app") if "not the Python" in one.message]
    assert [one.severity for one in told] == [Severity.WARNING] * is_other


@rows
def test_valid_value_has_no_finding(name: str, value: str) -> None:
    for flavor in ("cpu", "gpu"):
        assert configured(ROOT, env={name: value}, flavor=flavor, command=("python",)) == []


@rows
def test_variable_that_changes_every_program_or_names_gpus_of_one_host_is_a_warning(name: str, value: str) -> None:
    (one,) = configured(ROOT, env={name: value}, flavor="gpu")
    assert (one.severity, one.subject) == (Severity.WARNING, name)


def test_variables_of_files_and_of_later_builds_are_judged_by_the_same_table_as_warnings() -> None:
    files: Layer = {
        **ROOT,
        "etc/environment": b'# PYTHONHASHSEED=soup\nPYTHONWARNINGS="error"\nLANG=C.UTF-8\n',
        "etc/nccl.conf": b"NCCL_NET_PLUGIN=libx.so\nNCCL_DEBUG=WARN\n",
    }
    later = {"on_build": ("RUN true", "ENV KERAS_BACKEND=torch LANG=C", "env TF_NO_SUCH=1")}
    assert [(one.severity.value, one.subject) for one in configured(files, settings=later)] == [
        ("warning", "/etc/environment: PYTHONWARNINGS"),
        ("warning", "/etc/nccl.conf: NCCL_NET_PLUGIN"),
        ("warning", "ONBUILD: KERAS_BACKEND"),
        ("warning", "ONBUILD: TF_NO_SUCH"),
    ]


def test_allocator_of_a_system_package_that_is_preloaded_is_a_warning() -> None:
    path = "usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    there: Layer = {**ROOT, path: b"code", "var/lib/dpkg/info/libjemalloc2.list": f"/{path}\n".encode()}
    (one,) = configured(there, env={"LD_PRELOAD": f"/{path}"}, user="1000")
    assert (one.subject, one.severity) == ("LD_PRELOAD", Severity.WARNING)


def test_volume_over_packages_is_a_warning_and_a_health_check_is_said() -> None:
    settings = {"volumes": {"/opt/venv": {}, "/data": {}}, "healthcheck": {"Test": ["CMD", "jq"]}}
    found = configured(ROOT, settings=settings)
    assert [(one.severity.value, one.subject) for one in found] == [("warning", "VOLUME"), ("info", "HEALTHCHECK")]


def test_folder_of_byte_code_that_replaces_sources_is_an_error() -> None:
    cached: Layer = {**ROOT, f"opt/cache/{SITE}/six.cpython-311.pyc": b"x"}
    (one,) = configured(cached, env={"PYTHONPYCACHEPREFIX": "/opt/cache"})
    assert (one.severity, one.subject) == (Severity.ERROR, "PYTHONPYCACHEPREFIX")


WHOLE_SYSTEM: Layer = {**ROOT, "bin/sh": b"", **{f"usr/share/doc/{number}": b"" for number in range(1000)}}


@rows
def test_tmp_that_the_user_cannot_write_to_is_reported(mode: int | None, uid: int, user: str, found: int) -> None:
    tmp: Layer = {} if mode is None else {"tmp": LayerFile("tmp", "folder", mode=mode, uid=uid)}
    assert [one.subject for one in configured(WHOLE_SYSTEM, tmp, user=user)] == ["/tmp"] * found


def test_python_with_file_capabilities_is_an_error() -> None:
    found = configured({**ROOT, **file("opt/venv/bin/python", 0o755, has_capabilities=True)})
    assert [(one.severity, one.subject) for one in found] == [(Severity.ERROR, "python")]


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({}, "home/x/.keras/keras.json"),
        ({"KERAS_HOME": "/opt/k"}, "opt/k/keras.json"),
        ({"HOME": "/srv"}, "srv/.keras/keras.json"),
    ],
)
def test_keras_settings_are_read_from_the_folder_that_keras_uses(env: dict[str, str], path: str) -> None:
    accounts: Layer = {**ROOT, "etc/passwd": b"envbuilder:x:1000:1000::/home/x:/bin/sh\n"}

    def found(settings: bytes, place: str = path, **more: str) -> list[tuple[Severity, str]]:
        looked = configured({**accounts, place: settings}, env={**env, **more})
        assert {one.code for one in looked} <= {Code.IMAGE_CONFIGURATION}
        return [(one.severity, one.subject) for one in looked]

    assert found(b'{"backend": "torch"}') == [(Severity.ERROR, "keras.json")]
    assert found(b'{"backend": "torch"}', KERAS_BACKEND="tensorflow") == []
    assert found(b'{"floatx": "float16"}') == [(Severity.WARNING, "keras.json")]
    assert found(b'{"backend": "tensorflow", "floatx": "float32", "image_data_format": "channels_last"}') == []
    assert found(b"{damaged") == [(Severity.WARNING, "keras.json")], "Keras passes over it, and it is said"
    assert found(b'{"backend": "torch"}', "opt/other/keras.json") == []


@pytest.mark.parametrize(
    ("settings", "severities"),
    [
        (b'{"backend": "jax", "epsilon": NaN}', [Severity.ERROR]),
        (b'{"backend": "tensorflow", "backend": "jax"}', [Severity.ERROR]),
        (b'{"backend": "jax", "floatx": 16}', [Severity.ERROR, Severity.ERROR]),
        (b'{"floatx": "bfloat16"}', [Severity.ERROR]),
        (b'{"floatx": "float64", "image_data_format": "channels_first"}', [Severity.WARNING, Severity.WARNING]),
        (b'{"epsilon": 1}', [Severity.ERROR]),
        (b'{"backend": "jax", "more": "\\ud800"}', [Severity.ERROR]),
        (b'{"floatx": "float32", "epsilon": NaN}', []),
        (b"[]", [Severity.ERROR]),
        (b"", [Severity.WARNING]),
        (b"[" * 100_000, [Severity.WARNING]),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}', [Severity.WARNING]),
    ],
)
def test_keras_settings_are_read_as_python_reads_json(settings: bytes, severities: list[Severity]) -> None:
    findings = configured({**ROOT, "root/.keras/keras.json": settings}, env={"HOME": "/root"})
    assert [one.severity for one in findings if one.subject == "keras.json"] == severities


def test_user_by_name_without_etc_passwd_is_an_error() -> None:
    above = {**folder("tmp", 0o1777), **folder("etc/passwd")}
    (one,) = configured(WHOLE_SYSTEM, above)
    assert (one.severity, one.subject) == (Severity.ERROR, "USER")
    assert configured(WHOLE_SYSTEM, above, user="1000") == []


@pytest.mark.parametrize("first", ["/usr/bin:/opt/venv/bin", "/usr/bin"])
def test_every_name_of_python_in_the_path_leads_to_the_environment(first: str) -> None:
    tensorflow = package("tensorflow", "2.20.0", {"tensorflow/__init__.py": b"1"})
    there: Layer = {
        **tensorflow,
        **folder(f"{SITE}/tensorflow"),
        "opt/venv/bin/python": b"#!",
        "usr/bin/python3": b"#!",
    }
    (one,) = configured(there, env={"PATH": first}, user="1000")
    assert (one.subject, one.severity, "/usr/bin/python3" in one.message) == ("PATH", Severity.ERROR, True)


def test_python_whose_link_leads_nowhere_is_named_with_its_target() -> None:
    there: Layer = {**package("tensorflow", "2.20.0", {"tensorflow/__init__.py": b"1"}), **folder(f"{SITE}/tensorflow")}
    links: Layer = {"opt/venv/bin/python": "python3.11", "opt/venv/bin/python3.11": "/usr/local/bin/python3.11"}
    told = configured({**there, **links, "usr/bin/python3": b"#!"}, env=PATH, user="1000", command=("python",))
    assert {one.subject for one in told} == {"PATH", "command"}
    assert all("/opt/venv/bin/python to /usr/local/bin/python3.11" in one.message for one in told)


def test_environment_behind_a_link_is_the_same_environment() -> None:
    tensorflow = package("tensorflow", "2.20.0", {"tensorflow/__init__.py": b"1"})
    package_folder = folder(f"{SITE}/tensorflow")
    venv: Layer = {"opt/venv/bin/python": b"#!", "srv/venv": "/opt/venv", "bin/python": "/gone", **package_folder}
    assert configured({**tensorflow, **venv}, env={"PATH": "/srv/venv/bin:/bin"}, user="1000") == []
    moved: Layer = {"opt/bin/python": b"#!", "opt/venv/bin": "/opt/bin", **package_folder}
    assert configured({**tensorflow, **moved}, env={"PATH": "/opt/venv/bin:/bin"}, user="1000") == []


PASSWD = {"etc/passwd": b"root:x:0:0::/root:/bin/sh\nenvbuilder:x:1000:1000::/home/e:/bin/sh\n"}


def closed(user: str, *more: Layer) -> list[str]:
    names = ("opt", "opt/venv", SITE, f"{SITE}/tensorflow")
    layer: dict[str, Any] = {**PASSWD}
    for part in (*(folder(name) for name in names), file(f"{SITE}/tensorflow/__init__.py"), *more):
        layer |= part
    found = configuration(context_of(image_of(layer), user=user)).findings
    return [one.found for one in found if one.code is Code.USER_START and one.severity is Severity.ERROR]


def test_readable_packages_have_no_finding() -> None:
    own = file(f"{SITE}/a.py", 0o600, uid=1000), file(f"{SITE}/b.py", 0o640), folder(f"{SITE}/c", 0o700, uid=1000)
    assert closed("envbuilder", *own) == []
    assert closed("1000:1000", *own) == []
    assert closed("", file(f"{SITE}/a.py", 0o600, uid=7)) == []
    assert closed("nobody-knows", file(f"{SITE}/a.py", 0o600)) == []
    assert closed("envbuilder", file(f"{SITE}/notes.txt", 0o600)) == [], "of an installer"


@pytest.mark.parametrize(
    ("layer", "image", "code", "cause"),
    [
        (file(f"{SITE}/a.py", 0o600, uid=1000), {"user": "envbuilder"}, "PROBE_CRASHED", "files that not every user"),
        (file(f"{SITE}/a.py", 0o600), {"user": "root"}, "PROBE_CRASHED", "files that not every user"),
        ({**file(f"{SITE}/a.py"), **folder("opt", 0o750)}, {}, "PROBE_CRASHED", "files that not every user"),
        (folder(f"{SITE}/a", 0o700, uid=1000), {"user": "1000"}, "MISSING_LIBRARY", "files that not every user"),
        ({}, {"env": {"OMP_STACKSIZE": "1K"}}, "PROBE_CRASHED", "OMP_STACKSIZE"),
        ({}, {"env": {"TF_NO_SUCH": "1"}}, "PROBE_CRASHED", "TF_NO_SUCH"),
        ({}, {"env": {"PYTHONTRACEMALLOC": "1"}}, "PROBE_TIMEOUT", "PYTHONTRACEMALLOC"),
        ({}, {"env": {"ONEDNN_MAX_CPU_ISA": "SSE41"}}, "WRONG_NUMBERS", "ONEDNN_MAX_CPU_ISA"),
        ({}, {}, "PROBE_CRASHED", ""),
    ],
)
def test_result_of_a_probe_follows_from_the_setting_or_mode_that_causes_it(
    layer: Layer, image: dict[str, Any], code: str, cause: str
) -> None:
    there = image_of({**PASSWD, **folder(SITE), **layer})
    (own,), causes = run_host_checks(context_of(there, **image), [one for one in CHECKS if one.name == "configuration"])
    effect = Finding(code=Code(code), severity=Severity.ERROR, subject="import", message="m")
    results = mark_consequences(
        (own, CheckResult(name="import", level="load", outcome="error", findings=(effect,))), causes
    )
    errors = [one.subject for result in results for one in result.findings if one.severity is Severity.ERROR]
    assert [one.startswith(cause or "import") for one in errors] == [True]
    assert [result.outcome for result in results] == ["failed" if cause else "passed", "error"]


WHOLE: Layer = {
    "opt/venv/bin/python": b"#!",
    "bin/sh": b"#!",
    "etc/passwd": b"root:x:0:0::/:/bin/sh\nenvbuilder:x:1000:1000::/:/bin/sh\n",
    "etc/ssl/certs/a.pem": "/usr/share/a.crt",
    "etc/ssl/certs": "/usr/certs",
    "usr/certs/a": b"1",
    "usr/certs": "/usr/certs2",
    "usr/certs2/a": b"1",
    **file("usr/secret/a.pem", 0o600),
    "usr/share/zoneinfo/Europe/Berlin": b"TZif",
    f"{SITE}/six.py": b"1",
}


@rows
def test_settings_that_break_or_change_a_start_are_reported(image: dict[str, Any], severity: str | None) -> None:
    asked: dict[str, Any] = {"user": "root", **image}
    there = image_of(WHOLE)
    told = configuration(context_of(there, facts={"python": ""}, **asked)).findings
    assert [one.severity.value for one in told] == [severity] * (severity is not None)
