"""What lies among a Python's packages was built for it, and what decides what is loaded was read."""

from __future__ import annotations

from typing import Any

import pytest
from made_images import SITE, SYSTEM, Layer, image_of, outside, package

from envbuilder.finding import Code, Severity
from envbuilder.validation.image_settings import configuration
from envbuilder.validation.installed_files import files
from envbuilder.validation.layer_scan import MAX_KEPT
from envbuilder.validation.static_checks import for_another_python


@pytest.mark.parametrize(
    ("tag", "found"),
    [
        ("cp310-cp310-manylinux_2_17_x86_64", 1),
        ("cp312-abi3-manylinux_2_17_x86_64", 1),
        ("cp313-cp313t-manylinux_2_17_x86_64", 1),
        ("cp311-cp311-manylinux_2_17_x86_64", 0),
        ("cp37-abi3-manylinux2014_x86_64", 0),
        ("py3-none-manylinux_2_31_x86_64", 0),
        ("py2.py3-none-any", 0),
    ],
)
def test_machine_code_for_another_python(tag: str, found: int) -> None:
    """A folder of packages that was copied from a stage with another Python: its modules are not found."""
    there = image_of(package("lxml", "1.0", {"lxml/__init__.py": b"1"}, tag=tag))
    told = list(for_another_python(outside(there)))
    assert [one.code for one in told] == [Code.PACKAGE_CONFLICT] * found
    assert [one.severity for one in for_another_python(outside(there, facts={"environment": ""}))] == (
        [Severity.WARNING] * found
    )


def test_what_decides_and_was_not_read_is_named() -> None:
    """A cache of the loader's that is padded beyond what is kept, or that comes after decoys which take all room."""
    padded: Layer = {**SYSTEM, "etc/ld.so.cache": b"glibc-ld.so.cache1.1" + bytes(MAX_KEPT)}
    found = [one for one in files(outside(image_of(padded))).findings if one.subject == "unread files"]
    assert [(one.severity, "/etc/ld.so.cache" in one.message) for one in found] == [(Severity.ERROR, True)]
    decoys: Layer = {f"srv/{number}.pth": bytes(MAX_KEPT) for number in range(8)}
    (one,) = (
        one
        for one in files(outside(image_of(SYSTEM, {**decoys, "etc/ld.so.conf.d/x.conf": b"/opt/x\n"}))).findings
        if one.subject == "unread files"
    )
    assert "etc/ld.so.conf.d/x.conf" in one.message


WHOLE: Layer = {
    "opt/venv/bin/python": b"#!",
    "bin/sh": b"#!",
    "etc/passwd": b"root:x:0:0::/:/bin/sh\nenvbuilder:x:1000:1000::/:/bin/sh\n",
    "etc/ssl/certs/a.pem": "/usr/share/a.crt",
    "etc/ssl/certs": "/usr/certs",
    "usr/certs/a": b"1",
    "usr/certs": "/usr/certs2",
    "usr/certs2/a": b"1",
    "usr/share/zoneinfo/Europe/Berlin": b"TZif",
    f"{SITE}/six.py": b"1",
}


@pytest.mark.parametrize(
    ("image", "severity"),
    [
        ({"user": "builder"}, "error"),
        ({"user": "envbuilder"}, None),
        ({"command": ("/bin/sh", "-c", "['python', 'app.py']")}, "error"),
        ({"command": ("/bin/sh", "-c", "[ 'a' = \"$A\" ] && exec python")}, None),
        ({"env": {"CURL_CA_BUNDLE": "/opt/nowhere.pem"}}, "error"),
        ({"env": {"SSL_CERT_DIR": "/opt/nowhere"}}, "error"),
        ({"env": {"REQUESTS_CA_BUNDLE": "/usr/certs2/a"}}, None),
        ({"env": {"TZ": "Asia/Tokyo"}}, "warning"),
        ({"env": {"TZ": ":Europe/Berlin"}}, None),
        ({"env": {"TZ": "UTC"}}, None),
        ({"env": {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"}}, "warning"),
        ({"env": {"TF_CONFIG": '{"cluster": {}}'}}, "warning"),
        ({"env": {"NVIDIA_TF32_OVERRIDE": "0"}}, "warning"),
    ],
)
def test_settings_that_break_or_bend_a_start(image: dict[str, Any], severity: str | None) -> None:
    """An account that another's name ends with, a list in single quotes, certificates, a zone, bent computing."""
    asked: dict[str, Any] = {"user": "root", **image}
    there = image_of(WHOLE)
    told = configuration(outside(there, facts={"python": ""}, **asked)).findings
    assert [one.severity.value for one in told] == [severity] * (severity is not None)
