"""What is installed is the same layers wherever it is built: two builds without a cache, by the real engine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import connect
from envbuilder.environment import Combination, Environment
from envbuilder.image.build import BuildOptions
from envbuilder.image.context import ensure_lock
from envbuilder.image.ensure import Given, ensure
from envbuilder.image.names import reference
from envbuilder.workspace import Workspace

pytestmark = [
    pytest.mark.engine,
    pytest.mark.network,
    pytest.mark.slow,
    pytest.mark.long,
    pytest.mark.timeout(3600),
]
INSTALLED = ("-m venv", "/part/tensorflow.lock", "/part/required.lock")
"""What tells the instructions that install: what is below and between them is the same then as well."""


def test_a_build_anew_makes_the_same_layers(tmp_path: Path) -> None:
    """From the base to all that TensorFlow requires no byte differs, times and byte code included.

    A node that has one of the two images pulls kilobytes of the other: the user's files and the documents.
    """
    catalog, engine = load(), connect()
    wish = Combination(tensorflow="2.20.0", os="debian-bookworm", flavor="cpu")
    whole, slim = (resolve(one, catalog) for one in (wish, msgspec.structs.replace(wish, form="runtime")))
    assert isinstance(whole, Environment)
    assert isinstance(slim, Environment)
    slim = msgspec.structs.replace(slim, id=f"{slim.id}-twice")
    lock = ensure_lock(whole, catalog, Workspace(Path(__file__).parents[2]))
    try:
        first, second = (
            ensure(
                slim,
                catalog,
                Workspace(tmp_path),
                engine,
                lambda _: None,
                given=Given(lock),
                options=BuildOptions(no_cache=True),
            ).record.layers
            for _ in range(2)
        )
    finally:
        engine.remove(reference(slim.id))
    top = max(number for number, layer in enumerate(first) if INSTALLED[-1] in layer.created_by)
    assert all(any(mark in layer.created_by for layer in first[: top + 1]) for mark in INSTALLED)
    assert [layer.diff_id for layer in first[: top + 1]] == [layer.diff_id for layer in second[: top + 1]]
    assert sum(layer.size for layer in first[top + 1 :]) < 1_000_000
    assert sum(layer.size for layer in first) > 500_000_000
