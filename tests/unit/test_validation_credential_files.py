"""Files in which tools keep credentials, each in its tool's own words; what is usual in healthy images is none."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from made_images import image_of, outside

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.file_secrets import FileSecrets
from envbuilder.validation.image_secrets import secrets


def found(path: str, content: bytes) -> list[str]:
    """Search one file."""
    searched = FileSecrets(path)
    searched.take(bytearray(content))
    return [one.what for one in searched.found]


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
        ("root/.bash_history", b"sshpass -p hunter2 ssh a\n"),
        ("root/.condarc", b"channels:\n  - https://conda.anaconda.org/t/an-01234567-89ab-cdef-0123-456789abcdef/a\n"),
        ("root/.yarnrc.yml", b"npmAuthToken: abcdefgh\n"),
        ("app/.env", b"SMTP_PASS=hunter2\n"),
        ("app/.envrc", b"export MYSQL_PWD=hunter2\n"),
        ("app/.env", "DB_PASSWORD=correct-horse\r\n".encode("utf-16")),
        ("app/.env", b"\xfe\xff" + "DB_PASSWORD=correct-horse\r\n".encode("utf-16-be")),
        ("etc/shadow", b"daemon:*:19000:0:99999:7:::\nroot:$y$j9T$abcdefgh$0123456789:19000:0:99999:7:::\n"),
        ("etc/shadow-", b"root:$6$abcdefgh$0123456789:19000:0:99999:7:::\n"),
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
        ("srv/a", b"AKCp" + b"a" * 69),
        ("srv/a", b"eyJ0eXAiOiJKV1QiLCJhbGciOiJSUzI1NiJ9.eyJ" + b"a1B2" * 4 + b"." + b"a1B2" * 6),
    ],
)
def test_a_credential_is_found_as_its_tool_writes_it(path: str, content: bytes) -> None:
    """Every way of writing that a tool has, in text, in text of two bytes a letter, and in stores that are no text."""
    assert found(path, content)


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("etc/shadow", b"root:*:19000:0:99999:7:::\nbin:!:19000::::::\njovyan:!!:1::::::\nsync::1:::\n"),
        ("etc/gshadow", b"root:*::\nssl-cert:!::\n"),
        (
            "app/docker-compose.yml",
            b'services:\n  a:\n    user: "1000:1000"\nsecrets:\n  db_password:\n    file: ./db_password\n',
        ),
        ("app/compose.yaml", b"      DB_PASSWORD: ${DB_PASSWORD}\n      TOKEN_FILE: /run/secrets/token\n"),
        ("app/.env", b"GPG_KEY=A035C8C19219BA821ECEA86B64E628F8D684696D\nOLD_PWD=/srv/app\n"),
        ("etc/tls/server.der", b"0\x82\x04\xa40\x82\x03\x8c" + bytes(99)),
        ("etc/ssl/certs/java.jks", JKS + b"\x02" + bytes(99)),
        ("opt/a.pfx", b"\x89PNG" + bytes(99)),
        ("root/.condarc", b"channels:\n  - https://conda.anaconda.org/t/a\n"),
        ("root/.m2/settings.xml", b"<password>${env.PW}</password>"),
        ("srv/map.js", b"data:application/json;base64,eyJ2ZXJzaW9uIjozLCJmaWxlIjoiIn0="),
        ("root/.bash_history", b"docker run -u 1000:1000 a\n"),
        ("run/secrets/empty", b"\n"),
    ],
)
def test_what_is_usual_is_none(path: str, content: bytes) -> None:
    """Locked accounts, references, public keys' ids, certificates, maps of sources."""
    assert found(path, content) == []


def errors(**image: Any) -> list[Finding]:
    """Judge an image of one file, and keep what makes it fail."""
    told = secrets(outside(image_of({"srv/a": b"a"}), **image)).findings
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
def test_a_value_that_was_set_anew_is_in_the_history(first: str) -> None:
    """Emptying a variable takes nothing out of the instruction that gave it."""
    (one,) = errors(history=(first, "ENV API_TOKEN=", 'CMD ["serve"]'), env={"API_TOKEN": ""}, command=("serve",))
    assert (one.code, "history" in one.message) == (Code.SECRET_IN_IMAGE, True)


def test_what_still_stands_is_told_once() -> None:
    """A variable that was never set anew is a finding of its own."""
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
def test_a_build_step_that_holds_a_credential(text: str) -> None:
    """As engineers write it: for curl, for ssh, for an account's password, as an argument of some stage."""
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
def test_a_build_step_that_holds_none(text: str) -> None:
    """References to what is mounted, and what only looks alike."""
    assert errors(history=(text,)) == []


def test_an_authority_among_the_certificates_is_named() -> None:
    """A file where packages leave links, and one more in the bundle whose sources a later layer took away."""
    pem = b"-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
    own = {"usr/share/ca-certificates/a.crt": pem, "etc/ssl/certs/ca-certificates.crt": pem}
    assert [one.code for one in secrets(outside(image_of(own, {"etc/ssl/certs/corp.pem": pem}))).findings] == [
        Code.SECRET_IN_IMAGE
    ]
    hidden = {
        "usr/share/ca-certificates": None,
        "etc/ssl/certs/ca-certificates.crt": pem + pem.replace(b"QUJD", b"REVG"),
    }
    (one,) = secrets(outside(image_of(own, hidden))).findings
    assert "1 authorities" in one.message
    link = {"etc/ssl/certs/a.pem": "/usr/share/ca-certificates/a.crt"}
    assert secrets(outside(image_of(own, link))).findings == ()
