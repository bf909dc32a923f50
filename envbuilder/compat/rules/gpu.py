"""Rules about GPU code: which code CUDA, cuDNN and TensorFlow's kernels have for each GPU."""

from collections.abc import Iterator

from envbuilder import versions
from envbuilder.catalog import gpu_code
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import Kernels, Ptx
from envbuilder.compat.candidate import Candidate, Device, Rule
from envbuilder.compat.findings import about, finding, listed, span
from envbuilder.compat.rules.driver import compiler, kinds, own_driver, ptx_to_compile, update_for, usable
from envbuilder.finding import Code, Finding


def gpu_is_in_machine(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    for device in candidate.devices if candidate.gpu else ():
        row = device.row
        if row is not None and row.arch not in {"", candidate.arch}:
            yield about(candidate, Code.ARCH_MISMATCH, "gpu", (row,), **device.facts, required=row.arch)


def cuda_supports_gpu(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    toolkit = candidate.toolkit
    if not candidate.uses_gpu or toolkit is None:
        return
    for device in candidate.devices:
        dropped = versions.key(device.capability) < versions.key(toolkit.first_capability)
        if not dropped and gpu_code.has_machine_code(toolkit.capabilities, device.capability):
            continue
        newer = _toolkits_for(device, candidate.cuda, catalog)
        variant = "dropped" if dropped else "newer" if newer else "newer_than_major"
        fields = {**device.facts, "cuda": toolkit.version, "toolkit": min(newer, key=versions.key, default="")}
        ends = {"first": toolkit.first_capability, "last": toolkit.last_capability}
        major = versions.major(toolkit.version)
        yield about(candidate, Code.GPU_UNSUPPORTED_BY_CUDA, variant, (toolkit,), major=major, **ends, **fields)


def _toolkits_for(device: Device, cuda: str | None, catalog: Catalog) -> list[str]:
    """List the toolkits of a CUDA's major whose libraries have machine code for a GPU."""
    alike = (row for row in catalog.cuda if versions.same_major(row.version, cuda))
    return [row.version for row in alike if gpu_code.has_machine_code(row.capabilities, device.capability)]


def cudnn_supports_gpu(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    row = candidate.cudnn_row
    if not candidate.uses_gpu or row is None:
        return
    for device in candidate.devices:
        own, first, last = versions.key(device.capability), row.first_capability, row.last_capability
        dropped = first is not None and own < versions.key(first)
        newer = last is not None and own > versions.key(last) and not versions.same_major(device.capability, last)
        if not dropped and not newer:
            continue
        alike = [other for other in catalog.cudnn if versions.same_major(other.version, candidate.cudnn)]
        usable = [one.version for one in alike if one.first_capability and versions.key(one.first_capability) <= own]
        ends = any(one.last_capability and versions.key(one.last_capability) >= own for one in alike)
        variant = ("dropped" if usable else "dropped_by_all") if dropped else "newer" if ends else "newer_than_major"
        last = max(usable, key=versions.key, default="") if dropped else last
        yield about(candidate, Code.GPU_UNSUPPORTED_BY_CUDNN, variant, (row,), **device.facts, first=first, last=last)


def kernels_run(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """NO_KERNEL_IMAGE, PTX_TOO_NEW, PTX_JIT, PTX_JIT_GENERATED: the code of TensorFlow's own kernels for each GPU.

    A program needs the hand-written and the generated kernels: the release fails if one kind does.
    """
    if not candidate.uses_gpu:
        return
    for device in candidate.devices:
        lacking = [kind for kind in kinds(candidate) if not gpu_code.has_machine_code(kind.cubins, device.capability)]
        lacking.sort(key=lambda kind: bool(usable(kind, device)))  # first the kernels that no driver compiles
        failure = next((found for kind in lacking if (found := _failure(candidate, device, kind, catalog))), None)
        if failure is not None:
            yield failure
        elif lacking:
            yield from _compiled(candidate, device, lacking[0], catalog)


def _failure(candidate: Candidate, device: Device, kind: Kernels, catalog: Catalog) -> Finding | None:
    """Return why kernels without machine code for a GPU cannot be compiled for it either; None if they can."""
    if not usable(kind, device):
        return _no_target(candidate, device, kind, catalog)
    oldest = ptx_to_compile(candidate, device, kind, catalog)
    return _isa_too_new(candidate, device, kind, oldest, catalog) if oldest is not None else None


def _fields(device: Device, kind: Kernels, catalog: Catalog) -> dict[str, str]:
    releases = catalog.with_code_for(device.capability)
    own = device.capability
    fit = (row.version for row in catalog.cuda if gpu_code.has_machine_code(row.capabilities, own))
    none = f"No release on the index has machine code for it: build one for {own} with CUDA {next(fit, 'a newer one')}"
    take = f"Take TensorFlow {span(releases)}, with machine code for it" if releases else none
    return {**device.facts, "take": take, "sm": _sm(device.capability), "held": _held(kind)}


def _no_target(candidate: Candidate, device: Device, kind: Kernels, catalog: Catalog) -> Finding:
    release, report = candidate.release, catalog.report(candidate.release, device.capability)
    rows = (release, report if report is not None and report.works is False else None)
    one = next((one for one in kind.ptx if gpu_code.is_alone(one)), None)
    variant = "hand_written" if kind.origin == "hand-written" else "generated_for_one" if one else "generated"
    fields = {"target": one.target, "only": gpu_code.capability(one)} if one else {}
    fields |= _fields(device, kind, catalog)
    return about(candidate, Code.NO_KERNEL_IMAGE, variant, rows, cubins=listed(kind.cubins), **fields)


def _isa_too_new(candidate: Candidate, device: Device, kind: Kernels, ptx: Ptx, catalog: Catalog) -> Finding:
    release, needed, branch = candidate.release, compiler(candidate, ptx, catalog), candidate.branch
    wanted = own_driver(candidate, needed, catalog) if needed is not None else "a newer one"
    fields = {**_fields(device, kind, catalog), "wanted": wanted, "update": update_for(candidate, catalog)}
    if kind.origin == "hand-written":
        cuda = needed.version if needed else release.cuda
        return about(candidate, Code.NO_KERNEL_IMAGE, "driver_cannot_compile", (release, needed), cuda=cuda, **fields)
    own = catalog.toolkit(branch.cuda) if branch is not None else None
    newest_isa = own.ptx_isa if own is not None else ""
    variant, rows = "generated_with_limit" if newest_isa else "generated", (release, needed, branch)
    return about(candidate, Code.PTX_TOO_NEW, variant, rows, isa=ptx.isa, newest_isa=newest_isa, **fields)


def _compiled(candidate: Candidate, device: Device, kind: Kernels, catalog: Catalog) -> Iterator[Finding]:
    release, fields = candidate.release, _fields(device, kind, catalog)
    ptx = max(usable(kind, device), key=lambda one: versions.numbers(gpu_code.capability(one)))
    if kind.origin == "generated":
        yield about(candidate, Code.PTX_JIT_GENERATED, "generated", (release,), ptx=ptx.target, **fields)
        return
    report = catalog.report(release, device.capability)
    if report is not None and report.works is False:
        yield about(candidate, Code.NO_KERNEL_IMAGE, "reported", (release, report), symptom=report.symptom, **fields)
        return
    yield about(candidate, Code.PTX_JIT, "hand_written", (release,), ptx=_compute(ptx), **fields)
    if report is not None and report.works is None:
        yield finding(Code.UNKNOWN, "report", **device.facts, symptom=report.symptom)
    elif candidate.toolkit is not None and not _toolkits_for(device, candidate.cuda, catalog):
        major = versions.major(candidate.toolkit.version)
        yield finding(Code.UNKNOWN, "libraries", (candidate.toolkit,), major=major, **fields)


def _held(kind: Kernels) -> str:
    if kind.origin == "hand-written":
        ptx = [f"{_compute(one)} PTX" for one in kind.ptx]
    else:
        ptx = [f"{one.target} PTX of ISA {one.isa}" for one in kind.ptx]
    return ", ".join([*map(_sm, kind.cubins), *ptx])


def _sm(capability: str) -> str:
    return f"sm_{capability.replace('.', '')}"


def _compute(ptx: Ptx) -> str:
    return f"compute_{gpu_code.capability(ptx).replace('.', '')}"


RULES: tuple[Rule, ...] = (
    Rule("cuda", (Code.ARCH_MISMATCH,), gpu_is_in_machine),
    Rule("cuda", (Code.GPU_UNSUPPORTED_BY_CUDA,), cuda_supports_gpu),
    Rule("cuda", (Code.GPU_UNSUPPORTED_BY_CUDNN,), cudnn_supports_gpu),
    Rule(
        "cuda",
        (Code.NO_KERNEL_IMAGE, Code.PTX_TOO_NEW, Code.PTX_JIT, Code.PTX_JIT_GENERATED, Code.UNKNOWN),
        kernels_run,
    ),
)
