"""Docker's ``config.json``: its place, and the logins in it and in its credential helpers."""

import shutil
from base64 import b64decode, b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from envbuilder.errors import InputError, Problem
from envbuilder.support import decoding, subprocesses
from envbuilder.support.terminal_text import hide

_TOKEN_USER = "<token>"  # noqa: S105 - the user name by which a helper marks an identity token
_KEEPS_NONE = "credentials not found"
"""A helper's words for a registry without login; Docker's protocol has exit code 1 and these words."""


def docker_settings(environment: Mapping[str, str]) -> Path:
    """Return the place of Docker's ``config.json``: in ``$DOCKER_CONFIG``, or in ``~/.docker``."""
    folder = environment.get("DOCKER_CONFIG") or Path(environment.get("HOME") or Path.home()) / ".docker"
    return Path(folder) / "config.json"


@dataclass(frozen=True, repr=False)
class Login:
    """A user's name and password, or an identity token; never printed. ``excuse`` says how a helper failed."""

    user: str = ""
    password: str = ""
    identity_token: str = ""
    excuse: str = ""

    def __post_init__(self) -> None:
        hide(self.password, self.identity_token, self.basic.removeprefix("Basic "))

    @property
    def basic(self) -> str:
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()


class _Auth(msgspec.Struct, frozen=True):
    """A login in the file; Docker reads ``username`` and ``password`` if ``auth`` is empty, and null as nothing."""

    auth: str | None = None
    identitytoken: str | None = None
    username: str | None = None
    password: str | None = None


class _DockerConfig(msgspec.Struct, frozen=True, rename="camel"):
    auths: dict[str, Any] | None = None
    creds_store: str | None = None
    cred_helpers: dict[str, str | None] | None = None


class _HelperAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    username: str = ""
    secret: str = ""


def find_login(host: str, environment: Mapping[str, str]) -> Login | None:
    """Return the login for a registry; None if there is none. Raises InputError if the file is not Docker's."""
    path, config, one = docker_settings(environment), _DockerConfig(), _Auth()
    try:
        with suppress(OSError):
            config = decoding.from_json(decoding.file_content(path), _DockerConfig)
    except decoding.DamagedError as error:
        problem = Problem(str(path), 0, "", f"not Docker's configuration: {error}")
        raise InputError((problem,), hint="fix or delete the file, then run docker login") from error
    if helper := (config.cred_helpers or {}).get(host) or config.creds_store:
        return _from_helper(f"docker-credential-{helper}", host)
    given = {(name.partition("://")[2] or name).split("/")[0]: one for name, one in (config.auths or {}).items()}
    with suppress(decoding.DamagedError), decoding.damaged("not a login"):
        one = decoding.converted({} if given.get(host) is None else given[host], _Auth)
        plain = f"{one.username or ''}:{one.password or ''}"
        text = decoding.text(b64decode(one.auth, validate=True)) if one.auth else plain
        user, colon, password = text.partition(":")
        if (user and colon) or one.identitytoken or not (one.auth or one.password):
            return _login(user, password.rstrip("\0"), one.identitytoken)
    return _login("", "", one.identitytoken) or Login(excuse=f"the login for {host} in {path} cannot be read")


def _login(user: str, password: str, token: str | None) -> Login | None:
    return Login(identity_token=token) if token else Login(user, password) if user else None


def _from_helper(name: str, host: str) -> Login | None:
    """Ask a credential helper. What it prints may be a login: it is never shown."""
    program = shutil.which(name)
    if program is None:
        return Login(excuse=f"{name} is not installed")
    try:
        done = subprocesses.run([program, "get"], within=20, stdin=host.encode())
        if done.code == 1 and (not done.out + done.errors or _KEEPS_NONE in done.text + done.error_text):
            return None
        if done.code != 0:
            return Login(excuse=f"{name} exited with {done.code}")
        answer = decoding.from_json(done.out, _HelperAnswer)
    except subprocesses.ProgramError as error:
        return Login(excuse=error.message)
    except decoding.DamagedError:
        return Login(excuse=f"the answer of {name} is not a login")
    token = answer.secret if answer.username == _TOKEN_USER else ""
    return _login(answer.username, answer.secret, token)
