# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure what nodes pull and keep: `pip install` in a Dockerfile, against ours in each form, built on the same base.

    python benchmarks/size.py [--flavors cpu gpu] [--releases …] [--forms naive devel runtime] [--page PAGE]

What stands in the engine's store is measured, what is lacking is built (a naive GPU image of 2.20 needs 14 GB while it
is made, and goes again with ``--lean``); what was measured is kept in ``out/size``, so that a run that was stopped goes
on where it was. Environments that ship are built in the checkout's own contexts, others below ``out/size``. On
disk: the engine's own sizes, alone and all together with each layer once. Compressed: each layer in gzip at the level
of the engine's pushes, and in zstd. Pulled by a node that has the image of the release before, and, for the last
release, that has the same image without one small package: by an engine that keeps layers by digest (containerd), and
by one that keeps them in stacks (Docker). ``--page`` writes the figures of each flavour between its marks of a page,
and a plot.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import tarfile
import tempfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec
from backports import zstd

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, Image
from envbuilder.environment import Combination, Environment, Flavor
from envbuilder.image import lockfile
from envbuilder.image.bases import ensure_base
from envbuilder.image.build import BuildOptions, ensure
from envbuilder.image.context import ensure_lock, system_of
from envbuilder.image.host_settings import WITH_HOST, host_files
from envbuilder.image.lockfile import resolve as locked
from envbuilder.image.removed_files import Omitted
from envbuilder.support import decoding
from envbuilder.support.console import Step
from envbuilder.workspace import Workspace, cache_dir, read_users, write_atomically

OS = "debian-bookworm"
NAIVE, DEVEL, RUNTIME = FORMS = ("naive", "devel", "runtime")
ADDED = "runtime and tqdm"
"""The runtime image with one small package that its matrix adds: one wheel of 78 kB, which requires nothing."""

LEVELS = {"gzip": 6, "zstd": 3, "zstd -12": 12}
"""How layers are packed: gzip as engines push; zstd at its default, and at a level that takes about as long as gzip."""

Table = TypeVar("Table", bound="dict[str, Packed] | dict[str, Measured]")

MARKS = "<!-- {0}: measured by benchmarks/size.py -->", "<!-- {0}: end of what was measured -->"
"""What a page has before and behind the figures of a flavour."""

DOCKERFILE = """\
FROM {base}
RUN {host}
    python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check '{what}'
ENV PATH=/opt/venv/bin:$PATH
"""


class Packed(msgspec.Struct, frozen=True):
    """One layer: its bytes under names of `LEVELS`, gzip at least; ``unpacked`` are those of its tar."""

    sizes: dict[str, int]
    unpacked: int = 0


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One image: bytes on disk, each layer's (diff id, lowest first) on disk and packed, and what it leaves out."""

    release: str
    flavor: str
    form: str
    size: int
    layers: dict[str, Packed]
    disk: dict[str, int]
    omitted: tuple[Omitted, ...] = ()
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """Say which it is."""
        return f"{self.release} {self.flavor} {self.form}"

    def compressed(self, how: str = "gzip") -> int | None:
        """Return the bytes of a full pull; None where it was not packed so."""
        sizes = [layer.sizes.get(how) for layer in self.layers.values()]
        return None if None in sizes else sum(size or 0 for size in sizes)

    @property
    def pushed(self) -> int:
        """Return the bytes of a full pull in gzip."""
        return sum(layer.sizes["gzip"] for layer in self.layers.values())

    def pulled_by(self, holder: Measured, *, stacked: bool) -> int:
        """Return the bytes that a node pulls that has another image; ``stacked``: all above the first that differs."""
        have = frozenset(holder.layers)
        if stacked:
            same = 0
            for mine, theirs in zip(self.layers, holder.layers, strict=False):
                if mine != theirs:
                    break
                same += 1
            have = frozenset(list(self.layers)[:same])
        return sum(layer.sizes["gzip"] for diff, layer in self.layers.items() if diff not in have)


def quiet(_: Step) -> None:
    """Follow nothing."""


def base_of(engine: DockerEngine) -> str:
    """Bring the base about that both sides stand on, where the engine lacks it; return what FROM names."""
    system = load().system(OS)
    assert system is not None  # noqa: S101 - the catalogue that ships has it
    return ensure_base(engine, system, cache_dir() / "bases", lambda line, *_: print(line, file=sys.stderr)).reference


