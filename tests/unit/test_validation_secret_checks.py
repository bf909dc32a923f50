"""The checks `secrets` and `layers`: credentials, authorities and permissions in an image; no value is quoted."""

from __future__ import annotations

from typing import Any

import pytest
from made_images import SITE, context_of, image_of, package

from envbuilder.engine.port import LayerFile
from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.secret_checks import layers, secrets

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
def test_files_with_credentials_are_found_and_templates_are_not(path: str, head: bytes, severity: str | None) -> None:
    found = [one for one in secrets(context_of(image_of({path: head}))).findings if one.code is Code.SECRET_IN_IMAGE]
    assert [one.severity.value for one in found] == ([severity] if severity else [])
    assert [one.subject for one in found] == ([f"/{path}"] if severity else [])


def test_no_message_quotes_a_secret() -> None:
    files = image_of({"root/.netrc": b"machine a login b password hunter2hunter2", "srv/a": GITHUB + b"\n"})
    image: dict[str, Any] = {
        "env": {"X": HUGGING.decode()},
        "labels": {"note": AWS.decode()},
        "command": ("run", "--token=hunter3x"),
    }
    looked = secrets(context_of(files, history=("RUN |1 PIP_TOKEN=hunter4x /bin/sh -c pip install x",), **image))
    subjects = {one.subject for one in looked.findings if one.severity is Severity.ERROR}
    assert subjects == {"/root/.netrc", "/srv/a", "X", "note", "the command", "build instruction 1"}
    told = looked.observed + "".join(one.message + one.found + one.requires for one in looked.findings)
    assert not [value for value in ("hunter", "ghp_", "hf_", "AKIA") if value in told]


def test_certificate_in_the_bundle_without_a_package_is_found() -> None:
    bundle, packaged = "etc/ssl/certs/ca-certificates.crt", "usr/share/ca-certificates/mozilla/a.crt"
    assert secrets(context_of(image_of({packaged: PEM, bundle: PEM}))).findings == ()
    (added,) = secrets(context_of(image_of({packaged: PEM, bundle: PEM + OTHER}))).findings
    assert "1 authorities" in added.message
    (left,) = secrets(context_of(image_of({"usr/local/share/ca-certificates/host.crt": PEM}))).findings
    assert (left.code, left.subject) == (Code.SECRET_IN_IMAGE, "/usr/local/share/ca-certificates/host.crt")


def test_secret_deleted_by_a_later_layer_is_found() -> None:
    secret = b"[global]\nindex-url = https://user:word@example.com/simple\n"
    subject = context_of(image_of({"etc/hostname": b"x"}, {"etc/pip.conf": secret}, {"etc/pip.conf": None}))
    looked = layers(subject)
    measured = {name: value.value for name, value in looked.measurements}
    assert (measured["layers"], measured["files"]) == (3, 3)
    (one,) = looked.findings
    assert (one.code, one.subject) == (Code.SECRET_IN_IMAGE, "/etc/pip.conf")
    assert "layer 2" in one.message
    assert secrets(subject).findings == ()
    assert layers(context_of(image_of({"etc/pip.conf": b"[global]\n"}))).findings == ()


def test_key_in_a_package_s_record_is_not_a_secret() -> None:
    ours = package("web", "1.0", {"web/test_key.py": KEY})
    assert secrets(context_of(image_of(ours))).findings == ()
    changed = {**ours, f"{SITE}/web/test_key.py": KEY + b"changed"}
    assert [one.severity for one in secrets(context_of(image_of(changed))).findings] == [Severity.WARNING]


def test_setuid_world_writable_code_and_root_are_warnings() -> None:
    shell = LayerFile("opt/sh", "file", mode=0o4755, size=1, pieces=lambda: iter([b"x"]))
    code = LayerFile(f"{SITE}/a.py", "file", mode=0o666, size=1, pieces=lambda: iter([b"x"]))
    looked = secrets(context_of(image_of({"opt/sh": shell, "a": code}), user="root"))
    assert {one.subject for one in looked.findings} == {"setuid", "world-writable", "USER"}
    assert {one.severity for one in looked.findings} == {Severity.WARNING}


def errors(**image: Any) -> list[Finding]:
    told = secrets(context_of(image_of({"srv/a": b"a"}), **image)).findings
    return [one for one in told if one.severity is Severity.ERROR]


@pytest.mark.parametrize(
    "first",
    [
        "ENV API_TOKEN=hunter2hunter2",
        "/bin/sh -c #(nop)  ENV API_TOKEN=hunter2hunter2",
        "LABEL note=ghp_" + "a1B2" * 9,
        'CMD ["serve" "--token=hunter2hunter2"]',
    ],
)
def test_replaced_value_in_the_history_is_found(first: str) -> None:
    (one,) = errors(history=(first, "ENV API_TOKEN=", 'CMD ["serve"]'), env={"API_TOKEN": ""}, command=("serve",))
    assert (one.code, "history" in one.message) == (Code.SECRET_IN_IMAGE, True)


def test_current_value_of_a_variable_is_reported_once() -> None:
    env = {"API_TOKEN": "hunter2hunter2"}
    (one,) = errors(history=("ENV API_TOKEN=hunter2hunter2",), env=env)
    assert one.subject == "API_TOKEN"


@pytest.mark.parametrize(
    "text",
    [
        "RUN curl -fsSL -u me:hunter2 https://example.com/a | sh",
        "RUN curl -H 'PRIVATE-TOKEN: abcdefgh0123' https://example.com",
        'RUN curl -H "X-JFrog-Art-Api: abcdefgh0123" https://example.com',
        'RUN curl -H "Authorization: Bearer abcdefgh0123" https://example.com',
        "RUN sshpass -p hunter2 scp a:/b .",
        "RUN echo 'root:hunter2' | chpasswd",
        "RUN |1 DB_PASS=hunter2 /bin/sh -c true",
        "RUN |1 API_TOKEN_PROD=hunter2 /bin/sh -c true",
    ],
)
def test_build_step_with_a_credential_is_found(text: str) -> None:
    (one,) = errors(history=(text,))
    assert one.code is Code.SECRET_IN_IMAGE


@pytest.mark.parametrize(
    "text",
    [
        "RUN curl -fsSL https://example.com/a:b -o /tmp/a",
        'RUN curl -u "$USER:$PW" -H "Authorization: Bearer $TOKEN" https://example.com',
        "RUN useradd -u 1000 a && chown 1000:1000 /srv",
        "RUN |1 GPG_KEY=A035C8C1 TOKENIZERS_PARALLELISM=false BYPASS=1 /bin/sh -c true",
        "ENV GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D",
    ],
)
def test_build_step_without_a_credential_is_not_found(text: str) -> None:
    assert errors(history=(text,)) == []


def test_added_authority_is_found_among_the_certificates() -> None:
    pem = b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
    own = {"usr/share/ca-certificates/a.crt": pem, "etc/ssl/certs/ca-certificates.crt": pem}
    assert [one.code for one in secrets(context_of(image_of(own, {"etc/ssl/certs/corp.pem": pem}))).findings] == [
        Code.SECRET_IN_IMAGE
    ]
    hidden = {
        "usr/share/ca-certificates": None,
        "etc/ssl/certs/ca-certificates.crt": pem + pem.replace(b"QUJD", b"REVG"),
    }
    (one,) = secrets(context_of(image_of(own, hidden))).findings
    assert "1 authorities" in one.message
    link = {"etc/ssl/certs/a.pem": "/usr/share/ca-certificates/a.crt"}
    assert secrets(context_of(image_of(own, link))).findings == ()
