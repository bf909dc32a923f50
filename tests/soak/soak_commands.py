"""What the soak kills: each command's words, what its workspace begins with, and what it must have made in the end."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
import sqlite3
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiny_world import TINY, tiny_wheel, write_tiny

REPOSITORY = Path(__file__).parents[2]

QUICK = "tf2.20.0-py311-cpu-bookworm-runtime"
OLD, NEW = "tf2.15.1-py311-cpu-bookworm", "tf2.16.2-py311-cpu-bookworm"
PUBLISHED, BUILT, COMPARED, PUSHED, BUILT_TINY = "published", "built", "compared", "pushed", "built-tiny"
"""What the soak makes once, for trials to begin with a copy: a repository, an image's record, a comparison's answers,
the repository of the tiny image, and that image's record."""

HOST, SMALL, REAL = "host", "tiny", "all"
"""What a command needs: this host alone, an engine for containers of a few megabytes, or images with TensorFlow. Each
pool of commands holds those before it."""
POOLS = (HOST, SMALL, REAL)

_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|\+00:00| UTC)?")

Seen = dict[str, str]


@dataclass(frozen=True)
class Bench:
    """What trials share: a folder, a registry on loopback and where its data lie, two pairs of keys.

    ``tiny`` are the variables that lead to the index of the tiny environment.
    """

    place: Path
    host: str = ""
    keys: Path = Path()
    tiny: Mapping[str, str] = field(default_factory=dict)

    @property
    def repositories(self) -> Path:
        """The registry's repositories, each a folder of links to blobs."""
        return self.place / "registry" / "data" / "docker" / "registry" / "v2" / "repositories" / "team"


@dataclass(frozen=True)
class Trial:
    """One trial's workspace: its folder, whose name also names its repository, and what its last run printed."""

    bench: Bench
    folder: Path
    printed: bytes = b""

    @property
    def repository(self) -> str:
        """The trial's own repository of the registry."""
        return f"{self.bench.host}/team/{self.folder.name}"


@dataclass(frozen=True)
class Command:
    """A command of the soak: its words, what its workspace begins with, what it makes, and how often it is drawn."""

    words: tuple[str, ...]
    begin: Callable[[Trial], None]
    seen: Callable[[Trial], Seen]
    weight: int = 4
    needs: str = HOST
    tiny: bool = False

    @property
    def name(self) -> str:
        """The words without what names this trial."""
        return " ".join(word for word in self.words if "{" not in word) + " (tiny)" * self.tiny

    def said(self, trial: Trial) -> list[str]:
        """Return the words with the trial's own repository and keys in them."""
        told = {"to": trial.repository, "keys": trial.bench.keys, "repository": REPOSITORY}
        return [word.format(**told, digest=_digest_of_tiny(trial)) for word in self.words]


def nothing(_: Trial) -> None:
    """Begin with an empty folder."""


def contexts(*names: str, stale: bool = False) -> Callable[[Trial], None]:
    """Begin with contexts that ship, or with one that is stale."""

    def begin(trial: Trial) -> None:
        for name in names:
            shutil.copytree(REPOSITORY / "images" / name, trial.folder / "images" / name)
        if stale:
            (trial.folder / "images" / names[0] / "Dockerfile").write_text("FROM scratch\n")

    return begin


def tiny(trial: Trial) -> None:
    """Begin with the tiny environment's matrix and lock."""
    write_tiny(trial.folder, tiny_wheel())


def built_tiny(trial: Trial) -> None:
    """Begin with the tiny environment as a build has left it."""
    tiny(trial)
    shutil.copytree(trial.bench.place / BUILT_TINY, trial.folder, dirs_exist_ok=True)


def pushed_tiny(trial: Trial) -> None:
    """Begin with a repository that holds the tiny image."""
    target = trial.bench.repositories / trial.folder.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(trial.bench.repositories / PUSHED, target)


