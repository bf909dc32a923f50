"""Inspect a base image without running it: system, Python, C library and CUDA, from its files."""

import posixpath
import re
from collections.abc import Callable, Iterator

import msgspec

from envbuilder import versions
from envbuilder.catalog.base_facts import BaseFacts, Disagreement, FoundLibrary, FoundPython
from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import BaseImage
from envbuilder.engine.port import Engine, Image
from envbuilder.errors import InfrastructureError
from envbuilder.image.bases import fetched, held, sources
from envbuilder.support import decoding
from envbuilder.validation.image_files import ImageFiles, read_image
from envbuilder.validation.image_loader import DEFAULT_PATH, ImageSearch
from envbuilder.validation.layer_scan import PATHS

_INSTALLERS = (("apt", "usr/bin/apt-get"), ("dnf", "usr/bin/dnf"), ("dnf", "usr/bin/microdnf"), ("apk", "sbin/apk"))
_FIELD = re.compile(r"^(ID|VERSION_ID)=[\"']?([A-Za-z0-9._-]+)", re.MULTILINE)


def inspect_base(engine: Engine, reference: str, catalog: Catalog, report: Callable[..., None]) -> BaseFacts:
    """Inspect an image of the engine's store; it is pulled if missing, from a mirror if there is one.

    Raises InfrastructureError if it cannot be pulled, or if no registry has it by a digest.
    """
    image = held(engine, reference) or fetched(engine, reference, report)
    digest = next((found for one in sources(reference) if (found := image.digest(one))), None)
    if digest is None:
        raise InfrastructureError(
            f"{reference} has no digest: it was built or imported here, and no registry has it",
            hint="push it to a registry, and name it by the digest that the push prints",
        )
    bare = reference.partition("@")[0]
    name = bare.rpartition(":")[0] if ":" in bare.rpartition("/")[2] else bare
    return found_in(read_image(engine, image), image, f"{name}@{digest}", catalog, name=bare)


def found_in(files: ImageFiles, image: Image, pinned: str, catalog: Catalog, *, name: str = "") -> BaseFacts:
    """Return the facts of an image's files. ``name`` is the requested name, of which the catalogue may have a row."""
    search = ImageSearch(files, image)
    found = {one.soname: one for one in _libraries(files, search)}
    cuda = next((one.version for soname, one in found.items() if soname.startswith("libcudart.")), "")
    cudnn = next((one.path for soname, one in found.items() if soname.startswith("libcudnn.so.")), "")
    system = files.content("etc/os-release") or files.content("usr/lib/os-release") or b""
    fields = dict(_FIELD.findall(decoding.lossy(system)))
    libc, libc_version = _libc(files, search)
    facts = BaseFacts(
        image=pinned,
        digest=pinned.rpartition("@")[2],
        architecture=image.architecture,
        system=fields.get("ID", ""),
        release=fields.get("VERSION_ID", ""),
        libc=libc,
        libc_version=libc_version,
        packages=next((program for program, path in _INSTALLERS if files.file(path) is not None), ""),
        pythons=tuple(_pythons(files, image)),
        cuda=cuda,
        cudnn=(search.cudnn_version(cudnn) or "") if cudnn else "",
        libraries=tuple(found.values()),
        tools=all(search.xla_tools("/", cuda or None, {"PATH": image.env.get("PATH", DEFAULT_PATH)}).values()),
        forward_compat=any(PATHS["compat"].match(path) for path in files.paths),
        require_cuda=image.env.get("NVIDIA_REQUIRE_CUDA", ""),
        layers=tuple(layer.diff_id for layer in image.layers),
    )
    row = catalog.image(name) if name else None
    disagreements = tuple(_disagreements(facts, row)) if row is not None else ()
    return msgspec.structs.replace(facts, disagreements=disagreements, refused=_refusal(facts))


def _refusal(facts: BaseFacts) -> str:
    if facts.libc != "glibc":
        libc = facts.libc or "none that is known"
        return f"its C library is {libc}: TensorFlow's wheels need glibc, so take a base of Debian, Ubuntu or Red Hat"
    if facts.arch != "x86_64":
        return f"it is for {facts.arch}, and environments are built for x86_64"
    if any(python.venv for python in facts.pythons):
        return ""
    if facts.packages != "apt":
        has = f"Python {facts.pythons[0].version} without venv" if facts.pythons else "no Python"
        packages = facts.packages or "no program that installs packages"
        return f"it holds {has}, and {packages} instead of apt: take a base with a Python and its venv module"
    is_known = facts.system and facts.release
    return "" if is_known else "it holds no Python, and its os-release does not say which one its packages would bring"


def _libc(files: ImageFiles, search: ImageSearch) -> tuple[str, str]:
    version = search.glibc()
    if version is None:
        return ("musl" if any(PATHS["musl"].match(one) for one in files.paths) else ""), ""
    # Not every glibc defines symbols of its own version: the newest of 2.31 are of 2.30.
    packaged = files.packages(len(files.records)).get("libc6", "").partition("-")[0]
    return "glibc", max(filter(versions.key_or_none, (version, packaged)), key=versions.key, default="")


def _pythons(files: ImageFiles, image: Image) -> Iterator[FoundPython]:
    known: set[str] = set()
    programs = {path: found[1] for path in sorted(files.paths) if (found := PATHS["of-version"].search(path))}
    for folder in image.env.get("PATH", DEFAULT_PATH).split(":"):
        for path, version in programs.items():
            real = files.file(path)
            if posixpath.dirname(path) != folder.strip("/") or version in known or not (real and real.row.mode & 0o111):
                continue
            known.add(version)
            prefix = posixpath.dirname(posixpath.dirname(files.resolve(path)))
            module = f"{prefix}/lib/python{version}/venv/__init__.py".lstrip("/")
            yield FoundPython(version=version, path=f"/{path}", venv=files.file(module) is not None)


def _libraries(files: ImageFiles, search: ImageSearch) -> Iterator[FoundLibrary]:
    binaries = ((path, entry.row.binary) for path, entry in files.paths.items() if "site-packages/" not in path)
    sonames = {binary.soname for _, binary in binaries if binary is not None and PATHS["opened"].match(binary.soname)}
    for soname in sorted(sonames):
        path, _ = search.find(soname)
        real = files.file(path) if path else None
        if path and real and real.row.binary:
            yield FoundLibrary(soname=soname, path=search.real(path), version=real.row.binary.version)


def _disagreements(facts: BaseFacts, row: BaseImage) -> Iterator[Disagreement]:
    pairs = {
        "cuda": (row.cuda, facts.cuda),
        "cudnn": (row.cudnn or "", facts.cudnn),
        "glibc": (row.glibc, facts.libc_version),
        "require_cuda": (row.require_cuda, facts.require_cuda),
    }
    for field, (claimed, there) in pairs.items():
        if claimed not in {"", there} if field == "require_cuda" else not _is_same(claimed, there):
            yield Disagreement(field=field, catalog=claimed, image=there)


def _is_same(claimed: str, there: str) -> bool:
    """Compare the shared prefix: of cuDNN's version the catalogue has one or four numbers, a library three."""
    if not claimed or not there:
        return claimed == there
    return all(own == other for own, other in zip(versions.numbers(claimed), versions.numbers(there), strict=False))
