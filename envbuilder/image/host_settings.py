"""Settings of this host: mirrors of registries and of apt by the user's configuration, and files for build steps."""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec
from platformdirs import user_config_path

from envbuilder.errors import UsageError
from envbuilder.pypi.index_config import configured, is_remote
from envbuilder.support import decoding
from envbuilder.workspace import read_users, settings_of, users_text

WITH_HOST = """\
--mount=type=bind,source=host,target=/run/host \\
    if [ -s /run/host/ca-certificates.crt ]; then \\
      export SSL_CERT_FILE=/run/host/ca-certificates.crt PIP_CERT=/run/host/ca-certificates.crt; fi; \\
    if [ -s /run/host/pip.conf ]; then export PIP_CONFIG_FILE=/run/host/pip.conf; fi; \\
    if [ -s /run/host/uv.toml ]; then export UV_CONFIG_FILE=/run/host/uv.toml; fi; \\"""
"""Text between ``RUN`` and the command of a step that gets, but leaves in no layer, the build host's files."""

T = TypeVar("T")

_VARIABLE = "TF_ENVBUILDER_MIRRORS"
REPOSITORY = "TF_ENVBUILDER_REPOSITORY"
"""The variable of `--repository`: the repository of images in the engine's store."""

_EXAMPLES = {
    "apt": '[apt], and below it debian = "https://mirror.example.org/debian", without credentials; '
    '[apt.repositories.NAME] with url = "https://packages.example.org/…", key = "/etc/apt/keyrings/….gpg", and suite',
    "images": '[images], and below it repository = "team/tensorflow", without a tag',
    "mirrors": '[mirrors], and below it "docker.io" = "mirror.example.org:5000/hub", without a scheme',
}
_LARGEST = 32 << 10
"""Characters of the file: a name of very many parts takes time by their square."""

_LARGEST_KEY = 1 << 20
_ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"

_HOST = r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::[0-9]{1,5})?"
_Registry = Annotated[str, msgspec.Meta(pattern=rf"^{_HOST}\Z")]
_Mirror = Annotated[str, msgspec.Meta(pattern=rf"^{_HOST}(?:/[a-z0-9][a-z0-9._-]*)*\Z")]
_Url = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^https?://[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
        r"(?:/[A-Za-z0-9][A-Za-z0-9._~+-]*)*/?\Z"
    ),
]
_Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,63}\Z")]
_Suite = Annotated[str, msgspec.Meta(pattern=r"^(?:/|[A-Za-z0-9][A-Za-z0-9._/-]*(?: [A-Za-z0-9][A-Za-z0-9._-]*)*)\Z")]


class _AptRepository(msgspec.Struct, forbid_unknown_fields=True):
    """A signed repository; ``suite`` follows the address in apt's lists (``/`` for a flat one)."""

    url: _Url
    key: Annotated[str, msgspec.Meta(pattern="^/")]
    suite: _Suite = "/"


class Apt(msgspec.Struct, forbid_unknown_fields=True, rename="kebab"):
    """Mirrors of Debian ('' if none), and further repositories by name."""

    debian: _Url = ""
    debian_security: _Url = ""
    repositories: dict[_Name, _AptRepository] = {}


def config_file() -> Path:
    return user_config_path("envbuilder") / "config.toml"


def mirrors() -> dict[str, str]:
    """Return the mirror of each registry that has one: ``docker.io`` → ``mirror.example.org/hub``.

    The variable precedes the file's table. Raises UsageError for a name that is not a registry's or a mirror's.
    """
    pairs = (pair.partition("=") for pair in os.environ.get(_VARIABLE, "").replace(",", " ").split())
    found = {name: mirror for name, _, mirror in pairs}
    return _table("mirrors", dict[_Registry, _Mirror], found, _VARIABLE, "docker.io=mirror.example.org:5000/hub")


class _Images(msgspec.Struct, forbid_unknown_fields=True):
    repository: _Mirror = "envbuilder/tensorflow"


def repository(option: str = "") -> str:
    """Return the repository of images: the option's, the variable's, the project's, the file's, or envbuilder's own."""
    of_project = settings_of(Path.cwd()).repository
    names = {"--repository": option, REPOSITORY: os.environ.get(REPOSITORY), "the project's repository": of_project}
    origin, name = next(((origin, name) for origin, name in names.items() if name), ("", ""))
    found = {"repository": name} if name else {}
    return _table("images", _Images, found, f"{origin} {name!r}", "team/tensorflow, without a tag").repository


