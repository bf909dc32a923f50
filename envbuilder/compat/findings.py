"""Findings of the rules: texts of codes.yaml, with the sources of catalogue rows."""

from collections.abc import Iterable, Sequence

from envbuilder.catalog.rows import Row, TensorflowRelease
from envbuilder.compat.candidate import Candidate
from envbuilder.finding import Code, Finding, written


def finding(code: Code, variant: str, rows: Iterable[Row | None] = (), /, **fields: object) -> Finding:
    return written(code, variant, (source for row in rows if row is not None for source in row.source), **fields)


def about(
    candidate: Candidate, code: Code, variant: str, rows: Iterable[Row | None] = (), /, **fields: object
) -> Finding:
    """Write a finding about a candidate: its texts may also name the candidate's own fields."""
    release, image = candidate.release, candidate.image
    own = {name: getattr(candidate, name) for name in ("arch", "python", "cuda", "cudnn", "driver")}
    of_release = {"name": name_of(release), "package": release.package, "version": release.version}
    image_name = image.name if image is not None else None
    return finding(code, variant, rows, **{**own, **of_release, "built": release.cuda, "image": image_name, **fields})


def name_of(release: TensorflowRelease) -> str:
    """Name a release as people write it: ``TensorFlow 2.20.0``, ``tensorflow-cpu 2.20.0``."""
    return f"{'TensorFlow' if release.package == 'tensorflow' else release.package} {release.version}"


def listed(items: Sequence[str], joint: str = "and") -> str:
    return f" {joint} ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def span(items: Sequence[str]) -> str:
    """Shorten an ordered list of more than two to its ends: ``3.10 to 3.13``."""
    return f"{items[0]} to {items[-1]}" if len(items) > 2 else listed(items)  # noqa: PLR2004
