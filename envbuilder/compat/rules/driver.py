"""Rules about the driver: does it run this CUDA and support each GPU, and does the image start on it.

Windows, and WSL 2, which shows the driver of Windows, number drivers differently.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator

from envbuilder import versions
from envbuilder.catalog import gpu_code
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit, Kernels, Ptx
from envbuilder.compat.candidate import Candidate, Device, Rule
from envbuilder.compat.findings import about, finding, listed, span
from envbuilder.finding import Code, Finding


def reaches_minimum(candidate: Candidate, toolkit: CudaToolkit) -> bool:
    """Return True if the driver is not below a toolkit's minimum, with minor-version compatibility.

    A branch without a release is evaluated by its newest release for Linux.
    """
    minimum = toolkit.minimum_driver
    if candidate.windows and not candidate.branch_named:
        minimum = toolkit.windows_minimum_driver or minimum
    return candidate.driver is not None and versions.at_least(candidate.driver, minimum)


def minimum_driver(candidate: Candidate, toolkit: CudaToolkit, catalog: Catalog) -> str:
    """Name a toolkit's minimum driver: ``525.60.13``, or ``528.33 (Windows)``."""
    return _on_host(candidate, toolkit.minimum_driver, toolkit.windows_minimum_driver, catalog)


def own_driver(candidate: Candidate, toolkit: CudaToolkit, catalog: Catalog) -> str | None:
    """Name a toolkit's own driver, the oldest that compiles its PTX; None if no source names it."""
    return _on_host(candidate, toolkit.driver, toolkit.windows_driver, catalog) if toolkit.driver else None


def _on_host(candidate: Candidate, linux: str, windows: str | None, catalog: Catalog) -> str:
    """Name a driver in the numbers of the host: ``525.60.13``, or ``528.33 (Windows)``."""
    if not candidate.windows:
        return linux
    if windows is not None:
        return f"{windows} (Windows)"
    branch = catalog.branch(linux)
    if branch is None:
        return f"{linux} (Linux)"
    if not branch.windows:
        return f"branch {branch.branch}"
    return f"{branch.windows[0]} (Windows' first number for branch {branch.branch})"


def forward_compatible(candidate: Candidate) -> bool:
    """Return True if CUDA's forward-compatibility package can help this driver on these GPUs.

    It needs the kernel module of Linux: not Windows, not WSL 2.
    """
    if candidate.compat is False or candidate.windows or not candidate.devices or not _forward_branch(candidate):
        return False
    return all(device.row is not None and device.row.data_center for device in candidate.devices)


def _forward_branch(candidate: Candidate) -> bool:
    toolkit, branch = candidate.toolkit, candidate.branch
    return toolkit is not None and branch is not None and branch.branch in toolkit.forward_compat


