"""Rules about the CUDA and cuDNN that are loaded: file names and versions."""

from __future__ import annotations

from collections.abc import Iterator

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import CudaToolkit
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.rule import Rule
from envbuilder.finding import Code, Finding

_OWN_LIBRARIES = ("libcudnn", "libcuda.", "libnccl", "libnvinfer", "libnvrtc", "libnvshmem")
"""Files that a CUDA toolkit does not bring."""


def gpu_build(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """NOT_A_GPU_BUILD: a wheel without CUDA where a GPU is meant to be used."""
    release = candidate.release
    if not candidate.gpu or not release.installable or (release.gpu and candidate.arch == "x86_64"):
        return
    if release.gpu and release.wheels and not any(wheels.arch == candidate.arch for wheels in release.wheels):
        return  # there is nothing to install, which is another rule's
    if release.gpu:
        what, fix = f"The {candidate.arch} wheel", "Use an x86_64 machine, or NVIDIA's own container for this one."
    else:
        others = [row for row in catalog.distributions(release.version) if row.gpu]
        what = "The wheel"
        fix = (
            f"Install `{others[0].package}=={release.version}`."
            if others
            else "Take the nearest version that was published with CUDA."
        )
    yield phrases.error(
        Code.NOT_A_GPU_BUILD,
        phrases.name(release),
        f"{what} of {release.package} {release.version} has no GPU support: it computes on the CPU alone.",
        requires="a build with CUDA",
        found=release.package,
        fix=fix,
        rows=(release,),
    )


def on_gpu(candidate: Candidate) -> bool:
    """Tell whether CUDA will be used at all: the other rules of this room ask first."""
    return candidate.gpu and candidate.release.gpu and candidate.arch == "x86_64"


def missing_sonames(candidate: Candidate, toolkit: CudaToolkit) -> tuple[str, ...]:
    """List the files that the build opens and that a toolkit has under another name or not at all."""
    known = {soname.split(".so")[0] for soname in toolkit.sonames}
    return tuple(
        soname
        for soname in candidate.release.libraries
        if not soname.startswith(_OWN_LIBRARIES) and soname.split(".so")[0] in known and soname not in toolkit.sonames
    )


def cuda_loads(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """CUDA_MISMATCH: the toolkit's files have other names than this build opens, or the toolkit is older."""
    release, toolkit = candidate.release, candidate.toolkit
    if not on_gpu(candidate) or candidate.cuda is None or release.cuda is None:
        return
    missing = missing_sonames(candidate, toolkit) if toolkit is not None else ()
    same_major = versions.major(release.cuda) == versions.major(candidate.cuda)
    if missing or (not same_major and (toolkit is None or not toolkit.sonames)):
        opens = f"it opens {phrases.words(missing)}" if missing else "the file names differ"
        yield phrases.error(
            Code.CUDA_MISMATCH,
            f"CUDA {candidate.cuda}",
            f"{phrases.name(release)} was built with CUDA {release.cuda}; "
            f"CUDA {candidate.cuda} cannot stand in for it: "
            f"{opens}, which {versions.minor(candidate.cuda)} does not have.",
            requires=f"CUDA {release.cuda}",
            found=f"CUDA {candidate.cuda}",
            fix=f"Use CUDA {release.cuda}, or a TensorFlow that was built with CUDA {versions.major(candidate.cuda)}.",
            rows=(release, toolkit),
        )
    elif toolkit is not None and not versions.at_least(versions.minor(candidate.cuda), versions.minor(release.cuda)):
        yield phrases.warning(
            Code.CUDA_MISMATCH,
            f"CUDA {candidate.cuda}",
            f"{phrases.name(release)} was built with CUDA {release.cuda}, and CUDA {candidate.cuda} is older: the file "
            "names are the same within the major line, but a newer function may be missing.",
            requires=f"CUDA {release.cuda}",
            found=f"CUDA {candidate.cuda}",
            fix=f"Use CUDA {release.cuda} or a newer {versions.major(release.cuda)}.x.",
            rows=(release, toolkit),
        )


def _cudnn_for(cuda: int, built: str, catalog: Catalog) -> str:
    """Say which cuDNN of the build's major was made for a CUDA major."""
    rows = [
        row
        for row in catalog.cudnn
        if versions.same_major(row.version, built)
        and versions.at_least(row.version, built)
        and any(versions.major(text) == cuda for text in row.cuda)
    ]
    if not rows:
        return f"Use another CUDA: no cuDNN {versions.major(built)} was made for CUDA {cuda}."
    first = min(rows, key=lambda row: versions.key(row.version)).version
    return f"Use cuDNN {first} or a newer {versions.major(built)}.x that was made for CUDA {cuda}."


def cudnn_loads(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """CUDNN_MISMATCH: another major, a minor older than the build's, or a cuDNN for another CUDA."""
    release, cudnn = candidate.release, candidate.cudnn
    if not on_gpu(candidate) or cudnn is None or release.cudnn is None:
        return
    built, loaded = versions.numbers(release.cudnn)[:2], versions.numbers(cudnn)[:2]
    if built[0] != loaded[0] or (len(loaded) > 1 and loaded < built):
        why = (
            f"it opens libcudnn.so.{built[0]}"
            if built[0] != loaded[0]
            else "the loaded minor must not be older than the one that it was compiled with"
        )
        yield phrases.error(
            Code.CUDNN_MISMATCH,
            f"cuDNN {cudnn}",
            f"{phrases.name(release)} was compiled with cuDNN {release.cudnn} and refuses {cudnn}: {why}.",
            requires=f"cuDNN {built[0]}, {release.cudnn} or newer",
            found=f"cuDNN {cudnn}",
            fix=f"Use cuDNN {release.cudnn} or a newer {built[0]}.x.",
            rows=(release,),
        )
    row, toolkit = candidate.cudnn_row, candidate.toolkit
    if (
        toolkit is not None
        and release.cuda is not None
        and versions.major(toolkit.version) != versions.major(release.cuda)
    ):
        return  # nothing of that toolkit is loaded, which CUDA_MISMATCH says
    majors = {versions.major(text) for text in row.cuda} if row is not None else set()
    if row is not None and toolkit is not None and majors and versions.major(toolkit.version) not in majors:
        yield phrases.error(
            Code.CUDNN_MISMATCH,
            f"cuDNN {cudnn}",
            f"cuDNN {cudnn} was not made for CUDA {versions.major(toolkit.version)}, only for CUDA "
            f"{phrases.words([str(number) for number in sorted(majors)])}.",
            requires=f"a cuDNN for CUDA {versions.major(toolkit.version)}",
            found=f"cuDNN {cudnn}",
            fix=_cudnn_for(versions.major(toolkit.version), release.cudnn, catalog),
            rows=(row,),
        )


def one_stack(candidate: Candidate, _catalog: Catalog) -> Iterator[Finding]:
    """TWO_CUDA_STACKS: the image and the extra each bring a CUDA."""
    image = candidate.image
    if not on_gpu(candidate) or image is None or candidate.install != "and-cuda" or not candidate.release.and_cuda:
        return
    brings = f"CUDA {image.cuda}" + (f" and cuDNN {image.cudnn}" if image.cudnn else "")
    yield phrases.warning(
        Code.TWO_CUDA_STACKS,
        image.name,
        f"{image.name} brings {brings}, and the extra and-cuda brings CUDA {candidate.cuda} and cuDNN "
        f"{candidate.cudnn}: the loader's path decides which of them is used.",
        requires="one CUDA",
        found="two",
        fix="Install the package without the extra, or start from an image without CUDA.",
        rows=(image, candidate.release),
    )


def xla_tools(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """XLA_TOOLS_MISSING: the image's flavour holds neither ptxas nor libdevice."""
    image = candidate.image
    flavor = catalog.flavor(image) if image is not None else None
    if not on_gpu(candidate) or image is None or flavor is None or flavor.tools:
        return
    if candidate.install == "and-cuda" and candidate.release.and_cuda:
        return
    yield phrases.warning(
        Code.XLA_TOOLS_MISSING,
        image.name,
        f"{image.name} holds neither ptxas nor libdevice (its {image.flavor} flavour leaves them out), so "
        "`jit_compile=True` fails or falls back to the driver's compiler.",
        requires="ptxas and libdevice.10.bc",
        found=f"a {image.flavor} image",
        fix=f"Use the devel image, or add the wheel nvidia-cuda-nvcc-cu{versions.major(image.cuda)}.",
        rows=(image, flavor),
    )


RULES: tuple[Rule, ...] = (
    Rule("gpu", (Code.NOT_A_GPU_BUILD,), gpu_build),
    Rule("gpu", (Code.CUDA_MISMATCH,), cuda_loads),
    Rule("gpu", (Code.CUDNN_MISMATCH,), cudnn_loads),
    Rule("gpu", (Code.TWO_CUDA_STACKS,), one_stack),
    Rule("gpu", (Code.XLA_TOOLS_MISSING,), xla_tools),
)
