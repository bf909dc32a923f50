"""Propose rows for missing releases from their artefacts; a person reviews them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from packaging.requirements import Requirement

from envbuilder import versions
from envbuilder.catalog import gpu_code
from envbuilder.catalog.library_search import finds_cuda
from envbuilder.catalog.model import DISTRIBUTIONS, Catalog
from envbuilder.catalog.rows import Contradiction, CudaToolkit, Cudnn, CudnnWheel, Row, TensorflowRelease, WheelSet
from envbuilder.errors import NoClaimError, UsageError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.client import PackageIndex
from envbuilder.pypi.pages import DistFile
from envbuilder.refresh import artefact, evidence, new_lines
from envbuilder.refresh.indexed_wheels import IndexedWheels
from envbuilder.refresh.rows_file import as_yaml

NIGHTLY = "tf-nightly"
OLDEST = "1.13"


class RefreshDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The proposals of ``catalog refresh``: rows of releases, of lines of CUDA and cuDNN, and lists of CUDA wheels.

    ``compared`` lists what was compared; if there are no rows, none is missing. ``left`` lists what could not be
    compared or proposed: a person does it. An index has no information about drivers.
    """

    schema: str = "envbuilder/catalog-refresh/v1"
    proposals: tuple[TensorflowRelease, ...]
    cuda: tuple[CudaToolkit, ...] = ()
    cudnn: tuple[Cudnn, ...] = ()
    cudnn_wheels: tuple[CudnnWheel, ...] = ()
    compared: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def tables(self) -> dict[str, tuple[Row, ...]]:
        """The rows by their table; empty tables are left out."""
        every = {name: getattr(self, name) for name in ("cuda", "cudnn", "cudnn_wheels")}
        return {name: rows for name, rows in {"tensorflow": self.proposals, **every}.items() if rows}


def missing(catalog: Catalog, index: PackageIndex, package: str = "tensorflow") -> tuple[str, ...]:
    """List versions on the index without a row, oldest first.

    Pre-releases count only if newer than the newest final release; of nightly builds only the newest counts.
    """
    there = IndexedWheels(index, [package]).versions(package)
    if package == NIGHTLY:
        return tuple(text for text in there[-1:] if catalog.release(text, package) is None)
    newest = next((text for text in reversed(there) if versions.is_final(text)), "0")
    return tuple(
        text
        for text in there
        if versions.at_least(text, OLDEST)
        and (versions.is_final(text) or not versions.at_least(newest, text))
        and catalog.release(text, package) is None
    )


def refresh(proposer: Proposer, wanted: tuple[str, ...], package: str | None = None) -> RefreshDocument:
    """Propose rows for the wanted versions, of each distribution that has them, or for all missing ones.

    Without versions and a package, the lines and wheels of CUDA and cuDNN are compared too. A version with a row is
    read again, and keeps the fields that no wheel has (see `Proposer.propose`). Raises UsageError for a package that is
    not a TensorFlow distribution.
    """
    if package not in {None, NIGHTLY, *DISTRIBUTIONS}:
        raise UsageError(
            f"{package} is not a TensorFlow distribution", hint=f"one of: {', '.join(DISTRIBUTIONS)}, {NIGHTLY}"
        )
    catalog, index = proposer.catalog, proposer.index
    named = DISTRIBUTIONS if package is None else (package,)
    indexed = IndexedWheels(index, named)
    having = {text: [name for name in named if indexed.newest_python(name, text)] or named for text in wanted}
    proposals = tuple(
        proposer.propose(text, name)
        for name in named
        for text in wanted or missing(catalog, index, name)
        if name in having.get(text, named)
    )
    there = tuple(name for name in named if indexed.versions(name))
    unseen = tuple(_UNSEEN.format(name) for name in named if name not in there)
    if package is not None or wanted:
        return RefreshDocument(proposals=proposals, compared=there, left=unseen)
    indexed = IndexedWheels(index, (*new_lines.RUNTIMES, *(row.package for row in catalog.cudnn_wheels)))
    toolkits, firsts = new_lines.toolkits(catalog, indexed, proposer.today)
    return RefreshDocument(
        proposals=proposals,
        cuda=toolkits,
        cudnn=tuple(new_lines.cudnn_lines(catalog, indexed, proposer.today)),
        cudnn_wheels=tuple(new_lines.wheel_lists(catalog, indexed, proposer.today)),
        compared=(*there, "CUDA's lines", "cuDNN's lines", "the lists of CUDA's wheels"),
        left=(
            *unseen,
            *(_UNSEEN.format(row.package) for row in catalog.cudnn_wheels if not indexed.versions(row.package)),
            *map(_FIRST.format, firsts),
        ),
    )


