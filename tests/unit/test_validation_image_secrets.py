"""Credentials in an image: in every layer's files, variables, labels, history and commands; none is quoted."""

from __future__ import annotations

import time
from typing import Any

import pytest
from made_images import SITE, image_of, outside, package

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Severity
from envbuilder.validation.credential_files import in_text
from envbuilder.validation.image_secrets import layers, secrets
from envbuilder.validation.secret_search import in_instruction, in_variable

PEM = b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
OTHER = b"-----BEGIN CERTIFICATE-----\nREVG\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\n"
AWS = b"AKIA" + b"QWERTYUIOPASDFGH"
GITHUB = b"ghp_" + b"a1B2" * 9
HUGGING = b"hf_" + b"abcdEFGH" * 4


@pytest.mark.parametrize(
    ("path", "head", "severity"),
    [
        ("root/.netrc", b"machine example.com login a password b", "error"),
        ("etc/apt/apt.conf.d/01proxy", b'Acquire::http::Proxy "http://me:hunter2@proxy.example.com:3128";', "error"),
        ("etc/apt/apt.conf.d/01proxy", b'Acquire::http::Proxy "http://proxy.example.com:3128";', None),
        ("etc/apt/sources.list.d/a.list", b"deb https://me:hunter2@example.com/debian stable main", "error"),
        ("etc/profile.d/build.sh", b"export ARTIFACTORY_TOKEN=abcdef0123456789", "error"),
        ("etc/profile.d/build.sh", b"export PATH=/opt/bin:$PATH", None),
        ("root/.config/pypoetry/auth.toml", b'[http-basic.in]\npassword = "hunter2hunter2"\n', "error"),
        ("home/a/.ssh/id_ed25519", b"-----BEGIN OPENSSH PRIVATE KEY-----", "error"),
        ("etc/pip.conf", b"[global]\nindex-url = https://user:word@example.com/simple\n", "error"),
        ("etc/pip.conf", b"[global]\nindex-url = https://example.com/simple\n", None),
        ("root/.config/pip/pip.conf", b"index-url = https://builder:hunter2@packages.example.com/simple", "error"),
        ("opt/server.key", b"-----BEGIN RSA PRIVATE KEY-----", "error"),
        (f"{SITE}/x/test.pem", b"-----BEGIN PRIVATE KEY-----", "warning"),
        (f"{SITE}/certifi/cacert.pem", PEM, None),
        ("root/.docker/config.json", b'{"auths": {"example.com": {"password": "x"}}}', None),
        ("root/.docker/config.json", b'{"auths": {"example.com": {"auth": "dXNlcjpwYXNz"}}}', "error"),
        ("root/.npmrc", b"//example.com/:_authToken=abc", "error"),
        ("srv/readme.txt", b"password = hunter2", None),
        ("app/.env", b"DEBUG=1\nAWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzzzz\n", "error"),
        ("app/.env", b"DEBUG=1\nDB_PASSWORD=${DB_PASSWORD}\n", None),
        ("app/production.env", b"DB_PASSWORD=correct-horse\n", "error"),
        ("etc/apt/auth.conf.d/90internal.conf", b"machine apt.example.com login me password hunter2\n", "error"),
        ("srv/notes/how-to.md", b"use " + KEY, "error"),
        ("srv/app/settings.py", b'KEY = "' + AWS + b'"\n', "error"),
        ("usr/share/thing", b"token " + GITHUB + b"\n", "error"),
        ("srv/gcp.json", b'{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0B"}', "error"),
        ("root/.kube/config", b"client-key-data: " + b"LS0tLS1C" * 6, "error"),
        ("root/.pgpass", b"db:5432:*:me:word\n", "error"),
        ("srv/src/.git/config", b"url = https://" + GITHUB + b"@github.com/a/b\n", "error"),
        ("srv/code.py", b'MARK = "-----BEGIN PRIVATE KEY-----"\n', None),
        ("srv/code.py", b'url = "https://user:password@example.com"\n', None),
    ],
)
def test_files(path: str, head: bytes, severity: str | None) -> None:
    """Keys and credentials are found by content and by name; templates, certificates and prose are not."""
    found = [one for one in secrets(outside(image_of({path: head}))).findings if one.code is Code.SECRET_IN_IMAGE]
    assert [one.severity.value for one in found] == ([severity] if severity else [])
    assert [one.subject for one in found] == ([f"/{path}"] if severity else [])


def test_no_message_quotes_a_secret() -> None:
    """Neither the findings nor what was observed hold the value that was found."""
    files = image_of({"root/.netrc": b"machine a login b password hunter2hunter2", "srv/a": GITHUB + b"\n"})
    image: dict[str, Any] = {
        "env": {"X": HUGGING.decode()},
        "labels": {"note": AWS.decode()},
        "command": ("run", "--token=hunter3x"),
    }
    looked = secrets(outside(files, history=("RUN |1 PIP_TOKEN=hunter4x /bin/sh -c pip install x",), **image))
    subjects = {one.subject for one in looked.findings if one.severity is Severity.ERROR}
    assert subjects == {"/root/.netrc", "/srv/a", "X", "note", "the command", "build instruction 1"}
    told = looked.observed + "".join(one.message + one.found + one.requires for one in looked.findings)
    assert not [value for value in ("hunter", "ghp_", "hf_", "AKIA") if value in told]