def naive(engine: DockerEngine, release: str, flavor: Flavor) -> str:
    """Build what most people write; return its name."""
    tag = f"envbuilder/naive:tf{release}-{flavor}"
    if engine.image(tag) is None:
        what = f"tensorflow-cpu=={release}" if flavor == "cpu" else f"tensorflow[and-cuda]=={release}"
        with tempfile.TemporaryDirectory() as folder:
            text = DOCKERFILE.format(base=base_of(engine), host=WITH_HOST, what=what)
            (Path(folder) / "Dockerfile").write_text(text)
            engine.build(BuildRequest(context=Path(folder), tag=tag, extra=host_files()), quiet)
    return tag


def ours(engine: DockerEngine, release: str, flavor: Flavor, form: str) -> tuple[str, tuple[Omitted, ...]]:
    """Build an environment from the committed lock of its form; return its image and what that leaves out."""
    catalog, here, made = load(), Workspace(Path.cwd()), Workspace(Path.cwd() / "out" / "size")
    combination = Combination(tensorflow=release, os=OS, flavor=flavor, variant="devel" if form == DEVEL else "runtime")
    ships = resolve(combination, catalog)
    assert isinstance(ships, Environment)  # noqa: S101 - a release that ships
    if form in {DEVEL, RUNTIME}:
        record = ensure(ships, catalog, here, engine, quiet).record
        return record.image, record.omitted
    lock = ensure_lock(ships, catalog, here)
    slim = msgspec.structs.replace(ships, id=f"{ships.id}-tqdm", requirements=(*ships.requirements, "tqdm"))
    kept = lockfile.of_context(made.context(slim.id))
    lock = kept or locked(slim, system_of(slim, catalog).glibc, keep=lock)
    record = ensure(slim, catalog, made, engine, quiet, BuildOptions(lock=lock)).record
    return record.image, record.omitted


class Packer(Protocol):
    """A compressor that is fed piece by piece."""

    def compress(self, data: bytes, /) -> bytes:
        """Take a piece, return what is ready."""

    def flush(self) -> bytes:
        """Return the rest."""


def packers(ways: Iterable[str]) -> dict[str, Packer]:
    """Return one fresh compressor for each way to pack."""
    made: dict[str, Callable[[int], Packer]] = {
        "gzip": lambda level: zlib.compressobj(level, wbits=31),
        "zstd": lambda level: zstd.ZstdCompressor(level=level),
    }
    return {name: made[name.partition(" ")[0]](LEVELS[name]) for name in ways}


def packed(stream: IO[bytes], ways: Iterable[str], pool: ThreadPoolExecutor) -> tuple[str, Packed]:
    """Return a layer's diff id, and its bytes packed in each way, all at once: none holds the interpreter's lock."""
    hashed, made = hashlib.sha256(), packers(ways)
    sizes, read = dict.fromkeys(made, 0), 0

    def fed(name: str, piece: bytes) -> int:
        return len(made[name].compress(piece))

    while piece := stream.read(4 << 20):
        waiting = {name: pool.submit(fed, name, piece) for name in made}
        hashed.update(piece)
        read += len(piece)
        for name, one in waiting.items():
            sizes[name] += one.result()
    done = {name: sizes[name] + len(made[name].flush()) for name in made}
    return f"sha256:{hashed.hexdigest()}", Packed(done, read)


def read_table(path: Path, kind: type[Table]) -> Table:
    """Read what an earlier run kept; nothing where there was none."""
    return msgspec.json.decode(read_users(path), type=kind) if path.is_file() else kind()


class Kept:
    """The layers that were packed before, and the images that went when they had been measured, in a folder's files."""

    def __init__(self, folder: Path) -> None:
        self._path, self._gone = folder / "layers.json", folder / "gone.json"
        self.layers = read_table(self._path, dict[str, Packed])
        self.gone = read_table(self._gone, dict[str, Measured])

    def remember(self, one: Measured) -> None:
        """Keep what an image came to that goes now."""
        self.gone[one.name] = one
        write_atomically(self._gone, msgspec.json.encode(self.gone))

    def of(self, engine: DockerEngine, image: Image, ways: Sequence[str]) -> dict[str, Packed]:
        """Pack each layer of an image in ways that it was not packed before; where there is none, nothing is read."""
        lacking = {layer.diff_id: self._lacking(layer.diff_id, ways) for layer in image.layers}
        wanted = [way for way in ways if any(way in each for each in lacking.values())]
        for again in (False, True):  # a tar of a known layer's size is left out; where it was another, once more
            if any(self._lacking(layer.diff_id, ways) for layer in image.layers):
                with ThreadPoolExecutor() as pool:
                    for diff, one in self._read(engine, image, wanted, pool, whole=again):
                        before = self.layers.get(diff, Packed({})).sizes
                        self.layers[diff] = Packed(before | one.sizes, one.unpacked)
                        write_atomically(self._path, msgspec.json.encode(self.layers))
        return {layer.diff_id: self.layers[layer.diff_id] for layer in image.layers}

    def _lacking(self, diff: str, ways: Iterable[str]) -> set[str]:
        return set(ways) - self.layers.get(diff, Packed({})).sizes.keys()

    def _read(
        self, engine: DockerEngine, image: Image, ways: Sequence[str], pool: ThreadPoolExecutor, *, whole: bool
    ) -> Iterator[tuple[str, Packed]]:
        known = {one.unpacked for diff, one in self.layers.items() if not self._lacking(diff, ways)}
        with engine.export(image.id) as pieces, tarfile.open(fileobj=decoding.ByteStream(pieces), mode="r|") as saved:
            for entry in saved:
                stream = saved.extractfile(entry) if entry.isfile() and entry.name.endswith("layer.tar") else None
                if stream is not None and (whole or entry.size not in known):
                    yield packed(stream, ways, pool)


