"""Certificates of tests: each signs itself, and is the authority that a client may be told to believe."""

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

_FROM = timedelta(days=60)


def certificate(folder: Path, address: str = "127.0.0.1", *, days: int = 1, root: bool = True) -> Path:
    """Make one for an address that ends in so many days (negative: it has ended); its file, ``key.pem`` beside it.

    One that is no ``root`` may sign no other: uv takes it from a server, and not one that may.
    """
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
    end = datetime.now(UTC) + timedelta(days=days)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(end - _FROM)
        .not_valid_after(end)
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=root, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = folder / "key.pem"
    private.touch(mode=0o600)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    file = folder / "cert.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return file
