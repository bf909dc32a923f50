"""The catalogue: every fact as one value, with the lookups over its rows.

A catalogue is loaded once and passed on. Lookups keep their answers in it, and no text makes them raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache, cached_property, partial
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import msgspec

from envbuilder import versions
from envbuilder.catalog import gpu_code
from envbuilder.catalog.gpu_names import GpuNames
from envbuilder.catalog.rows import (
    BaseImage,
    CudaToolkit,
    Cudnn,
    DriverBranch,
    FieldReport,
    Gpu,
    ImageFlavor,
    OperatingSystem,
    OtherSystem,
    PackageRelease,
    ProcessorNeed,
    Row,
    SystemCuda,
    Tables,
    TensorflowRelease,
)

DISTRIBUTIONS = ("tensorflow", "tensorflow-gpu", "tensorflow-cpu")
"""The distributions, in the order in which one is chosen for a GPU."""

_DRIVER = re.compile(r"^[Rr]?(\d{3,4})(?:\.|\Z)")

_VARIANT = re.compile(
    r"(?P<cuda>nvidia/cuda:[\d.]+)(?P<cudnn>-cudnn\d*)?-(?P<flavor>base|runtime|devel)-(?P<os>ubuntu[\d.]+)"
)
_DATED = re.compile(r"\d{8}(?:\.\d+)?")
"""The build day in a tag: ``bookworm-20260112-slim``."""
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")

Bounds = tuple[tuple[str, str], ...]
P = ParamSpec("P")
T = TypeVar("T")

_SLICE = re.compile(
    r"\bMIG[ -]((?:\d+c\.)?\d+g\.\d+gb(?:[.+]me)?)|(?<=\w)-((?:\d-)?\d{1,3}[ABCQ][A-Z]*)\d?$", re.IGNORECASE
)
"""A slice of a GPU: MIG in NVML (``MIG 1g.5gb``) and in labels (``-MIG-1g.5gb``), or a type of vGPU (``-8Q``)."""


class PlainImage(msgspec.Struct, frozen=True):
    """An image without CUDA: its system, or the system on which no wheel loads, and its Python."""

    system: OperatingSystem | None = None
    other: OtherSystem | None = None
    python: str | None = None


def _memoized(lookup: Callable[Concatenate[Catalog, P], T]) -> cached_property[Callable[P, T]]:
    """Keep the answers of a lookup in its catalogue."""
    return cached_property(lambda catalog: cast("Callable[P, T]", cache(partial(lookup, catalog))))


def _matching(text: str, known: Iterable[str]) -> str | None:
    """Return the known version (oldest first) that a text means: itself, or the newest final one of a line or range."""
    wanted, bounds = versions.key_or_none(text), versions.bounds(text)
    if bounds is not None:
        final = [one for one in known if versions.is_final(one) and versions.admits(bounds, one)]
        return final[-1] if final else None
    if wanted is None:
        return None
    if len(versions.numbers(text)) > 2:  # noqa: PLR2004 - a whole version has three numbers
        return next((one for one in known if versions.key(one) == wanted), None)
    try:
        longer = [one for one in known if versions.is_prefix(text, one)]
    except ValueError:  # more than a version: ``2.20:``
        return None
    final = [one for one in longer if versions.is_final(one)] or longer
    return final[-1] if final else None


def _covers(row: FieldReport | ProcessorNeed, version: str) -> bool:
    return versions.at_least(version, row.first) and (row.last is None or versions.at_least(row.last, version))


def _with_packages(below: OperatingSystem, row: SystemCuda) -> OperatingSystem:
    """Return a system with the CUDA of its own packages, described like an image with these files."""
    origin: dict[str, Any] = {"source": row.source, "verified": row.verified}
    brings = BaseImage(
        name=row.name,
        cuda=row.cuda,
        os=below.name,
        glibc=below.glibc,
        python=below.python,
        flavor=row.name,
        holds=ImageFlavor(name=row.name, tools=row.tools, libraries=row.libraries, **origin),
        forward_compat=False,
        **origin,
    )
    return msgspec.structs.replace(below, name=row.name, short=row.short, brings=brings, packages=row, **origin)


def _python(systems: Iterable[OperatingSystem], others: Iterable[OtherSystem], pieces: list[str]) -> PlainImage | None:
    if not pieces or not _VERSION.fullmatch(pieces[0]):
        return None
    python, suite = versions.minor(pieces[0]), "-".join(pieces[1:])
    other = next((row for row in others if suite.startswith(row.name)), None)
    if other is not None:
        return PlainImage(other=other, python=python)
    row = next((row for row in systems if row.python == python and row.image.startswith("python:")), None)
    debian = _tagged(systems, "debian", suite)
    if row is None or (suite and debian is None):
        return None
    if debian is not None and suite not in row.image:
        row = msgspec.structs.replace(row, glibc=debian.glibc)
    return PlainImage(system=row, python=python)


def _tagged(systems: Iterable[OperatingSystem], repository: str, tag: str) -> OperatingSystem | None:
    for row in systems:
        name, _, own = row.image.partition(":")
        if name == repository and tag in (own.removesuffix("-slim"), *row.tags):
            return row
    return None


def _bare(name: str) -> str:
    """Remove a registry's host and a digest."""
    reference = name.strip().split("@")[0]
    head, _, rest = reference.partition("/")
    return rest if rest and ("." in head or ":" in head) else reference