_UNSEEN = "{} is not on the configured index: it was not compared"
_FIRST = "CUDA {} is the first of its major: write its row by hand, because no older row is a model for it"


def as_text(document: RefreshDocument) -> str:
    """Write the proposals as YAML with the remaining work as comments, or that nothing is missing."""
    if document.tables or document.left:
        tables = (f"{name}:\n{as_yaml(rows)}".rstrip("\n") for name, rows in document.tables.items())
        return "\n".join((*(f"# {one}" for one in document.left), *tables))
    return f"nothing is missing: compared were {', '.join(document.compared)}"


def today() -> str:
    """Return the date of a proposal: 2026-11-20."""
    return datetime.now(tz=UTC).date().isoformat()


@dataclass(frozen=True)
class Proposer:
    """Makes complete rows from artefacts, with ``today`` as their date."""

    catalog: Catalog
    index: PackageIndex
    today: str
    progress: evidence.Progress = lambda _: None
    kept: Cache | None = None

    def propose(self, version: str, package: str = "tensorflow") -> TensorflowRelease:
        """Make a complete row for one release (``reviewed: false``).

        Without a CUDA in ``build_info.py``, it comes from the lower bounds of the extra; capabilities always come
        from the library's fat binaries. A release with a row keeps the fields that no wheel has: its day,
        contradictions, reviewed CUDA wheels and bounds. Raises NoClaimError if the index has no such wheel.
        """
        indexed = IndexedWheels(self.index, [package])
        file = indexed.newest_python(package, version)
        if file is None:
            raise NoClaimError(
                f"the index has no x86-64 Linux wheel of {package} {version}", hint="check the version and the index"
            )
        made = self.describe(file, artefact.wheel_sets(name for name, _ in indexed.wheels(package, version)))
        known = self.catalog.release(version, package)
        if known is not None:
            return _keeping(known, made)
        return msgspec.structs.replace(made, released=indexed.first_day(package, version))

    def describe(self, file: DistFile, sets: tuple[WheelSet, ...] = ()) -> TensorflowRelease:
        """Make a row from one wheel, which may be a local file (a ``file://`` address); see `propose`."""
        name = artefact.wheel_name(file.filename)
        if name is None:
            raise NoClaimError(f"{file.filename} is not a Linux wheel", hint="give a wheel for Linux on x86-64")
        said = artefact.metadata(self.index.metadata(file))
        built = artefact.read_build_info(self.index, file) or artefact.BuildInfo()
        before = _before(self.catalog, file.project, name.version)
        plain = TensorflowRelease(
            package=file.project,
            version=name.version,
            gpu=bool(built.gpu),
            wheels=sets or artefact.wheel_sets([name]),
            released=file.uploaded,
            requires_python=said.requires_python,
            requires=said.requires,
            caps=before.caps if before and versions.minor(before.version) == versions.minor(name.version) else (),
            cpu_features=before.cpu_features if before else (),
            reviewed=False,
            source=(f"{file.filename}: METADATA and build_info.py",),
            verified=f"{self.today} machine-made from the artefact, not reviewed",
        )
        if plain.gpu:
            return self._with_cuda(plain, said, built, file)
        return msgspec.structs.replace(plain, contradictions=_of_no_use(said, file.filename))

    def _with_cuda(
        self, plain: TensorflowRelease, said: artefact.Metadata, built: artefact.BuildInfo, file: DistFile
    ) -> TensorflowRelease:
        indexed = IndexedWheels(self.index)
        pins = tuple(pin for text in said.and_cuda if (pin := _lowest(text, indexed)))
        cuda = _lined(built.cuda) or _line(pins, "nvidia-cuda-runtime-")
        cudnn = built.cudnn if _lined(built.cudnn) else _line(pins, "nvidia-cudnn-") or built.cudnn
        row = msgspec.structs.replace(
            plain,
            cuda=cuda,
            cudnn=cudnn,
            cubins=built.cubins,
            ptx=built.ptx,
            and_cuda=said.and_cuda,
            cuda_wheels=pins,
            libraries=_libraries(_before(self.catalog, plain.package, plain.version), cuda, cudnn, self.catalog),
            note=""
            if built.cuda
            else "CUDA and cuDNN inferred from the lower bounds of the extra: build_info is silent",
        )
        seen, _ = evidence.read(self.index, file, self.kept, self.progress)
        if not seen.libraries:
            return row
        return msgspec.structs.replace(
            row,
            cubins=gpu_code.cubins(seen.kernels) or row.cubins,
            ptx=gpu_code.ptx(seen.kernels) or row.ptx,
            kernels=seen.kernels,
            finds_cuda=finds_cuda(row.libraries, seen.searches),
            searches=seen.searches,
            openers=seen.openers,
            source=(*row.source, f"{seen.fat_binaries} fat binaries in all shared objects of {file.filename}"),
        )