def _digest_of_tiny(trial: Trial) -> str:
    """Return the digest under which the registry has the tiny image."""
    link = trial.bench.repositories / PUSHED / "_manifests" / "tags" / "1" / "current" / "link"
    return link.read_text().strip() if link.exists() else ""


def results(trial: Trial) -> None:
    """Begin with verdicts and a history."""
    from factories import failed_verdict, verdict  # noqa: PLC0415

    from envbuilder.validation.verdict_store import History  # noqa: PLC0415
    from envbuilder.workspace import Workspace, write_document  # noqa: PLC0415

    space = Workspace(trial.folder)
    for one in (verdict(), failed_verdict()):
        assert one.environment is not None
        write_document(space.verdict(one.environment.id), one)
    History(space.history).add((verdict(), failed_verdict()))


def pushed(trial: Trial) -> None:
    """Begin with a registry that has the image's blobs already, under no name: what a trial costs is not the network."""
    contexts(QUICK)(trial)
    if (built := trial.bench.place / BUILT).is_dir():
        shutil.copytree(built, trial.folder / "out")
    target = trial.bench.repositories / trial.folder.name
    if not target.exists():
        shutil.copytree(trial.bench.repositories / PUBLISHED / "_layers", target / "_layers")


def published(trial: Trial) -> None:
    """Begin with an image that was published, and a fleet of one host that is this one."""
    contexts(QUICK)(trial)
    target = trial.bench.repositories / trial.folder.name
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(trial.bench.repositories / PUBLISHED, target)
    (trial.folder / "fleet.yaml").write_text("- {name: here, driver: null, gpus: []}\n")


def compared(trial: Trial) -> None:
    """Begin with a comparison of which half was observed already, where the soak has made one: the whole takes minutes."""
    contexts(OLD, NEW)(trial)
    made = trial.bench.place / COMPARED
    if made.is_dir():
        shutil.copytree(made, trial.folder / "out")
        for number, path in enumerate(sorted((trial.folder / "out" / "upgrades").rglob("*.json"))):
            if number % 2:
                path.unlink()


def tree(trial: Trial) -> Seen:
    """Return every file's digest, times in them left out, but for logs, locks of databases and what has random bytes."""
    found = {"printed": _digest(trial.printed.replace(str(trial.folder).encode(), b"HERE"))}
    for path in sorted(trial.folder.rglob("*")):
        name = path.relative_to(trial.folder).as_posix()
        if path.is_file() and not name.endswith((".log", "-wal", "-shm", ".sqlite3")):
            found[name] = _digest(path.read_bytes())
    return found


def _digest(data: bytes) -> str:
    text = _TIME.sub("TIME", data.decode("utf-8", "surrogateescape"))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def files(trial: Trial) -> Seen:
    """Return the files alone: what is printed says how much of the work stood already."""
    return {name: digest for name, digest in tree(trial).items() if name != "printed"}


def names(trial: Trial) -> Seen:
    """Return the names of files alone, where what they hold is random, and whether it said anything."""
    printed = {"printed": "something" if trial.printed.strip() else "nothing"}
    return printed | {name: "there" for name in tree(trial) if name != "printed"}


def both(trial: Trial) -> Seen:
    """Return files and history."""
    return tree(trial) | history(trial)


def history(trial: Trial) -> Seen:
    """Say whether the history is whole, and every row of it what its key says."""
    path = trial.folder / "out" / "history.sqlite3"
    if not path.exists():
        return {}
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (whole,) = connection.execute("PRAGMA integrity_check").fetchone()
        rows = connection.execute("SELECT key, document FROM verdicts").fetchall()
    torn = [key for key, document in rows if hashlib.sha256(document).hexdigest() != key]
    return {"history": f"{whole}, {len(torn)} torn, {'some' if rows else 'no'} rows"}


