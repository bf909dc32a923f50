"""A report as a question to the rules; unstated fields stay open."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import msgspec
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from envbuilder import versions
from envbuilder.catalog.model import DISTRIBUTIONS, Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.question import Question, cudnn_of_number
from envbuilder.reproduce.grammar import GRAMMAR, OldRelease, old_by, old_by_files, old_release, phrase
from envbuilder.reproduce.messages.catalog import MessageMatch, marked
from envbuilder.reproduce.report.reported import SCALARS, Reported, Trust
from envbuilder.reproduce.transcript import LOGGED
from envbuilder.workspace import packaged_yaml

_GPU_LAYERS = {"container", "driver", "loader", "cudnn", "cublas", "architecture", "xla", "memory", "distribution"}
_SHORT_LIST = 8  # a longer list of packages is complete enough to need no other


def release_of(text: str) -> str:
    """Normalise a release (PEP 440): ``2.4.1-rc3`` is ``2.4.1rc3``, ``1.15.2+nv20.2`` is ``1.15.2``."""
    return Version(text).public if is_version(text) else text.partition("+")[0].lower().removeprefix("v")


def is_since(first: str, reported: Reported) -> bool:
    return reported.tensorflow is not None and versions.at_least(release_of(reported.tensorflow), first)


def system_of(os: str | None, catalog: Catalog) -> str | None:
    """Find the catalogue's system for a name such as ``Ubuntu 20.04.2 LTS``, or None."""
    words = re.findall(r"[a-z]+|[0-9]+(?:\.[0-9]+)?", (os or "").lower())
    if not words:
        return None
    name, number = words[0], next((word for word in words if word[0].isdigit()), "")
    row = catalog.system(f"{name}-{number}") or catalog.system(f"{name}-{number.partition('.')[0]}")
    return row.name if row is not None else None


def driver_of(reported: Reported, catalog: Catalog) -> str | None:
    """Return the driver for the rules: of a branch its newest production release, of a CUDA limit the first with it."""
    if reported.platform == "windows":
        return None
    if reported.driver is not None:
        branch = catalog.branch(reported.driver)
        named = branch is not None and not versions.names_line(reported.driver)
        return (branch.production or (branch.first,))[-1] if branch is not None and named else reported.driver
    ceiling = versions.key_or_none(reported.driver_cuda) if reported.driver_cuda is not None else None
    rows = [row for row in catalog.drivers if versions.key(row.cuda) == ceiling]
    return min((row.first for row in rows), key=versions.key, default=None)


def gpus_of(reported: Reported) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in reported.gpus if not name.endswith("...")))


def _capabilities(reported: Reported, catalog: Catalog) -> tuple[str, ...]:
    """Return the capabilities of GPUs without a name, or the one of every GPU with a name that ``nvidia-smi`` cut."""
    if gpus_of(reported) or reported.compute_capabilities:
        return () if gpus_of(reported) else reported.compute_capabilities
    starts = tuple(name.removesuffix("...").strip() for name in reported.gpus)
    names = ((row, name) for row in catalog.gpus for name in (row.name, f"NVIDIA {row.name}", *row.smi_names))
    found = {row.compute_capability for row, name in names if starts and name.startswith(starts)}
    return tuple(found) if len(found) == 1 else ()


def _nothing_found(symptoms: tuple[MessageMatch, ...]) -> bool:
    """Return True if the log may come from a TensorFlow without CUDA: only the CUDA runtime is missing."""
    named = [row.values["library"] for row in marked("not_found", symptoms) if "library" in row.values]
    opened = any(row.signature == "opened_library" and "cuda.so" not in row.values["library"] for row in symptoms)
    return not opened and (not named or any(name.startswith(("libcudart", "cudart")) for name in named))


def pins_of(reported: Reported) -> tuple[str, ...]:
    named = ((name, reported.packages[name]) for name in GRAMMAR.shared_packages if name in reported.packages)
    return tuple(f"{name}=={version}" for name, version in named if is_version(version))


def _is_plain(reported: Reported) -> bool:
    """Return True if the package without a suffix was installed, and no other, for a GPU that is not found."""
    installs = (phrase("plain_install").search(row.text) for row in reported.evidence)
    plain = "tensorflow" in reported.packages or any(installs)
    other = any(name.startswith("tensorflow-gpu") for name in reported.packages)
    return plain and not other and reported.distribution == "tensorflow" and "invisible" in reported.complaints


def is_version(text: str) -> bool:
    try:
        Version(text)
    except InvalidVersion:
        return False
    return True


