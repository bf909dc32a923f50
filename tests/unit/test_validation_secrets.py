"""Credentials, authorities and permissions in files, variables and build instructions; no value is quoted."""

import base64
import gzip
import os
import time
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_images import SITE, Layer, context_of, image_of, package
from table_rows import rows

from envbuilder.engine.port import LayerFile, LayerStream
from envbuilder.finding import Code, Finding, Severity
from envbuilder.support import pem
from envbuilder.validation.layer_scan import INSTRUCTION, VARIABLE, scan, secrets_in
from envbuilder.validation.static_checks import layers, secrets

GITHUB = b"ghp_" + b"a1B2" * 9
SAMPLES = (
    b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B",
    b"PuTTY-User-Key-File-3: ssh",
    b"AKIA" + b"QWERTYUIOPASDFGH",
    b"ASIA" + b"QWERTYUIOPASDFGH",
    b"aws_secret_access_key = " + b"wJalrXUtnFEMIK7MDENGbPxRfiCY",
    b"AWS_SECRET_ACCESS_KEY=" + b"wJalrXUtnFEMIK7MDENGbPxRfiCY",
    *(prefix + b"a1B2" * 9 for prefix in (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_", b"npm_")),
    b"glpat-" + b"a1B2" * 6,
    *(b"xox" + kind + b"-" + b"a1B2" * 6 for kind in (b"a", b"b", b"e", b"p", b"r", b"s")),
    b"hf_" + b"abcdEFGH" * 4,
    b"AIza" + b"a1B2c" * 7,
    b"pypi-AgE" + b"a1B2" * 9,
    b"_authToken=abcdef",
    b"sk_live_" + b"a1B2" * 6,
    b"sk-proj-" + b"a1B2" * 12,
    b"dop_v1_" + b"0a1b" * 16,
    b"WANDB_API_KEY=" + b"0a1b" * 10,
    b"client-key-data: " + b"LS0tLS1C" * 6,
    b"AccountKey=" + b"a1B2" * 16,
    b"Endpoint=sb://a.example.com/;SharedAccessKey=" + b"a1B2" * 10 + b"abc=",
    b"gsk_" + b"a1B2" * 13,
    b"r8_" + b"a1B2" * 9 + b"a",
    b"GOCSPX-" + b"a1B2" * 7,
    b"AGE-SECRET-KEY-1" + b"A1B2" * 14 + b"A1",
    b"https://hooks.slack.com/services/T" + b"A1B2C3/B" + b"A1B2C3/" + b"a1B2" * 6,
    b"https://discord.com/api/webhooks/" + b"12345678" * 2 + b"/" + b"a1B2" * 15,
    b"https://a.webhook.office.com/webhookb2/" + b"0a1b" * 9 + b"@0a",
    b"eyJhbGciOi" + b"a1B2" * 4 + b".eyJ" + b"a1B2" * 4 + b"." + b"a1B2" * 6,
)
"""One of every known shape, composed here, so that no scanner reports this file."""

NOISE = st.lists(st.sampled_from([b"ghp", b"_", b"-", b"K", b"AKI", b"I", b"J", b"xo", b" ", b"\n", b"PRIVATE "])).map(
    b"".join
)


def found(path: str, content: bytes, piece: int = 1 << 20) -> list[str]:
    pieces = [bytearray(content[at : at + piece]) for at in range(0, len(content), piece)]
    file = LayerFile(path, "file", size=len(content), pieces=lambda: iter(pieces))
    return [what for _, what in scan(LayerStream(iter((file,)), "sha256:1")).secrets]


@given(st.sampled_from(SAMPLES), NOISE, NOISE)
def test_every_shape_is_found_among_parts_of_others(sample: bytes, before: bytes, after: bytes) -> None:
    assert secrets_in("x", before + b" " + sample + b"\n" + after)


@given(NOISE)
def test_parts_of_hints_are_not_found(noise: bytes) -> None:
    assert not secrets_in("x", noise)


@pytest.mark.parametrize("piece", [1 << 20, 7])
@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("srv/app.db", b"SQLite format 3\0" + bytes(5000) + GITHUB + bytes(100)),
        ("srv/__pycache__/settings.cpython-311.pyc", b"\xa7\r\r\n" + bytes(12) + b"\xda$" + GITHUB + b"\0"),
    ],
)
def test_token_in_a_binary_file_is_found(path: str, content: bytes, piece: int) -> None:
    assert found(path, content, piece) == ["a GitHub token"]


