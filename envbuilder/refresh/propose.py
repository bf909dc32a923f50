"""Make rows for releases that the catalogue lacks, from what their artefacts say; a person reviews them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
from packaging.requirements import Requirement

from envbuilder import versions
from envbuilder.catalog import gpu_code, store
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease, WheelSet
from envbuilder.catalog.runpath import finds_cuda
from envbuilder.errors import NoClaimError, UsageError
from envbuilder.pypi.answer_cache import Cache
from envbuilder.pypi.package_index import DistFile, PackageIndex
from envbuilder.refresh import artefact, emit
from envbuilder.refresh.evidence import Evidence, Progress, Reader
from envbuilder.refresh.verify_catalog import Holdings, newest_python, read_build_info
from envbuilder.workspace import packaged, write_atomically

PACKAGES = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu")
OLDEST = "1.13"


class RefreshDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What ``catalog refresh`` proposes."""

    schema: str = "envbuilder/catalog-refresh/v1"
    proposals: tuple[TensorflowRelease, ...]


def missing(catalog: Catalog, index: PackageIndex, package: str = "tensorflow") -> tuple[str, ...]:
    """List versions on the index that have no row, oldest first.

    Of pre-releases only those newer than the newest final release count.
    """
    there = Holdings(index, [package]).versions(package)
    finals = [version for version in there if not artefact.is_prerelease(version)]
    newest = artefact.release_order(finals[-1] if finals else "0")
    return tuple(
        version
        for version in there
        if versions.at_least(version, OLDEST)
        and (version in finals or artefact.release_order(version) > newest)
        and catalog.release(version, package) is None
    )


def refresh(proposer: Proposer, wanted: tuple[str, ...], package: str = "tensorflow") -> RefreshDocument:
    """Propose rows for the versions wanted, or for all that the catalogue lacks.

    Raises UsageError for a package that is no TensorFlow.
    """
    if package not in PACKAGES:
        raise UsageError(f"{package} is no TensorFlow distribution", hint="one of: " + ", ".join(PACKAGES))
    names = wanted or missing(proposer.catalog, proposer.index, package)
    return RefreshDocument(proposals=tuple(proposer.propose(name, package) for name in names))


def today() -> str:
    """Return the date that a proposal carries: 2026-11-20."""
    return datetime.now(tz=UTC).date().isoformat()


@dataclass(frozen=True)
class Proposer:
    """Makes complete rows from artefacts; ``today`` is the date that they carry."""

    catalog: Catalog
    index: PackageIndex
    today: str
    progress: Progress = lambda _: None
    kept: Cache | None = None

    def propose(self, version: str, package: str = "tensorflow") -> TensorflowRelease:
        """Make a complete row for one release (``reviewed: false``).

        Where ``build_info.py`` is silent, CUDA comes from the lower bounds of the extra; capabilities always come
        from the library's fat binaries. Raises NoClaimError where the index has no such wheel.
        """
        wheels = Holdings(self.index, [package]).wheels(package, version)
        file = newest_python(wheels)
        if file is None:
            raise NoClaimError(
                f"the index has no x86-64 Linux wheel of {package} {version}", hint="check the version and the index"
            )
        return self.describe(file, artefact.wheel_sets(name for name, _ in wheels))

    def describe(self, file: DistFile, sets: tuple[WheelSet, ...] = ()) -> TensorflowRelease:
        """Make a row from one wheel, which may be a local file (a ``file://`` address); see `propose`."""
        name = artefact.wheel_name(file.filename)
        if name is None:
            raise NoClaimError(f"{file.filename} is not a Linux wheel", hint="give a wheel for Linux on x86-64")
        said = artefact.metadata(self.index.metadata(file))
        built = read_build_info(self.index, file) or artefact.BuildInfo()
        before = _before(self.catalog, file.project, name.version)
        plain = TensorflowRelease(
            package=file.project,
            version=name.version,
            gpu=bool(built.gpu),
            wheels=sets or artefact.wheel_sets([name]),
            released=file.uploaded,
            requires_python=said.requires_python,
            requires=said.requires,
            caps=_caps(before, name.version),
            cpu_features=before.cpu_features if before else (),
            reviewed=False,
            source=(f"{file.filename}: METADATA and build_info.py",),
            verified=f"{self.today} machine-made from the artefact, not reviewed",
        )
        return self._with_cuda(plain, said, built, file) if plain.gpu else plain

    def _with_cuda(
        self, plain: TensorflowRelease, said: artefact.Metadata, built: artefact.BuildInfo, file: DistFile
    ) -> TensorflowRelease:
        held = Holdings(self.index)
        pins = tuple(pin for text in said.and_cuda if (pin := _lowest(text, held)))
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
        seen, _ = Reader(self.index, self.kept, self.progress).read(file)
        return _with_binary(row, seen) if seen.libraries else row


