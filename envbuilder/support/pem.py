"""Certificates in PEM, as files of authorities have them."""

import re

_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----([^-]*)-----END CERTIFICATE-----")


def certificates(text: bytes) -> frozenset[bytes]:
    """Return the certificates of a file, each without line breaks."""
    return frozenset(re.sub(rb"\s", b"", body) for body in _CERTIFICATE.findall(text))


def why_not(text: bytes) -> str:
    """Return the reason why a file cannot be installed as authorities; '' if it can."""
    if b"PRIVATE KEY-----" in text:
        return "holds a private key: give the certificates only"
    return "" if certificates(text) else "holds no certificate in PEM (-----BEGIN CERTIFICATE-----)"