class Catalog(Tables, frozen=True, kw_only=True, dict=True):
    """Every fact, as one value; its methods find rows by the words that people use for them."""

    @cached_property
    def versions(self) -> tuple[str, ...]:
        """Every TensorFlow version, oldest first."""
        return tuple(sorted({row.version for row in self.tensorflow}, key=versions.key))

    @cached_property
    def final_versions(self) -> tuple[str, ...]:
        """Every TensorFlow version except pre-releases, oldest first."""
        return tuple(text for text in self.versions if versions.is_final(text))

    @cached_property
    def donors(self) -> tuple[TensorflowRelease, ...]:
        """The releases whose set of CUDA wheels others may borrow."""
        return tuple(row for row in self.tensorflow if row.cuda_wheels and row.cuda and versions.is_final(row.version))

    def not_installed(self, tensorflow: str, wheels: Iterable[str]) -> dict[str, str]:
        """Return the CUDA wheels (``name==version``) of which ``runtime`` images use nothing, each with the reason."""
        rows = [row for row in self.leave_out if not row.paths and versions.minor(tensorflow) in row.tensorflow]
        return {pin: row.why for pin in wheels for row in rows if re.fullmatch(row.package, pin.partition("==")[0])}

    @_memoized
    def first_driver(self, capability: str) -> str:
        """Return the oldest driver that runs some GPU of a compute capability, or ''."""
        drivers = (row.minimum_driver for row in self.gpus if row.compute_capability == capability)
        return min(filter(None, drivers), key=versions.key, default="")

    @_memoized
    def version(self, text: str, package: str | None = None, day: str | None = None) -> str | None:
        """Return the full version that a text means: itself, or the newest final one of its line or range.

        Of one distribution (None: any), and on the index on a day (None: any), or the newest of all if there was none.
        """
        rows = [row for row in self.tensorflow if package in {None, row.package}]
        there = {row.version for row in rows if day is None or not row.released or row.released <= day}
        known = sorted({row.version for row in rows}, key=versions.key)
        return _matching(text, tuple(one for one in known if one in there)) or _matching(text, tuple(known))

    def newest_in(self, text: str) -> str | None:
        """Return the newest release of a range or of ``latest``; any other text itself."""
        return text if versions.bounds(text) is None else self.version(text)

    @_memoized
    def candidates(self, text: str, package: str | None = None) -> tuple[str, ...]:
        """Return the versions to choose from, the newest first: those of a range, every final one for '', or one."""
        bounds = versions.bounds(text) if text else ()
        if bounds is None or text == versions.LATEST:
            found = self.version(text, package)
            return (found,) if found is not None else ()
        known = self.final_versions if package is None else [row.version for row in self.releases(package)]
        return tuple(one for one in reversed(known) if versions.is_final(one) and versions.admits(bounds, one))

    @_memoized
    def release(self, version: str, package: str = "tensorflow") -> TensorflowRelease | None:
        """Return the row of one distribution at exactly this version (``2.20.0``; ``2.20`` means ``2.20.0``)."""
        return next((row for row in self.releases(package) if versions.same(row.version, version)), None)

    def distributions(self, version: str) -> tuple[TensorflowRelease, ...]:
        return tuple(row for package in DISTRIBUTIONS if (row := self.release(version, package)) is not None)

    @_memoized
    def releases(self, package: str = "tensorflow") -> tuple[TensorflowRelease, ...]:
        """Return a distribution's rows, oldest first."""
        rows = (row for row in self.tensorflow if row.package == package)
        return tuple(sorted(rows, key=lambda row: versions.key(row.version)))

    @_memoized
    def toolkit(self, text: str | None) -> CudaToolkit | None:
        """Return the toolkit line of a CUDA version: ``11.2``, ``11.2.152`` and ``V11.2.67`` are the same."""
        if text is None or versions.key_or_none(text.lstrip("vV")) is None:
            return None
        line = versions.minor(text.lstrip("vV"))
        return next((row for row in self.cuda if row.version == line), None)

    @_memoized
    def compiler(self, isa: str) -> CudaToolkit | None:
        """Return the oldest toolkit whose compiler, and so its driver's, accepts a PTX ISA (``8.3``)."""
        rows = [row for row in self.cuda if row.ptx_isa and versions.at_least(row.ptx_isa, isa)]
        return min(rows, key=lambda row: versions.key(row.version), default=None)

    @_memoized
    def cudnn_row(self, text: str | None) -> Cudnn | None:
        """Return the row of a cuDNN version, or of its line if it has none: ``8.1.1.33 -> 8.1``.

        A major alone (``8``) has no row.
        """
        wanted = versions.key_or_none(text) if text is not None else None
        if text is None or wanted is None or len(versions.numbers(text)) < 2:  # noqa: PLR2004 - see above
            return None
        rows = {row.version: row for row in self.cudnn}
        return rows.get(".".join(map(str, wanted[0]))) or rows.get(versions.minor(text))

    @_memoized
    def branch(self, driver: str | None) -> DriverBranch | None:
        """Return the branch of a driver: ``535.104.05``, ``535``, ``R535``, and ``537.58`` of Windows."""
        found = _DRIVER.match(driver.strip()) if driver is not None else None
        named = [row for row in self.drivers if found and found[1] in (row.branch, *row.windows)]
        return min(named, key=lambda row: row.branch != found[1], default=None) if found else None

    @cached_property
    def _gpu_names(self) -> GpuNames:
        return GpuNames(self.gpus)

    @_memoized
    def gpu(self, text: str) -> Gpu | None:
        """Return the GPU that a text names, as its vendor, ``nvidia-smi`` or a person writes it (see `GpuNames`).

        None for no GPU, or several with different compute capabilities.
        """
        rows = self.possible_gpus(text)
        if len({row.compute_capability for row in rows}) != 1:
            return None
        return min(rows, key=lambda row: (len(row.name), row.name))  # the plainest name

    @_memoized
    def possible_gpus(self, text: str) -> tuple[Gpu, ...]:
        """Return every GPU that a text may name: several if the name is ambiguous."""
        return self._gpu_names.possible(text)

    def gpu_model(self, text: str) -> str | None:
        """Return the name of the one GPU that a text means; None for no GPU or several."""
        return next(iter(self.gpu_names(text)), None)

    def gpu_names(self, text: str) -> tuple[str, ...]:
        """Return the model of the one GPU that a text means, then the names of its products in nvidia-smi, or ().

        A slice of a GPU (MIG, vGPU) is a separate device with a share of it: ``A100 MIG 1g.5gb``, ``A40 vGPU 8Q``.
        """
        if (row := self.gpu(text)) is None:
            return ()
        part, kind = _SLICE.search(text), ""
        if part is not None:
            kind = f" MIG {part[1].lower().replace('.me', '+me')}" if part[1] else f" vGPU {part[2].upper()}"
        return (f"{row.name}{kind}", *row.smi_names)

    @cached_property
    def capabilities(self) -> dict[str, str]:
        """Every compute capability of a GPU or toolkit, with the CPU architecture that it requires ('': any)."""
        machines: dict[str, set[str]] = {text: set() for row in self.cuda for text in row.capabilities}
        for row in self.gpus:
            machines.setdefault(row.compute_capability, set()).add(row.arch)
        order = sorted(machines, key=versions.key)
        return {text: next(iter(machines[text])) if len(machines[text]) == 1 else "" for text in order}

    def system(self, name: str) -> OperatingSystem | None:
        """Return a system by its name (``debian-bookworm``, ``debian-12``), its short name (``bookworm``) or its image.

        A published image with CUDA is a system too, and so is a system with CUDA in its own packages
        (``debian-bookworm-cuda``).
        """
        text = name.strip().lower()
        return self._systems.get(text) or self._bases.get(name) or self._with_image(name) or self._tagged(text)

    @cached_property
    def _systems(self) -> dict[str, OperatingSystem]:
        found = {name: row for row in self.systems for name in (row.name, row.short, row.image)}
        return {row.name: _with_packages(found[row.os], row) for row in self.system_cuda} | found

    @cached_property
    def _bases(self) -> dict[str, OperatingSystem]:
        return {}

    @property
    def own_bases(self) -> tuple[str, ...]:
        """The names of a matrix's own bases."""
        return tuple(self._bases)

    def with_bases(self, rows: Iterable[OperatingSystem]) -> Catalog:
        """Return a catalogue with a matrix's own bases; they are in no table, and found by name only."""
        known: Catalog = msgspec.structs.replace(self)
        known.__dict__["_bases"] = {row.name: row for row in rows}
        return known

    def with_releases(self, rows: Iterable[TensorflowRelease]) -> Catalog:
        """Return a catalogue with these releases as well; it has the same bases."""
        known: Catalog = msgspec.structs.replace(self, tensorflow=(*self.tensorflow, *rows))
        return known.with_bases(self._bases.values())

    def _tagged(self, name: str) -> OperatingSystem | None:
        """Return a system by its vendor's name and one of its image's tags: ``debian-12``, ``ubuntu-jammy``."""
        vendor, _, tag = name.partition("-")
        plain = self.plain_image(f"{vendor}:{tag}") if tag else None
        return plain.system if plain is not None and vendor != "python" else None

    @_memoized
    def _with_image(self, name: str) -> OperatingSystem | None:
        image = self.image(name)
        below = self._systems.get(image.os) if image is not None else None
        if image is None or below is None or image.name != name.strip():
            return None  # the same name on another registry may be another image
        own = {field: getattr(image, field) for field in ("name", "glibc", "source", "verified")}
        short = re.sub(r"[/:]", "-", image.name)
        return msgspec.structs.replace(below, **own, short=short, image=image.name, suite="", brings=image)

    @_memoized
    def with_code_for(self, capability: str) -> tuple[str, ...]:
        """List the final releases with machine code for a compute capability; generated kernels may be PTX for it."""

        def serves(row: TensorflowRelease) -> bool:
            kinds = [(kind.cubins, kind.ptx if kind.origin == "generated" else ()) for kind in row.kernels]
            return all(
                gpu_code.has_machine_code(cubins, capability)
                or any(gpu_code.compiles_for(text, capability) for text in ptx)
                for cubins, ptx in kinds or [(row.cubins, ())]
            )

        rows = (row for row in self.tensorflow if row.gpu and versions.is_final(row.version))
        return tuple(sorted({row.version for row in rows if serves(row)}, key=versions.key))

    @_memoized
    def image(self, name: str) -> BaseImage | None:
        """Return a published image with CUDA; a registry's host, ``library/`` and a digest are ignored.

        The catalogue has the ``runtime`` images with cuDNN. Their siblings (``base``, ``runtime``, ``devel``) are built
        from the same base image, which sets the start-up requirement; only flavour and cuDNN differ.
        """
        bare = _bare(name)
        known = {row.name: row for row in self.images}
        asked = _VARIANT.fullmatch(bare)
        if bare in known or asked is None:
            return known.get(bare)
        start, end = f"{asked['cuda']}{asked['cudnn'] or '-cudnn'}", f"-runtime-{asked['os']}"
        row = next((row for name, row in known.items() if name.startswith(start) and name.endswith(end)), None)
        if row is None:
            return None
        cudnn = row.cudnn if asked["cudnn"] else None
        return msgspec.structs.replace(row, name=bare, flavor=asked["flavor"], cudnn=cudnn)

    def plain_image(self, name: str) -> PlainImage | None:
        """Return the system and Python of an official image without CUDA; None if its tag does not determine them.

        A tag of Python without a suite means that Python's own row, although later builds are on newer systems.
        """
        repository, _, tag = _bare(name).removeprefix("library/").partition(":")
        pieces = [piece for piece in tag.split("-") if piece and piece != "slim" and not _DATED.fullmatch(piece)]
        if repository == "python":
            return _python(self.systems, self.other_systems, pieces)
        other = next((row for row in self.other_systems if row.name == repository), None)
        if other is not None:
            return PlainImage(other=other)
        tags = (pieces[0], pieces[0].partition(".")[0]) if len(pieces) == 1 else ()
        found = next((row for tag in tags if (row := _tagged(self.systems, repository, tag))), None)
        return PlainImage(system=found) if found is not None else None

    def flavor(self, image: BaseImage) -> ImageFlavor | None:
        """Return the content of images of this flavour; for an inspected image, its own content."""
        return image.holds or next((row for row in self.image_flavors if row.name == image.flavor), None)

    def other_system(self, name: str) -> OtherSystem | None:
        """Return a system on which no wheel loads: ``alpine``, ``alpine-3.20`` or ``alpine3.20``."""
        return next((row for row in self.other_systems if name.strip().lower().startswith(row.name)), None)

    def report(self, release: TensorflowRelease, capability: str) -> FieldReport | None:
        """Find the report of users about a release on a compute capability; one about no newer release is undecided."""
        about = [row for row in self.reports if capability in row.capabilities]
        newest = max(about, key=lambda row: versions.key(row.last), default=None)
        if newest is not None and not versions.at_least(newest.last, release.version):
            text = f"the known reports end with {newest.last}"
            return msgspec.structs.replace(newest, works=None, symptom=text)
        return next((row for row in about if _covers(row, release.version)), None)

    def processor_needs_of(self, version: str) -> tuple[ProcessorNeed, ...]:
        """List the instruction sets that a release's wheels need; the release may have no row."""
        is_version = versions.key_or_none(version) is not None
        return tuple(row for row in self.processor_needs if is_version and _covers(row, version))

    def wheel_versions(self, package: str, day: str | None = None) -> tuple[str, ...]:
        """List the versions of a CUDA wheel that were on the index on a day (None: now), oldest first."""
        row = next((row for row in self.cudnn_wheels if row.package == package), None)
        if row is None or day is None or not row.uploaded:
            return row.versions if row is not None else ()
        return tuple(text for text, came in zip(row.versions, row.uploaded, strict=True) if came <= day)

    @_memoized
    def newest_wheel(self, package: str, bounds: Bounds, day: str | None = None) -> str | None:
        """Return the newest version of a CUDA wheel within bounds that was on the index on a day (None: now)."""
        there = (text for text in self.wheel_versions(package, day) if versions.admits(bounds, text))
        return max(there, key=versions.key, default=None)

    @cached_property
    def read_on(self) -> str:
        """The day on which the index was last read for a release or a CUDA wheel; later uploads are unknown."""
        rows: tuple[Row, ...] = (*self.tensorflow, *self.cudnn_wheels)
        return max((row.verified[:10] for row in rows if row.verified[:1].isdigit()), default="")

    @cached_property
    def first_beyond(self) -> dict[str, PackageRelease]:
        """The first release of a package beyond each bound that wheels lack (``numpy<2``)."""
        return {row.bound: row for row in self.package_releases}

    @_memoized
    def wheel_kinds(self, package: str, bounds: Bounds) -> tuple[str, ...]:
        """Return the newest wheel within bounds for each range of GPUs that cuDNN's rows distinguish."""
        kinds: dict[object, str] = {}
        for text in sorted(self.wheel_versions(package), key=versions.key):
            if versions.admits(bounds, text):
                found = self.cudnn_row(text)
                kinds[(found.first_capability, found.last_capability) if found is not None else None] = text
        return tuple(reversed(kinds.values()))
