#!/usr/bin/env python3
"""Build and judge every environment that ships, one by one, into docs/shipped.md: `scripts/shipped.py [SELECTOR…]`.

Goes on where it stopped: an environment whose row holds for its present lock is left, unless --again asks for it.
An image that was built for this goes as soon as it is judged; its base and layers stay in the builder's cache for the
next one while there is room.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from envbuilder.catalog.store import load
from envbuilder.choice import Choice, choose
from envbuilder.engine.docker import connect
from envbuilder.engine.port import Engine
from envbuilder.errors import EnvbuilderError, InfrastructureError
from envbuilder.image import lockfile
from envbuilder.image.lockfile import LOCK
from envbuilder.image.names import reference
from envbuilder.jobs.run import RunOptions, RunRow, run
from envbuilder.pypi.client import open_index
from envbuilder.support.console import Console
from envbuilder.verdict import Verdict
from envbuilder.workspace import Workspace, read_document, write_atomically

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "shipped.md"
MATRIX = "tensorflow"
GB = 1_000_000_000
CACHE_LEFT = 8 * GB
"""What trimming leaves of the builder's cache: a base and the CUDA set of one line, with which the next one begins."""

HEAD = """\
# What ships, and its verdicts

Made by `make shipped`, which builds every environment of `matrices/tensorflow.yaml` from its committed lock and runs
the suite in it; it goes on where it stopped, and leaves what has a row for its present lock. Sizes are in GB; `lock`
and `suite` are the beginnings of the digests in the verdict, `findings` what the suite warns of. A row says what the
suite of its digest found on its day; a later suite may look at more (`scripts/shipped.py --again` judges anew).
INCONCLUSIVE at level `cpu` is all that a GPU image can reach on a host without a GPU: what needs none passed.

"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One environment's verdict as the table holds it; digests by their beginning, ``size`` in GB, ``date`` in UTC."""

    environment: str
    verdict: str
    level: str
    size: str
    findings: str
    date: str
    lock: str
    suite: str

    @property
    def failed(self) -> bool:
        """Tell whether it is worse than a host without a GPU explains."""
        return self.verdict not in {"PASSED", "INCONCLUSIVE"} or self.level not in {"cpu", "gpu", "multi-gpu"}


def short(digest: str) -> str:
    """Return the beginning by which a digest (``sha256:…``) stands in the table."""
    return digest.removeprefix("sha256:")[:16]


def parse(page: str) -> dict[str, Row]:
    """Read the rows of a page, by environment."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:4] == "| tf"]
    return {row[0]: Row(**dict(zip(Row.__struct_fields__, row, strict=True))) for row in cells}


def render(rows: Mapping[str, Row], order: Sequence[str]) -> str:
    """Write the page: the rows of what ships, in the matrix's order."""
    names = Row.__struct_fields__
    lines = [names, ["---"] * len(names), *(msgspec.structs.astuple(rows[name]) for name in order if name in rows)]
    return HEAD + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def row_of(verdict: Verdict, name: str) -> Row:
    """Turn a verdict into its row."""
    return Row(
        environment=name,
        verdict=verdict.verdict,
        level=verdict.level,
        size=f"{verdict.image.size / GB:.2f}",
        findings=" ".join(dict.fromkeys(finding.code.value for finding in verdict.findings)) or "-",
        date=verdict.finished[:10],
        lock=short(verdict.lock),
        suite=short(verdict.suite),
    )


def stale(rows: Mapping[str, Row], locks: Mapping[str, str]) -> tuple[str, ...]:
    """Name the environments of ``locks`` (by environment) that have no row of that lock, or a failed one."""
    return tuple(
        name
        for name, lock in locks.items()
        if name not in rows or rows[name].failed or rows[name].lock != short(lockfile.digest(lock))
    )


def locks(choice: Choice, workspace: Workspace) -> dict[str, str]:
    """Read the committed lock of every chosen environment; '' where there is none."""
    paths = {one.id: workspace.context(one.id) / LOCK for one in choice.environments}
    return {name: path.read_text() if path.is_file() else "" for name, path in paths.items()}


def judge(name: str, workspace: Workspace, engine: Engine, console: Console) -> Row | None:
    """Take one environment to its verdict and free what was made for it; None where it came to no verdict."""
    had = engine.image(reference(name)) is not None
    try:
        row: RunRow = run(
            choose(MATRIX, [name], workspace, load()), workspace, engine, console, RunOptions(), open_index()
        ).rows[0]
        found = read_document(workspace.results(name) / "verdict.json", Verdict) if row.verdict else None
        if row.error:
            console.say(f"{name}: {row.error}")
        return row_of(found, name) if found else None
    finally:
        if not had:
            engine.remove(reference(name))


def make_room(engine: Engine, floor: int, console: Console) -> None:
    """Trim the builder's cache where less than ``floor`` bytes are free.

    Raises InfrastructureError where that is not enough.
    """
    place = Path(engine.info().root or "/")
    place = place if place.exists() else Path("/")
    for left in (CACHE_LEFT, 0):  # an engine reckons less than its cache takes: what layers share counts for none
        if shutil.disk_usage(place).free >= floor:
            return
        console.say(f"{engine.trim_cache(left) / GB:.1f} GB of the builder's cache freed")
    free = shutil.disk_usage(place).free
    if free < floor:
        raise InfrastructureError(f"{free / GB:.0f} GB free in {place}", hint="`envbuilder clean`, or more disk")


def main() -> int:
    """Judge what is due, write the page after each, and say what is left; 0 where nothing is."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("selectors", nargs="*", metavar="SELECTOR", help="only these, as in `envbuilder run -s`")
    words.add_argument("--again", action="store_true", help="judge anew what has a row, too")
    words.add_argument("--floor", type=int, default=30, metavar="GB", help="trim below so much free disk (30)")
    options = words.parse_args()
    workspace, console = Workspace(ROOT), Console()
    every = choose(MATRIX, (), workspace, load())
    wanted = choose(MATRIX, options.selectors, workspace, load())
    order = tuple(one.id for one in every.environments)
    rows = parse(PAGE.read_text()) if PAGE.is_file() else {}
    due = tuple(one.id for one in wanted.environments) if options.again else stale(rows, locks(wanted, workspace))
    engine = connect() if due else None
    for name in due:
        assert engine is not None  # noqa: S101 - something is due
        make_room(engine, options.floor * GB, console)
        made = judge(name, workspace, engine, console)
        rows = {key: row for key, row in rows.items() if key != name} | ({name: made} if made else {})
        write_atomically(PAGE, render(rows, order).encode())
        console.say(f"{name}: {f'{made.verdict} (level {made.level})' if made else 'no verdict'}")
    left = stale(rows, locks(every, workspace))
    console.say(f"{len(order) - len(left)} of {len(order)} environments have a verdict of their lock, none FAILED")
    return 1 if set(left) & set(due) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except EnvbuilderError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("stopped; what was judged stands, and the next call goes on\n")
        sys.exit(130)
