"""Entries of an image by their place: who brought them, who may write to them, and who may read them."""

import re
from dataclasses import replace
from typing import Any

import pytest
from made_images import SITE, SYSTEM, Layer, context_of, file, findings_of, folder, image_of, package

from envbuilder.engine.port import Layer as ImageLayer
from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation import installed_files
from envbuilder.validation.file_areas import Area
from envbuilder.workspace import packaged_yaml

NUMPY = package("numpy", "2.4.6", {"numpy/__init__.py": b"version = 2\n", "numpy/data.bin": b"data"})
PASSWD = b"root:x:0:0::/root:/bin/sh\nenvbuilder:x:1000:1000::/home/envbuilder:/bin/sh\n"
DOCS = [f"usr/share/doc/{number}" for number in range(1000)]
MARKER, AUTHORITY = "usr/lib/python3.11/EXTERNALLY-MANAGED", "usr/share/ca-certificates/mozilla/a.crt"
REMOVABLE = (MARKER, AUTHORITY, "usr/lib/python3.11/cgi.py")
OWN: Layer = {
    **SYSTEM,
    **NUMPY,
    SITE: LayerFile(SITE, "folder", mode=0o755),
    "etc/passwd": PASSWD,
    "etc/profile": b"export A=1\n",
    "etc/nsswitch.conf": b"passwd: files\n",
    "etc/ld.so.cache": b"",
    "etc/ssl/certs/ca-certificates.crt": b"certificates",
    "opt/venv/bin/activate": b"export B=1\n",
    **dict.fromkeys(DOCS, b""),
    "usr/bin/true": b"true",
    "bin/sh": b"sh",
    **dict.fromkeys(REMOVABLE, b""),
    "var/lib/dpkg/info/docs.list": "".join(
        f"/{path}\n" for path in (*DOCS, *REMOVABLE, "usr/bin/true", "bin/sh")
    ).encode(),
    **folder("tmp", uid=1000),
    **folder("home/envbuilder", uid=1000),
}


def findings(layer: Layer, *checks: str) -> list[Finding]:
    subject = context_of(image_of(OWN, layer))
    every = [one for check in checks for one in findings_of(check, subject)]
    return [one for one in every if one.code not in (Code.UNKNOWN, Code.IMAGE_CLAIM)]


def test_image_without_a_further_layer_has_no_finding() -> None:
    assert findings({}, "files", "secrets", "configuration") == []


def test_shared_object_of_a_package_that_is_a_text_is_a_warning() -> None:
    found = findings({f"{SITE}/numpy/_ops.so": b"version https://git-lfs.github.com/spec/v1"}, "binaries")
    assert [one.severity for one in found if one.subject == "shared objects"] == [Severity.WARNING]


@pytest.mark.parametrize(
    ("target", "is_left"), [("../../cuda_nvrtc/lib/libnvrtc.so.11.2", True), ("/srv/other.so", False)]
)
def test_second_name_of_nvrtc_leads_to_its_wheel(target: str, *, is_left: bool) -> None:
    assert (findings({f"{SITE}/nvidia/cublas/lib/libnvrtc.so": target}, "files") == []) is is_left


@pytest.mark.parametrize(
    ("layer", "check", "named"),
    [
        (file("opt/venv/bin/pip", 0o755), "files", "programs"),
        ({"opt/venv/bin/tool": "/usr/bin/dirname"}, "files", "programs"),
        (file("etc/profile.d/a.sh", 0o644), "files", "shell start"),
        (file("etc/cron.d/job", 0o644), "files", "cron"),
        (file("var/spool/cron/crontabs/root", 0o600), "files", "cron"),
        (file("etc/sudoers.d/all", 0o440), "files", "sudo"),
        (file("root/.ssh/config", 0o600), "files", "ssh"),
        ({"srv/null": LayerFile("srv/null", "other", mode=0o666)}, "files", "devices"),
        ({"etc/profile": b"export A=2\n"}, "files", "start"),
        ({"etc/nsswitch.conf": b"passwd: files mine\n"}, "files", "names"),
        ({"etc/ld.so.cache": None}, "files", "loader"),
        ({"usr/bin/dirname": "/usr/bin/true"}, "files", "programs of the system by another name"),
        (file("usr/bin/python3.12", 0o777), "secrets", "world-writable"),
        (file("etc/group", 0o666), "secrets", "world-writable"),
        (folder("opt/venv/bin", 0o777), "secrets", "world-writable"),
        (file("srv/tool", 0o755, has_capabilities=True), "secrets", "setuid"),
        (file("usr/bin/dirname", 0o4755), "secrets", "setuid"),
        (file("usr/bin/tool", 0o4755), "secrets", "setuid"),
        (folder("home/envbuilder", 0o755), "configuration", "HOME"),
        ({"home/envbuilder": None}, "configuration", "HOME"),
        ({"etc/passwd": PASSWD + b"toor:x:0:0::/root:/bin/sh\n"}, "configuration", "accounts"),
    ],
)
def test_entry_that_no_package_brought_is_a_warning_by_its_area(layer: Layer, check: str, named: str) -> None:
    found = findings(layer, check)
    assert [(one.subject, one.severity) for one in found] == [(named, Severity.WARNING)]


