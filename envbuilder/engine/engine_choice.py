"""Which engine the user means: ``DOCKER_HOST``, else the Docker context that is named, read as Docker's client does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from envbuilder.errors import InfrastructureError
from envbuilder.support import decoding, docker_settings

_DEFAULT = "default"
_MEND = "docker context ls names them all; docker context use NAME, or DOCKER_HOST, says which one is meant"


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    current_context: str | None = None


class _Endpoint(msgspec.Struct, frozen=True):
    host: str = msgspec.field(name="Host", default="")
    skip_tls_verify: bool = msgspec.field(name="SkipTLSVerify", default=False)


class _Context(msgspec.Struct, frozen=True):
    endpoints: dict[str, Any] = msgspec.field(name="Endpoints")


def resolved(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which ``DOCKER_HOST`` and the certificates' variables are those of the context it means.

    It is unchanged where ``DOCKER_HOST`` is set, and where no context is named, or Docker's own (``default``). Raises
    InfrastructureError for a context that is not there and for settings that cannot be read: another engine than the
    one that is meant would be built on, and cleaned.
    """
    config = docker_settings.config_file(environment)
    current = _read(config, _Config)
    given = dict(environment)
    if given.get("DOCKER_HOST"):
        return given
    name = given.get("DOCKER_CONTEXT") or (current and current.current_context) or _DEFAULT
    if name == _DEFAULT:
        return given
    key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    file = config.parent / "contexts/meta" / key / "meta.json"
    context = _read(file, _Context)
    if context is None:
        raise InfrastructureError(f"there is no Docker context {name!r} ({file})", hint=_MEND)
    return given | _variables(context, file, config.parent / "contexts/tls" / key / "docker")


def _variables(context: _Context, file: Path, certificates: Path) -> dict[str, str]:
    """Say in Docker's variables what a context says of its engine."""
    try:
        endpoint = decoding.converted(context.endpoints.get("docker"), _Endpoint, "it names no engine")
    except decoding.DamagedError as error:
        raise InfrastructureError(f"{file}: {error}", hint=_MEND) from error
    if not endpoint.host:
        raise InfrastructureError(f"{file}: it names no engine", hint=_MEND)
    if not certificates.is_dir():
        return {"DOCKER_HOST": endpoint.host, "DOCKER_CERT_PATH": "", "DOCKER_TLS_VERIFY": ""}
    verify = "" if endpoint.skip_tls_verify else "1"
    return {"DOCKER_HOST": endpoint.host, "DOCKER_CERT_PATH": str(certificates), "DOCKER_TLS_VERIFY": verify}


def _read(path: Path, kind: type[Any]) -> Any:  # noqa: ANN401 - of the kind
    """Read one of Docker's own files; None where there is none, or it is another account's."""
    try:
        return decoding.from_json(decoding.small_file(path), kind)
    except OSError:
        return None
    except decoding.DamagedError as error:
        raise InfrastructureError(f"{path} is not as Docker writes it: {error}", hint=f"mend it; {_MEND}") from error
