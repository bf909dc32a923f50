"""Commands that the soak interrupts: the workspace each begins with, and the results that must be equal in the end."""

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests" / "support")]

from factories import failed_verdict, verdict  # noqa: E402 - the paths come first
from tiny_world import tiny_wheel, write_tiny  # noqa: E402

from envbuilder.validation.verdict_store import History  # noqa: E402
from envbuilder.workspace import Workspace, write_document  # noqa: E402

QUICK = "tf2.20.0-py311-cpu-bookworm-runtime"
POOLS = ("host", "tiny")
"""What commands need: this host; an engine and an environment of a few kilobytes."""
TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00| UTC)?")

Result = dict[str, str]


@dataclass(frozen=True)
class Command:
    """``begin`` fills a workspace; ``result`` reads it, with the standard output, after the command has ended."""

    words: str
    begin: Callable[[Path], None]
    result: Callable[[Path, bytes], Result]
    weight: int = 2
    pool: str = "host"


def empty(_: Path) -> None:
    """Begin with an empty folder."""


def outdated(folder: Path) -> None:
    shutil.copytree(REPOSITORY / "images" / QUICK, folder / "images" / QUICK)
    (folder / "images" / QUICK / "Dockerfile").write_text("FROM scratch\n")


def validated(folder: Path) -> None:
    space = Workspace(folder)
    for one in (verdict(), failed_verdict()):
        assert one.environment is not None
        write_document(space.verdict(one.environment.id), one)
    History(space.history).add((verdict(), failed_verdict()))


def tiny(folder: Path) -> None:
    write_tiny(folder, tiny_wheel())


def digest(data: bytes) -> str:
    text = TIME.sub("TIME", data.decode("utf-8", "surrogateescape"))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def files(folder: Path, _: bytes = b"") -> Result:
    return {
        path.relative_to(folder).as_posix(): digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix != ".log" and path.parent.name != "history"
    }


def all_output(folder: Path, printed: bytes) -> Result:
    return {"printed": digest(printed.replace(str(folder).encode(), b"HERE")), **files(folder), **history(folder)}


def names(folder: Path, printed: bytes) -> Result:
    """Return the names of files, where their contents are random, and whether anything was printed."""
    return {"printed": str(bool(printed.strip())), **dict.fromkeys(files(folder), "exists")}


def history(folder: Path) -> Result:
    found = list((folder / "out" / "history").glob("*.json"))
    torn = sum(hashlib.sha256(file.read_bytes()).hexdigest() != file.stem.rpartition("-")[2] for file in found)
    return {"history": f"{torn} torn, {'some' if found else 'no'} verdicts"} if found else {}


def verdicts(folder: Path, _: bytes) -> Result:
    found = history(folder)
    for path in folder.glob("out/**/verdict.json"):
        document = json.loads(path.read_text())
        checks = sorted((one["name"], one["outcome"]) for one in document["checks"])
        codes = sorted(one["code"] for one in document["findings"])
        found[path.parent.name] = (
            f"{document['verdict']} {document['level']} {document['image']['id']} {checks} {codes}"
        )
    for path in folder.glob("out/*/image.json"):
        found[f"{path.parent.name} image"] = json.loads(path.read_text())["image"]
    for path in folder.glob("images/*/requirements.lock"):
        found[f"{path.parent.name} lock"] = digest(path.read_bytes())
    return found


COMMANDS: tuple[Command, ...] = (
    Command("render quickstart -s flavor=cpu", outdated, all_output, 4),
    Command("lock quickstart -s flavor=cpu", empty, files),
    Command("report", validated, all_output, 4),
    Command("export junit -o v.xml", validated, all_output, 4),
    Command("capture --output c.json", empty, names),
    Command("keys new k", empty, names),
    Command("plan tensorflow --format json", empty, all_output),
    Command("check --tensorflow 2.20.0 --driver 535.104.05 --gpu H100", empty, all_output),
    Command("catalog list", empty, all_output),
    Command(f"reproduce {REPOSITORY}/tests/corpus/40-numpy-2.txt --dry-run", empty, all_output),
    Command("clean --dry-run", empty, names, 1, "tiny"),
    Command("run m.yaml", tiny, verdicts, 6, "tiny"),
    Command("run m.yaml --fresh --format json", tiny, verdicts, 2, "tiny"),
    Command("build m.yaml", tiny, verdicts, 4, "tiny"),
)
"""The commands that write, and the slow ones that only read."""