def _with_binary(row: TensorflowRelease, seen: Evidence) -> TensorflowRelease:
    return msgspec.structs.replace(
        row,
        cubins=gpu_code.cubins(seen.kernels) or row.cubins,
        ptx=gpu_code.ptx(seen.kernels) or row.ptx,
        kernels=seen.kernels,
        finds_cuda=finds_cuda(row.libraries, seen.searches),
        searches=seen.searches,
        source=(*row.source, f"{seen.fat_binaries} fat binaries in all shared objects of the same wheel"),
    )


def _before(catalog: Catalog, package: str, version: str) -> TensorflowRelease | None:
    older = [row for row in catalog.releases(package) if versions.key(row.version) < versions.key(version)]
    return older[-1] if older else None


def _caps(before: TensorflowRelease | None, version: str) -> tuple[str, ...]:
    """Keep the bounds of an earlier patch of the same line; a new line's are not known."""
    same = before is not None and versions.minor(before.version) == versions.minor(version)
    return before.caps if before is not None and same else ()


def _lowest(requirement: str, held: Holdings) -> str | None:
    """Pin a CUDA wheel at the oldest version that the extra admits: what the release was built with."""
    wanted = Requirement(requirement)
    if not wanted.name.startswith("nvidia-"):
        return None
    fitting = list(wanted.specifier.filter(held.versions(wanted.name)))
    return f"{wanted.name}=={fitting[0]}" if fitting else None


def _lined(version: str | None) -> str | None:
    """Return the line of a version; None where it is not known, or says its major alone."""
    return versions.minor(version) if version and versions.names_line(version) else None


def _line(pins: Iterable[str], prefix: str) -> str | None:
    return next((versions.minor(pin.version) for pin in map(versions.pin, pins) if pin.name.startswith(prefix)), None)


def _libraries(
    before: TensorflowRelease | None, cuda: str | None, cudnn: str | None, catalog: Catalog
) -> tuple[str, ...]:
    """Name what the release before opened, as this release's CUDA and cuDNN call it; () where that is not known."""
    toolkit = catalog.toolkit(cuda) if cuda else None
    if before is None or toolkit is None or cudnn is None:
        return ()
    names = {soname.partition(".so")[0]: soname for soname in toolkit.sonames}
    names["libcudnn"] = f"libcudnn.so.{versions.major(cudnn)}"
    return tuple(names[stem] for old in before.libraries if (stem := old.partition(".so")[0]) in names)


def write(rows: Iterable[TensorflowRelease]) -> tuple[str, ...]:
    """Append rows to the catalogue's own files and return the files' names.

    Raises InfrastructureError where they cannot be written.
    """
    by_file: dict[str, list[TensorflowRelease]] = {}
    for row in rows:
        by_file.setdefault(f"{row.package}.yaml", []).append(row)
    for name, more in by_file.items():
        path = store.path_of(name)
        text = packaged(path) + emit.rows(more).encode()
        store.parse(((name, text),))
        write_atomically(path, text)
    store.load.cache_clear()
    return tuple(by_file)
