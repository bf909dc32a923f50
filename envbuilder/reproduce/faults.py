"""The faults of a captured environment in the order in which they show, each with its fix as one command."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from statistics import median

import msgspec

from envbuilder import versions
from envbuilder.catalog.library_search import folder_of, opener_folders
from envbuilder.catalog.model import DISTRIBUTIONS, Catalog
from envbuilder.compat.findings import finding
from envbuilder.finding import Code, Finding
from envbuilder.reproduce.causes import by_cause, cause_of, is_cause
from envbuilder.reproduce.diagnose import Confidence, ReportDiagnosis, diagnose, predict
from envbuilder.reproduce.fix import choose_here, closest_environment, install_commands
from envbuilder.reproduce.messages.catalog import MessageMatch, find
from envbuilder.reproduce.question import Case, is_version
from envbuilder.reproduce.rebuild import REQUIREMENT
from envbuilder.reproduce.report.read import read
from envbuilder.reproduce.report.reported import CaptureDocument, Complaint
from envbuilder.reproduce.terms import missing_libraries
from envbuilder.support.templates import rendered
from envbuilder.verdict import Phase

_STUB = 34  # CUDA_ERROR_STUB_LIBRARY, the answer of the toolkit's stub to cuInit
_PATH = "LD_LIBRARY_PATH"
_PLAIN_PATH = re.compile(r"[\w~./+@:-]*", re.ASCII)
_NAMES_GPU = re.compile(r"\s*(?:([0-9]+)|GPU-|MIG-)", re.IGNORECASE | re.ASCII)
"""How CUDA_VISIBLE_DEVICES begins if its first entry names a GPU; CUDA ignores the list from an invalid entry on."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: the cause, the line of the log that shows it ('' without one), and the fix.

    ``fix`` is a sentence, ``command`` the same as one line to run; '' if no command of this environment can do it.
    """

    code: Code
    cause: str
    confidence: Confidence
    fix: str
    quote: str = ""
    command: str = ""


class DiagnoseDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Result of ``envbuilder diagnose``.

    ``computes``: a GPU computed a convolution. ``works`` are sentences. ``faults``: the first is what does not work;
    each further one is what would be missing after the fixes before it. ``startup`` are the phases of a start, ``slow``
    what makes one slow; both are empty without ``--startup``.
    """

    schema: str = "envbuilder/diagnose/v1"
    computes: bool
    works: tuple[str, ...]
    faults: tuple[Fault, ...]
    captured: CaptureDocument
    startup: tuple[Phase, ...] = ()
    slow: tuple[Finding, ...] = ()

    @property
    def compatible(self) -> bool | None:
        """True if a GPU computes, False if a cause is known, None without one."""
        return True if self.computes else False if self.faults else None


@dataclass(frozen=True)
class _Here(Case):
    document: CaptureDocument

    @cached_property
    def gpu(self) -> bool:
        return True

    @cached_property
    def shown(self) -> tuple[Finding, ...]:
        """What the capture itself shows, whatever the log says."""
        return tuple(_shown(self))

    @cached_property
    def path(self) -> list[str]:
        return [folder.rstrip("/") for folder in self.document.environment.get(_PATH, "").split(":") if folder]

    @cached_property
    def found(self) -> dict[str, list[str]]:
        """The folders in which the loader of this build finds each library, the first one first."""
        searched = opener_folders(self.release.searches if self.release else ())
        found: dict[str, list[str]] = {}
        for row in self.document.libraries:
            name, _, file = row.partition(" => ")
            soname, folder = name.split(" ")[0], file.rpartition("/")[0]
            if folder in self.path or "(libc6" in name or folder_of(soname) in searched:
                found.setdefault(soname, []).append(folder)
        return found

    @cached_property
    def lost(self) -> list[str]:
        """The libraries that no searched folder has; conda's builds search their own."""
        of_others = self.document.platform != "linux" or self.document.install == "conda"
        if self.release is None or of_others or self.document.distribution == "tensorflow-cpu":
            return []
        return [name for name in self.release.libraries if name not in self.found]