def measure(
    engine: DockerEngine, release: str, flavor: Flavor, form: str, kept: Kept, *, ways: Sequence[str], lean: bool
) -> Measured:
    """Bring one image about and measure it; say how long that took. ``lean``: a naive one goes afterwards."""
    begun = time.monotonic()
    if form == NAIVE and (known := kept.gone.get(f"{release} {flavor} {form}")) is not None:
        return known
    name, omitted = (naive(engine, release, flavor), ()) if form == NAIVE else ours(engine, release, flavor, form)
    image = engine.image(name)
    assert image is not None  # noqa: S101 - it was built or found just now
    found = Measured(
        release=release,
        flavor=flavor,
        form=form,
        size=image.size,
        layers=kept.of(engine, image, ["gzip"] if form in {NAIVE, DEVEL} else ways),
        disk={layer.diff_id: layer.size for layer in image.layers},
        omitted=omitted,
        seconds=round(time.monotonic() - begun, 1),
    )
    print(f"  {found.name}: {image.size / 1e9:.3f} GB, {found.seconds:.0f} s", file=sys.stderr, flush=True)
    if form == NAIVE and lean:
        kept.remember(found)
        engine.remove(name)
    return found


def together(images: Sequence[Measured]) -> int:
    """Add up images on one disk: a layer that several have is there once."""
    return sum({name: size for one in images for name, size in one.disk.items()}.values())


def images_table(found: Sequence[Measured]) -> Iterator[str]:
    """Write each image's bytes, alone and against the naive one of the same release."""
    yield "| image | on disk | to naive | gzip | to naive | zstd -3 | zstd -12 |"
    yield "|---|---|---|---|---|---|---|"
    bases = {one.release: one for one in found if one.form == NAIVE}
    for one in found:
        base = bases.get(one.release)
        sizes = (one.size, one.pushed)
        ratios = (
            [f"{mine / its:.3f}" for mine, its in zip(sizes, (base.size, base.pushed), strict=True)]
            if base
            else ["", ""]
        )
        packs = ["" if (got := one.compressed(how)) is None else f"{got / 1e6:,.0f} MB" for how in ("zstd", "zstd -12")]
        yield (
            " | ".join(
                (
                    f"| {one.name}",
                    f"{sizes[0] / 1e6:,.0f} MB",
                    ratios[0],
                    f"{sizes[1] / 1e6:,.0f} MB",
                    ratios[1],
                    *packs,
                )
            )
            + " |"
        )


def steps(found: Sequence[Measured]) -> Iterator[tuple[Measured, Measured]]:
    """Pair what a node has with what it pulls: the next release in the same form, and one package more."""
    for one in found:
        rows = [other for other in found if other.form == one.form]
        if rows[0] != one:
            yield rows[rows.index(one) - 1], one
        if one.form == ADDED:
            yield next(other for other in found if (other.release, other.form) == (one.release, RUNTIME)), one


def pulls_table(found: Sequence[Measured]) -> Iterator[str]:
    """Write what nodes pull that have another image."""
    yield "| a node has | and pulls | by digest | of a full pull | in stacks | of a full pull |"
    yield "|---|---|---|---|---|---|"
    for old, new in steps(found):
        sizes = [new.pulled_by(old, stacked=stacked) for stacked in (False, True)]
        cells = [f"{size / 1e6:,.3g} MB | {size / new.pushed:.4f}" for size in sizes]
        yield f"| {old.name} | {new.name} | {' | '.join(cells)} |"