@pytest.mark.parametrize(
    ("path", "context", "is_reported"),
    [
        ("srv/app/main.py", {}, True),
        ("srv/app/main.py", {"declared": frozenset({"srv/app/main.py"})}, False),
        ("srv/app/main.py", {"own_layers": 1}, False),
        ("srv/app/main.py", {"base_layers": 2}, False),
        ("srv/app/__pycache__/main.cpython-311.pyc", {}, False),
        ("etc/ld.so.conf.d/cudnn.conf", {}, False),
        ("etc/ld.so.conf.d/mine.conf", {}, True),
        ("opt/cudnn/.lock", {}, False),
        ("root/.local/share/uv/credentials/credentials.toml.lock", {}, False),
    ],
)
def test_file_that_nothing_accounts_for_is_reported(path: str, context: dict[str, Any], *, is_reported: bool) -> None:
    subject = replace(context_of(image_of(OWN, {path: b"x"})), **context)
    found = [one for one in findings_of("files", subject) if one.subject == "unaccounted"]
    assert [f"/{path}" in one.message for one in found] == [True] * is_reported


@pytest.mark.parametrize(
    ("layer", "check", "code", "path"),
    [
        ({f"{SITE}/helper": "/srv/helper", **folder("srv/helper", 0o755)}, "files", Code.FILES_DIFFER, "/helper"),
        (
            {"usr/lib/python3.11/helper": "/srv/helper", **folder("srv/helper", 0o755)},
            "files",
            Code.FILES_DIFFER,
            "python3.11/helper",
        ),
        ({"usr/local/lib/libz.so.1": "/srv/z", "srv/z": b"z"}, "files", Code.FILES_DIFFER, "libz.so.1"),
        ({"usr/lib/x86_64-linux-gnu/libz.so.1": "gconv/GBK.so"}, "files", Code.FILES_DIFFER, "libz.so.1"),
        ({"usr/bin/dirname": "/srv/dirname", "srv/dirname": b"d"}, "files", Code.FILES_DIFFER, "/usr/bin/dirname"),
        ({"etc/ssl/certs/ca-certificates.crt": None}, "files", Code.FILES_DIFFER, "ca-certificates.crt"),
        ({"opt/venv/bin/python3": "/opt/p"}, "files", Code.FILES_DIFFER, "python3 leads to /opt/p, which is not"),
        (file(f"{SITE}/numpy/data.bin", 0o600), "configuration", Code.USER_START, "data.bin"),
        (file("usr/lib/x86_64-linux-gnu/libssl.so.3", 0o640 - 0o040), "configuration", Code.USER_START, "libssl.so.3"),
        (folder("usr/lib", 0o700), "configuration", Code.USER_START, "/usr/lib"),
        (folder(SITE, 0o744), "configuration", Code.USER_START, f"/{SITE}"),
        (file("etc/ssl/certs/ca-certificates.crt", 0o600), "configuration", Code.USER_START, "ca-certificates.crt"),
        (file("usr/local/cuda-12.5/bin/ptxas", 0o700), "configuration", Code.USER_START, "/bin/ptxas"),
    ],
)
def test_entry_that_breaks_or_replaces_code_is_an_error(layer: Layer, check: str, code: Code, path: str) -> None:
    found = [one for one in findings(layer, check) if one.severity is Severity.ERROR]
    assert [one.code for one in found] == [code]
    assert path in found[0].message


