# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""Measure what nodes pull and keep: `pip install` in a Dockerfile, against ours in both forms, built on the same base.

    python benchmarks/size.py [--releases 2.20.0 2.19.1] [--flavors cpu] [--forms devel runtime] [--naive] [--plot FILE]

What stands in the engine's store is measured, what is lacking is built (a naive GPU image of 2.20 needs 14 GB while it
is made). On disk: the engine's own sizes, alone and all together with each layer once. Compressed: each layer as the
engine pushes it, at its level of gzip. Pulled: from one release to the next, the layers that the image before lacks.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO

import msgspec

from envbuilder.catalog.store import load
from envbuilder.compat.resolve import resolve
from envbuilder.engine.docker import DockerEngine, connect
from envbuilder.engine.port import BuildRequest, Image, Step
from envbuilder.environment import Combination, Environment, Flavor, Form
from envbuilder.image.context import ensure_lock
from envbuilder.image.ensure import Given, ensure
from envbuilder.image.hostfiles import host_files
from envbuilder.image.render import with_host
from envbuilder.workspace import Workspace

OS = "debian-bookworm"
WHOLE: Form = "devel"
LEVEL = 6
"""The level at which an engine packs a layer that it pushes: gzip's own default."""

NAIVE = """\
FROM envbuilder/base:{os}
RUN {host}
    python3 -m venv /opt/venv && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check '{what}'
ENV PATH=/opt/venv/bin:$PATH
"""


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One image: bytes on disk, and per layer (diff id) the bytes that a registry would hold of it."""

    release: str
    flavor: str
    form: str
    size: int
    layers: dict[str, int]
    disk: dict[str, int]

    @property
    def compressed(self) -> int:
        """Bytes of a full pull."""
        return sum(self.layers.values())

    def pulled_by(self, holder: Measured) -> int:
        """Bytes that a node pulls that has another image."""
        return sum(size for name, size in self.layers.items() if name not in holder.layers)


def quiet(_: Step) -> None:
    """Follow nothing."""


def naive(engine: DockerEngine, release: str, flavor: Flavor) -> str:
    """Build what most people write; return its name."""
    tag = f"envbuilder/naive:tf{release}-{flavor}"
    if engine.image(tag) is None:
        what = f"tensorflow-cpu=={release}" if flavor == "cpu" else f"tensorflow[and-cuda]=={release}"
        with tempfile.TemporaryDirectory() as folder:
            text = NAIVE.format(os=OS, host=with_host(), what=what)
            (Path(folder) / "Dockerfile").write_text(text)
            engine.build(BuildRequest(context=Path(folder), tag=tag, extra=host_files()), quiet)
    return tag


def ours(engine: DockerEngine, release: str, flavor: Flavor, form: Form) -> str:
    """Build an environment from the committed lock of its whole form; return its image."""
    whole, found = (
        resolve(Combination(tensorflow=release, os=OS, flavor=flavor, form=one), load()) for one in (WHOLE, form)
    )
    assert isinstance(whole, Environment)  # noqa: S101 - a release that ships
    assert isinstance(found, Environment)  # noqa: S101 - as above
    here, made = Workspace(Path.cwd()), Workspace(Path.cwd() / "out" / "size")
    lock = ensure_lock(whole, load(), here)
    workspace = here if form == WHOLE else made
    return ensure(found, load(), workspace, engine, quiet, given=Given(lock)).record.image


def packed(engine: DockerEngine, image: Image, known: dict[str, int]) -> dict[str, int]:
    """Pack each layer as a push would and count; where all were packed for other images, nothing is read."""
    if any(layer.diff_id not in known for layer in image.layers):
        with engine.export(image.id) as pieces, tarfile.open(fileobj=Pieces(pieces), mode="r|") as saved:
            for entry in saved:
                stream = saved.extractfile(entry) if entry.isfile() and entry.size > LARGEST_DOCUMENT else None
                if stream is not None or entry.name.endswith("layer.tar"):
                    digest, size = packed_size(stream or saved.extractfile(entry) or io.BytesIO())
                    known[digest] = size
    return {layer.diff_id: known[layer.diff_id] for layer in image.layers}


LARGEST_DOCUMENT = 1 << 20


class Pieces(io.RawIOBase):
    """A file of pieces that arrive one after another."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self._left = iter(pieces), b""

    def readable(self) -> bool:
        """Say that it can be read."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes; fewer at the end."""
        taken = [self._left]
        have = len(self._left)
        while have < size and (piece := next(self._pieces, b"")):
            taken.append(piece)
            have += len(piece)
        whole = b"".join(taken)
        self._left = whole[size:]
        return whole[:size]


