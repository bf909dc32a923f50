"""What is installed is the same layers wherever and however it is built: two builds by the real engine."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import msgspec
import pytest
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import connect
from envbuilder.environment import Combination, Environment
from envbuilder.image.build import BuildOptions, LayerSize
from envbuilder.image.context import ensure_lock
from envbuilder.image.ensure import Given, ensure
from envbuilder.image.names import reference
from envbuilder.pypi.index_config import configured
from envbuilder.workspace import Workspace

pytestmark = [
    pytest.mark.engine,
    pytest.mark.network,
    pytest.mark.full,
    pytest.mark.timeout(3600),
]
INSTALLED = ("-m venv", "/part/tensorflow.lock", "/part/required.lock")
"""What tells the instructions that install: what is below and between them is the same then as well."""


@pytest.mark.parametrize("system", ["debian-bookworm", "debian-bullseye"])
def test_a_build_anew_makes_the_same_layers(system: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the base to all that TensorFlow requires no byte differs, times and byte code included.

    One build derives the list, and so copies the wheels that the derivation left with the builder; the other has
    nothing of a builder's, and unpacks its own where they stay. A node that has one of the two images pulls kilobytes
    of the other: the user's files and the documents. Before Python 3.11 byte code depends on hashes.
    """
    catalog, engine = load(), connect()
    wish = Combination(tensorflow="2.20.0", os=system, flavor="cpu")
    whole, slim = (resolve(one, catalog) for one in (wish, msgspec.structs.replace(wish, variant="runtime")))
    assert isinstance(whole, Environment)
    assert isinstance(slim, Environment)
    slim = msgspec.structs.replace(slim, id=f"{slim.id}-twice")
    lock = ensure_lock(whole, catalog, Workspace(Path(__file__).parents[2]))
    monkeypatch.setenv("SSL_CERT_FILE", str(_bundle(tmp_path)))

    def built(options: BuildOptions) -> tuple[tuple[LayerSize, ...], str]:
        """Build it; return its layers, and what its steps said."""
        made = ensure(slim, catalog, Workspace(tmp_path), engine, lambda _: None, given=Given(lock), options=options)
        return made.record.layers, Workspace(tmp_path).build_log(slim.id).read_text()

    try:
        first, copied = built(BuildOptions())
        second, in_place = built(BuildOptions(no_cache=True))
    finally:
        engine.remove(reference(slim.id))
    for log in (copied, in_place):
        assert " + tensorflow-cpu==2.20.0" in log
        assert " + keras==" in log
    assert "Downloading" not in copied
    assert "Downloading tensorflow-cpu" in in_place
    top = max(number for number, layer in enumerate(first) if INSTALLED[-1] in layer.created_by)
    assert all(any(mark in layer.created_by for layer in first[: top + 1]) for mark in INSTALLED)
    assert [layer.diff_id for layer in first[: top + 1]] == [layer.diff_id for layer in second[: top + 1]]
    assert sum(layer.size for layer in first[top + 1 :]) < 1_000_000
    assert sum(layer.size for layer in first) > 500_000_000


def _bundle(folder: Path) -> Path:
    """Write a bundle of certificates that no build had before: steps that reach the network run, whatever was built."""
    known = configured(os.environ).certificates or DEFAULT_CA_BUNDLE_PATH
    bundle = folder / "bundle.crt"
    bundle.write_text(f"# {uuid.uuid4()}\n{Path(known).read_text()}")
    return bundle