def judged(trial: Trial) -> Seen:
    """Return what a run came to: the verdict, its image, the results' names and outcomes, and a history that is whole."""
    found: Seen = {}
    for path in (*trial.folder.glob("out/*/verdict.json"), *trial.folder.glob("out/controls/*/verdict.json")):
        document = json.loads(path.read_text())
        checks = sorted((one["name"], one["outcome"], *_amiss(one)) for one in document["checks"])
        codes = sorted(one["code"] for one in document["findings"])
        found[path.parent.name] = (
            f"{document['verdict']} {document['level']} {document['image']['id']} {checks} {codes}"
        )
    for path in trial.folder.glob("out/*/image.json"):
        found[f"{path.parent.name} image"] = json.loads(path.read_text())["image"]
    locks = trial.folder.glob("images/*/requirements.lock")
    return found | history(trial) | {f"{path.parent.name} lock": _digest(path.read_bytes()) for path in locks}


def _amiss(check: dict[str, Any]) -> tuple[str, ...]:
    """Return what is wrong with the messages of a run: a word that a second run of the same image never has."""
    return (check["observed"],) if (check["name"], check["outcome"]) == ("protocol", "failed") else ()


def _verified(reference: str, key: str) -> tuple[int, dict[str, Any]]:
    """Ask `verify` about an image; return its exit code and its document."""
    done = subprocess.run(
        [sys.executable, "-m", "envbuilder", "verify", reference, "--key", key, "--format", "json"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    try:
        document: dict[str, Any] = json.loads(done.stdout)
    except ValueError as error:
        raise RuntimeError(f"verify {reference} ended with {done.returncode}: {done.stderr!r}") from error
    return done.returncode, document


def attached(trial: Trial) -> Seen:
    """Say what a verifier finds attached to the tiny image, whose verdict nobody should believe, and what stays here."""
    key = str(trial.bench.keys / "one" / "envbuilder.pub")
    reference = f"{trial.repository}@{_digest_of_tiny(trial)}"
    code, document = _verified(reference, key)
    reasons = sorted({one["reason"] for one in document["refusals"]})
    return {"verify": f"{code} {reasons}", "here": str(len(local(trial)))}


def in_registry(key: str) -> Callable[[Trial], Seen]:
    """Say what a registry has of a trial: its tags, what a verifier with that key comes to, what stays in the engine."""

    def seen(trial: Trial) -> Seen:
        public = str(trial.bench.keys / key / "envbuilder.pub")
        code, document = _verified(f"{trial.repository}:{QUICK}", public)
        with urllib.request.urlopen(f"http://{trial.bench.host}/v2/team/{trial.folder.name}/tags/list") as answer:
            every = json.load(answer)["tags"]
        tags = sorted(
            tag for tag in every if not tag.startswith("sha256-")
        )  # statements, some of them of the first run
        return {
            "verify": f"{code} {document.get('digest')}",
            "tags": str(tags),
            "names in the engine": str(
                sorted(one.rpartition("/")[2].partition("@")[0] for one in local(trial))
            ).replace(trial.folder.name, "NAME"),
        } | history(trial)

    return seen


def local(trial: Trial) -> list[str]:
    """Name what the engine's store has under the trial's repository: tags and digests."""
    listed = subprocess.run(
        ["docker", "image", "ls", "--digests", "--format", "{{.Tag}} {{.Digest}}", trial.repository],
        capture_output=True,
        check=True,
        text=True,
    )
    found = []
    for line in listed.stdout.splitlines():
        tag, digest = line.split()
        found += [f"{trial.repository}:{tag}"] * (tag != "<none>")
        found += [f"{trial.repository}@{digest}"] * (digest != "<none>")
    return sorted(set(found))


def reproduced(trial: Trial) -> Seen:
    """Return what a report came to: the run's verdict, what it showed again, and the nearest that works."""
    document: dict[str, Any] = json.loads(trial.printed)
    run = document["run"] or {}
    nearest = document["nearest"] or {}
    return {
        "run": f"{run.get('verdict')} {run.get('reproduced')} {[one['signature'] for one in run.get('symptoms', ())]}",
        "nearest": str(nearest.get("changes")),
    }


def decided(trial: Trial) -> Seen:
    """Return what a comparison came to: clause by clause, but for those of durations."""
    document: dict[str, Any] = json.loads(trial.printed)
    kept = [one["clause"] for one in document["clauses"] if not re.search("slow|start|memory|step|time", one["clause"])]
    states = {one["clause"]: str(one["state"]) for one in document["clauses"] if one["clause"] in kept}
    return states | {"clauses": str(sorted(one["clause"] for one in document["clauses"]))}


_TO = ("--to", "{to}", "--key", "{keys}/one/envbuilder.key")
_FROM = ("--fleet", "fleet.yaml", "--from", "{to}", "--key", "{keys}/two/envbuilder.pub")

COMMANDS: tuple[Command, ...] = (
    Command(("render", "quickstart", "-s", "flavor=cpu"), contexts(QUICK, stale=True), tree),
    Command(("report",), results, both),
    Command(("export", "junit", "-o", "v.xml"), results, both),
    Command(("capture", "--output", "c.json"), nothing, names, weight=2),
    Command(("keys", "new", "k"), nothing, names, weight=2),
    Command(("plan", "tensorflow", "--format", "json"), nothing, tree, weight=2),
    Command(("check", "--tensorflow", "2.20.0", "--driver", "535.104.05", "--gpu", "H100"), nothing, tree, weight=2),
    Command(("catalog", "list"), nothing, tree, weight=2),
    Command(("explain", "PTX_JIT"), nothing, tree, weight=1),
    Command(("schema", "verdict"), nothing, tree, weight=1),
    Command(("doctor",), nothing, names, weight=1, needs=SMALL),
    Command(("lock", "quickstart", "-s", "flavor=cpu"), nothing, files, weight=3),
    Command(("reproduce", "{repository}/tests/corpus/40-numpy-2.txt", "--dry-run"), nothing, tree, weight=2),
    Command(("clean", "--dry-run"), nothing, names, weight=1, needs=SMALL),
    Command(("run", "m.yaml"), tiny, judged, weight=6, needs=SMALL, tiny=True),
    Command(("run", "m.yaml", "--fresh", "--format", "json"), tiny, judged, weight=2, needs=SMALL, tiny=True),
    Command(("build", "m.yaml"), tiny, judged, weight=4, needs=SMALL, tiny=True),
    Command(("validate", TINY, "--matrix", "m.yaml"), built_tiny, judged, weight=4, needs=SMALL, tiny=True),
    Command(
        ("validate", "{to}@{digest}", "--attach", "--key", "{keys}/one/envbuilder.key"),
        pushed_tiny, attached, needs=SMALL, tiny=True,
    ),
    Command(("run",), contexts(QUICK), judged, weight=2, needs=REAL),
    Command(("run", "--fresh"), nothing, judged, weight=1, needs=REAL),
    Command(("build",), contexts(QUICK), judged, weight=1, needs=REAL),
    Command(("validate", QUICK), contexts(QUICK), judged, weight=1, needs=REAL),
    Command(("publish", *_TO), pushed, in_registry("one"), weight=3, needs=REAL),
    Command(("verify", "{to}:" + QUICK, "--key", "{keys}/one/envbuilder.pub"), published, in_registry("one"), weight=3, needs=REAL),
    Command(("fleet", "status", *_FROM), published, names, weight=1, needs=REAL),
    Command(
        ("fleet", "run", *_FROM, "--sign", "{keys}/two/envbuilder.key"),
        published, in_registry("two"), weight=3, needs=REAL,
    ),
    Command(("controls", "variable-astray"), nothing, judged, weight=2, needs=REAL),
    Command(
        ("reproduce", "{repository}/tests/corpus/40-numpy-2.txt", "--format", "json"),
        nothing, reproduced, weight=2, needs=REAL,
    ),
    Command(("upgrade", "2.15.1", "2.16.2", "--rounds", "1", "--format", "json"), compared, decided, weight=1, needs=REAL),
)  # fmt: skip
"""Every command that writes, and the readers that users wait for."""
