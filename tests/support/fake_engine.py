"""An engine in memory, which passes the same contract tests as the real one; for tests of stages."""

import hashlib
import io
import json
import re
import shlex
import tarfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from envbuilder.engine import port
from envbuilder.engine.archive import MODIFIED, context_entries, stream
from envbuilder.engine.containers import OutputLimit
from envbuilder.errors import BuildFailedError, InfrastructureError
from envbuilder.image import debian
from envbuilder.image.names import BASE_KEY_LABEL
from envbuilder.support.console import Step


def no_engine() -> port.Engine:
    raise InfrastructureError("no container engine answers", hint="start it")


@dataclass(frozen=True)
class Script:
    """What a container of a fake engine prints, its exit code and its duration."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    seconds: float = 0.0
    out_of_memory: bool = False
    refusal: str = ""


@dataclass
class FakeEngine:
    """An `Engine` whose containers follow ``script`` and whose registry is ``registry`` (reference → image).

    ``builds``, ``stages`` (builds of one stage) and ``runs`` record the requests; ``files`` are layers by diff id.
    Of a Dockerfile, FROM needs a stored image or an earlier stage, ``RUN echo …`` prints, ``RUN exit N`` fails, and
    every other instruction succeeds.
    """

    script: Callable[[port.ContainerSpec], Script] = lambda _: Script()
    gpu_runtime: bool = False
    root: str = ""
    registry: dict[str, port.Image] = field(default_factory=dict)
    builds: list[port.BuildRequest] = field(default_factory=list)
    stages: list[port.BuildRequest] = field(default_factory=list)
    runs: list[port.ContainerSpec] = field(default_factory=list)
    left_behind: int = 0
    cache: int = 0
    files: dict[str, tuple[port.LayerFile, ...]] = field(default_factory=dict)
    _store: dict[str, port.Image] = field(default_factory=dict)

    def info(self) -> port.EngineInfo:
        return port.EngineInfo("fake", "1", "fake", self.gpu_runtime, root=self.root)

    def add(self, tag: str, content: bytes = b"", labels: Mapping[str, str] | None = None) -> port.Image:
        """Put an image into the store; its id depends on its content."""
        diff_id = _digest(content or tag.encode())
        image = port.Image(
            id=_digest(json.dumps([diff_id, dict(labels or {})], sort_keys=True).encode()),
            tags=(tag,),
            digests=(),
            size=len(content),
            labels=dict(labels or {}),
            env={"PATH": "/usr/bin:/bin"},
            user="",
            architecture="amd64",
            layers=(port.Layer(diff_id, len(content)),),
        )
        self._store[tag] = image
        return self._named(image)

    def with_base(self, content: bytes = b"root", suite: str = "bookworm") -> Self:
        """Put the base of a Debian into the store."""
        self.add(f"envbuilder/base:debian-{suite}", content, {BASE_KEY_LABEL: debian.recipe(suite)})
        return self

    def image(self, reference: str) -> port.Image | None:
        for tag, image in self._store.items():
            if reference in {tag, image.id, *image.digests} or f"{reference}:latest" == tag:
                return self._named(image)
        return None

    def build(self, request: port.BuildRequest, on_step: Callable[[Step], None]) -> port.Image:
        (self.stages if request.target else self.builds).append(request)
        entries = context_entries(request.context, request.extra)
        arguments = dict(request.build_args)
        stages: set[str] = set()
        content = entries[request.dockerfile]
        for line in _instructions(content.decode() if isinstance(content, bytes) else content.read_text()):
            word, _, rest = line.partition(" ")
            name, _, default = rest.partition("=")
            if word == "ARG":
                arguments.setdefault(name, default)
            elif word == "FROM":
                base, *named = rest.split()
                if base not in stages:
                    self._from(base, arguments)
                stages.update(named[1:])
            if word.isupper():
                _follow(request, f"{word} {rest}", on_step)
        return self.add(request.tag, b"".join(stream(entries)), request.labels)

    def import_base(self, tar: Path, tag: str, labels: Mapping[str, str]) -> port.Image:
        return self.add(tag, tar.read_bytes(), labels)

    def reach(self, reference: str) -> None:
        if reference not in self.registry:
            raise InfrastructureError(f"the engine could not reach {reference}: no such host")

    def pull(self, reference: str, _moved: port.OnBytes | None = None) -> port.Image:
        if reference not in self.registry:
            raise InfrastructureError(f"the engine could not pull {reference}: no such host")
        self._store[reference] = self.registry[reference]
        return self._named(self._store[reference])

    def push(self, reference: str, _moved: port.OnBytes | None = None) -> str:
        image = self._required(reference, "push")
        digest = _digest(b"manifest " + image.id.encode())
        by_digest = f"{reference.rpartition(':')[0]}@{digest}"
        pushed = replace(image, digests=tuple(dict.fromkeys((*image.digests, by_digest))))
        self.registry[reference] = self.registry[by_digest] = self._store[reference] = pushed
        return digest

    def tag(self, image: str, reference: str) -> None:
        self._store[reference] = self._required(image, "tag")

    def remove(self, reference: str) -> None:
        self._store.pop(reference, None)

    def run(self, spec: port.ContainerSpec, on_stdout: port.Sink, on_stderr: port.Sink) -> port.ContainerResult:
        """Follow the script; one that is longer than the time limit is killed at once."""
        self._required(spec.image, "create a container of")
        if spec.gpus != "none" and not self.gpu_runtime:
            raise InfrastructureError("this engine cannot hand GPUs over: could not select device driver")
        self.runs.append(spec)
        began, script = time.monotonic(), self.script(spec)
        limit = OutputLimit(spec)
        for data, take in ((script.stdout, on_stdout), (script.stderr, on_stderr)):
            if data and (taken := limit.cut(data)):
                take(taken)
        if limit.reached:
            return port.ContainerResult(137, seconds=script.seconds, flooded=True)
        if script.seconds > spec.time_limit:
            return port.ContainerResult(137, timed_out=True, seconds=spec.time_limit)
        return port.ContainerResult(
            script.exit_code,
            out_of_memory=script.out_of_memory,
            seconds=max(script.seconds, time.monotonic() - began),
            refusal=script.refusal,
        )

    @contextmanager
    def export(self, *references: str) -> Iterator[Iterable[bytes]]:
        """Stream an archive with only a manifest."""
        (reference,) = references
        image = self._required(reference, "save")
        manifest = json.dumps([{"Config": image.id, "RepoTags": [reference], "Layers": []}]).encode()
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            entry = tarfile.TarInfo("manifest.json")
            entry.size, entry.mtime = len(manifest), MODIFIED
            archive.addfile(entry, io.BytesIO(manifest))
        yield [buffer.getvalue()]

    @contextmanager
    def layer_files(self, *references: str, without: Collection[int] = ()) -> Iterator[Iterator[port.LayerStream]]:
        layers = (one for name in references for one in self._required(name, "read the files of").layers)
        streams = (port.LayerStream(iter(self.files.get(one.diff_id, ())), one.diff_id, one.size) for one in layers)
        yield (stream for stream in streams if stream.size not in without)

    def sweep(self) -> int:
        count, self.left_behind = self.left_behind, 0
        return count

    def names(self, repository: str) -> tuple[str, ...]:
        return tuple(sorted(tag for tag in self._store if tag.rpartition(":")[0] == repository))

    def prune(self, label: str) -> int:  # noqa: ARG002 - the port's signature
        """Free nothing: an image is removed with its last tag."""
        return 0

    def trim_cache(self, keep: int) -> int:
        freed = max(0, self.cache - keep)
        self.cache -= freed
        return freed

    def _named(self, image: port.Image) -> port.Image:
        return replace(image, tags=tuple(sorted(tag for tag, other in self._store.items() if other.id == image.id)))

    def _required(self, reference: str, what: str) -> port.Image:
        found = self.image(reference)
        if found is None:
            raise InfrastructureError(f"the engine could not {what} {reference}: no such image")
        return found

    def _from(self, word: str, arguments: Mapping[str, str]) -> None:
        base = re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda found: arguments.get(found[1] or found[2], ""), word)
        if self.image(base) is None:
            raise InfrastructureError(f"the base {base} is neither here nor in a registry that answers")


def _instructions(text: str) -> list[str]:
    whole = re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE)
    return [line.strip() for line in re.sub(r"\\\n", " ", whole).splitlines() if line.strip()]


def _follow(request: port.BuildRequest, instruction: str, on_step: Callable[[Step], None]) -> None:
    """Report one instruction as BuildKit does. Raises BuildFailedError if it exits non-zero."""
    on_step(Step("started", instruction))
    words = shlex.split(instruction) if instruction.startswith(("RUN echo", "RUN exit")) else []
    if words[:2] == ["RUN", "echo"]:
        on_step(Step("log", instruction, text=" ".join(words[2:])))
    if words[:2] == ["RUN", "exit"] and words[2:] != ["0"]:
        error = f"exit code: {words[-1]}"
        on_step(Step("failed", instruction, error=error))
        raise BuildFailedError(f"{request.tag}: step {instruction} failed: {error}", step=f"[2/2] {instruction}")
    on_step(Step("done", instruction))


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