@pytest.mark.parametrize(
    ("packaged", "bundle", "is_reported"),
    [
        ((), (), True),
        ((), (1, 2, 3), False),
        ((), (1, 3, 4, 5), True),
        ((1,), (1, 3), False),
        ((1, 2, 3), (1, 2, 4), True),
    ],
    ids=["other content", "added to", "a larger one", "packaged", "not all that are packaged"],
)
def test_bundle_that_was_replaced_and_not_added_to_is_a_warning(
    packaged: tuple[int, ...], bundle: tuple[int, ...], *, is_reported: bool
) -> None:
    def pem(*numbers: int) -> bytes:
        return b"mine\n" + b"".join(
            b"-----BEGIN CERTIFICATE-----\n%d\n-----END CERTIFICATE-----\n" % number for number in numbers
        )

    path, share = "etc/ssl/certs/ca-certificates.crt", "usr/share/ca-certificates/mozilla"
    subject = context_of(
        image_of(
            {**OWN, AUTHORITY: None, path: pem(1, 2)},
            {f"{share}/{one}.crt": pem(one) for one in packaged},
            {path: pem(*bundle)},
        )
    )
    found = [one for one in findings_of("files", subject) if one.subject == "certificates"]
    assert [(one.code, one.severity) for one in found] == [(Code.FILES_DIFFER, Severity.WARNING)] * is_reported
    assert all("replaced /etc/ssl/certs/ca-certificates.crt by one that lacks" in one.message for one in found)


# Files that ordinary Dockerfiles write or replace: None is no word beyond the list of additions.
@pytest.mark.parametrize(
    ("path", "content", "severity", "text"),
    [
        ("etc/passwd", b"root:x:0:0::/root:/bin/sh\n", "error", "the user envbuilder is not in /etc/passwd"),
        ("etc/nsswitch.conf", b"hosts: dns\n", "warning", "how names and accounts are looked up"),
        ("etc/resolv.conf", b"nameserver 10.0.0.1\n", None, ""),
        ("etc/hosts", b"10.0.0.1 a\n", None, ""),
        ("etc/shells", b"/usr/bin/tmux\n", None, ""),
        ("etc/ssh/ssh_config.d/team.conf", b"Host *\n", None, ""),
        ("etc/ssh/sshd_config.d/team.conf", b"PermitRootLogin yes\n", "warning", "settings of ssh"),
        ("bin/sh", None, "error", "/bin/sh is not in the image"),
        (
            "etc/localtime",
            "/usr/share/zoneinfo/Europe/Berlin",
            "warning",
            "leads to /usr/share/zoneinfo/Europe/Berlin, which is",
        ),
        ("etc/localtime", "/usr/bin/true", None, ""),
        ("etc/ssl/openssl.cnf", b"[legacy]\n", "error", "replaced: /etc/ssl/openssl.cnf"),
        ("etc/pip.conf", b"[global]\n", None, ""),
        (MARKER, None, None, ""),
        (AUTHORITY, None, "warning", "links in /etc/ssl/certs lead nowhere"),
        ("usr/lib/python3.11/cgi.py", None, "error", "files of the system are gone: /usr/lib/python3.11/cgi.py"),
        ("root/.config/pip/pip.conf", b"[global]\n", None, ""),
        ("etc/ld.so.conf.d/mine.conf", b"/opt/lib\n", None, ""),
        ("etc/environment", b"A=1\n", "warning", "which PAM reads at a login (su, ssh), and no shell"),
        (
            "etc/environment",
            b"A=1\nPYTHONHOME=/opt\n",
            "warning",
            "/etc/environment: PYTHONHOME sends Python elsewhere",
        ),
        ("etc/profile", b"export A=2\n", "warning", "which only login shells run: bash -l, sh -l, su -"),
        ("etc/profile.d/a.sh", b"export A=2\n", "warning", "which only login shells run: bash -l, sh -l, su -"),
        ("etc/profile.d/README", b"a text\n", None, ""),
        ("etc/bash.bashrc", b"export A=2\n", "warning", "which only an interactive bash runs"),
        ("root/.bashrc", b"export A=2\n", "warning", "which only an interactive bash runs"),
        ("etc/zsh/zshenv", b"export A=2\n", "warning", "which each zsh runs"),
        ("etc/zsh/zprofile", b"export A=2\n", "warning", "which only a zsh of a login or terminal runs"),
        ("etc/pam.d/su", b"auth sufficient pam_permit.so\n", "warning", "which programs read that log users in"),
        (f"{SITE}/start.pth", b"import os\n", "error", "code of no package on Python's path"),
        (f"{SITE}/sitecustomize.py", b"", "error", "code of no package on Python's path"),
        (f"{SITE}/usercustomize.py", b"", "error", "code of no package on Python's path"),
    ],
)
def test_file_that_dockerfiles_replace_is_reported_by_what_reads_it(
    path: str, content: bytes | str | None, severity: str | None, text: str
) -> None:
    base = dict.fromkeys(("etc/environment", "etc/localtime", "etc/shells", "root/.bashrc", "etc/pam.d/su"), b"A=0\n")
    subject = replace(context_of(image_of({**OWN, **base}, {path: content})), own_layers=1, proven=1)
    found = [one for check in ("files", "configuration") for one in findings_of(check, subject)]
    named = [one for one in found if text and text in one.message]
    assert [one.severity.value for one in named] == ([severity] if severity else [])
    assert severity or not found


