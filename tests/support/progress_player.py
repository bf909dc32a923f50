"""Replay recorded events of a run to the display; write its pictures.

``python tests/support/progress_player.py SPEED [OPTIONS of Console]...`` replays ``tests/data/progress.yaml``;
``python tests/support/progress_player.py table`` prints the table at the end;
``python tests/support/progress_player.py`` writes the pictures of the documentation.
"""

import io
import re
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, cast
from unittest import mock

import msgspec
import yaml
from click.exceptions import Exit
from rich.console import Console as RichConsole
from rich.text import Text

from envbuilder.cli.output import coloured, finish
from envbuilder.jobs.run import RunDocument, RunRow, run_text
from envbuilder.support import console, tables
from envbuilder.support.console import Console, Mode, Step, Task
from envbuilder.verdict import Level, Word

ROOT = Path(__file__).parents[2]
EVENTS: list[list[Any]] = yaml.safe_load((ROOT / "tests/data/progress.yaml").read_text())
NAMES = tuple(dict.fromkeys(name for _, name, kind, *_ in EVENTS if kind == "finished"))
BEFORE = {"TensorFlow 2.15.1, 534 MB": 46.0, "export": 2.0, "validate": 12.0, NAMES[0]: 64.0, NAMES[1]: 88.0}
"""Times of an earlier run."""
WIDTHS = (60, 80, 200)


Tasks = dict[str, tuple[Task, ExitStack]]


def replay(shown: Console, tasks: Tasks, *, until: float = 1e9) -> Iterator[float]:
    """Yield the second of each event before it is shown; the caller has the clock, and keeps ``tasks``, which run."""
    for second, name, kind, *values in EVENTS:
        if second > until:
            return
        yield second
        match kind:
            case "begin":
                stack = ExitStack()
                tasks[name] = stack.enter_context(shown.task(name)), stack
            case "end":
                tasks.pop(name)[1].close()
            case "update":
                tasks[name][0].update(*values)
            case "finished":
                shown.finished(name, *values)
            case "done":
                tasks[name][0].follow(Step("done", values[0], seconds=values[1]))
            case _:
                tasks[name][0].follow(Step(kind, *values))


def picture(width: int) -> str:
    """Return the display at two moments and at the end, as SVG."""
    recorder = RichConsole(width=width, record=True, file=io.StringIO(), force_terminal=True, highlight=False)
    tasks: Tasks = {}
    with mock.patch.object(time, "monotonic") as clock:
        for moment, title in ((20, "envbuilder run -v -j 2, after 20 s"), (62.5, "after 62 s"), (66, "at the end")):
            clock.return_value = 0.0
            shown = Console("live", verbose=moment < 60)
            shown._live = mock.Mock(
                console=recorder if moment == 62.5 else RichConsole(file=io.StringIO(), width=width)
            )
            shown._names, shown.stored = NAMES, dict(BEFORE)
            recorder.print(Text(f"# {title}", style="bold blue"))
            for second in replay(shown, tasks, until=moment):
                clock.return_value = second
            clock.return_value = moment
            if moment < 66:
                recorder.print(shown.view())
    seconds, step, task = shown._slowest
    with mock.patch.object(tables, "_terminal_width", return_value=width):
        text = f"slowest step: {step} of {task}, {console._clock(seconds)}\n{run_text(ended())}"
    recorder.print(Text.from_ansi(coloured(text)))
    return recorder.export_svg(title="envbuilder", unique_id=f"display-{width}")


def ended() -> RunDocument:
    rows = (_row(NAMES[0], "PASSED", "cpu", 1_060_000_000), _row(NAMES[1], "INCONCLUSIVE", "load", 5_320_000_000))
    return RunDocument(matrix="m", rows=rows, next=f"docker run --rm -it envbuilder/tensorflow:{NAMES[0]}")


def _row(name: str, verdict: Word, level: Level, size: int) -> RunRow:
    image = f"envbuilder/tensorflow:{name}"
    done = RunRow(environment=name, image=image, built="built", validated="validated", size=size)
    return msgspec.structs.replace(done, verdict=verdict, level=level)


def words(svg: str) -> list[str]:
    """Return the words of a picture, without its form, which is that of a release of rich."""
    return re.sub(r"&#160;|<[^>]*>", " ", svg.partition("</defs>")[2]).split()


def main() -> None:
    if len(sys.argv) == 1:
        for width in WIDTHS:
            (ROOT / f"docs/images/display-{width}.svg").write_text(picture(width))
        return
    if sys.argv[1:] == ["table"]:
        with suppress(Exit):
            finish(ended(), "table", run_text)
        return
    speed, mode, *more = sys.argv[1:]
    shown, begun = Console(cast("Mode", mode), verbose="-v" in more), time.monotonic()
    shown.stored |= BEFORE
    with shown.live(NAMES):
        for second in replay(shown, {}):
            time.sleep(max(0.0, begun + second / float(speed) - time.monotonic()))


if __name__ == "__main__":
    main()