@pytest.mark.parametrize(
    ("env", "names"),
    [
        ({"PATH": "/bin", "PYTHON_VERSION": "3.11", "GPG_KEY": "A035C8"}, []),
        (
            {"HF_TOKEN": "hf_x", "AWS_SECRET_ACCESS_KEY": "x", "DB_PASSWORD": "y"},
            ["AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "HF_TOKEN"],
        ),
        ({"HTTPS_PROXY": "http://me:word@proxy.example.com:3128"}, ["HTTPS_PROXY"]),
        ({"API_TOKEN": ""}, []),
        ({"PGPASSWORD": "word", "MYSQL_PWD": "word", "TOKENIZERS_PARALLELISM": "false"}, ["MYSQL_PWD", "PGPASSWORD"]),
        ({"HARMLESS": AWS.decode()}, ["HARMLESS"]),
        ({"NPM_TOKEN_FILE": "/run/secrets/npm", "DB_PASSWORD": "$FROM_OUTSIDE"}, []),
    ],
)
def test_variables(env: dict[str, str], names: list[str]) -> None:
    """Variables that hold credentials are named; a fingerprint, an empty one or a reference is not."""
    assert [name for name, value in sorted(env.items()) if in_variable(name, value)] == names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("RUN |1 GH_TOKEN=abcdef1 /bin/sh -c git clone", True),
        ("RUN /bin/sh -c curl -u me https://a:b@example.com/x", True),
        ("RUN /bin/sh -c mysql --password=hunter2", True),
        ("RUN --mount=type=secret,id=token pip install", False),
        ("RUN /bin/sh -c TOKEN=$(cat /run/secrets/token) make", False),
        ("COPY file:abc in /", False),
    ],
)
def test_instructions(text: str, *, found: bool) -> None:
    """A build argument or option that held a credential is found in the history; a mounted secret is none."""
    assert bool(in_instruction(text)) is found


def test_authorities_that_the_system_did_not_bring() -> None:
    """A certificate in the bundle and not in the system's package was added by somebody."""
    bundle, packaged = "etc/ssl/certs/ca-certificates.crt", "usr/share/ca-certificates/mozilla/a.crt"
    assert secrets(outside(image_of({packaged: PEM, bundle: PEM}))).findings == ()
    (added,) = secrets(outside(image_of({packaged: PEM, bundle: PEM + OTHER}))).findings
    assert "1 authorities" in added.message
    (left,) = secrets(outside(image_of({"usr/local/share/ca-certificates/host.crt": PEM}))).findings
    assert (left.code, left.subject) == (Code.SECRET_IN_IMAGE, "/usr/local/share/ca-certificates/host.crt")


def test_a_secret_that_a_later_layer_deletes_is_found() -> None:
    """What one layer brings and the next deletes is still in the image; the finding names the layer."""
    secret = b"[global]\nindex-url = https://user:word@example.com/simple\n"
    subject = outside(image_of({"etc/hostname": b"x"}, {"etc/pip.conf": secret}, {"etc/pip.conf": None}))
    looked = layers(subject)
    measured = {name: value.value for name, value in looked.measurements}
    assert (measured["layers"], measured["files"]) == (3, 3)
    (one,) = looked.findings
    assert (one.code, one.subject) == (Code.SECRET_IN_IMAGE, "/etc/pip.conf")
    assert "layer 2" in one.message
    assert secrets(subject).findings == ()
    assert layers(outside(image_of({"etc/pip.conf": b"[global]\n"}))).findings == ()


def test_a_package_s_own_example_is_no_secret() -> None:
    """A key that a package's RECORD names is published with the package; a changed file with one is a warning."""
    ours = package("web", "1.0", {"web/test_key.py": KEY})
    assert secrets(outside(image_of(ours))).findings == ()
    changed = {**ours, f"{SITE}/web/test_key.py": KEY + b"changed"}
    assert [one.severity for one in secrets(outside(image_of(changed))).findings] == [Severity.WARNING]


def test_rights_that_nobody_needs_are_warnings() -> None:
    """A root shell, code that anybody may change, and root as the user are told, and fail nothing."""
    shell = LayerFile("opt/sh", "file", mode=0o4755, size=1, pieces=lambda: iter([b"x"]))
    code = LayerFile(f"{SITE}/a.py", "file", mode=0o666, size=1, pieces=lambda: iter([b"x"]))
    looked = secrets(outside(image_of({"opt/sh": shell, "a": code}), user="root"))
    assert {one.subject for one in looked.findings} == {"setuid", "world-writable", "USER"}
    assert {one.severity for one in looked.findings} == {Severity.WARNING}


@pytest.mark.parametrize(
    "text",
    [
        b"-----BEGIN PRIVATE KEY-----" + b" " * 900_000,
        b"password" * 120_000,
        b"a" * 900_000,
        b"a.b-c+" * 150_000,
        b"eyJhbGciOi" * 90_000,
        b"://" * 300_000,
    ],
)
def test_a_hostile_text_costs_linear_time(text: bytes) -> None:
    """A megabyte that was written to keep the search busy is searched in seconds."""
    begun = time.monotonic()
    in_text("app/.env", text)
    assert time.monotonic() - begun < 10
