"""Open the package index that this user's pip and uv are configured for."""

from __future__ import annotations

from envbuilder.pypi import index_config
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.package_index import PackageIndex
from envbuilder.pypi.simple_api import PAGE_LIFE_S, Client
from envbuilder.workspace import cache_dir


def open_index(*, fresh: bool = False) -> Client:
    """Return a client that keeps what it read in the user's cache; ``fresh`` reads projects' pages again."""
    return Client(index_config.read(), Cache(cache_dir() / "index"), page_life_s=0.0 if fresh else PAGE_LIFE_S)


def with_own(index: PackageIndex | None, addresses: tuple[str, ...]) -> PackageIndex | None:
    """Return an index that asks a matrix's own ones too; what stands in for an index stays as it is."""
    return index.beside(addresses) if isinstance(index, Client) else index


def evidence() -> Cache:
    """Return the user's cache of what wheels' shared objects were found to hold."""
    return Cache(cache_dir() / "evidence")
