"""Read the catalogue's YAML files into one value; the result is cached by the digest of the files."""

import hashlib
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from envbuilder.catalog.model import DISTRIBUTIONS, Catalog
from envbuilder.support import decoding
from envbuilder.workspace import cache, cache_dir, cached, packaged


@lru_cache(maxsize=1)
def load() -> Catalog:
    """Return the catalogue that ships with the package.

    Reads every YAML file of this folder, and parses them if the user's cache (``XDG_CACHE_HOME``) has no copy with
    their digest. An unusable cache is ignored.
    """
    texts = tuple((path.name, packaged(path)) for path in files())
    try:
        kept = cache_dir() / f"catalog-{digest(texts)}.msgpack"
    except RuntimeError:  # a user without a home, such as a plain number in a container
        return parse(texts)
    with suppress(decoding.DamagedError):
        found: Catalog = decoding.from_msgpack(cached(kept) or b"", Catalog)
        return found
    catalog = parse(texts)
    cache(kept, msgspec.msgpack.encode(catalog))
    return catalog


def parse(texts: tuple[tuple[str, bytes], ...]) -> Catalog:
    """Turn the files' texts into a catalogue.

    Scalars stay text until a field needs a number or a truth value. Raises ValueError for invalid YAML, a key
    given twice, a row that does not fit, and a table that `Tables` does not have.
    """
    tables: dict[str, list[Any]] = {}
    with decoding.damaged("the catalogue does not fit its rows"):
        for name, text in texts:
            for table, rows in _yaml(name, text).items():
                tables.setdefault(table, []).extend(rows)
        decoding.ready(Catalog)
        return msgspec.convert(tables, type=Catalog, strict=False)


def files() -> tuple[Path, ...]:
    """List the files, each a mapping from a table's name to its rows; those of distributions come first, in order."""
    order = {f"{name}.yaml": place for place, name in enumerate(DISTRIBUTIONS)}
    every = Path(__file__).parent.glob("*.yaml")
    return tuple(sorted(every, key=lambda path: (order.get(path.name, len(order)), path.name)))


def path_of(name: str) -> Path:
    return Path(__file__).with_name(name)


def digest(texts: tuple[tuple[str, bytes], ...]) -> str:
    """Return a digest of the files' content, and of the code that reads them into rows."""
    total = hashlib.blake2b(digest_size=16)
    for module in ("rows.py", "model.py", "store.py"):
        total.update(packaged(path_of(module)))
    for name, text in texts:
        total.update(name.encode() + b"\0" + text + b"\0")
    return total.hexdigest()


def _yaml(name: str, text: bytes) -> Any:  # noqa: ANN401 - what YAML holds
    import yaml  # noqa: PLC0415 - 20 ms, saved by a cached start

    base: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)

    class Loader(base):  # type: ignore[misc]
        """Reads every scalar as text, and refuses duplicate keys."""

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: ANN401, FBT001, FBT002
            found: dict[Any, Any] = super().construct_mapping(node, deep=deep)
            if len(found) != len(node.value):
                raise ValueError(f"{name}:{node.start_mark.line + 1}: a key is given twice")
            return found

    try:
        return yaml.load(text, Loader=Loader)  # noqa: S506 - BaseLoader makes text only
    except yaml.YAMLError as error:
        raise ValueError(f"{name}: not YAML: {error}") from error