def diagnose_captured(
    text: str, document: CaptureDocument, catalog: Catalog, *, python: str = "", image: str | None = None
) -> DiagnoseDocument:
    """Name the faults of a captured environment (``text`` is its JSON), with commands for its Python or its image.

    Each fix is assumed to be made, and the rest of the capture is asked again.
    """
    reported, messages = read(text), find("\n".join(document.log))
    complaint: Complaint = "breaks" if "GPU" in document.devices else "invisible" if document.imports else "import"
    faults: list[Fault] = []
    fixed: set[Code] = set()
    while not document.computes:
        left = tuple(row for row in messages if row.known.code not in fixed)
        here = _Here(msgspec.structs.replace(reported, complaints=(complaint,)), left, catalog, document).settled()
        found = _first(here, fixed)
        if found is not None:
            fixed |= {found.code, *cause_of(found.code).hides}
            fault = _fault(found, here)
            again = any(fault.command and fault.command in row.command for row in faults)
            if fault.confidence != "unsure" and not again:
                faults.append(fault)
            if cause_of(found.code).area == "libraries":  # the command brings the versions of the build
                packages = {name: text for name, text in reported.packages.items() if not name.startswith("nvidia-")}
                reported = msgspec.structs.replace(reported, cuda=None, cudnn=None, packages=packages)
        elif complaint == "import" and faults:
            complaint = "invisible"  # the import works after these fixes
        else:
            break
    placed = (msgspec.structs.replace(row, command=_in_place(row, document, python, image)) for row in faults)
    return DiagnoseDocument(
        computes=document.computes, works=tuple(_works(document)), faults=tuple(placed), captured=document
    )


def _first(here: _Here, fixed: set[Code]) -> Finding | None:
    shown = [row for row in here.shown if here.reported.complaints[0] in cause_of(row.code).explains]
    known = {code for row in shown for code in (row.code, *cause_of(row.code).hides)}
    rows = (*shown, *(row for row in predict(here) if row.code not in known))
    proved = frozenset(row.code for row in shown)
    return next((row for row in by_cause(rows, proved) if is_cause(row) and row.code not in fixed), None)


def _fault(found: Finding, here: _Here) -> Fault:
    diagnosis = diagnose(here, (found,))
    command = _command(found, here, diagnosis)
    if any(row.code is found.code for row in here.shown):
        return Fault(code=found.code, cause=found.message, confidence="certain", fix=found.fix, command=command)
    fields = {name: getattr(diagnosis, name) for name in ("cause", "confidence", "quote")}
    return Fault(code=found.code, fix=found.fix, command=command, **fields)


def _shown(here: _Here) -> Iterator[Finding]:
    document, hidden = here.document, here.document.environment.get("CUDA_VISIBLE_DEVICES", "0")
    running, tag = here.reported.python, re.match(r"cp(3)([0-9]{1,2})-", document.wheel_tag or "")
    if document.tensorflow is None:
        yield finding(Code.PACKAGE_CONFLICT, "no_tensorflow", python=document.python)
    elif tag is not None and running is not None and ".".join(tag.groups()) != versions.minor(running):
        named = {"tag": ".".join(tag.groups()), "wheel": document.wheel_tag, "python": running}
        yield finding(Code.PYTHON_UNSUPPORTED, "installed_tag", **named)
    if document.avx is False and not document.imports:
        yield finding(Code.CPU_FEATURE_MISSING, "no_avx_here", name=f"TensorFlow {document.tensorflow}")
    if document.driver_result == _STUB:
        stub = next((row.partition(" => ")[2] for row in document.libraries if row.startswith("libcuda.so")), "")
        yield finding(Code.STUB_LIBCUDA, "loaded", file=stub or "libcuda.so.1")
    elif (first := _NAMES_GPU.match(hidden)) is None or 0 < len(document.gpus) <= int(first[1] or 0):
        yield finding(Code.GPU_NOT_VISIBLE, "hidden_by_variable", value=hidden)
    elif document.driver is None and document.driver_result is None and not document.gpus:
        yield finding(Code.GPU_NOT_VISIBLE, "no_driver_here")
    if document.imports or document.tensorflow is not None:
        yield from _libraries(here)


def _libraries(here: _Here) -> Iterator[Finding]:
    rows = [MessageMatch(signature="library_not_loaded", line=0, text="", values={"library": n}) for n in here.lost]
    missing = missing_libraries(rows, here) if rows else None
    if missing is not None:
        yield msgspec.structs.replace(missing, message=missing.message.replace(" (line 0)", ""))
    for name in here.release.libraries if here.release is not None else ():
        folders = here.found.get(name, [])
        if len(folders) > 1 and folders[0] in here.path and folders[0] not in folders[1:]:
            yield finding(Code.LIBRARY_PATH, "hides_wheel", file=f"{folders[0]}/{name}", other=folders[1], path=_PATH)
            return


def _emptied(here: _Here) -> list[str]:
    """List the installed wheels whose libraries are gone: an installer takes them for complete."""
    folders = dict.fromkeys(folder_of(name).replace("_", "-") for name in here.lost)
    named = re.compile(r"nvidia-[a-z0-9-]+", re.ASCII)
    packages = here.document.packages.items()
    held = ((name, text) for name, text in packages if named.fullmatch(name) and is_version(text))
    return sorted(f"{name}=={version}" for name, version in held if re.sub(r"^nvidia-|-cu[0-9]+$", "", name) in folders)


