"""Ed25519 keys that sign statements, in PEM files."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuilder.errors import PublishError, UsageError, of_system
from envbuilder.support import decoding

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PRIVATE, PUBLIC = "envbuilder.key", "envbuilder.pub"
"""The names of the files that `create` makes."""

_EXPIRES = "Expires:"
_END = re.compile(rb"(-----END PUBLIC KEY-----[^\n]*\n?)")
"""The end of one key in a file of several."""


@dataclass(frozen=True)
class PublicKey:
    """A trusted key; ``keyid`` is the SHA-256 of its SubjectPublicKeyInfo (DER), in hexadecimal.

    ``expires`` is the end of its trust (ISO 8601 with a zone; '' for none).
    """

    keyid: str
    pem: str
    _key: Ed25519PublicKey
    expires: str = ""

    def verify(self, message: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an optional dependency

        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A key that signs."""

    public: PublicKey
    _key: Ed25519PrivateKey

    @property
    def keyid(self) -> str:
        """The SHA-256 of the public half."""
        return self.public.keyid

    def sign(self, message: bytes) -> bytes:
        """Sign a message; the same message gives the same signature."""
        return self._key.sign(message)


def create(folder: Path, *, password: str | None = None, expires: datetime | None = None) -> PrivateKey:
    """Make a key pair in a folder; only its owner can read the private half. Never overwrites a file.

    ``expires`` is written into the public half, for people who trust it.
    """
    serialization, ed25519 = _cryptography()
    secret, public = folder / PRIVATE, folder / PUBLIC
    taken = next((path for path in (secret, public) if path.exists()), None)
    if taken is not None:
        raise UsageError(f"{taken} exists and is never overwritten", hint="choose another folder, or move it away")
    key = ed25519.Ed25519PrivateKey.generate()
    lock = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    made = _private(key)
    _write_new(secret, pem, 0o600)
    limit = f"{_EXPIRES} {expires.isoformat(timespec='seconds')}\n" if expires else ""
    _write_new(public, f"{limit}{made.public.pem}".encode(), 0o644)
    return made


def load_private(path: Path, *, password: str | None = None) -> PrivateKey:
    """Read a private key. Raises PublishError if the file has no usable one."""
    serialization, ed25519 = _cryptography()
    try:
        key = serialization.load_pem_private_key(_read(path), password.encode() if password else None)
    except (ValueError, TypeError, _unsupported()) as error:
        raise PublishError(
            f"{path}: not a usable private key: {error}",
            hint="envbuilder keys new makes one; for a protected one set ENVBUILDER_KEY_PASSWORD",
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise PublishError(f"{path}: not an ed25519 key", hint="envbuilder keys new makes one")
    return _private(key)


def is_private_to_its_owner(path: Path) -> bool:
    """Return True if only its owner may read a file. Raises UsageError if that is unknown."""
    try:
        return not path.stat().st_mode & 0o077
    except OSError as error:
        raise of_system(error, f"read {path}", users=True) from error


def load_public_keys(path: Path) -> tuple[PublicKey, ...]:
    """Read every public key of a file, with the ``Expires:`` lines above them. Raises PublishError if there is none."""
    serialization, ed25519 = _cryptography()
    data = _read(path)
    if b"PRIVATE KEY" in data:
        raise PublishError(f"{path} holds a private key", hint=f"verify with the public half, {PUBLIC}")
    keys = []
    for block in _blocks(data):
        try:
            key = serialization.load_pem_public_key(block)
        except (ValueError, _unsupported()) as error:
            raise PublishError(f"{path}: not a public key: {error}", hint="it should be a PEM file") from error
        if not isinstance(key, ed25519.Ed25519PublicKey):
            raise PublishError(f"{path}: not an ed25519 key", hint="envbuilder keys new makes a pair")
        keys.append(replace(_public(key), expires=_expiry(path, block)))
    return tuple(keys)


def _blocks(data: bytes) -> list[bytes]:
    """Split a file after each key; a file without a key is one block."""
    parts = _END.split(data)
    return [text + end for text, end in zip(parts[::2], parts[1::2], strict=False)] or [data]


def _unsupported() -> type[Exception]:
    """Return the error of cryptography for an unknown type of key."""
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415 - only who signs or verifies pays for it

    return UnsupportedAlgorithm


def _expiry(path: Path, block: bytes) -> str:
    limits = [
        line.removeprefix(_EXPIRES).strip()
        for line in block.decode("utf-8", "replace").splitlines()
        if line.startswith(_EXPIRES)
    ]
    if not limits:
        return ""
    try:
        zoned = datetime.fromisoformat(limits[-1]).tzinfo is not None
    except ValueError:
        zoned = False
    if not zoned:
        raise PublishError(
            f"{path}: {_EXPIRES} {limits[-1]!r} is not a time with a zone", hint="as in 2027-11-21T00:00:00Z"
        )
    return limits[-1]


def _private(key: Ed25519PrivateKey) -> PrivateKey:
    return PrivateKey(_public(key.public_key()), key)


def _public(key: Ed25519PublicKey) -> PublicKey:
    serialization, _ = _cryptography()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    der = key.public_bytes(serialization.Encoding.DER, form)
    pem = key.public_bytes(serialization.Encoding.PEM, form)
    return PublicKey(hashlib.sha256(der).hexdigest(), decoding.lossy(pem), key)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Create a complete file and replace none. Raises InfrastructureError if it cannot be written."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise of_system(error, f"write {path}") from error


def _read(path: Path) -> bytes:
    try:
        return decoding.small_file(path, piped=True)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}", hint="give the path of a PEM file") from error
    except decoding.DamagedError as error:
        raise UsageError(f"{path}: {error}", hint="give the path of a PEM file") from error


def _cryptography() -> tuple[Any, Any]:
    """Import the optional package that signs."""
    try:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - an optional dependency
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - likewise
    except ImportError as error:
        raise PublishError(
            "signing and verifying need the package cryptography", hint="pip install 'envbuilder[publish]'"
        ) from error
    return serialization, ed25519
