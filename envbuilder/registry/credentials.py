"""Docker's credentials for registries: ``config.json`` and its helpers."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import msgspec

from envbuilder.errors import InputError, Problem, PublishError
from envbuilder.support import decoding, subprocesses, terminal_text

_HELPER = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}\Z")
_TOKEN_USER = "<token>"  # noqa: S105 - the user name by which a helper marks an identity token

_KEEPS_NONE = "credentials not found"
"""A helper's words for a registry without login; Docker's protocol has exit code 1 and these words."""


@dataclass(frozen=True)
class Login:
    """A user's name and password, or an identity token; never printed. ``excuse`` says how a helper failed."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    excuse: str = ""


class _Auth(msgspec.Struct, frozen=True):
    auth: str = ""
    identitytoken: str = ""


class _DockerConfig(msgspec.Struct, frozen=True, rename="camel"):
    auths: dict[str, _Auth] = {}
    creds_store: str = ""
    cred_helpers: dict[str, str] = {}


class _HelperAnswer(msgspec.Struct, frozen=True, rename="pascal"):
    username: str = ""
    secret: str = ""


def find(host: str, environment: Mapping[str, str]) -> Login | None:
    """Return the login for a registry; None if there is none.

    Reads ``$DOCKER_CONFIG/config.json`` (``~/.docker`` by default). Raises InputError if that is not JSON.
    """
    path, config = decoding.docker_settings(environment), _DockerConfig()
    try:
        with suppress(OSError):
            config = decoding.from_json(decoding.small_file(path), _DockerConfig)
    except decoding.DamagedError as error:
        problem = Problem(str(path), 0, "", f"not Docker's configuration: {error}")
        raise InputError((problem,), hint="fix or delete the file, then run docker login") from error
    if helper := config.cred_helpers.get(host) or config.creds_store:
        return _ask(helper, host)
    hosts = {name.removeprefix("https://").removeprefix("http://").split("/")[0]: name for name in config.auths}
    return _login(config.auths[hosts[host]]) if host in hosts else None


def _login(auth: _Auth) -> Login | None:
    user, password = "", ""
    with suppress(decoding.DamagedError), decoding.damaged("not a login"):
        user, _, password = decoding.text(base64.b64decode(auth.auth, validate=True)).partition(":")
    if auth.identitytoken:
        return Login(identity_token=auth.identitytoken)
    return Login(user, password.rstrip("\0")) if user else None


def _ask(helper: str, host: str) -> Login | None:
    program = shutil.which(f"docker-credential-{helper}") if _HELPER.match(helper) else None
    if program is None:
        text = f"Docker's configuration names the credential helper {helper!r}, which is not installed"
        raise PublishError(text, hint=f"install docker-credential-{helper}, or log in again without it")
    try:
        done = subprocesses.run([program, "get"], within=30, stdin=host.encode())
    except subprocesses.ProgramError as error:
        raise PublishError(f"{program} gave no login: {error.message}", hint=f"try it: {program} get") from error
    said = decoding.lossy(done.out + b"\n" + done.errors).strip()
    if done.code == 1 and (not said or _KEEPS_NONE in said):
        return None
    if done.code != 0:
        return Login(excuse=f"{program} exited with {done.code}: {terminal_text.line(said)[:200]}")
    try:
        answer = decoding.from_json(done.out, _HelperAnswer)
    except decoding.DamagedError as error:
        return Login(excuse=f"the answer of {program} is not a login: {error}")
    if answer.username == _TOKEN_USER:
        return Login(identity_token=answer.secret)
    return Login(answer.username, answer.secret) if answer.username else None