@pytest.mark.parametrize(
    ("line", "is_reported"),
    [
        (b"import os; os.nice(0)\n", False),
        (b"/srv/team\n", False),
        (b"import a; exec(open('/srv/.x').read())\n", True),
    ],
)
def test_code_of_a_package_that_python_runs_when_it_starts_names_no_file(line: bytes, *, is_reported: bool) -> None:
    image = image_of(OWN, package("team", "1", {"team.pth": line}))
    found = findings_of("files", replace(context_of(image), own_layers=1, proven=1))
    named = [one.severity for one in found if f"the code in /{SITE}/team.pth when it starts" in one.message]
    assert named == [Severity.ERROR] * is_reported


def test_system_without_a_list_of_packages_is_undecided() -> None:
    every = image_of({path: one for path, one in OWN.items() if not path.startswith("var/lib/dpkg/")})
    result = installed_files.files(context_of(every))
    assert "has no list of the packages of its system" in result.undecided
    assert [one.severity for one in result.findings if one.subject == "packages of the system"] == [Severity.WARNING]
    assert not [one for one in result.findings if "/usr/bin/true" in one.message or "python3.11" in one.message]


def test_group_of_the_image_s_user_has_to_exist() -> None:
    for group, is_there in (("staff", True), ("50", True), ("other", False)):
        subject = context_of(image_of(OWN, {"etc/group": b"staff:x:50:\n"}), user=f"envbuilder:{group}")
        found = [one.message for one in findings_of("configuration", subject) if one.subject == "USER"]
        assert found == ["the group other is not in /etc/group: it cannot start"] * (not is_there)


def test_package_behind_a_link_in_the_python_path_is_an_error() -> None:
    layer: Layer = {"srv/app/numpy": "/srv/mine", "srv/mine/__init__.py": b""}
    subject = context_of(image_of(OWN, layer), env={"PYTHONPATH": "/srv/app"})
    found = [one for one in findings_of("files", subject) if one.severity is Severity.ERROR]
    assert ["/srv/app/numpy" in one.message for one in found] == [True]


def test_moved_package_behind_a_link_is_still_its_distribution_s() -> None:
    moved: Layer = {
        f"{SITE}/numpy": "/opt/numpy",
        "opt/numpy/__init__.py": b"version = 2\n",
        "opt/numpy/data.bin": b"data",
    }
    assert findings({**moved, **folder("opt/numpy", 0o755)}, "files") == []
    (changed,) = findings({**moved, **folder("opt/numpy", 0o755), "opt/numpy/__init__.py": b"x"}, "files")
    assert f"/{SITE}/numpy/__init__.py, now /opt/numpy/__init__.py" in changed.message


def test_derived_image_has_warnings_for_a_lost_source_or_package_database_and_a_user_s_start_not_for_public_keys() -> (
    None
):
    note = {"team-1.dist-info/direct_url.json": b'{"url": "file:///srv/team", "dir_info": {"editable": true}}'}
    start = file("root/.local/lib/python3.11/site-packages/usercustomize.py")
    above: Layer = {**start, **file("etc/ssh/ssh_known_hosts"), **package("team", "1", note)}
    status: Layer = {"var/lib/dpkg/status": b""}
    subject = replace(context_of(image_of({**OWN, **status}, {**above, **dict.fromkeys(status)})), own_layers=1)
    found = [one for one in findings_of("files", subject) if one.severity is Severity.WARNING]
    assert [one.subject for one in found] == ["team", "start of Python", "package database"]
    assert found[0].message.endswith("in /srv/team, which is not in the image")


@pytest.mark.parametrize(
    ("preload", "severity", "text"),
    [
        (b"/usr/bin/true", Severity.WARNING, "loads /usr/bin/true, of a system package"),
        (b"/usr/bin/true:/opt/x.so\n", Severity.ERROR, "loads /opt/x.so, /usr/bin/true, not in the image, into"),
    ],
)
def test_preloaded_libraries_are_named(preload: bytes, severity: Severity, text: str) -> None:
    (one,) = findings({"etc/ld.so.preload": preload}, "files")
    assert (one.severity, text in one.message) == (severity, True)


