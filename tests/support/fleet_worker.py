"""An `envbuilder` for a test's hosts: the real command line, whose host and whose suite are what a file says.

``python fleet_worker.py WORLD …`` reads WORLD/host-<node>.json (what NVML would say), notes each run of the suite in
WORLD/runs.log and answers with the verdict in WORLD/verdict-<environment>.json. While WORLD/hold-<node> exists it
waits; with WORLD/kill-<node> it kills its worker; with WORLD/broken-<node> it has no engine; WORLD/clock-<node> has the
seconds that its clock is ahead, WORLD/slow those that the suite takes. Everything else is the real thing: command line,
registry, signatures, stored verdicts.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
from factories import digest
from fake_engine import FakeEngine, no_engine
from fleet_world import push

import envbuilder.engine.docker
import envbuilder.host
import envbuilder.jobs.run
import envbuilder.publish.publish_all
import envbuilder.validation.validate_request
from envbuilder.cli import main
from envbuilder.engine.port import Image
from envbuilder.jobs.run import RunDocument, RunRow
from envbuilder.publish.results import PublishDocument, PublishRow
from envbuilder.registry.reference import parse
from envbuilder.validation import suite_plan
from envbuilder.verdict import HostRef, ImageRef, Verdict


class AnyImage(FakeEngine):
    """An engine that has every image that it is asked for."""

    def image(self, reference: str) -> Image | None:
        return Image(digest("image"), (reference,), (reference,), 1, {}, {}, "", "amd64")


def node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.environ.get("WORKER_NAME") or "here"


def described(world: Path) -> HostRef:
    return msgspec.json.decode((world / f"host-{node()}.json").read_bytes(), type=HostRef)


def judged(world: Path, target: str) -> Verdict:
    """Answer as the suite would, after a while where the test says so."""
    reference = parse(target)
    answer = msgspec.json.decode((world / f"verdict-{reference.digest[7:19]}.json").read_bytes(), type=Verdict)
    noted(world, reference.digest, f"hold-{node()}")
    if (slow := world / "slow").exists():
        time.sleep(float(slow.read_text()))
    image = ImageRef(id=reference.digest, digest=reference.digest, reference=target)
    return msgspec.structs.replace(answer, host=described(world), suite=suite_plan.digest(), image=image)


def noted(world: Path, line: str, hold: str) -> None:
    """Note what was begun, and wait while the test holds it."""
    with (world / "runs.log").open("a") as log:
        log.write(f"{node()} {line}\n")
    while (world / hold).exists():
        time.sleep(0.05)
    if (world / f"kill-{node()}").exists():
        lifeline = Path(f"/proc/{os.getppid()}/status").read_text()
        os.kill(int(lifeline.split("PPid:")[1].split()[0]), signal.SIGKILL)
        time.sleep(60)


def run(world: Path, words: list[str]) -> None:
    """Run a command line on this pretended host."""

    def connect(*_: Any) -> FakeEngine:
        if (world / f"broken-{node()}").exists():
            no_engine()
        return AnyImage()

    def validated(request: Any, **_: Any) -> Verdict:
        return judged(world, request.image)

    def built(runner: Any) -> RunDocument:
        environment = runner.choice.environments[0].id
        noted(world, f"make-{environment}", f"hold-make-{node()}")
        return RunDocument(matrix="proof", rows=(RunRow(environment=environment, built="built"),))

    def published(choice: Any, wish: Any, *_: Any) -> PublishDocument:
        environment = choice.environments[0].id
        push(wish.to, environment)
        return PublishDocument(rows=(PublishRow(environment=environment, repository=wish.to.name, published=True),))

    if (wrong := world / f"clock-{node()}").exists():
        shift, real = float(wrong.read_text()), time.time
        time.time = lambda: real() + shift
    envbuilder.jobs.run.Runner.run = built  # type: ignore[assignment]
    envbuilder.publish.publish_all.publish_all = published  # type: ignore[assignment]
    envbuilder.engine.docker.connect = connect  # type: ignore[assignment]
    envbuilder.host.describe = lambda *_, **__: described(world)
    envbuilder.validation.validate_request.validate_target = validated  # type: ignore[assignment]
    main(words)


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
