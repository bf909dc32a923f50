"""Real threads of public trackers, retold, each with its truth as it was written down before the tool had read it."""

from pathlib import Path

import msgspec
import yaml

from envbuilder.finding import Code

FOLDER = Path(__file__).parents[1] / "threads"


class _Texts(yaml.CSafeLoader):
    """Reads 450.10 as a text: a version is no number."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own name
        first: [(tag, found) for tag, found in rows if not tag.endswith((":float", ":int", ":timestamp"))]
        for first, rows in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


Stated = str | list[str | None]
"""A value, or the readings of which each is right; None among them where saying nothing is right too."""


class Way(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on an environment that would have mended the reporter's problem; what is None is not looked at.

    ``tensorflow`` and ``python`` are specifiers, ``cuda`` and ``cudnn`` the beginnings of versions, ``install`` is how
    CUDA comes to TensorFlow.
    """

    tensorflow: str | None = None
    python: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    install: str | None = None


class Thread(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One thread: where it is, what is true of it, and the report in our words.

    ``why`` is the cause in a sentence. ``fields`` are what the report states of the failing side, and nothing else;
    ``gpus`` their models, each once. ``cause`` are the codes of which each names the cause; empty where the report does
    not let anybody know. ``also`` are codes that are true beside it. ``nearest`` are environments that would have
    mended it; empty where none would, and then to propose one is wrong.
    """

    url: str
    why: str
    report: str
    fields: dict[str, Stated] = {}
    packages: dict[str, str] = {}
    gpus: list[str | None] = []
    capabilities: list[str] = []
    cause: list[Code] = []
    also: list[Code] = []
    nearest: list[Way] = []

    @property
    def name(self) -> str:
        """A short name: the repository's and the number."""
        parts = self.url.split("/")
        return f"{parts[-3]}-{parts[-1]}"


def load() -> dict[str, Thread]:
    threads: dict[str, Thread] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        for row in yaml.load(path.read_text(encoding="utf-8"), Loader=_Texts):  # noqa: S506 - a SafeLoader
            thread = msgspec.convert(row, Thread)
            assert thread.name not in threads, thread.name
            threads[thread.name] = thread
    return threads
