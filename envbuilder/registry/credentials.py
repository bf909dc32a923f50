"""The logins of ``docker login``, as the Docker SDK reads them: in ``config.json``, or from its credential helpers."""

from __future__ import annotations

import warnings
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from envbuilder.errors import InputError, Problem
from envbuilder.support import decoding


@dataclass(frozen=True)
class Login:
    """A user's name and password, or an identity token; never printed. ``excuse`` says how a helper failed."""

    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    excuse: str = ""

    @property
    def basic(self) -> str:
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode()


def find(host: str, environment: Mapping[str, str]) -> Login | None:
    """Return the login for a registry; None if there is none. Raises InputError if the file is not Docker's."""
    from docker import auth, errors  # noqa: PLC0415 - most requests need no login, and its import takes a third of a second

    path, config = decoding.docker_settings(environment), dict[str, Any]()
    try:
        with suppress(OSError):
            config = decoding.from_json(decoding.small_file(path), dict[str, Any])
        with decoding.damaged("not Docker's configuration"):
            logins = auth.load_config(config_dict={"auths": {}, **config})
    except decoding.DamagedError as error:
        problem = Problem(str(path), 0, "", str(error))
        raise InputError((problem,), hint="fix or delete the file, then run docker login") from error
    try:
        with warnings.catch_warnings(action="ignore"), decoding.damaged("the helper's answer is not a login"):
            found = auth.resolve_authconfig(logins, host) or {}
            values = {name.lower(): str(text) for name, text in found.items()}  # a helper's names are in capitals
    except (errors.DockerException, decoding.DamagedError):  # what a helper printed may be a login: it is never shown
        return Login(excuse=f"the credential helper that {path} names is not installed, failed, or gave no login")
    login = Login(values.get("username", ""), values.get("password", ""), values.get("identitytoken", ""))
    return login if login.user or login.identity_token else None