def omitted_table(found: Sequence[Measured]) -> Iterator[str]:
    """Write what each image leaves out, by reason."""
    lacking = [one for one in found if one.form == RUNTIME and one.omitted]
    reasons = sorted({row.reason for one in lacking for row in one.omitted})
    yield "| left out, MB | " + " | ".join(one.name for one in lacking) + " |"
    yield "|---|" + "---|" * len(lacking)
    for reason in reasons:
        sums = ({row.reason: row.size for row in one.omitted} for one in lacking)
        yield f"| `{reason}` | " + " | ".join(f"{each.get(reason, 0) / 1e6:,.1f}" for each in sums) + " |"


def disk_table(found: Sequence[Measured]) -> Iterator[str]:
    """Write what all images of a form take on one disk."""
    yield "| all of a form on one disk | together | to naive |"
    yield "|---|---|---|"
    base = together([one for one in found if one.form == NAIVE])
    for form in (form for form in FORMS if any(one.form == form for one in found)):
        rows = [one for one in found if one.form == form]
        ratio = f"{together(rows) / base:.3f}" if base else ""
        yield f"| {len(rows)} {rows[0].flavor} {form} | {together(rows) / 1e6:,.0f} MB | {ratio} |"


def plot(found: Sequence[Measured]) -> str:
    """Draw one bar an image: on disk, and in it what is pulled."""
    widest, lines = max(one.size for one in found), []
    for row, one in enumerate(found):
        y = 34 + row * 30
        wide, narrow = (round(480 * size / widest, 1) for size in (one.size, one.pushed))
        lines.append(f'<text x="190" y="{y + 13}" text-anchor="end">{one.name}</text>')
        lines.append(f'<rect x="200" y="{y}" width="{wide}" height="18" fill="#9db7d5"/>')
        lines.append(f'<rect x="200" y="{y + 4}" width="{narrow}" height="10" fill="#2f5d8c"/>')
        lines.append(f'<text x="{205 + wide}" y="{y + 13}">{one.size / 1e9:.2f} / {one.pushed / 1e9:.2f} GB</text>')
    height = 44 + len(found) * 30
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" font-family="sans-serif" font-size="12">'
    )
    title = '<text x="200" y="20">On disk (light) and in gzip (dark)</text>'
    ground = f'<rect width="800" height="{height}" fill="#fff"/>'
    return "\n".join([head, ground, title, *lines, "</svg>", ""])


def write_page(path: Path, flavor: str, text: str, picture: str) -> None:
    """Put a flavour's figures between its marks of a page, and the plot beside it. Raises ValueError without marks."""
    begin, end = (mark.format(flavor) for mark in MARKS)
    before, begun, rest = path.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"{path} has no {begin} or no {end}")
    (path.parent / "images" / f"size-{flavor}.svg").write_text(picture)
    link = f"![{flavor} images: on disk and compressed](images/size-{flavor}.svg)"
    path.write_text(f"{before}{begin}\n\n{text}\n\n{link}\n\n{end}{after}")


def main(words: Sequence[str] | None = None) -> int:
    """Measure every image, then print what upgrades pull and the ratios to the naive ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--flavors", nargs="+", default=["cpu", "gpu"], choices=["cpu", "gpu"], help="cpu: ten minutes, 6 GB"
    )
    parser.add_argument(
        "--pack", nargs="+", default=list(LEVELS), choices=list(LEVELS), help="our layers; others: gzip"
    )
    parser.add_argument("--lean", action="store_true", help="remove each naive image once it was measured")
    parser.add_argument("--releases", nargs="+", default=["2.19.1", "2.20.0"])
    parser.add_argument("--forms", nargs="+", default=FORMS, choices=FORMS)
    parser.add_argument("--page", type=Path, help="write the figures into a page between its marks, and the plot")
    asked = parser.parse_args(words)
    engine, kept = connect(), Kept(Path("out/size"))
    begun = time.monotonic()
    for flavor in asked.flavors:
        wanted = [(release, form) for release in asked.releases for form in asked.forms]
        wanted += [(asked.releases[-1], ADDED)] if RUNTIME in asked.forms else []
        found = [
            measure(engine, release, flavor, form, kept, ways=asked.pack, lean=asked.lean) for release, form in wanted
        ]
        tables = (images_table(found), disk_table(found), pulls_table(found), omitted_table(found))
        text = "\n\n".join("\n".join(table) for table in tables)
        print(text)
        if asked.page:
            write_page(asked.page, flavor, text, plot(found))
    print(f"{time.monotonic() - begun:.0f} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
