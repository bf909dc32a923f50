"""Ed25519 keys that sign statements, in PEM files."""

import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from envbuilder.attest.requirements import moment
from envbuilder.errors import PublishError, UsageError, of_system
from envbuilder.support import decoding

PRIVATE, PUBLIC = "envbuilder.key", "envbuilder.pub"  # the files that `create` makes
_EXPIRES, _SECRET = "Expires: ", "PRIVATE KEY"
_PEM = r"-----BEGIN ((?:ENCRYPTED )?PRIVATE|PUBLIC) KEY-----\n(?:[A-Za-z0-9+/=]+\n)+-----END \3 KEY-----\n"
_KEY = re.compile(rf"(?:{_EXPIRES}(.*)\n)?({_PEM})")
_PRIME = (1 << 255) - 19
_ORDER_8 = int.from_bytes(bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"), "little")
_SMALL_ORDER = (0, 1, _PRIME - 1, _ORDER_8, _PRIME - _ORDER_8)
"""The y coordinates of points of order 1, 2, 4 and 8: no private key is needed to sign for them (libsodium's list)."""
_FORM = "in PEM, 'Expires: 2027-11-21T00:00:00Z' or nothing above each, blank lines and # comments"


@dataclass(frozen=True)
class PublicKey:
    """A trusted key; ``keyid`` is the SHA-256 of its SubjectPublicKeyInfo (DER), in hexadecimal.

    ``expires`` is the end of its trust; None if there is none.
    """

    keyid: str
    pem: str
    _key: Any
    expires: datetime | None = None

    def verify(self, message: bytes, signature: bytes) -> bool:
        *_, invalid = _cryptography()
        with suppress(invalid):
            self._key.verify(signature, message)
            return True
        return False


@dataclass(frozen=True)
class PrivateKey:
    public: PublicKey
    _key: Any
    is_protected: bool = False

    def sign(self, message: bytes) -> bytes:
        return bytes(self._key.sign(message))


def create(folder: Path, *, password: str | None = None, expires: datetime | None = None) -> PrivateKey:
    """Make a key pair in a folder; only its owner can read the private half. Both halves say when it ``expires``."""
    serialization, ed25519, *_ = _cryptography()
    secret, public = folder / PRIVATE, folder / PUBLIC
    if (taken := next((path for path in (secret, public) if os.path.lexists(path)), None)) is not None:
        raise _taken(taken)
    key = ed25519.Ed25519PrivateKey.generate()
    lock = serialization.BestAvailableEncryption(os.fsencode(password)) if password else serialization.NoEncryption()
    write = partial(key.private_bytes, serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)
    pem = _loaded(secret, write, bytes, "written, its password has more than 1,023 bytes", "choose a shorter one")
    made = PrivateKey(_public(key.public_key()), key)
    limit = f"{_EXPIRES}{expires.isoformat(timespec='seconds')}\n" if expires else ""
    _write_new(secret, limit.encode() + pem, 0o600)
    _write_new(public, f"{limit}{made.public.pem}".encode(), 0o644)
    return made


def load_private(path: Path, *public_files: Path, password: str | None = None) -> PrivateKey:
    """Read a key and its limit, or an earlier one of its public half (given, or next to it). Raises UsageError."""
    serialization, ed25519, *_ = _cryptography()
    ((place, end, pem),) = _blocks(path, private=True)
    is_protected = pem.startswith(b"-----BEGIN ENCRYPTED ")
    load = partial(serialization.load_pem_private_key, pem, os.fsencode(password or "") if is_protected else None)
    what = "an ed25519 private key, or its password is missing or wrong"
    hint = "for a protected key set TF_ENVBUILDER_KEY_PASSWORD; envbuilder keys new FOLDER makes a pair"
    key = _loaded(place, load, ed25519.Ed25519PrivateKey, what, hint)
    public, beside = _public(key.public_key()), path.with_suffix(".pub")
    known = load_public_keys(*public_files, *([beside] if beside.is_file() else ()))
    ends = (end, *(one.expires for one in known if one.keyid == public.keyid))
    return PrivateKey(replace(public, expires=min(filter(None, ends), default=None)), key, is_protected)


def is_public(path: Path) -> bool:
    """Return True for a file with public keys and no private one. Raises UsageError if it cannot be read."""
    text = decoding.written(_read(path)) if path.is_file() else ""  # a pipe can be read once
    return "PUBLIC KEY" in text and _SECRET not in text


def load_public_keys(*paths: Path) -> tuple[PublicKey, ...]:
    """Read every public key of files; a key that is there twice has the earlier end.

    Raises UsageError for a line that is not understood, since it may be a limit.
    """
    serialization, ed25519, *_ = _cryptography()
    keys: dict[str, PublicKey] = {}
    for place, end, pem in (block for path in paths for block in _blocks(path, private=False)):
        load = partial(serialization.load_pem_public_key, pem)
        hint = "ask its owner for the file that `envbuilder keys new` made"
        key = _loaded(place, load, ed25519.Ed25519PublicKey, "an ed25519 public key", hint)
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        if (int.from_bytes(raw, "little") & (1 << 255) - 1) % _PRIME in _SMALL_ORDER:
            raise UsageError(f"{place}: a key for which everybody can sign", hint=hint)
        public = _public(key)
        ends = filter(None, (end, keys.get(public.keyid, public).expires))
        keys[public.keyid] = replace(public, expires=min(ends, default=None))
    return tuple(keys.values())


def _blocks(path: Path, *, private: bool) -> list[tuple[str, datetime | None, bytes]]:
    """Return place, limit and PEM block of one private key, or of each public one; the file has nothing else.

    No error repeats a line that is not understood: it may be a secret.
    """
    text = decoding.written(_read(path))
    if not private and _SECRET in text:
        raise UsageError(f"{path} holds a private key", hint=f"verify with the public half, {PUBLIC}")
    lines = text.splitlines()
    used = {number: line.rstrip() for number, line in enumerate(lines, 1) if line.strip() and line[0] != "#"}
    numbers, rest = (*used, len(lines) + 1), "".join(f"{line}\n" for line in used.values())
    found: list[tuple[str, datetime | None, bytes]] = []
    at, hint = 0, f"a key file has {'one private key' if private else 'public keys'} {_FORM}"
    while at < len(rest) or not found:
        key, before = _KEY.match(rest, at), rest.count("\n", 0, at)
        place = f"{path}:{numbers[before]}"
        if key is None or (key[3] != "PUBLIC") != private or (private and found):
            raise UsageError(f"{place}: not understood", hint=hint)
        try:
            found.append((place, moment(key[1].strip()) if key[1] else None, key[2].encode()))
        except decoding.DamagedError as error:
            raise UsageError(f"{place}: {key[1][:100]!r} is not a time with a zone", hint=hint) from error
        at = key.end()
    return found


def _loaded(place: object, load: Callable[[], Any], kind: type, what: str, hint: str) -> Any:  # noqa: ANN401
    with suppress(ValueError, TypeError, _cryptography()[2]):
        if isinstance(key := load(), kind):
            return key
    raise UsageError(f"{place}: not {what}", hint=hint)


def _public(key: Any) -> PublicKey:  # noqa: ANN401 - an optional package's key
    serialization, *_ = _cryptography()
    form, encoding = serialization.PublicFormat.SubjectPublicKeyInfo, serialization.Encoding
    der, pem = (key.public_bytes(one, form) for one in (encoding.DER, encoding.PEM))
    return PublicKey(hashlib.sha256(der).hexdigest(), decoding.lossy(pem), key)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Create a complete file. Raises UsageError if another has its name, InfrastructureError if it is not writable."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(0o755, parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                file.write(data)
            os.link(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError as error:  # another command was quicker
        raise _taken(path) from error
    except OSError as error:
        raise of_system(error, f"write {path}") from error


def _taken(path: Path) -> UsageError:
    return UsageError(f"{path} exists and is never overwritten", hint="choose another folder, or move it away")


def _read(path: Path) -> bytes:
    try:
        return decoding.file_content(path, piped=True)
    except (OSError, decoding.DamagedError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', error)}", hint="give the path of a PEM file") from error


def _cryptography() -> tuple[Any, Any, type[Exception], type[Exception]]:
    """Import the optional package that signs, with its errors for an unknown type of key and for a wrong signature."""
    try:
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415 - optional
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - likewise
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - likewise
    except ImportError as error:
        text = "signing and verifying need the package cryptography"
        raise PublishError(text, hint="pip install 'tf-envbuilder[publish]'") from error
    return serialization, ed25519, UnsupportedAlgorithm, InvalidSignature
