"""Rules about the CUDA and cuDNN that are loaded: their versions, their files, and where the loader finds them."""

from collections.abc import Iterable, Iterator, Mapping

from envbuilder import versions
from envbuilder.catalog import library_search
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, CudaToolkit
from envbuilder.compat.candidate import Candidate, Rule
from envbuilder.compat.findings import about, listed
from envbuilder.finding import Code, Finding

_NOT_IN_TOOLKIT = ("libcudnn", "libcuda.", "libnccl", "libnvinfer", "libnvrtc", "libnvshmem")
"""Files that are not part of a CUDA toolkit."""


def gpu_build(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    release = candidate.release
    if not candidate.gpu or not release.installable or candidate.uses_gpu:
        return
    if release.gpu and release.wheels and not any(wheels.arch == candidate.arch for wheels in release.wheels):
        return  # NOT_INSTALLABLE
    other = next((row.package for row in catalog.distributions(release.version) if row.gpu), "")
    variant = "arch" if release.gpu else "distribution" if other else "no_distribution"
    yield about(candidate, Code.NOT_A_GPU_BUILD, variant, (release,), other=other)


def missing_sonames(candidate: Candidate, toolkit: CudaToolkit) -> tuple[str, ...]:
    """List the files that the build opens and that a toolkit has under another name."""
    known = {soname.split(".so")[0] for soname in toolkit.sonames}
    opened = (soname for soname in candidate.release.libraries if not soname.startswith(_NOT_IN_TOOLKIT))
    return tuple(soname for soname in opened if soname.split(".so")[0] in known and soname not in toolkit.sonames)


def cuda_loads(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    release, toolkit, cuda = candidate.release, candidate.toolkit, candidate.cuda
    if not candidate.uses_gpu or cuda is None or release.cuda is None:
        return
    rows, missing = (release, toolkit), missing_sonames(candidate, toolkit) if toolkit is not None else ()
    if missing or (not versions.same_major(release.cuda, cuda) and (toolkit is None or not toolkit.sonames)):
        fields = {"sonames": listed(missing), "line": versions.minor(cuda), "major": versions.major(cuda)}
        yield about(candidate, Code.CUDA_MISMATCH, "other_files" if missing else "other_major", rows, **fields)
    elif toolkit is not None and not versions.at_least(versions.minor(cuda), versions.minor(release.cuda)):
        yield about(candidate, Code.CUDA_MISMATCH, "older", rows, major=versions.major(release.cuda))


def cudnn_loads(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """CUDNN_MISMATCH: another major, a minor older than the build's, or a cuDNN for another CUDA."""
    release, cudnn = candidate.release, candidate.cudnn
    if not candidate.uses_gpu or cudnn is None or release.cudnn is None:
        return
    built, loaded = versions.numbers(release.cudnn)[:2], versions.numbers(cudnn)[:2]
    if built[0] != loaded[0] or (len(loaded) > 1 and loaded < built):
        variant = "major" if built[0] != loaded[0] else "older"
        yield about(candidate, Code.CUDNN_MISMATCH, variant, (release,), built=release.cudnn, major=built[0])
    row, toolkit = candidate.cudnn_row, candidate.toolkit
    if row is None or toolkit is None:
        return
    if release.cuda is not None and not versions.same_major(toolkit.version, release.cuda):
        return  # nothing of that toolkit is loaded: CUDA_MISMATCH
    majors, cuda = {versions.major(text) for text in row.cuda}, versions.major(toolkit.version)
    if majors and cuda not in majors:
        first = _first_cudnn(cuda, release.cudnn, catalog)
        variant = "other_cuda" if first else "other_cuda_without_cudnn"
        fields = {"cuda": cuda, "majors": listed([str(number) for number in sorted(majors)]), "first": first}
        yield about(candidate, Code.CUDNN_MISMATCH, variant, (row,), major=built[0], **fields)


def _first_cudnn(cuda: int, built: str, catalog: Catalog) -> str:
    """Return the oldest cuDNN for a CUDA major that a build accepts, or ''."""
    for_cuda = (row.version for row in catalog.cudnn if any(versions.major(text) == cuda for text in row.cuda))
    accepted = (text for text in for_cuda if versions.same_major(text, built) and versions.at_least(text, built))
    return min(accepted, key=versions.key, default="")


def one_cuda(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    image, release = candidate.image, candidate.release
    if candidate.uses_gpu and image is not None and candidate.install == "and-cuda" and release.and_cuda:
        brought = f"CUDA {image.cuda}" + (f" and cuDNN {image.cudnn}" if image.cudnn else "")
        yield about(candidate, Code.TWO_CUDA_STACKS, "image_and_extra", (image, release), brought=brought)


def xla_tools(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    image = candidate.image
    flavor = catalog.flavor(image) if image is not None else None
    if not candidate.uses_gpu or image is None or flavor is None or flavor.tools:
        return
    if candidate.install == "and-cuda" and candidate.release.and_cuda:
        return
    fields = {"flavor": image.flavor, "major": versions.major(image.cuda)}
    yield about(candidate, Code.XLA_TOOLS_MISSING, "flavor", (image, flavor), **fields)


def libraries_found(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    release, image = candidate.release, candidate.image
    if not candidate.uses_gpu:
        return
    if release.finds_cuda in {"unfindable", "partly"} and candidate.install in {"and-cuda", None}:
        yield from _not_searched(candidate, catalog)
    elif image is not None or candidate.unseen:
        pass  # its content is evaluated below, or not known
    elif candidate.install == "and-cuda" and not release.and_cuda:
        yield _without_cuda(candidate, "no_extra")
    elif candidate.install in {"plain", "system"} and candidate.cuda is None:
        yield _without_cuda(candidate, candidate.install)
    if image is None and candidate.install == "and-cuda" and candidate.python not in release.extra_fails_on:
        yield from _opened_on_demand(candidate)
    if image is not None and not (candidate.install == "and-cuda" and release.and_cuda):
        yield from _not_in_image(candidate, image, catalog)


def _without_cuda(candidate: Candidate, variant: str) -> Finding:
    release = candidate.release
    fields = {"sonames": listed(release.libraries), "cuda": release.cuda, "cudnn": release.cudnn}
    soname = next(iter(release.libraries), "the CUDA libraries")
    return about(candidate, Code.MISSING_LIBRARY, variant, (release,), soname=soname, **fields)


def _not_in_image(candidate: Candidate, image: BaseImage, catalog: Catalog) -> Iterator[Finding]:
    """MISSING_LIBRARY: the image's flavour leaves out a library that the build opens, or the image has no cuDNN.

    A CUDA or cuDNN of another version than the image's comes from elsewhere.
    """
    release, flavor, toolkit = candidate.release, catalog.flavor(image), candidate.toolkit
    known = toolkit.sonames if toolkit is not None and toolkit == catalog.toolkit(image.cuda) else ()
    left_out = [soname for soname in release.libraries if soname in known and soname not in _of_image(image, catalog)]
    if left_out and flavor is not None:
        variant, rows = ("flavor", (image, flavor)) if image.holds is None else ("inspected_image", (image,))
        fields = {"soname": left_out[0], "sonames": listed(left_out), "cuda": image.cuda, "flavor": flavor.name}
        yield about(candidate, Code.MISSING_LIBRARY, variant, rows, **fields)
    if image.cudnn is None and candidate.cudnn is None:
        soname = next((name for name in release.libraries if name.startswith("libcudnn")), "libcudnn")
        yield about(candidate, Code.MISSING_LIBRARY, "cudnn", (image,), soname=soname)


def _of_image(image: BaseImage, catalog: Catalog) -> frozenset[str]:
    toolkit, flavor = catalog.toolkit(image.cuda), catalog.flavor(image)
    cudnn = {f"libcudnn.so.{versions.major(image.cudnn)}"} if image.cudnn else set()
    every = toolkit.sonames if toolkit is not None else ()
    prefixes = flavor.libraries if flavor is not None else ()
    return frozenset(soname for soname in every if not prefixes or soname.startswith(prefixes)) | cudnn


def _not_searched(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """LIBRARY_PATH: wheels have these libraries, and this build does not search their folders.

    An installation by the extra fails. Pinned wheels are an INFO: environments of envbuilder configure the loader, a
    manual installation has to.
    """
    release, image = candidate.release, candidate.image
    brought = _of_image(image, catalog) if image is not None else frozenset()
    lost = [name for name in library_search.unfound(release.libraries, release.searches) if name not in brought]
    if not lost or (image is not None and candidate.install is None):
        return
    alike = (row.version for row in catalog.releases(release.package) if row.finds_cuda == "wheels")
    patches = (text for text in alike if versions.minor(text) == versions.minor(release.version))
    newer = (text for text in patches if versions.key(text) > versions.key(release.version))
    later = next(newer, None) if candidate.install else None
    variant = "pinned" if candidate.install is None else "extra_with_later" if later else "extra"
    fields = {"sonames": listed(lost), "folders": _folders(map(library_search.folder_of, lost)), "later": later}
    yield about(candidate, Code.LIBRARY_PATH, variant, (release,), opener=library_search.OPENER, **fields)


def _folders(names: Iterable[str]) -> str:
    return listed([f"nvidia/{name}/lib" for name in dict.fromkeys(names)])


_WITHOUT: Mapping[str, str] = {
    "cuda_cupti": "the profiler sees nothing of the GPU",
    "cuda_nvrtc": "compiling a kernel with NVRTC fails",
    "nccl": "collectives between GPUs fail",
    "nvshmem": "collectives by NVSHMEM fail",
}
"""The consequence of a missing library that is opened on demand, by its wheel's folder."""


def _opened_on_demand(candidate: Candidate) -> Iterator[Finding]:
    release = candidate.release
    needed = {library_search.folder_of(soname) for soname in release.libraries}
    lost = [folder for folder in library_search.unsearched(release, release.and_cuda) if folder not in needed]
    if lost and release.finds_cuda in {"wheels", "partly"}:
        consequences = listed([_WITHOUT.get(folder, f"functions of {folder} fail") for folder in lost])
        fields = {"folders": _folders(lost), "consequences": consequences, "opener": library_search.OPENER}
        yield about(candidate, Code.LIBRARY_PATH, "on_demand", (release,), **fields)


RULES: tuple[Rule, ...] = (
    Rule("cuda", (Code.NOT_A_GPU_BUILD,), gpu_build),
    Rule("cuda", (Code.CUDA_MISMATCH,), cuda_loads),
    Rule("cuda", (Code.CUDNN_MISMATCH,), cudnn_loads),
    Rule("cuda", (Code.TWO_CUDA_STACKS,), one_cuda),
    Rule("cuda", (Code.XLA_TOOLS_MISSING,), xla_tools),
    Rule("cuda", (Code.LIBRARY_PATH, Code.MISSING_LIBRARY), libraries_found),
)