def apt() -> Apt:
    return _table("apt", Apt)


def repository_files(name: str, folder: str) -> dict[str, bytes]:
    """Return apt's list of a configured repository, and the key, which the list expects in ``folder``.

    Raises UsageError if none of this name is configured, or its key is not one.
    """
    found = apt().repositories.get(name)
    if found is None:
        where = f"{config_file()}: apt.repositories.{name}"
        raise UsageError(f"{where} is missing: the packages come from it", hint=f"write {_EXAMPLES['apt']}")
    key = read_users(Path(found.key))
    armoured = key.lstrip().startswith(_ARMOUR)
    if len(key) > _LARGEST_KEY or not (armoured or key[:1] >= b"\x80"):
        raise UsageError(f"{found.key} is not a public key of OpenPGP", hint="gpg --export KEY > FILE writes one")
    key_file = f"{name}.{'asc' if armoured else 'gpg'}"  # apt tells a key's two formats by the ending
    line = f"deb [arch=amd64 signed-by={folder}/{key_file}] {found.url.rstrip('/')} {found.suite}\n"
    return {"further.list": line.encode(), key_file: key}


def _table(name: str, kind: type[T], more: Mapping[str, str] | None = None, origin: str = "", value: str = "") -> T:
    """Read a table of the file, empty if there is none, with ``more`` of another origin, of which ``value`` is one.

    Raises UsageError with an example if it does not fit.
    """
    path = config_file()
    text, example = users_text(path) if path.is_file() else "", _EXAMPLES[name]
    try:
        with decoding.damaged(str(path)):
            if len(text) > _LARGEST:
                raise ValueError(f"larger than {_LARGEST >> 10} kB")
            table = tomllib.loads(text).get(name, {})
            found = decoding.converted(table, kind, f"{path} [{name}]")
            example = value if more else example
            return decoding.converted({**table, **more}, kind, origin) if more else found
    except decoding.DamagedError as error:
        where = "( - at .*)?" if example is value else ""  # a key of the file
        message = re.sub(f"Expected `str` matching regex '.*'{where}", "not in the form of the example", str(error))
        raise UsageError(message, hint=f"write {example}") from error


def host_files(
    *, wheels: Path | None = None, indexes: tuple[str, ...] = (), repository: str = "", folder: str = "host"
) -> dict[str, bytes]:
    """Return the files of the build host, by path in the context, for its ``folder``.

    ``wheels`` is a folder of wheels to install from, ``indexes`` are those of a matrix, ``repository`` names one of
    apt's in the user's configuration. Certificates and indexes are those that pip and uv are configured for here;
    only ``https`` and ``http`` are passed on, because a step cannot see this host's files. The files may hold
    credentials: they are mounted into steps, and are in no folder of this host and in no layer.
    """
    config = configured()
    main, proxy = (url if is_remote(url) else "" for url in (config.url, config.proxy))
    extra = list(dict.fromkeys((*indexes, *filter(is_remote, config.extra))))
    options = {"index-url": main, "extra-index-url": " ".join(extra), "proxy": proxy}
    pip = [f"{name} = {value}" for name, value in options.items() if value]
    uv = ['find-links = ["/run/host/wheels"]'] if wheels else []
    uv += ['index-strategy = "unsafe-best-match"'] if extra else []  # as pip: the best version of all indexes
    uv += [f'{name} = "{proxy}"' for name in ("http-proxy", "https-proxy") if proxy]
    uv += [line for url in extra for line in ("[[index]]", f'url = "{url}"')]
    uv += ["[[index]]", f'url = "{main}"', "default = true"] if main else []
    texts = {"pip.conf": ["[global]", *pip] if pip else [], "uv.toml": uv}
    files = {name: "".join(f"{line}\n" for line in lines).encode() for name, lines in texts.items() if lines}
    if config.certificates:
        files["ca-certificates.crt"] = read_users(Path(config.certificates))
    if repository:
        found = repository_files(repository, "/run/host/apt")
        files |= {f"apt/{name}": content for name, content in found.items()}
    files |= {f"wheels/{one.name}": read_users(one) for one in sorted(wheels.glob("*.whl"))} if wheels else {}
    return {f"{folder}/{name}": content for name, content in files.items()}
