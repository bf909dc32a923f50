"""Rules about the driver and the GPUs: what the driver can run, and which code the CUDA libraries have for each GPU."""

from __future__ import annotations

from collections.abc import Iterator

from envbuilder import versions
from envbuilder.catalog.gpu_code import runs_cubin
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit, DriverBranch
from envbuilder.compat import host_driver, phrases
from envbuilder.compat.candidate import Candidate, Device
from envbuilder.compat.cuda_libraries import on_gpu
from envbuilder.compat.rule import Rule
from envbuilder.finding import Code, Finding


def forward_compatible(candidate: Candidate) -> bool:
    """Tell whether CUDA's forward-compatibility package can lift this driver on these GPUs.

    It talks to Linux' kernel module, which neither Windows nor WSL 2 has.
    """
    devices = candidate.devices
    if candidate.compat is False or candidate.windows or not devices or not forward_branch(candidate):
        return False
    return all(device.row is not None and device.row.data_center for device in devices)


def forward_branch(candidate: Candidate) -> bool:
    """Tell whether the toolkit's forward-compatibility package names this driver's branch."""
    toolkit, branch = candidate.toolkit, candidate.branch
    return toolkit is not None and branch is not None and branch.branch in toolkit.forward_compat


def driver_runs_cuda(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """DRIVER_TOO_OLD, DRIVER_FORWARD_COMPAT, DRIVER_MINOR_COMPAT: what this driver makes of this toolkit."""
    toolkit, driver = candidate.toolkit, candidate.driver
    if not on_gpu(candidate) or toolkit is None or driver is None:
        return
    subject, cuda = f"driver {driver}", f"CUDA {toolkit.version}"
    minimum, own = host_driver.minimum(candidate, toolkit, catalog), host_driver.own(candidate, toolkit, catalog)
    if host_driver.reaches_minimum(candidate, toolkit):
        if toolkit.driver is None or versions.at_least(driver, toolkit.driver):
            return
        yield phrases.info(
            Code.DRIVER_MINOR_COMPAT,
            subject,
            f"Driver {driver} runs {cuda} through minor-version compatibility: it is older than the toolkit's own "
            f"driver {own}, so it cannot compile that toolkit's PTX.",
            requires=f"driver {minimum}",
            found=subject,
            fix=f"Nothing to do where machine code exists for the GPU; driver {own} lifts the limit.",
            rows=(toolkit,),
        )
    elif forward_compatible(candidate):
        package = f"cuda-compat-{toolkit.version.replace('.', '-')}"
        here = "the image holds it" if candidate.compat else "it has to be installed in the image"
        yield phrases.warning(
            Code.DRIVER_FORWARD_COMPAT,
            subject,
            f"Driver {driver} is below {minimum}, the minimum of {cuda}; it works only with the "
            f"forward-compatibility package {package} ({here}), which data-centre GPUs may use.",
            requires=f"driver {minimum} or {package}",
            found=subject,
            fix=f"Update the driver to {minimum} or newer; until then, keep {package} in the image.",
            rows=(toolkit, candidate.branch),
        )
    else:
        yield _too_old(candidate, toolkit, minimum)


def _too_old(candidate: Candidate, toolkit: CudaToolkit, minimum: str) -> Finding:
    subject, cuda = f"driver {candidate.driver}", f"CUDA {toolkit.version}"
    lifted = forward_branch(candidate)
    barred = [device.name for device in candidate.devices if device.row is None or not device.row.data_center]
    note = ""
    if lifted and candidate.windows:
        note = " Its forward-compatibility package works on Linux alone: not on Windows, nor on WSL 2."
    elif lifted and barred and candidate.compat is not False:
        note = (
            f" Its forward-compatibility package does not work on {phrases.words(barred)}, which is no data-centre GPU."
        )
    elif lifted and not candidate.devices:
        note = " On a data-centre GPU the forward-compatibility package could lift it."
    return phrases.error(
        Code.DRIVER_TOO_OLD,
        subject,
        f"{cuda} needs driver {minimum} or newer, and this one is {candidate.driver}.{note}",
        requires=f"driver {minimum}",
        found=subject,
        fix=f"Update the driver to {minimum} or newer, or take a TensorFlow of an older CUDA.",
        rows=(toolkit,),
    )


def driver_knows_gpu(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """GPU_UNSUPPORTED_BY_DRIVER: the branch is older than the GPU, or has dropped it."""
    branch, driver = candidate.branch, candidate.driver
    if not candidate.gpu or driver is None:
        return
    for device in candidate.devices:
        floor = (
            device.row.minimum_driver if device.row is not None else catalog.first_drivers.get(device.capability, "")
        )
        named, wanted = label(device), host_driver.same(candidate, floor, catalog) if floor else ""
        if branch is not None and _for_another(branch, device):
            yield phrases.error(
                Code.GPU_UNSUPPORTED_BY_DRIVER,
                device.name,
                f"Driver branch {branch.branch} is {branch.kind}'s, for compute capability {branch.first_capability} "
                f"alone; {named} is none of its GPUs.",
                requires="a branch for this GPU",
                found=f"driver {driver}",
                fix="Give the driver that nvidia-smi prints on the host with this GPU.",
                rows=(branch, device.row),
            )
        elif branch is not None and versions.key(device.capability) < versions.key(branch.first_capability):
            last = _last_branch(device, catalog)
            yield phrases.error(
                Code.GPU_UNSUPPORTED_BY_DRIVER,
                device.name,
                f"Driver branch {branch.branch} has dropped {named}"
                f"{f'; {last} is the last branch that runs it' if last else ''}.",
                requires=f"a branch up to {last}" if last else "an older branch",
                found=f"driver {driver}",
                fix=f"Install a driver of branch {last}." if last else "Install an older branch.",
                rows=(branch, device.row),
            )
        elif branch is not None and versions.key(device.capability) > versions.key(branch.last_capability):
            yield phrases.error(
                Code.GPU_UNSUPPORTED_BY_DRIVER,
                device.name,
                f"Driver {driver} is older than {named}: its branch ends with compute capability "
                f"{branch.last_capability}{f', and the first driver is about {wanted}' if floor else ''}.",
                requires=f"driver {wanted}" if floor else "a newer branch",
                found=f"driver {driver}",
                fix=f"Update the driver to {wanted} or newer." if floor else "Update the driver.",
                rows=(branch, device.row),
            )
        elif floor and not versions.at_least(driver, floor):
            yield phrases.warning(
                Code.GPU_UNSUPPORTED_BY_DRIVER,
                device.name,
                f"Driver {driver} may be older than {named}: that {wanted} is the first with it is inferred from the "
                "first toolkit that knows its compute capability; no table of the vendor's states a driver.",
                requires=f"driver {wanted}, as inferred",
                found=f"driver {driver}",
                fix=f"Look whether nvidia-smi lists the GPU; if not, update the driver to {wanted} or newer.",
                rows=(branch, device.row),
            )


def _for_another(branch: DriverBranch, device: Device) -> bool:
    """Tell whether a branch is for one GPU, built into its board, and this is not that one."""
    alone = versions.same(branch.first_capability, branch.last_capability)
    return alone and not versions.same(device.capability, branch.first_capability)


def _last_branch(device: Device, catalog: Catalog) -> str:
    rows = [
        row
        for row in catalog.drivers
        if versions.key(row.first_capability) <= versions.key(device.capability) <= versions.key(row.last_capability)
    ]
    return max(rows, key=lambda row: versions.key(row.branch)).branch if rows else ""


def label(device: Device) -> str:
    """Name a GPU with its compute capability."""
    if device.row is None:
        return f"compute capability {device.capability}"
    return f"{device.name} (compute capability {device.capability})"


def code_runs(built_for: tuple[str, ...], device: Device) -> bool:
    """Tell whether machine code for some of these capabilities runs on a GPU."""
    return any(runs_cubin(built, device.capability) for built in built_for)


def cuda_knows_gpu(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """GPU_UNSUPPORTED_BY_CUDA: the toolkit's libraries have no machine code for the GPU."""
    toolkit = candidate.toolkit
    if not on_gpu(candidate) or toolkit is None:
        return
    for device in candidate.devices:
        dropped = versions.key(device.capability) < versions.key(toolkit.first_capability)
        if not dropped and code_runs(toolkit.capabilities, device):
            continue
        text = (
            f"CUDA {toolkit.version} has dropped {label(device)}: its libraries start at {toolkit.first_capability}."
            if dropped
            else f"CUDA {toolkit.version} is older than {label(device)}: its libraries end at "
            f"{toolkit.last_capability} and have to be compiled from PTX, where they hold any."
        )
        say_it = phrases.error if dropped else phrases.warning
        yield say_it(
            Code.GPU_UNSUPPORTED_BY_CUDA,
            device.name,
            text,
            requires=f"CUDA libraries with code for {device.capability}",
            found=f"{toolkit.first_capability} to {toolkit.last_capability}",
            fix=_cuda_fix(candidate, device, catalog, dropped=dropped),
            rows=(toolkit,),
        )


def _cuda_fix(candidate: Candidate, device: Device, catalog: Catalog, *, dropped: bool) -> str:
    if dropped:
        return "Take a TensorFlow of an older CUDA."
    rows = [
        row
        for row in catalog.cuda
        if versions.same_major(row.version, candidate.cuda) and code_runs(row.capabilities, device)
    ]
    if not rows:
        return "Take a TensorFlow of a newer CUDA."
    first = min(rows, key=lambda row: versions.key(row.version)).version
    line = f"{versions.major(first)}.x"
    return f"Use the libraries of CUDA {first} or a newer {line}, which this build can load too."


def cudnn_knows_gpu(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """GPU_UNSUPPORTED_BY_CUDNN: this cuDNN has no kernels for the GPU."""
    row = candidate.cudnn_row
    if not on_gpu(candidate) or row is None:
        return
    for device in candidate.devices:
        capability = versions.key(device.capability)
        dropped = row.first_capability is not None and capability < versions.key(row.first_capability)
        newer = (
            row.last_capability is not None
            and capability > versions.key(row.last_capability)
            and versions.major(device.capability) != versions.major(row.last_capability)
        )
        if not dropped and not newer:
            continue
        text = (
            f"cuDNN {candidate.cudnn} has no kernels for {label(device)}: they start at {row.first_capability}."
            if dropped
            else f"cuDNN {candidate.cudnn} is older than {label(device)}: its kernels end at {row.last_capability}."
        )
        say_it = phrases.error if dropped else phrases.warning
        yield say_it(
            Code.GPU_UNSUPPORTED_BY_CUDNN,
            device.name,
            text,
            requires=f"a cuDNN with kernels for {device.capability}",
            found=f"cuDNN {candidate.cudnn}",
            fix=_cudnn_fix(candidate, device, catalog, dropped=dropped),
            rows=(row,),
        )


def _cudnn_fix(candidate: Candidate, device: Device, catalog: Catalog, *, dropped: bool) -> str:
    if not dropped:
        return "Use a newer cuDNN of the same major."
    rows = [
        row
        for row in catalog.cudnn
        if versions.same_major(row.version, candidate.cudnn)
        and row.first_capability is not None
        and versions.key(row.first_capability) <= versions.key(device.capability)
    ]
    last = max(rows, key=lambda row: versions.key(row.version)).version if rows else ""
    return f"Pin cuDNN to {last} or older." if last else "Use an older cuDNN."


RULES: tuple[Rule, ...] = (
    Rule("gpu", (Code.DRIVER_TOO_OLD, Code.DRIVER_FORWARD_COMPAT, Code.DRIVER_MINOR_COMPAT), driver_runs_cuda),
    Rule("gpu", (Code.GPU_UNSUPPORTED_BY_DRIVER,), driver_knows_gpu),
    Rule("gpu", (Code.GPU_UNSUPPORTED_BY_CUDA,), cuda_knows_gpu),
    Rule("gpu", (Code.GPU_UNSUPPORTED_BY_CUDNN,), cudnn_knows_gpu),
)