def test_secrets_of_a_layer_are_found_in_files_of_any_size() -> None:
    contents = {
        "srv/large": os.urandom(3 << 20),
        "srv/large.log": b"x\n" * (1 << 20) + GITHUB,
        "srv/small": b"token " + GITHUB,
        "srv/elf.so": b"\x7fELF" + bytes(2 << 20),
    }
    files = (LayerFile(path, "file", size=len(data), pieces=lambda: iter((data,))) for path, data in contents.items())  # noqa: B023
    record = scan(LayerStream(files, "sha256:1"))
    assert sorted(path for path, _ in record.secrets) == ["srv/large.log", "srv/small"]
    assert {row.path: row.size for row in record.rows} == {path: len(data) for path, data in contents.items()}


KEYS = ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ")
JKS = b"\xfe\xed\xfe\xed" + bytes((0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0))


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("root/.kaggle/kaggle.json", b'{"username":"a","key":"0123456789abcdef0123456789abcdef"}'),
        ("srv/www/.htpasswd", b"admin:$apr1$abcdefgh$0123456789abcdefghijkl\n"),
        ("root/.m2/settings.xml", b"<server><id>in</id><password>hunter2</password></server>"),
        ("root/.config/rclone/rclone.conf", b"[a]\ntype = sftp\npass = abcdefgh0123\n"),
        ("root/.curlrc", b'user = "me:hunter2"\n'),
        ("root/.bash_history", b"ls\ncurl -s -u me:hunter2 https://example.com\n"),
        ("root/.condarc", b"channels:\n  - https://conda.anaconda.org/t/an-01234567-89ab-cdef-0123-456789abcdef/a\n"),
        ("root/.yarnrc.yml", b"npmAuthToken: abcdefgh\n"),
        ("app/.env", b"SMTP_PASS=hunter2\n"),
        ("app/.envrc", b"export MYSQL_PWD=hunter2\n"),
        ("app/.env", "DB_PASSWORD=correct-horse\r\n".encode("utf-16")),
        ("etc/shadow", b"daemon:*:19000:0:99999:7:::\nroot:$y$j9T$abcdefgh$0123456789:19000:0:99999:7:::\n"),
        ("run/secrets/token", b"hunter2"),
        ("run/containers/0/auth.json", b'{"auths":{"r.example.com":{"auth":"bWU6aHVudGVyMg=="}}}'),
        ("root/.ngc/config", b"[CURRENT]\napikey = abcdefghijkl\n"),
        ("app/docker-compose.yml", b"services:\n  db:\n    environment:\n      POSTGRES_PASSWORD: hunter2\n"),
        ("app/prod.tfvars", b'db_password = "hunter2"\n'),
        ("root/.aws/cli/cache/1.json", b'{"Credentials": {"SecretAccessKey": "abcdefgh0123"}}'),
        ("opt/server.p12", b"0\x82\x0a\x01\x02\x01\x03" + bytes(99)),
        ("opt/server.jks", JKS + b"\x01" + bytes(99)),
        ("etc/krb5.keytab", b"\x05\x02" + bytes(99)),
        ("etc/tls/server.key", b"0\x82\x04\xa4\x02\x01\x00" + bytes(99)),
        ("etc/tls/server.der", b"0\x77\x02\x01\x01\x04\x20" + bytes(99)),
        ("root/.gnupg/private-keys-v1.d/0A.key", b"Created: 20260101T000000\nKey: (protected-private-key (rsa"),
        ("root/.config/gcloud/credentials.db", b"SQLite format 3\0" + bytes(99)),
        *(("srv/a.yaml", base64.b64encode(b"-----BEGIN %bPRIVATE KEY-----\nMIIE" % one.encode())) for one in KEYS),
        ("srv/a", b"nvapi-" + b"a1B2" * 16),
        ("srv/a", b"AKCp" + b"a1B2" * 17 + b"a"),
        ("srv/a", b"eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9.eyJ" + b"a1B2" * 4 + b"." + b"a1B2" * 6),
    ],
)
def test_credential_is_found_in_the_format_of_its_tool(path: str, content: bytes) -> None:
    assert found(path, content)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("etc/shadow", b"root:*:19000:0:99999:7:::\nbin:!:19000::::::\njovyan:!!:1::::::\nsync::1:::\n"),
        (
            "app/docker-compose.yml",
            b'services:\n  a:\n    user: "1000:1000"\nsecrets:\n  db_password:\n    file: ./db_password\n',
        ),
        ("app/compose.yaml", b"      DB_PASSWORD: ${DB_PASSWORD}\n      TOKEN_FILE: /run/secrets/token\n"),
        ("app/.env", b"DB_PASSWORD=\nLOG_LEVEL=information\n"),
        ("etc/tls/server.der", b"0\x82\x04\xa40\x82\x03\x8c" + bytes(99)),
        ("etc/ssl/certs/java.jks", JKS + b"\x02" + bytes(99)),
        ("root/.condarc", b"channels:\n  - https://conda.anaconda.org/t/a\n"),
        ("root/.m2/settings.xml", b"<password>${env.PW}</password>"),
        ("srv/map.js", b"data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoiIn0="),
        ("root/.bash_history", b"docker run -u 1000:1000 a\n"),
        ("run/secrets/empty", b"\n"),
        ("app/.env.example", b"HF_TOKEN=hf_" + b"x" * 34 + b"\nOPENAI_API_KEY=sk-" + b"X" * 48 + b"\n"),
        ("app/.env", b"DB_PASSWORD: xxxxxxxx\nURL=https://hooks.slack.com/services/T00000000/B00000000/" + b"X" * 24),
        ("srv/log.1.gz", gzip.compress(GITHUB, mtime=0)),
    ],
)
def test_usual_content_is_not_found(path: str, content: bytes) -> None:
    assert found(path, content) == []