def packed_size(stream: IO[bytes]) -> tuple[str, int]:
    """Return a layer's diff id, and the bytes that gzip leaves of it."""
    packer, hashed, size = zlib.compressobj(LEVEL, wbits=31), hashlib.sha256(), 0
    while piece := stream.read(1 << 20):
        hashed.update(piece)
        size += len(packer.compress(piece))
    return f"sha256:{hashed.hexdigest()}", size + len(packer.flush())


def measure(engine: DockerEngine, name: str, label: tuple[str, str, str], known: dict[str, int]) -> Measured:
    """Measure one image of the store."""
    image = engine.image(name)
    assert image is not None  # noqa: S101 - it was built or found just now
    release, flavor, form = label
    return Measured(
        release=release,
        flavor=flavor,
        form=form,
        size=image.size,
        layers=packed(engine, image, known),
        disk={layer.diff_id: layer.size for layer in image.layers},
    )


def together(images: Sequence[Measured]) -> int:
    """Add up images on one disk: a layer that several have is there once."""
    return sum({name: size for one in images for name, size in one.disk.items()}.values())


def plot(images: Sequence[Measured], path: Path) -> None:
    """Draw one bar an image: on disk, and in it what is pulled."""
    widest, lines = max(one.size for one in images), []
    for row, one in enumerate(images):
        y, name = 34 + row * 30, f"{one.release} {one.flavor} {one.form}"
        wide, narrow = (round(520 * size / widest, 1) for size in (one.size, one.compressed))
        lines.append(f'<text x="150" y="{y + 13}" text-anchor="end">{name}</text>')
        lines.append(f'<rect x="160" y="{y}" width="{wide}" height="18" fill="#9db7d5"/>')
        lines.append(f'<rect x="160" y="{y + 4}" width="{narrow}" height="10" fill="#2f5d8c"/>')
        lines.append(f'<text x="{165 + wide}" y="{y + 13}">{one.size / 1e9:.2f} / {one.compressed / 1e9:.2f} GB</text>')
    height = 44 + len(images) * 30
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 {height}" font-family="sans-serif" font-size="12">'
    )
    title = '<text x="160" y="20">On disk (light) and compressed (dark)</text>'
    ground = f'<rect width="800" height="{height}" fill="#fff"/>'
    path.write_text("\n".join([head, ground, title, *lines, "</svg>", ""]))


def main(words: Sequence[str] | None = None) -> int:
    """Print every image, what upgrades pull, and the ratios to the naive ones; write the plot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", nargs="+", default=["2.20.0"])
    parser.add_argument("--flavors", nargs="+", default=["cpu"], choices=["cpu", "gpu"])
    parser.add_argument("--forms", nargs="+", default=["devel", "runtime"], choices=["devel", "runtime"])
    parser.add_argument("--naive", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--plot", type=Path)
    asked = parser.parse_args(words)
    engine, known, found = connect(), dict[str, int](), list[Measured]()
    for flavor in asked.flavors:
        for release in asked.releases:
            if asked.naive:
                found.append(measure(engine, naive(engine, release, flavor), (release, flavor, "naive"), known))
            for form in asked.forms:
                image = ours(engine, release, flavor, form)
                found.append(measure(engine, image, (release, flavor, form), known))
    for one in found:
        base = next((b for b in found if (b.release, b.flavor, b.form) == (one.release, one.flavor, "naive")), None)
        ratio = f", {one.size / base.size:.3f} and {one.compressed / base.compressed:.3f} of naive" if base else ""
        print(f"{one.release:8} {one.flavor} {one.form:8} {one.size / 1e9:.3f} GB on disk, "
              f"{one.compressed / 1e9:.3f} GB to pull{ratio}")  # fmt: skip
    for flavor in asked.flavors:
        for form in dict.fromkeys(one.form for one in found):
            rows = [one for one in found if (one.flavor, one.form) == (flavor, form)]
            print(f"all {flavor} {form}: {together(rows) / 1e9:.3f} GB together")
            for old, new in itertools.pairwise(rows):
                share = new.pulled_by(old) / new.compressed
                print(f"{flavor} {form} {old.release} to {new.release}: {share:.3f} of a full pull")
    if asked.plot:
        plot(found, asked.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
