"""The rule about finding CUDA: nothing brings its libraries, or they are where a build does not look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envbuilder import versions
from envbuilder.catalog import library_search
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage, TensorflowRelease
from envbuilder.compat import phrases
from envbuilder.compat.candidate import Candidate
from envbuilder.compat.cuda_libraries import on_gpu
from envbuilder.compat.rule import Rule
from envbuilder.finding import Code, Finding


def libraries_found(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """LIBRARY_PATH, MISSING_LIBRARY: the libraries are where this build does not look, or nothing brings them."""
    release, image = candidate.release, candidate.image
    if not on_gpu(candidate):
        return
    if release.finds_cuda in {"unfindable", "partly"} and candidate.install in {"and-cuda", None}:
        yield from _not_searched(candidate, catalog)
    elif image is not None or candidate.unseen:
        pass  # what it holds is judged below, or not known
    elif candidate.install == "and-cuda" and not release.and_cuda:
        yield _nothing_brings(candidate, f"{phrases.name(release)} has no extra and-cuda; the installer ignores it")
    elif candidate.install in {"plain", "system"} and candidate.cuda is None:
        lacks = "the package alone brings" if candidate.install == "plain" else "the image holds"
        yield _nothing_brings(candidate, f"{lacks} no CUDA")
    if image is None and candidate.install == "and-cuda" and candidate.python not in release.extra_fails_on:
        yield from _opened_when_asked(release)
    if image is not None and not (candidate.install == "and-cuda" and release.and_cuda):
        yield from _not_in_image(candidate, image, catalog)


def _not_in_image(candidate: Candidate, image: BaseImage, catalog: Catalog) -> Iterator[Finding]:
    """MISSING_LIBRARY: the image's flavour, or its want of cuDNN, leaves something out that the build opens.

    A CUDA or cuDNN of another version than the image's was named, so it comes from elsewhere.
    """
    release, flavor, toolkit = candidate.release, catalog.flavor(image), candidate.toolkit
    known = toolkit.sonames if toolkit is not None and candidate.toolkit == catalog.toolkit(image.cuda) else ()
    left_out = [soname for soname in release.libraries if soname in known and soname not in _of_image(image, catalog)]
    if left_out and image.holds is not None:
        yield phrases.error(
            Code.MISSING_LIBRARY,
            left_out[0],
            f"{image.name} was looked into and does not hold {phrases.words(left_out)}, which "
            f"{phrases.name(release)} opens.",
            requires=phrases.words(left_out),
            found="none of that name on the loader's path",
            fix=f"Take a base with all of CUDA {image.cuda}, or one without any: then pinned wheels are installed.",
            rows=(image,),
        )
    elif left_out and flavor is not None:
        yield phrases.error(
            Code.MISSING_LIBRARY,
            left_out[0],
            f"{image.name} is of the flavour {flavor.name}, which leaves out {phrases.words(left_out)}, and "
            f"{phrases.name(release)} opens them.",
            requires=phrases.words(left_out),
            found=f"a {flavor.name} image",
            fix="Use the image's cudnn-runtime variant, or install the pinned CUDA wheels.",
            rows=(image, flavor),
        )
    if image.cudnn is None and candidate.cudnn is None:
        soname = next((name for name in release.libraries if name.startswith("libcudnn")), "libcudnn")
        yield phrases.error(
            Code.MISSING_LIBRARY,
            soname,
            f"{image.name} holds no cuDNN, and {phrases.name(release)} opens {soname}.",
            requires=soname,
            found="no cuDNN in the image",
            fix="Use the image's cudnn variant, or install the pinned CUDA wheels.",
            rows=(image,),
        )


def _not_searched(candidate: Candidate, catalog: Catalog) -> Iterator[Finding]:
    """LIBRARY_PATH: wheels bring these libraries, and this build does not look there.

    An install by the extra fails by that. Where nobody says how the pinned wheels come, it is worth knowing: an
    environment of ours tells the loader, an installation by hand has to.
    """
    release, image = candidate.release, candidate.image
    brought = _of_image(image, catalog) if image is not None else frozenset()
    lost = [soname for soname in library_search.unfound(release.libraries, release.searches) if soname not in brought]
    if not lost or (image is not None and candidate.install is None):
        return
    folders = phrases.words([f"nvidia/{folder}/lib" for folder in dict.fromkeys(map(library_search.folder_of, lost))])
    does = f"{phrases.name(release)} opens {phrases.words(lost)} and does not look into {folders}"
    requires, found = f"{folders} on the loader's path", f"a RUNPATH of {library_search.OPENER} without that"
    if candidate.install is None:
        yield phrases.info(
            Code.LIBRARY_PATH,
            phrases.name(release),
            f"{does} in the CUDA wheels: environments made by envbuilder tell the loader.",
            requires=requires,
            found=found,
            fix=f"Nothing to do there; in an installation of your own put {_by_hand(folders)}.",
            rows=(release,),
        )
        return
    later = _first_that_finds(release, catalog)
    yield phrases.error(
        Code.LIBRARY_PATH,
        phrases.name(release),
        f"{does}, where its own extra installs what it opens, so it finds no GPU.",
        requires=requires,
        found=found,
        fix=f"Put {_by_hand(folders)}{f', or take {later}' if later else ''}.",
        rows=(release,),
    )


_FOR: Mapping[str, str] = {
    "cuda_cupti": "the profiler sees nothing of the GPU",
    "cuda_nvrtc": "what compiles a kernel with NVRTC fails",
    "nccl": "collectives between GPUs fail",
    "nvshmem": "collectives by NVSHMEM fail",
}
"""What does not work without a library that is opened only when it is asked for, by its wheel's folder."""