@rows
def test_variables_with_credentials_are_named(env: dict[str, str], names: list[str]) -> None:
    assert [name for name in sorted(env) if secrets_in(VARIABLE, f"{name}={env[name]}".encode())] == names


@pytest.mark.parametrize(
    "text", [b"-----BEGIN PRIVATE KEY-----" + b" " * 900_000, b"a" * 900_000, b"eyJhbGciOi" * 90_000, b"://" * 300_000]
)
def test_adversarial_text_costs_linear_time(text: bytes) -> None:
    begun = time.process_time()
    for place in ("app/.env", "compose.yaml", "a.key", VARIABLE, INSTRUCTION):
        secrets_in(place, text)
    assert time.process_time() - begun < 10


PEM = b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
OTHER = b"-----BEGIN CERTIFICATE-----\nREVG\n-----END CERTIFICATE-----\n"
THIRD = b"-----BEGIN CERTIFICATE-----\nR0hJ\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAE\n"
AWS = b"AKIA" + b"QWERTYUIOPASDFGH"
HUGGING = b"hf_" + b"abcdEFGH" * 4


@pytest.mark.parametrize(
    ("path", "head", "severity"),
    [
        ("etc/apt/apt.conf.d/01proxy", b'Acquire::http::Proxy "http://me:hunter2@proxy.example.com:3128";', "error"),
        ("etc/apt/apt.conf.d/01proxy", b'Acquire::http::Proxy "http://proxy.example.com:3128";', None),
        ("etc/apt/sources.list.d/a.list", b"deb https://me:hunter2@example.com/debian stable main", "error"),
        ("etc/profile.d/build.sh", b"export ARTIFACTORY_TOKEN=abcdef0123456789", "error"),
        ("etc/profile.d/build.sh", b"export PATH=/opt/bin:$PATH", None),
        ("etc/pip.conf", b"[global]\nindex-url = https://user:word@example.com/simple\n", "error"),
        ("etc/pip.conf", b"[global]\nindex-url = https://example.com/simple\n", None),
        (f"{SITE}/x/test.pem", b"-----BEGIN PRIVATE KEY-----", "warning"),
        ("root/.docker/config.json", b'{"auths": {"example.com": {"password": "x"}}}', None),
        ("root/.docker/config.json", b'{"auths": {"example.com": {"auth": "dXNlcjpwYXNz"}}}', "error"),
        ("etc/apt/auth.conf.d/90internal.conf", b"machine apt.example.com login me password hunter2\n", "error"),
        ("srv/notes/how-to.md", b"use " + KEY, "error"),
        ("srv/gcp.json", b'{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADANBgkqhkiG9w0B"}', "error"),
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


BUNDLE, PACKAGED = "etc/ssl/certs/ca-certificates.crt", "usr/share/ca-certificates/mozilla/a.crt"
TRUSTED: Layer = {PACKAGED: PEM, BUNDLE: PEM}


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        ({}, ""),
        ({"etc/ssl/certs/a.pem": f"/{PACKAGED}"}, ""),
        ({BUNDLE: PEM + OTHER}, "holds authorities that"),
        ({"usr/share/ca-certificates": None, BUNDLE: PEM + OTHER}, "holds authorities that"),
        ({"usr/local/share/ca-certificates/host.crt": PEM}, "/usr/local/share/ca-certificates/host.crt"),
        ({"etc/ssl/certs/corp.pem": PEM}, "/etc/ssl/certs/corp.pem"),
    ],
)
def test_authority_without_a_package_is_found(layer: Layer, named: str) -> None:
    found = secrets(context_of(image_of(TRUSTED, layer))).findings
    assert [one.code for one in found] == [Code.SECRET_IN_IMAGE] * bool(named)
    assert all(named in one.message + one.subject for one in found)


