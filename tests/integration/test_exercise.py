"""What a list leaves out is opened by nothing: much of TensorFlow is run in real images, and followed from outside."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from opened_files import PLACE, opened

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import connect
from envbuilder.engine.port import FILES_AT, ContainerSpec
from envbuilder.environment import Combination, Environment, Flavor, Variant
from envbuilder.image import lockfile, removed_files
from envbuilder.image.build import ensure
from envbuilder.image.context import build_files
from envbuilder.image.layers import carried_out
from envbuilder.support import decoding
from envbuilder.workspace import Workspace

pytestmark = [
    pytest.mark.engine,
    pytest.mark.network,
    pytest.mark.full,
    pytest.mark.timeout(3600),
]

HERE = Workspace(Path(__file__).parents[2])
PROGRAM = Path(__file__).parents[1] / "support" / "exercise.py"
FEWEST = 2_000
"""Files that are opened in any release; fewer, and it was not followed."""


def environment(release: str, flavor: Flavor, variant: Variant) -> Environment:
    wish = Combination(tensorflow=release, os="debian-bookworm", flavor=flavor, variant=variant)
    found = resolve(wish, load())
    assert isinstance(found, Environment)
    return found


def goes(name: str) -> Callable[[str], bool]:
    """Tell files that a context's list leaves out whole: programs of the environment too, as RECORD writes them."""
    found = removed_files.parse(carried_out(build_files(name, HERE), f"{name}/Dockerfile"))
    rows = [row.path for listed in found.values() for row in listed if row.left is None]
    files, folders = frozenset(rows), tuple(row for row in rows if row.endswith("/"))
    return lambda path: path in files or path.startswith(folders)


@pytest.mark.parametrize(("release", "flavor"), [("2.21.0", "cpu"), ("2.20.0", "gpu")])
def test_nothing_that_goes_is_opened(release: str, flavor: Flavor, tmp_path: Path) -> None:
    engine, catalog = connect(), load()
    whole, slim = environment(release, flavor, "devel"), environment(release, flavor, "runtime")
    images = [ensure(one, catalog, HERE, engine, lambda _: None).record.image for one in (whole, slim)]
    (tmp_path / PROGRAM.name).write_bytes(PROGRAM.read_bytes())

    said, files = opened(images[0], ["/opt/venv/bin/python", f"{PLACE}/{PROGRAM.name}", f"{PLACE}/made"], tmp_path)

    site = f"/opt/venv/lib/python{whole.python}/site-packages/"
    inside = {path.removeprefix(site) for path in files if path.startswith(site)}
    assert len(inside) > FEWEST
    assert {"tensorflow/libtensorflow_cc.so.2", "tensorflow/libtensorflow_framework.so.2"} <= inside
    gone = goes(slim.id)
    assert not sorted(filter(gone, (os.path.relpath(path, site) for path in files)))

    printed, complained = bytearray(), bytearray()
    spec = ContainerSpec(
        image=images[1],
        command=("/opt/venv/bin/python", f"{FILES_AT}/{PROGRAM.name}", "/tmp/made"),
        files={PROGRAM.name: PROGRAM.read_bytes()},
        env={"HOME": "/tmp"},
        time_limit=1800.0,
    )
    ended = engine.run(spec, printed.extend, complained.extend)
    assert not ended.exit_code, decoding.lossy(bytes(complained[-2000:]))
    answers = [line for line in said.splitlines() if line]
    assert decoding.text(bytes(printed)).splitlines() == answers
    assert len(answers) > 20
    board = "\ntensorboard==" in (lockfile.of_context(HERE.context(whole.id)) or "")
    assert [line for line in answers if not line.endswith(" ok")] == ([] if board else ["summaries absent"])