def _opened_when_asked(release: TensorflowRelease) -> Iterator[Finding]:
    """LIBRARY_PATH: the extra brings what the profiler and the like open, and this build does not look there.

    A GPU is used without it, so it is worth knowing and no more.
    """
    needed = {library_search.folder_of(soname) for soname in release.libraries}
    lost = [folder for folder in library_search.unsearched(release, release.and_cuda) if folder not in needed]
    if not lost or release.finds_cuda not in {"wheels", "partly"}:
        return
    folders = phrases.words([f"nvidia/{folder}/lib" for folder in lost])
    fails = phrases.words([_FOR.get(folder, f"what needs {folder} fails") for folder in lost])
    yield phrases.info(
        Code.LIBRARY_PATH,
        phrases.name(release),
        f"{phrases.name(release)} does not look into {folders}, where its extra brings what it opens when asked for: "
        f"{fails}. Computing on the GPU needs none of it.",
        requires=f"{folders} on the loader's path",
        found=f"a RUNPATH of {library_search.OPENER} without that",
        fix=f"Nothing to do for computing; otherwise put {_by_hand(folders)}. Environments made by envbuilder do that.",
        rows=(release,),
    )


def _by_hand(folders: str) -> str:
    return (
        f"site-packages' {folders} on LD_LIBRARY_PATH before Python starts, or into a file of /etc/ld.so.conf.d "
        "(then `ldconfig`)"
    )


def _of_image(image: BaseImage, catalog: Catalog) -> frozenset[str]:
    """Name the libraries that an image brings where the loader looks."""
    toolkit, flavor = catalog.toolkit(image.cuda), catalog.flavor(image)
    cudnn = {f"libcudnn.so.{versions.major(image.cudnn)}"} if image.cudnn else set()
    held = toolkit.sonames if toolkit is not None else ()
    kept = flavor.libraries if flavor is not None else ()
    return frozenset(soname for soname in held if not kept or soname.startswith(kept)) | cudnn


def _first_that_finds(release: TensorflowRelease, catalog: Catalog) -> str | None:
    """Name the next patch of a release that finds all that it opens."""
    later = (
        row.version
        for version in catalog.versions
        if versions.minor(version) == versions.minor(release.version)
        and versions.key(version) > versions.key(release.version)
        for row in catalog.releases(version)
        if row.package == release.package and row.finds_cuda == "wheels"
    )
    return next(later, None)


def _nothing_brings(candidate: Candidate, why: str) -> Finding:
    release = candidate.release
    first = next(iter(release.libraries), "the CUDA libraries")
    return phrases.error(
        Code.MISSING_LIBRARY,
        first,
        f"Nothing brings CUDA to {phrases.name(release)}: {why}.",
        requires=phrases.words(release.libraries),
        found="no CUDA",
        fix=f"Bring CUDA {release.cuda} and cuDNN {release.cudnn} with a base image, the system or pinned wheels.",
        rows=(release,),
    )


RULES: tuple[Rule, ...] = (Rule("gpu", (Code.LIBRARY_PATH, Code.MISSING_LIBRARY), libraries_found),)