COMPANY = "usr/local/share/ca-certificates/corp-ca.crt"


@pytest.mark.parametrize("updated_by", ["base", "build", "nobody"])
def test_authority_of_a_company_in_the_base_is_the_bases(updated_by: str) -> None:
    """Also if a package of the build writes the bundle again."""
    bundle = PEM + OTHER if updated_by == "base" else PEM
    base: Layer = {**TRUSTED, COMPANY: OTHER, "etc/ssl/certs/corp.pem": OTHER, BUNDLE: bundle}
    build: Layer = {BUNDLE: PEM + OTHER} if updated_by == "build" else {"srv/a": b"a"}
    image = image_of(base, build)
    assert secrets(replace(context_of(image), of_base=1)).findings == ()
    assert secrets(context_of(image)).findings, "without the host's word about the base"
    later = image_of(base, {"usr/local/share/ca-certificates/other.crt": PEM}, {BUNDLE: PEM + OTHER + THIRD})
    assert {one.subject for one in secrets(replace(context_of(later), of_base=1)).findings} == {
        "/usr/local/share/ca-certificates/other.crt",
        f"/{BUNDLE}",
    }


def test_authority_that_the_matrix_adds_is_accepted_and_no_other() -> None:
    image = image_of(TRUSTED, {COMPANY: OTHER, BUNDLE: PEM + OTHER})
    assert secrets(replace(context_of(image), authorities=pem.certificates(OTHER))).findings == ()
    assert len(secrets(replace(context_of(image), authorities=pem.certificates(THIRD))).findings) == 2
    both = image_of(TRUSTED, {COMPANY: OTHER + THIRD})
    assert len(secrets(replace(context_of(both), authorities=pem.certificates(OTHER))).findings) == 1