def _command(found: Finding, here: _Here, diagnosis: ReportDiagnosis) -> str:
    document, release = here.document, here.release
    match found.code:
        case Code.STUB_LIBCUDA | Code.LIBRARY_PATH if found.requires == "another path":
            return _without(found.found, document)
        case Code.GPU_NOT_VISIBLE if found.subject == "CUDA_VISIBLE_DEVICES":
            return "unset CUDA_VISIBLE_DEVICES"
        case Code.PACKAGE_CONFLICT if document.tensorflow is None:
            newest = choose_here(here)
            return " && ".join(install_commands(here, newest)) if newest is not None else ""
        case Code.NOT_A_GPU_BUILD if document.install == "pip":
            held = [name for name in DISTRIBUTIONS if name in document.packages]
            extra = "[and-cuda]" if release is not None and release.and_cuda else ""
            wanted = f"{release.package}{extra}=={release.version}" if release else f"tensorflow{extra}"
            return f"pip uninstall -y {' '.join(held)} && pip install '{wanted}'"
    emptied = _emptied(here) if found.code is Code.MISSING_LIBRARY else []
    again = f"pip install --force-reinstall --no-deps {shlex.join(emptied)} && " if emptied else ""
    for text in re.findall(r"`([^`]+)`", found.fix):
        if text.startswith(("pip ", "conda ", "sudo ", "uv ")):
            return f"{again}{text}"
        if REQUIREMENT.match(text):
            return f"conda install -c conda-forge '{text}'" if document.install == "conda" else f"pip install '{text}'"
    closest = closest_environment(here, diagnosis)
    return " && ".join(closest[0].commands) if closest is not None and not closest[0].needs_driver else ""


def _without(file: str, document: CaptureDocument) -> str:
    folder = file.rpartition("/")[0]
    rest = [one for one in document.environment.get(_PATH, "").split(":") if one and one.rstrip("/") != folder]
    value = ":".join(rest)
    if not _PLAIN_PATH.fullmatch(value):
        return ""
    return f"export {_PATH}={value}" if value else f"unset {_PATH}"


def _in_place(fault: Fault, document: CaptureDocument, python: str, image: str | None) -> str:
    command = fault.command
    if image is not None:
        run = f"docker run --rm -it --gpus all {image}"
        verb, _, rest = command.partition(" ")
        if verb in {"pip", "sudo"}:
            lines = (f"FROM {image}", f"RUN {command.removeprefix('sudo ')}")
            return f"printf '%s\\n' {shlex.join(lines)} | docker build -t diagnosed -"
        place = {"unset": f"{run} env -u {rest} python", "export": f"{run} env {rest} python"}
        return place.get(verb, f"{run} nvidia-smi" if fault.code is Code.GPU_NOT_VISIBLE else command)
    if not python or not command.startswith("pip "):
        return command
    where = shlex.quote(python)
    command = command.replace("python -c", f"{where} -c")
    if "pip" in document.packages:
        return re.sub(r"\bpip (install|uninstall)", lambda found: f"{where} -m pip {found[1]}", command)
    plain = command.replace("uninstall -y", "uninstall")
    return re.sub(r"\bpip (install|uninstall)", lambda found: f"uv pip {found[1]} --python {where}", plain)


def _works(document: CaptureDocument) -> Iterator[str]:
    yield f"Python {document.python} on {document.os or document.platform}"
    if document.imports:
        built = ", ".join(f"{name} {value}" for name, value in document.built.items())
        yield f"TensorFlow {document.tensorflow} imports" + (f" (built with {built})" if built else "")
    if document.driver is not None:
        served = f", serves CUDA {document.driver_cuda}" if document.driver_cuda else ""
        yield f"driver {document.driver}{served}; GPUs: {', '.join(document.gpus) or 'none'}"
    if document.driver_result == 0:
        yield "libcuda.so.1 starts"
    if "GPU" in document.devices:
        yield f"TensorFlow lists {document.devices.count('GPU')} GPU(s)"
    if document.computes:
        yield "a GPU computes"


def as_text(document: DiagnoseDocument) -> str:
    phases = [(row.phase, _seconds(row.cold_s), _seconds(row.warm_s)) for row in document.startup]
    return rendered("reproduce/diagnosis", document=document, phases=phases)


def _seconds(samples: tuple[float, ...]) -> str:
    return f"{median(samples):.2f}" if samples else "-"
