"""Rules about TensorFlow's own kernels: which code there is for each GPU, and whether the driver compiles the rest."""

from __future__ import annotations

from collections.abc import Iterator

from envbuilder import versions
from envbuilder.catalog import gpu_code
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit, Kernels, Ptx
from envbuilder.compat import host_driver, phrases
from envbuilder.compat.candidate import Candidate, Device
from envbuilder.compat.cuda_libraries import on_gpu
from envbuilder.compat.hardware import code_runs, forward_compatible, label
from envbuilder.compat.rule import Rule
from envbuilder.finding import Code, Finding


def own_kernels(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """NO_KERNEL_IMAGE, PTX_TOO_NEW, PTX_JIT, PTX_JIT_GENERATED: what TensorFlow's own kernels are on each GPU.

    A program needs the hand-written and the generated ones, so what one kind cannot do, the release cannot.
    """
    if not on_gpu(candidate):
        return
    kinds = _kinds(candidate)
    for device in candidate.devices:
        lacking = [kind for kind in kinds if not code_runs(kind.cubins, device)]
        failure = next((found for kind in lacking if (found := _failure(candidate, device, kind, catalog))), None)
        if failure is not None:
            yield failure
        elif lacking:
            yield from _compiled(candidate, device, lacking[0], catalog)


def _kinds(candidate: Candidate) -> tuple[Kernels, ...]:
    """Return the release's kernels; where nobody read them, its sums, of which the origin and the ISA are not known."""
    release = candidate.release
    if release.kernels or not (release.cubins or release.ptx):
        return release.kernels
    ptx = tuple(Ptx(_sm(text), "") for text in release.ptx)
    return (Kernels(origin="hand-written", fat_binaries=0, cubins=release.cubins, ptx=ptx),)


def _failure(candidate: Candidate, device: Device, kind: Kernels, catalog: Catalog) -> Finding | None:
    """Say why kernels without machine code for a GPU cannot be compiled for it either; None where they can."""
    usable = [one for one in kind.ptx if gpu_code.compiles_for(one, device.capability)]
    if not usable:
        return _no_target(candidate, device, kind, catalog)
    if any(_compiles(candidate, one, catalog) for one in usable):
        return None
    oldest = min(usable, key=lambda one: versions.order(one.isa))
    return _isa_too_new(candidate, device, kind, oldest, catalog)


def _compiler(candidate: Candidate, ptx: Ptx, catalog: Catalog) -> CudaToolkit | None:
    """Return the oldest toolkit that takes a PTX text; the one that the release was built with where none is stated."""
    return catalog.compiler(ptx.isa) if ptx.isa else candidate.built


def _compiles(candidate: Candidate, ptx: Ptx, catalog: Catalog) -> bool:
    """Tell whether the driver compiles a PTX text: its own CUDA must know the ISA.

    Minor-version compatibility does not help with PTX. Unknown counts as yes: the finding that follows is then one
    about time, not a claim of failure.
    """
    driver, branch, needed = candidate.driver, candidate.branch, _compiler(candidate, ptx, catalog)
    if driver is None or needed is None:
        return True
    if branch is None if needed.driver is None else versions.at_least(driver, needed.driver):
        return True
    if branch is not None and versions.at_least(branch.cuda, needed.version):
        return True
    brought = candidate.toolkit
    if brought is None or not forward_compatible(candidate) or not versions.at_least(brought.version, needed.version):
        return False
    return candidate.compat is True or not versions.at_least(driver, brought.minimum_driver)


def _no_target(candidate: Candidate, device: Device, kind: Kernels, catalog: Catalog) -> Finding:
    release = candidate.release
    if kind.origin == "generated":
        message = (
            f"The generated kernels of {phrases.name(release)}, of which most element-wise operations are made, hold "
            f"neither machine code nor PTX that can be compiled for {label(device)}: they hold {_held(kind)}"
            f"{_alone(kind)}. The GPU is listed, and the first such operation fails."
        )
    else:
        message = (
            f"{phrases.name(release)} holds neither machine code nor PTX for {label(device)}: it was built for "
            f"{phrases.words(kind.cubins)}."
        )
    report = catalog.report(release, device.capability)
    return phrases.error(
        Code.NO_KERNEL_IMAGE,
        device.name,
        message,
        requires=_sm(device.capability),
        found=_held(kind),
        fix="Take a TensorFlow that was built for this GPU.",
        rows=(release, report if report is not None and report.works is False else None),
    )


def _alone(kind: Kernels) -> str:
    bound = [one for one in kind.ptx if gpu_code.is_alone(one)]
    return f", and PTX for {bound[0].target} is compiled for {gpu_code.capability(bound[0])} alone" if bound else ""


def _isa_too_new(candidate: Candidate, device: Device, kind: Kernels, ptx: Ptx, catalog: Catalog) -> Finding:
    release, needed = candidate.release, _compiler(candidate, ptx, catalog)
    wanted = host_driver.own(candidate, needed, catalog) if needed is not None else "a newer one"
    if kind.origin == "hand-written":
        return phrases.error(
            Code.NO_KERNEL_IMAGE,
            device.name,
            f"{phrases.name(release)} holds only PTX for {label(device)}, and driver {candidate.driver} cannot "
            f"compile PTX made by CUDA {needed.version if needed else release.cuda}.",
            requires=_sm(device.capability),
            found=_held(kind),
            fix=f"Update the driver to {wanted} or newer.",
            rows=(release, needed),
        )
    own = catalog.toolkit(candidate.branch.cuda) if candidate.branch is not None else None
    takes = f" (its own takes ISA up to {own.ptx_isa})" if own is not None and own.ptx_isa else ""
    return phrases.error(
        Code.PTX_TOO_NEW,
        device.name,
        f"The generated kernels of {phrases.name(release)}, of which most element-wise operations are made, hold only "
        f"PTX for {label(device)}, of ISA {ptx.isa}, which the compiler of driver {candidate.driver} refuses{takes}. "
        "The GPU is listed, and the first such operation fails (CUDA error 222).",
        requires=f"driver {wanted}",
        found=f"driver {candidate.driver}; {_held(kind)}",
        fix=f"Update the driver to {wanted} or newer, or take a TensorFlow of an older CUDA.",
        rows=(release, needed, candidate.branch),
    )


def _compiled(candidate: Candidate, device: Device, kind: Kernels, catalog: Catalog) -> Iterator[Finding]:
    """Say what it costs, or is reported to lead to, that the driver compiles kernels for this GPU."""
    release = candidate.release
    usable = [one for one in kind.ptx if gpu_code.compiles_for(one, device.capability)]
    ptx = max(usable, key=lambda one: versions.numbers(gpu_code.capability(one)))
    if kind.origin == "generated":
        yield phrases.info(
            Code.PTX_JIT_GENERATED,
            device.name,
            f"The generated kernels of {phrases.name(release)}, of which most element-wise operations are made, hold "
            f"no machine code for {label(device)}: the driver compiles each from {ptx.target} PTX when it is first "
            "used, which is short.",
            requires=_sm(device.capability),
            found=_held(kind),
            fix="Nothing to do; with CUDA_CACHE_PATH on a volume it happens once.",
            rows=(release,),
        )
        return
    report = catalog.report(release, device.capability)
    if report is not None and report.works is False:
        yield phrases.error(
            Code.NO_KERNEL_IMAGE,
            device.name,
            f"{phrases.name(release)} holds no machine code for {label(device)}, and compiling its PTX is reported "
            f"to fail: {report.symptom}.",
            requires=_sm(device.capability),
            found=_held(kind),
            fix="Use a TensorFlow built for this GPU (from source or the vendor's container); no official wheel is "
            "yet.",
            rows=(release, report),
        )
        return
    built = gpu_code.capability(ptx).replace(".", "")
    yield phrases.warning(
        Code.PTX_JIT,
        device.name,
        f"{phrases.name(release)} holds no machine code for {label(device)}: its kernels are compiled from "
        f"compute_{built} PTX at first use, which takes minutes.",
        requires=_sm(device.capability),
        found=f"compute_{built} PTX",
        fix="Keep CUDA_CACHE_PATH on a volume with CUDA_CACHE_MAXSIZE=4294967296, or take a TensorFlow that was built "
        "for this GPU.",
        rows=(release,),
    )
    if report is not None and report.works is None:
        yield phrases.unknown(device.name, f"Whether that succeeds on {label(device)} is not known: {report.symptom}.")


def _held(kind: Kernels) -> str:
    if kind.origin == "hand-written":
        ptx = [f"compute_{gpu_code.capability(one).replace('.', '')} PTX" for one in kind.ptx]
    else:
        ptx = [f"{one.target} PTX of ISA {one.isa}" for one in kind.ptx]
    return ", ".join([*map(_sm, kind.cubins), *ptx])


def _sm(capability: str) -> str:
    return f"sm_{capability.replace('.', '')}"


RULES: tuple[Rule, ...] = (
    Rule(
        "gpu", (Code.NO_KERNEL_IMAGE, Code.PTX_TOO_NEW, Code.PTX_JIT, Code.PTX_JIT_GENERATED, Code.UNKNOWN), own_kernels
    ),
)