def test_secret_deleted_by_a_later_layer_is_found() -> None:
    secret = b"[global]\nindex-url = https://user:word@example.com/simple\n"
    subject = context_of(image_of({"etc/hostname": b"x"}, {"etc/pip.conf": secret}, {"etc/pip.conf": None}))
    looked = layers(subject)
    measured = {name: value.value for name, value in looked.measurements.items()}
    assert (measured["layers"], measured["files"]) == (3, 3)
    (one,) = looked.findings
    assert (one.code, one.subject) == (Code.SECRET_IN_IMAGE, "/etc/pip.conf")
    assert "layer 2" in one.message
    assert secrets(subject).findings == ()
    assert layers(context_of(image_of({"etc/pip.conf": b"[global]\n"}))).findings == ()


def test_root_by_default_is_a_warning() -> None:
    found = secrets(context_of(image_of({"srv/a": b"a"}), user="root")).findings
    assert [(one.subject, one.severity) for one in found] == [("USER", Severity.WARNING)]


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


@pytest.mark.parametrize(
    "image",
    [
        {"labels": {"a": "x" * (1 << 20)}},
        {"history": ("RUN true " * 10,) * 50_000},
        {"labels": {str(n): "" for n in range(20_000)}, "history": ("ENV a",) * 9_000},
    ],
)
def test_text_without_end_is_reported_and_not_searched(image: dict[str, Any]) -> None:
    (one,) = errors(**image)
    assert (one.code, one.subject) == (Code.IMAGE_CONFIGURATION, "configuration")


def test_step_for_images_on_top_is_searched_once() -> None:
    step = "RUN curl -u me:hunter2 https://example.com"
    for history in ((), (f"ONBUILD {step}",)):
        (one,) = errors(history=history, settings={"on_build": (step,)})
        assert one.subject == "build instruction 1"
        assert "(ONBUILD RUN)" in one.message


def test_current_value_of_a_variable_is_reported_once() -> None:
    env = {"API_TOKEN": "hunter2hunter2"}
    (one,) = errors(history=("ENV API_TOKEN=hunter2hunter2",), env=env)
    assert one.subject == "API_TOKEN"


@rows
def test_build_step_with_a_credential_is_found(text: str) -> None:
    (one,) = errors(history=(text,))
    assert one.code is Code.SECRET_IN_IMAGE


@rows
def test_build_step_without_a_credential_is_not_found(text: str) -> None:
    assert errors(history=(text,)) == []


def test_keys_of_documentation_are_no_secrets() -> None:
    key, secret = b"AKIA" + b"IOSFODNN7EXAMPLE", b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    lines = b"AWS_ACCESS_KEY_ID=%b\nAWS_SECRET_ACCESS_KEY=%b\nDB_PASSWORD=changeme\n"
    assert found("app/.env.example", lines % (key, secret)) == []
    assert found("app/.env", lines % (key, secret)) == ["a credential"]
    assert found("app/.env.example", lines % (key[:-7] + b"EXEMPLE", secret)) == ["an AWS access key"]
    token = b"eyJhbGciOi" + b"a1B2" * 4 + b".eyJ" + b"a1B2" * 4 + b".SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c"
    assert found("docs/login.md", token) == []
    addresses = (b"url: postgresql://postgres:%b@db" % password for password in (b"postgres", b"postgres1"))
    assert [found("compose.yaml", text) for text in addresses] == [[], ["a credential"]]


def test_published_source_and_its_byte_code_are_no_secrets() -> None:
    there = package("uploader", "1", {"uploader/auth.py": GITHUB + b"\n"})
    compiled: Layer = {f"{SITE}/uploader/__pycache__/auth.cpython-311.pyc": GITHUB + b"\n"}
    assert secrets(context_of(image_of({**there, **compiled}))).findings == ()
    found = secrets(
        context_of(image_of({**there, **compiled, f"{SITE}/uploader/auth.py": GITHUB + b" # mine\n"}))
    ).findings
    assert [one.severity for one in found] == [Severity.WARNING] * 2
