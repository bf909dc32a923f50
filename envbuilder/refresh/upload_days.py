"""Compare the days that the catalogue holds with those on which the index got the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from packaging.requirements import Requirement

from envbuilder.catalog.rows import CudnnWheel, PackageRelease, TensorflowRelease
from envbuilder.pypi.package_index import IndexUnavailableError
from envbuilder.refresh.agreement import Comparison, name_of
from envbuilder.refresh.holdings import Holdings
from envbuilder.refresh.new_lines import first_day


def _uploaded(held: Holdings, project: str, version: str) -> str:
    return first_day(file for _, file in held.wheels(project, version))


def of_release(row: TensorflowRelease, held: Holdings) -> Comparison:
    """Compare the day of a TensorFlow release."""
    return _compared(name_of(row), "released", row.released, _uploaded(held, row.package, row.version))


def of_wheels(row: CudnnWheel, held: Holdings) -> Comparison:
    """Compare the days of a CUDA wheel line; what is printed is what differs, version by version."""
    there = [_uploaded(held, row.package, version) for version in row.versions]
    if not any(there):
        return _compared(row.package, "uploaded", " ".join(row.uploaded), "")
    pairs = list(zip(row.versions, row.uploaded or ("",) * len(row.versions), there, strict=True))
    wrong = [(version, mine, theirs) for version, mine, theirs in pairs if mine != theirs]
    return Comparison(
        row=row.package,
        field="uploaded",
        outcome="disagrees" if wrong else "agrees",
        catalog="; ".join(f"{version} {mine}" for version, mine, _ in wrong) or f"{len(pairs)} days",
        artefact="; ".join(f"{version} {theirs}" for version, _, theirs in wrong) or f"{len(pairs)} days",
    )


def of_packages(rows: Iterable[PackageRelease], held: Holdings) -> Iterator[Comparison]:
    """Compare the first releases beyond the bounds that wheels lack."""
    for row in rows:
        name = Requirement(row.bound).name
        try:
            yield _compared(f"{name} {row.version}", "released", row.released, _uploaded(held, name, row.version))
        except IndexUnavailableError as error:
            yield Comparison(row=f"{name} {row.version}", field="released", outcome="unchecked", note=str(error))


def _compared(row: str, field: str, mine: str, theirs: str) -> Comparison:
    if not theirs:
        return Comparison(
            row=row,
            field=field,
            outcome="unchecked",
            note="the index has no wheel of it now, or states no day of upload",
        )
    same = mine == theirs
    return Comparison(row=row, field=field, outcome="agrees" if same else "disagrees", catalog=mine, artefact=theirs)