@pytest.mark.parametrize(
    ("target", "severity"), [("data.so", "info"), ("/srv/data.so", "error"), ("../data.so", "error")]
)
def test_further_name_of_a_library_of_the_same_package_is_listed(target: str, severity: str) -> None:
    team = package("team", "1", {"team/data.so": b"x"})
    found = findings({**team, "srv/data.so": b"y", f"{SITE}/team/data.so.1": target}, "files")
    assert [one.severity.value for one in found if "/team/data.so.1" in one.message] == [severity]


@pytest.mark.parametrize(
    ("path", "first_line", "layer", "severity"),
    [
        ("opt/venv/bin/tool", b"#!/srv/venv/bin/python", {}, Severity.ERROR),
        ("opt/venv/bin/tool", b"#!/opt/venv/bin/python3", {}, None),
        ("opt/venv/bin/tool", b"#!/usr/bin/python3.11", {}, Severity.WARNING),
        ("opt/venv/bin/tool", b"#!/usr/bin/python3.11", file("usr/bin/python3.11", 0o700), Severity.ERROR),
        ("srv/bin/tool", b"#! /bin/sh -e", {"bin/sh": None}, Severity.WARNING),
        ("srv/bin/tool", b"#! /bin/sh -e", {}, None),
        ("srv/bin/tool", b"#!/bin/sh\r", {}, Severity.WARNING),
        ("srv/bin/tool", b"#!python", {}, Severity.WARNING),
        ("srv/lib/tool", b"#!/bin/nothing", {}, None),
        (f"{SITE}/team/tool.py", b"#!/bin/nothing", {}, None),
    ],
)
def test_script_starts_only_with_an_interpreter_that_its_user_may_start(
    path: str, first_line: bytes, layer: Layer, severity: Severity | None
) -> None:
    script = first_line + b"\nprint(1)\n"
    team = package("team", "1", {"team-1.dist-info/entry_points.txt": b"[console_scripts]\ntool = team:main\n"})
    found = [one for one in findings({**team, **layer, path: script}, "configuration") if one.subject == "programs"]
    assert [one.severity for one in found] == ([severity] if severity else [])
    assert all(repr(first_line[2:].decode().split(" ")[first_line[2:3] == b" "]) in one.message for one in found)


@pytest.mark.parametrize(
    ("name", "value", "layer"),
    [
        ("HOME", "/root", folder("root", 0o700)),
        ("HOME", "/home/other", folder("home", 0o755)),
        ("XDG_CACHE_HOME", "/tmp/cache", {}),
        ("MPLCONFIGDIR", "/srv/open", folder("srv/open", 0o1777)),
    ],
)
def test_folder_of_a_variable_is_one_to_which_the_user_may_write(name: str, value: str, layer: Layer) -> None:
    subject = context_of(image_of(OWN, layer), env={name: value})
    found = [(one.subject, one.severity) for one in findings_of("configuration", subject)]
    assert found == [(name, Severity.WARNING)] * (name == "HOME")


@pytest.mark.parametrize(
    ("made_by", "shown"),
    [
        ("RUN /bin/sh -c cp tool /opt/venv/bin # buildkit", "(layer 2: cp tool /opt/venv/bin)"),
        ("/bin/sh -c #(nop) COPY file:1 in /opt/venv/bin", "(layer 2: COPY file:1 in /opt/venv/bin)"),
        ("RUN TOKEN=ghp_a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2a1B2 sh install", "(layer 2: …)"),
    ],
)
def test_finding_names_layer_and_instruction_without_credentials(made_by: str, shown: str) -> None:
    layers = (ImageLayer("sha256:1", 1), ImageLayer("sha256:2", 1, made_by))
    subject = context_of(image_of(OWN, file("opt/venv/bin/tool", 0o755)), layers=layers)
    (one,) = (one for one in findings_of("files", subject) if one.subject == "programs")
    assert one.message.endswith(shown)


def test_fix_for_a_foreign_image_names_no_lock_without_a_choice() -> None:
    rows = packaged_yaml("validation/file_areas.yaml", tuple[Area, ...])
    fixes = [row.fix for row in rows if row.images != "managed" and "lock" in row.fix]
    assert [fix for fix in fixes if not re.search(r"\(without one: |if the image has one\)", fix)] == []