def _loaded(field: str, reported: Reported, release: TensorflowRelease | None) -> str | None:
    """Return the CUDA or cuDNN of TensorFlow. A form's value describes the host if there is a TensorFlow image."""
    value: str | None = getattr(reported, field)
    trusts = {row.trust for row in reported.evidence if (row.field, row.value) == (field, value)}
    others = [row.value for row in reported.works if row.field == field and row.value != value]
    built = (getattr(release, field) or "") if release is not None else ""
    if others and trusts == {Trust.MENTIONED} and (not built or any(versions.is_prefix(built, one) for one in others)):
        return None  # a title often names the version that failed first: which one is installed is unknown
    if field == "cuda" and not versions.names_line(value or "1.0") and versions.same_major(value, built or value):
        return None  # a major is what a library's name says: any of its releases
    if reported.image is None or not reported.image.startswith("tensorflow/"):
        return value
    return value if Trust.PROVED in trusts else None


class Place(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    shown_by: str = ""
    start: str = ""
    gpu: str
    set: str
    run: str


PLACES = packaged_yaml("reproduce/terms.yaml", dict[str, Place])
_BOUNDS = re.compile(r"(tensorflow|python|cuda|cudnn|driver|capability)((?:[<>]=?|==).+)")


@dataclass(frozen=True)
class Case:
    """A report as it was read: its fields and messages, and the catalogue that explains them."""

    reported: Reported
    messages: tuple[MessageMatch, ...]
    catalog: Catalog

    @cached_property
    def place(self) -> str:
        """How the reporter runs TensorFlow: a container system that the text names, an installer, or a system."""
        named, reported = {row.signature for row in self.messages}, self.reported
        shown = next((name for name, row in PLACES.items() if row.shown_by and row.shown_by in named), None)
        installer = reported.install if reported.install in {"conda", "docker"} else None
        return shown or installer or ("windows" if reported.platform == "windows" else "pip")

    @cached_property
    def form(self) -> str:
        return next((f" in {name}" for name, one in GRAMMAR.forms.items() if self.holds(one)), "")

    @cached_property
    def python(self) -> str | None:
        return versions.minor(self.reported.python) if self.reported.python else None

    @cached_property
    def capability(self) -> str | None:
        row = next((self.catalog.gpu(name) for name in gpus_of(self.reported)), None)
        return row.compute_capability if row is not None else next(iter(self.reported.compute_capabilities), None)

    @cached_property
    def facts(self) -> frozenset[str]:
        """What the report states: names of fields, messages, complaints, the place, the system, and variables."""
        reported = self.reported
        texts = [*(row.text for row in reported.evidence), *(row.text for row in self.messages)]
        images = {reported.image or "", *(text for row in self.messages if (text := row.values.get("image")))}
        ran = bool(marked("ran", self.messages))
        branch = self.catalog.branch(reported.driver) if reported.platform != "windows" else None
        driver_cuda = reported.driver_cuda or (branch.cuda if branch is not None else None)
        cuda = built.cuda if (built := self.release or self.old) is not None else None
        sources = {(row.field, row.trust) for row in reported.evidence}
        said = {row.trust for row in reported.evidence if (row.field, row.value) == ("cuda", reported.cuda)}
        listed = [row.source for row in reported.evidence if row.trust is Trust.LISTED]
        parts = {row.values.get(name) for row in self.messages for name in ("libcuda", "kernel_module")} - {None}
        holds: dict[str, object] = {
            **{name: getattr(reported, name) for name in (*SCALARS, "gpus", "compute_capabilities", "pauses")},
            "cudnn": reported.cudnn or any("cudnn" in name for name in reported.packages),
            **{name: any(mark in text for text in texts for mark in marks) for name, marks in GRAMMAR.went_on.items()},
            **(dict.fromkeys(("loaded", "imported"), True) if ran else {}),
            **{name: any(re.fullmatch(tag, image) for image in images) for name, tag in GRAMMAR.images.items()},
            "windows_named": (reported.os or "").lower().startswith("win"),
            "before_windows_10": re.match(r"(?i)win\D*(?:7|8|xp|vista)", reported.os or ""),
            "on_windows": reported.platform == "windows" and self.place in {"windows", "conda"},
            "lists_driver": any(source.startswith("nvidia-smi") for source in listed),
            "lists_packages": listed.count("package") > _SHORT_LIST,
            "container": PLACES[self.place].start,
            "image_of_tensorflow": (reported.image or "").startswith("tensorflow/"),
            "release_ordered": ("tensorflow", Trust.ORDERED) in sources,
            "extra_named": any("[and-cuda]" in text for text in texts),
            "cuda_wheels": any(name.startswith("nvidia-") for name in reported.packages),
            "finds_a_part": self.release is not None and self.release.finds_cuda in {"partly", "unfindable"},
            "library_missing": marked("not_found", self.messages),
            "nothing_found": _nothing_found(self.messages),
            "host": self.place in {"pip", "windows"} and reported.platform != "macos" and reported.origin is None,
            "gpu_in_log": ("gpus", Trust.PROVED) in sources,
            "driver_parts_differ": len({versions.key_or_none(text or "") for text in parts}) > 1,
            "driver_behind": driver_cuda and cuda and not versions.at_least(driver_cuda, versions.line(cuda)),
            "cuda_of_driver": said == {Trust.MENTIONED} and driver_cuda == reported.cuda,
            "own_cuda": reported.origin == "source" and (not cuda or versions.line(reported.cuda or cuda) != cuda),
            "python_unfit": self.python and self.release and self.python not in self.release.pythons,
            "unserved": self.capability and not self.catalog.with_code_for(self.capability),
            "served": self.release and self.release.version in self.catalog.with_code_for(self.capability or "0.0"),
        }
        known = {text for row in self.messages for text in (row.signature, f"{row.known.layer} message")}
        known |= {name for name, so in (("message", known), ("a gpu", self.gpu), ("before_catalogue", self.old)) if so}
        settings = {**reported.environment, "os": (reported.os or "").partition(" ")[0], "on": f"{reported.os}"[:12]}
        known |= {f"{name}={value.lower()}" for name, value in settings.items()}
        named = (self.place, self.driver_fits, reported.platform, reported.install, reported.origin, reported.arch)
        others = (*named, reported.distribution, *reported.packages, *reported.environment, *reported.complaints)
        return frozenset(filter(None, (*known, *self._unfit(), *others, *(name for name, so in holds.items() if so))))

    def _unfit(self) -> Iterator[str]:
        """Name what fails with the stated Python, GPU, and driver: a release by its version, or its minor line."""
        driver, served = driver_of(self.reported, self.catalog), self.catalog.with_code_for(self.capability or "0.0")
        for row in self.catalog.releases():
            toolkit = self.catalog.toolkit(row.cuda)
            if self.python and self.python not in row.pythons:
                yield f"no wheel of {row.version}"
            if self.python in row.extra_fails_on:
                yield f"no extra of {row.version}"
            if served and row.gpu and row.version not in served:
                yield f"no code of {versions.minor(row.version)}"
            if driver and toolkit and not versions.at_least(driver, toolkit.minimum_driver):
                yield f"too new for the driver: {versions.minor(row.version)}"

    @cached_property
    def driver_fits(self) -> str | None:
        """Whether the stated driver serves the CUDA of the release, or the stated one; conda chooses a CUDA itself."""
        built, driver = self.release or self.old, self.reported.driver
        cuda = built.cuda if built is not None else self.reported.cuda
        if cuda is None or driver is None or self.place in {"conda", "windows"}:
            return None
        rows = [(row.version, row.driver) for row in self.catalog.cuda if row.driver]
        rows += [(row.cuda, row.driver) for row in GRAMMAR.before_catalogue]
        floors = [low for top, low in rows if versions.at_least(top, versions.line(cuda))]
        if any(versions.at_least(driver, low) for low in floors):
            return "driver_is_enough"
        return "driver_is_old" if all(versions.major(driver) < versions.major(low) for low in floors) else None

    def holds(self, conditions: str) -> bool:
        """Return True if all hold that ``&`` joins: a fact, ``!fact``, or bounds (``tensorflow>=1.4,<2.0``)."""
        return all(self._holds(one) for one in conditions.split("&"))

    def _holds(self, condition: str) -> bool:
        if condition.startswith("!"):
            return not self._holds(condition[1:])
        bounds = _BOUNDS.fullmatch(condition)
        if bounds is None:
            return condition in self.facts or any(map(self.holds, GRAMMAR.means.get(condition, ())))
        stated = self.capability if bounds[1] == "capability" else getattr(self.reported, bounds[1])
        return is_version(text := release_of(stated or "")) and SpecifierSet(bounds[2]).contains(text, prereleases=True)

    @cached_property
    def native(self) -> bool:
        """True if a log of Windows names CUDA's DLLs: its TensorFlow is older than 2.11, whatever somebody typed."""
        opened = marked("opens", self.messages)
        return any(LOGGED.search(row.text) and row.values.get("library", "").endswith(".dll") for row in opened)

    @cached_property
    def version(self) -> str | None:
        """The stated release; of a nightly or candidate without a row, its final one or the newest of its line."""
        if self.reported.tensorflow is None or (self.native and is_since("2.11", self.reported)):
            return None
        tried = [row for row in self.reported.evidence if row.field == "tensorflow"]
        ordered = {row.trust for row in tried} <= {Trust.ORDERED, Trust.LISTED}
        lines = {versions.minor(row.value) for row in tried}
        if "installing" in self.reported.complaints and ordered and len(lines) > 1:
            return None  # several were tried in vain: none of them is meant
        stated = release_of(self.reported.tensorflow)
        if self.catalog.version(stated) is not None or not is_version(stated) or not Version(stated).is_prerelease:
            return stated
        line = [text for text in self.catalog.final_versions if versions.minor(text) == versions.minor(stated)]
        finals = (Version(stated).base_version, *line[::-1])
        return next((text for text in finals if any(row.gpu for row in self.catalog.distributions(text))), stated)

    @cached_property
    def old(self) -> OldRelease | None:
        """The releases before the catalogue that the report names, or that open the files of its log."""
        python, cuda, cudnn = self.reported.python, self.reported.cuda, self.reported.cudnn
        row = old_release(self.version)
        built = (cudnn_of_number(text) for one in self.messages if (text := one.values.get("compiled", "")).isdigit())
        if self.version is not None or (python is not None and versions.at_least(python, "3.8")):
            return row if row is None or all(versions.same_major(row.cudnn, text) for text in built) else None
        numbers = [text for row in self.messages if (text := row.values.get("runtime", "")).isdigit()]
        if numbers:
            return old_by(cudnn=cudnn_of_number(numbers[0]))
        named = [row.values["library"] for row in self.messages if "library" in row.values]
        by_installed = old_by(cuda=cuda, cudnn=cudnn) if cuda is not None and python is not None else None
        return old_by_files(named, cudnn) if named else by_installed

    @cached_property
    def asks_for_versions(self) -> bool:
        """True if the report asks which versions go together, and states none or several that were tried."""
        tried = {row.value for row in (*self.reported.evidence, *self.reported.works) if row.field == "tensorflow"}
        return len(tried) != 1 and bool(marked("asks", self.messages))

    @cached_property
    def release(self) -> TensorflowRelease | None:
        """The GPU build of the stated release, or None if it is not stated or unknown."""
        version = self.catalog.version(self.version) if self.version is not None else None
        rows = self.catalog.distributions(version) if version is not None else ()
        return next((row for row in rows if row.gpu), None)

    @cached_property
    def gpu(self) -> bool:
        reported = self.reported
        stated = (reported.gpus, reported.compute_capabilities, reported.driver, reported.driver_cuda, reported.cuda)
        named = {text for row in self.messages for text in (row.signature, row.known.layer)}
        lost = "runs_in_colab" in named and "invisible" in reported.complaints
        return lost or any(stated) or bool(reported.cudnn) or not named.isdisjoint({*_GPU_LAYERS, "and_cuda_tried"})

    @cached_property
    def question(self) -> Question | None:
        reported = self.reported
        if self.version is None:
            return None
        image = reported.image if reported.image and self.catalog.image(reported.image) else None
        named = reported.distribution in DISTRIBUTIONS[1:] or _is_plain(reported)
        return Question(
            tensorflow=self.version,
            package=reported.distribution if named else None,
            python=self.python,
            cuda=_loaded("cuda", reported, self.release) if self.gpu else None,
            cudnn=_loaded("cudnn", reported, self.release) if self.gpu else None,
            driver=driver_of(reported, self.catalog),
            gpus=gpus_of(reported),
            capabilities=_capabilities(reported, self.catalog),
            install=next((how for one, how in GRAMMAR.installs.items() if self.holds(one)), None) if self.gpu else None,
            base_image=image,
            os=None if image else system_of(reported.os, self.catalog),
            arch="aarch64" if reported.arch in {"aarch64", "arm64"} else "x86_64",
            packages=pins_of(reported),
            gpu=self.gpu,
        )

    def settled(self) -> Self:
        """Give each message the id that a condition (`becomes`) chooses, and take each complaint for what is meant."""
        others = ((one, GRAMMAR.other_complaints.get(one, {})) for one in self.reported.complaints)
        meant = (next((new for told, new in rows.items() if self.holds(told)), one) for one, rows in others)
        reported = msgspec.structs.replace(self.reported, complaints=tuple(dict.fromkeys(meant)))
        return dataclasses.replace(self, reported=reported, messages=tuple(map(self._settled, self.messages)))

    def _settled(self, row: MessageMatch) -> MessageMatch:
        names = (name for condition, name in row.known.becomes.items() if self.holds(condition))
        return msgspec.structs.replace(row, signature=next(names, row.signature))