def _of_no_use(said: artefact.Metadata, wheel: str) -> tuple[Contradiction, ...]:
    """Record the useless extra of a CPU build, as in every ``tensorflow-cpu`` since 2.14."""
    if not said.and_cuda:
        return ()
    but = "a CPU build: the extra brings CUDA wheels that it never opens"
    return (Contradiction(field="and_cuda", says="; ".join(sorted(said.and_cuda)), but=but, source=wheel),)


def _before(catalog: Catalog, package: str, version: str) -> TensorflowRelease | None:
    """Return the release before; a nightly build comes after one of ``tensorflow``."""
    rows = catalog.releases(DISTRIBUTIONS[0] if package == NIGHTLY else package)
    older = [row for row in rows if versions.key(row.version) < versions.key(version)]
    return older[-1] if older else None


def _lowest(requirement: str, indexed: IndexedWheels) -> str | None:
    """Pin a CUDA wheel at the oldest version that the extra admits, the version of the build."""
    wanted = Requirement(requirement)
    if not wanted.name.startswith("nvidia-"):
        return None
    fitting = list(wanted.specifier.filter(indexed.versions(wanted.name)))
    return f"{wanted.name}=={fitting[0]}" if fitting else None


def _lined(version: str | None) -> str | None:
    """Return the line of a version; None for an unknown version or a major alone."""
    return versions.minor(version) if version and versions.names_line(version) else None


def _line(pins: Iterable[str], prefix: str) -> str | None:
    return next((versions.minor(pin.version) for pin in map(versions.pin, pins) if pin.name.startswith(prefix)), None)


def _libraries(
    before: TensorflowRelease | None, cuda: str | None, cudnn: str | None, catalog: Catalog
) -> tuple[str, ...]:
    """Return the libraries of the previous release under the names of this CUDA and cuDNN; () if not known."""
    toolkit = catalog.toolkit(cuda) if cuda else None
    if before is None or toolkit is None or cudnn is None:
        return ()
    names = {new_lines.stem(soname): soname for soname in toolkit.sonames}
    names["libcudnn"] = f"libcudnn.so.{versions.major(cudnn)}"
    return tuple(names[stem] for stem in map(new_lines.stem, before.libraries) if stem in names)


def _keeping(known: TensorflowRelease, made: TensorflowRelease) -> TensorflowRelease:
    """Copy the fields that people found from the existing row of a release."""
    kept: dict[str, Any] = {name: getattr(known, name) for name in _FOUND_BY_PEOPLE if getattr(known, name)}
    silent = {name: getattr(known, name) for name in ("cuda", "cudnn") if getattr(made, name) is None}
    row = msgspec.structs.replace(made, **kept, **silent)
    return msgspec.structs.replace(row, finds_cuda=finds_cuda(row.libraries, row.searches)) if row.gpu else row


_FOUND_BY_PEOPLE = (
    "released",
    "caps",
    "cuda_wheels",
    "libraries",
    "extra_fails_on",
    "extra_fails_because",
    "cpu_features",
    "not_installable_because",
    "contradictions",
    "note",
)