def driver_runs_cuda(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    toolkit, driver = candidate.toolkit, candidate.driver
    if not candidate.uses_gpu or toolkit is None or driver is None:
        return
    fields = {"cuda": toolkit.version, "minimum": minimum_driver(candidate, toolkit, catalog)}
    if reaches_minimum(candidate, toolkit):
        if toolkit.driver is not None and not versions.at_least(driver, toolkit.driver):
            own = own_driver(candidate, toolkit, catalog)
            yield about(candidate, Code.DRIVER_MINOR_COMPAT, "older", (toolkit,), own=own, **fields)
        return
    fields |= {"update": update_for(candidate, catalog)}
    if forward_compatible(candidate):
        variant, rows = "in_image" if candidate.compat else "not_in_image", (toolkit, candidate.branch)
        package = f"cuda-compat-{toolkit.version.replace('.', '-')}"
        yield about(candidate, Code.DRIVER_FORWARD_COMPAT, variant, rows, package=package, **fields)
    else:
        others = [device.name for device in candidate.devices if device.row is None or not device.row.data_center]
        variant = "below_minimum"
        if _forward_branch(candidate):
            if candidate.windows:
                variant = "windows"
            elif others and candidate.compat is not False:
                variant = "not_data_center"
            elif not candidate.devices:
                variant = "no_gpu_given"
        yield about(candidate, Code.DRIVER_TOO_OLD, variant, (toolkit,), gpus=listed(others), **fields)


def update_for(candidate: Candidate, catalog: Catalog) -> str:
    """Name the driver of every fix: the newest that the toolkit, a GPU or the code for it needs, which serves all."""
    toolkit, needs = candidate.toolkit, list[tuple[str, str | None]]()
    if candidate.uses_gpu and toolkit is not None and not reaches_minimum(candidate, toolkit):
        needs.append((toolkit.minimum_driver, toolkit.windows_minimum_driver))
    for device in candidate.devices:
        first = _first_driver(device, catalog)
        if _unsupported(candidate, device, catalog)[0] == "older":
            needs.append((first, _windows_driver(candidate, first, catalog)))
        lacking = (kind for kind in kinds(candidate) if not gpu_code.has_machine_code(kind.cubins, device.capability))
        for ptx in (ptx_to_compile(candidate, device, kind, catalog) for kind in lacking if candidate.uses_gpu):
            needed = compiler(candidate, ptx, catalog) if ptx is not None else None
            needs += [(needed.driver, needed.windows_driver)] if needed is not None and needed.driver else []
    linux, windows = max(needs, key=lambda need: versions.order(need[0]), default=("a newer one", "a newer one"))
    return _on_host(candidate, linux, windows, catalog)


def driver_supports_gpu(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    if not candidate.gpu or candidate.driver is None:
        return
    for device in candidate.devices:
        variant, fields = _unsupported(candidate, device, catalog)
        if variant:
            fields |= {"update": update_for(candidate, catalog)} if variant == "older" else {}
            rows = (candidate.branch, device.row)
            yield about(candidate, Code.GPU_UNSUPPORTED_BY_DRIVER, variant, rows, **(device.facts | fields))


def _unsupported(candidate: Candidate, device: Device, catalog: Catalog) -> tuple[str, dict[str, str]]:
    branch, own, first = candidate.branch, versions.key(device.capability), _first_driver(device, catalog)
    named = {"first": _on_host(candidate, first, _windows_driver(candidate, first, catalog), catalog) if first else ""}
    if branch is not None:
        oldest, newest = branch.first_capability, branch.last_capability
        if versions.same(oldest, newest) and not versions.same(device.capability, oldest):  # a board's own branch
            return "other_product", {"branch": branch.branch, "product": branch.kind, "capability": oldest}
        if own < versions.key(oldest):
            last = _last_branch(device, catalog)
            return "dropped" if last else "dropped_by_all", {"branch": branch.branch, "last": last}
        if own > versions.key(newest):
            return "older" if first else "older_than_any", {"capability": newest, **named}
    older = first and candidate.driver is not None and not versions.at_least(candidate.driver, first)
    return ("may_be_older", named) if older else ("", {})


def _first_driver(device: Device, catalog: Catalog) -> str:
    return device.row.minimum_driver if device.row else catalog.first_driver(device.capability)


def _windows_driver(candidate: Candidate, driver: str, catalog: Catalog) -> str | None:
    """Return the number on Windows of a driver for Linux, by its toolkit; None on a host of Linux."""
    rows = (row for row in catalog.cuda if row.driver and versions.same(row.driver, driver))
    return next((row.windows_driver for row in rows), None) if candidate.windows else None


def _last_branch(device: Device, catalog: Catalog) -> str:
    own = versions.key(device.capability)
    rows = (
        row for row in catalog.drivers if versions.key(row.first_capability) <= own <= versions.key(row.last_capability)
    )
    return max((row.branch for row in rows), key=versions.key, default="")


def branch_given(candidate: Candidate, works: Callable[[str], bool], *, newest_works: bool) -> Iterator[Finding]:
    """DRIVER_BRANCH: a branch was given without a release; name the evaluated one, and older ones that do not work.

    A newer release of a branch works if an older one does.
    """
    branch = candidate.branch
    if branch is None or not candidate.uses_gpu:
        return
    known = branch.production
    refused = known[: bisect_left(known, True, key=works)] if newest_works and known and not works(known[0]) else ()
    variant, first = ("older_refused", known[len(refused)]) if refused else ("newest", "")
    given = f"Driver {branch.branch} names a branch"
    if candidate.windows:
        number = f"Driver {candidate.windows} is Windows' number for branch {branch.branch}"
        given = f"{number}, with releases numbered as on Linux"
    fields = {"branch": branch.branch, "given": given, "evaluated": _evaluated(known)}
    yield finding(Code.DRIVER_BRANCH, variant, (branch,), first=first, refused=span(refused), **fields)


def _evaluated(known: tuple[str, ...]) -> str:
    if not known:
        return "the catalogue has none of its releases, so the first of them is evaluated"
    if len(known) == 1:
        return f"{known[0]} is evaluated, its only known production release"
    return f"{known[-1]} is evaluated, the newest of its production releases ({known[0]} to {known[-1]})"


def kinds(candidate: Candidate) -> tuple[Kernels, ...]:
    """Return the release's kernels; if they were not read, its sums as hand-written ones without an ISA."""
    release = candidate.release
    if release.kernels or not (release.cubins or release.ptx):
        return release.kernels
    ptx = tuple(Ptx(f"sm_{text.replace('.', '')}", "") for text in release.ptx)
    return (Kernels(origin="hand-written", fat_binaries=0, cubins=release.cubins, ptx=ptx),)


def usable(kind: Kernels, device: Device) -> list[Ptx]:
    return [one for one in kind.ptx if gpu_code.compiles_for(one, device.capability)]


def compiler(candidate: Candidate, ptx: Ptx, catalog: Catalog) -> CudaToolkit | None:
    """Return the oldest toolkit that compiles a PTX text; without an ISA, the toolkit of the release."""
    return catalog.compiler(ptx.isa) if ptx.isa else candidate.built


def compiles(candidate: Candidate, ptx: Ptx, catalog: Catalog) -> bool:
    """Return True if the driver compiles a PTX text: its own CUDA must know the ISA.

    Minor-version compatibility does not help with PTX. Unknown counts as True: the next finding is then about time,
    not a claim of failure.
    """
    driver, branch, needed = candidate.driver, candidate.branch, compiler(candidate, ptx, catalog)
    if driver is None or needed is None:
        return True
    if branch is None if needed.driver is None else versions.at_least(driver, needed.driver):
        return True
    if branch is not None and versions.at_least(branch.cuda, needed.version):
        return True
    loaded = candidate.toolkit
    if loaded is None or not forward_compatible(candidate) or not versions.at_least(loaded.version, needed.version):
        return False
    return candidate.compat is True or not versions.at_least(driver, loaded.minimum_driver)


def ptx_to_compile(candidate: Candidate, device: Device, kind: Kernels, catalog: Catalog) -> Ptx | None:
    """Return the oldest PTX of kernels for a GPU if the driver can compile none of it."""
    texts = usable(kind, device)
    if any(compiles(candidate, one, catalog) for one in texts):
        return None
    return min(texts, key=lambda one: versions.order(one.isa), default=None)


_CONDITION = re.compile(r"(?:(cuda|driver|arch)(>=|<=|!=|=|<|>)(\d+(?:\.\d+)*)|(brand)(!?=)(\w+))\Z")


def requirement_met(
    text: str, *, cuda: str | None, driver: str | None, brand: str | None, capability: str | None
) -> bool | None:
    """Evaluate ``NVIDIA_REQUIRE_CUDA`` for one GPU as the container runtime does: spaces are OR, commas are AND.

    None if a decisive value is not known. Raises ValueError for a text that is not a requirement.
    """
    known = {"cuda": cuda, "driver": driver, "brand": brand, "arch": capability}
    any_of: list[bool | None] = []
    for alternative in text.split():
        every = [_condition(part, known) for part in alternative.split(",")]
        any_of.append(False if False in every else None if None in every else True)
    if True in any_of or not any_of:
        return True
    return None if None in any_of else False


def _condition(text: str, known: dict[str, str | None]) -> bool | None:
    found = _CONDITION.match(text)
    if found is None:
        raise ValueError(f"not a condition of NVIDIA_REQUIRE_CUDA: {text!r}")
    name, operator, wanted = filter(None, found.groups())
    value = known[name]
    if value is None:
        return None
    if name == "brand":
        return (value == wanted) is (operator == "=")
    return versions.admits((("==" if operator == "=" else operator, wanted),), value)


def container_starts(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    image, driver, branch = candidate.image, candidate.driver, candidate.branch
    if image is None or driver is None or not image.require_cuda or not candidate.gpu:
        return
    text, brought = image.require_cuda, branch.cuda if branch is not None else None
    for device in candidate.devices or (Device("", ""),):
        brand, capability = device.row.brand if device.row is not None else None, device.capability or None
        if requirement_met(text, cuda=brought, driver=driver, brand=brand, capability=capability) is False:
            variant = "driver_and_gpu" if brand is not None else "driver"
            fields = {"cuda": image.cuda, "brought": brought or "unknown", "requirement": text.split()[0]}
            rows = (image, branch)
            yield about(candidate, Code.CONTAINER_REQUIREMENT, variant, rows, **device.facts, brand=brand, **fields)


RULES: tuple[Rule, ...] = (
    Rule("cuda", (Code.DRIVER_TOO_OLD, Code.DRIVER_FORWARD_COMPAT, Code.DRIVER_MINOR_COMPAT), driver_runs_cuda),
    Rule("cuda", (Code.GPU_UNSUPPORTED_BY_DRIVER,), driver_supports_gpu),
    Rule("cuda", (Code.CONTAINER_REQUIREMENT,), container_starts),
)
