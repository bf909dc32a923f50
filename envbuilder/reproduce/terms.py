"""What texts say in the reporter's own terms (terms.yaml): facts, commands, and CUDA's libraries by file name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from envbuilder import versions
from envbuilder.catalog.model import DISTRIBUTIONS
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.binding import distributions
from envbuilder.compat.findings import finding, listed, name_of, span
from envbuilder.compat.question import cudnn_of_number
from envbuilder.compat.requirement import parse
from envbuilder.compat.unknown import FIRST_WITHOUT_WINDOWS_GPU
from envbuilder.finding import Code, Finding
from envbuilder.reproduce.grammar import GRAMMAR, old_by, old_by_files, old_release, pattern, phrase
from envbuilder.reproduce.messages.catalog import MessageMatch, Text, marked
from envbuilder.reproduce.question import PLACES, Case, gpus_of, is_since, release_of
from envbuilder.reproduce.report.reported import Trust

_SENTENCE = re.compile(r"(?:`[^`]*`|[^`.]|\.(?![ )]|$))+(?:\.\s*|$)")


class _Written:
    """Writes ``{name[KEY]}`` of a text by a function; a KeyError makes it unknown."""

    def __init__(self, written: Callable[[str], str]) -> None:
        self.written = written

    def __getitem__(self, key: str) -> str:
        return self.written(key)


Facts = Mapping[str, Any]


def terms(case: Case) -> Facts:
    """List what texts may name; a fact that the report does not decide is absent."""
    reported, catalog = case.reported, case.catalog
    release = case.release if reported.origin in {None, "library"} else None  # another build has another CUDA
    in_wsl = "wsl" in (case.reported.os or "").lower() and case.place in {"pip", "conda"}
    words, image = PLACES["wsl" if in_wsl else case.place], reported.image or "IMAGE"

    def set_variable(setting: str) -> str:
        name, _, value = setting.partition("=")
        return words.set.replace("{image}", image).replace("{name}", name).replace("{value}", value)

    def if_they_hold(conditions: str) -> str:
        if not case.holds(conditions):
            raise KeyError(conditions)
        return ""

    version = release_of(reported.tensorflow) if reported.tensorflow and case.version else None
    old = old_release(version)
    rows = distributions(version or "", None, None, catalog)
    stated = next((one for one in rows if one.package == reported.distribution), None)
    row = stated or release or next(iter(rows), None)
    package = reported.distribution or ("tensorflow-gpu" if case.gpu else "tensorflow")
    caps = "".join(f" '{cap}'" for cap in row.caps) if row is not None else ""
    wheel = row.version if row is not None else old.wheel(version or "") if old else None
    name = f"{row.package if row is not None else package}=={wheel}" if wheel else ""
    wanted = f"'{name}'{caps}" if name else "tensorflow"
    windows, pythons = reported.platform == "windows", row.pythons if row is not None else ()
    python = old.python if old else pythons[-1] if pythons else ""
    made = new_environment(python, case.place, windows=windows) if python else None
    grows = is_since("1.14", reported) if version else not case.holds("of_tensorflow_1")
    newest = catalog.distributions(catalog.final_versions[-1])[0]
    own, published = case.python or "", GRAMMAR.published_tags.get(versions.minor(version or "0.0"))
    missing = marked("not_found", case.messages)
    gpu, capability = next(iter(gpus_of(reported)), None), case.capability
    here = [one.version for one in catalog.releases() if own in one.pythons and versions.is_final(one.version)]
    serving = catalog.with_code_for(capability or "0.0")
    started = [one for one in serving if not case.holds(f"too new for the driver: {versions.minor(one)}")]
    sources: dict[str, object] = {"release": release, "old": old, "reported": reported, "case": case, "newest": newest}
    sources |= {"installed": catalog.toolkit(reported.cuda), "branch": catalog.branch(reported.driver)}
    sources |= {"toolkit": catalog.toolkit(release.cuda) if release is not None else None}
    plain: Facts = {"case": case, "release": version, "wheel": wheel, "gpu": gpu, "set": _Written(set_variable)}
    found = {
        **{name: _first(paths, sources) for name, paths in GRAMMAR.facts.items()},
        **plain,
        "if": _Written(if_they_hold),
        "cpp_runtime": GRAMMAR.ask["cpp_runtime_without_winget" if case.holds("before_windows_10") else "cpp_runtime"],
        "served_by": span(started or serving) or None,
        "extra": _with_extra(row, case).version if row is not None else wheel,
        "line": versions.minor(version) if version else None,
        "grow": set_variable("TF_FORCE_GPU_ALLOW_GROWTH=true") if grows else GRAMMAR.ask["growth_1"],
        "sm": capability and capability.replace(".", ""),
        **(_built_with(reported.cuda, case) if reported.cuda else {}),
        "missing_file": next((text for row in missing if (text := row.values.get("library"))), None),
        "pythons": f"{pythons[0]} to {pythons[-1]}" if pythons else old and old.pythons,
        "pinned": wanted if name else None,
        "tag": old.image_tag(version or "", case.python) if old else published,
        "image_tag": image_tag(version) if version else None,
        "fresh": f"{made} && pip install {wanted}" if made else None,
        "python_fits": own if own in pythons else None,
        "newest_here": here[-1] if here else None,
        "first_here": here[0] if here else None,
        "show_python": GRAMMAR.ask["python"],
        "newest_pythons": f"{newest.pythons[0]} to {newest.pythons[-1]}",
        "reinstall": f"pip uninstall -y {' '.join(DISTRIBUTIONS)} tensorflow-intel && pip install {wanted}",
        "give_gpu": words.gpu.replace("{image}", image),
    }
    for name in ("numpy", "protobuf", "keras"):
        found[name] = bounds(name, row) if row is not None else None
    found |= {name: lines.get(versions.minor(version or "0.0")) for name, lines in GRAMMAR.companions.items()}
    if found["keras"] is None and found["keras_alone"] not in {None, reported.packages.get("keras")}:
        found["keras"] = f"keras=={found['keras_alone']}"
    facts = {name: value for name, value in found.items() if value is not None}
    return {**_of_file(str(facts.get("missing_file", "")), facts), **facts}


def _first(paths: tuple[str, ...], sources: Mapping[str, object]) -> object | None:
    values = (getattr(sources[owner], field, None) for owner, field in (path.split(".") for path in paths))
    return next((value for value in values if value is not None), None)


def _gpu_builds(case: Case) -> list[TensorflowRelease]:
    rows = [*case.catalog.releases("tensorflow-gpu"), *case.catalog.releases("tensorflow")]
    return sorted((row for row in rows if row.gpu), key=lambda row: versions.key(row.version))


def _built_with(cuda: str, case: Case) -> dict[str, str | None]:
    """Name the releases that were built with a CUDA, and those of the others of its major."""
    minors: dict[str, dict[str, None]] = {}
    for row in _gpu_builds(case):
        if row.cuda:
            minors.setdefault(versions.line(row.cuda), {})[versions.minor(row.version)] = None
    spans = {line: span(list(each)) for line, each in minors.items()}
    same = [(line, own) for line, own in spans.items() if versions.same_major(line, cuda)]
    near = [f"CUDA {line} is that of TensorFlow {own}" for line, own in same]
    return {"of_cuda": spans.get(versions.line(cuda)), "near_cuda": listed(near) or None}


def new_environment(python: str, place: str, *, windows: bool) -> str:
    if place == "conda" or not versions.at_least(python, "3.7"):  # uv brings none older
        return GRAMMAR.ask["old_environment"].format(python=python)
    activate = r"tf\Scripts\activate" if windows else ". tf/bin/activate"
    return f"uv venv --seed --python {python} tf && {activate}"


def with_values(row: MessageMatch, facts: Facts) -> Facts:
    """Add the named parts of a message, and the lines of its two cuDNNs, of which one may be an integer."""
    own = {name: row.values[name] for name in ("runtime", "compiled") if name in row.values}
    plain: dict[str, str] = {name: cudnn_of_number(text) if text.isdigit() else text for name, text in own.items()}
    lines = {f"{name}_line": versions.line(text) for name, text in plain.items()}
    if versions.at_least(plain.get("compiled", "0"), _FIRST_WHEEL_OF_CUDNN):
        by_cudnn = _CUDA_OF_CUDNN_9 if versions.at_least(plain["compiled"], _FIRST_CUDNN_OF_CUDA_12) else FIRST_BY_MAJOR
        cuda = versions.major(str(facts["cuda"])) if "cuda" in facts else by_cudnn
        new = versions.major(plain["compiled"]) >= _CUDNN_PER_CUDA_ENDS
        plain["cudnn_wheel"] = f"nvidia-cudnn-cu{_CUDA_OF_CUDNN_9 if new else cuda}"
    of_runtime = old_by(cudnn=plain.get("runtime"))
    if of_runtime is not None and of_runtime.cudnn != "7" and versions.is_prefix(of_runtime.cudnn, plain["runtime"]):
        plain["runtime_release"] = of_runtime.newest
    if "kernel" in row.values and versions.at_least(row.values["kernel"], row.values["library"]):
        plain["library_is_older"] = ""
    if (tag := row.values.get("tag")) and (one := f"{tag[0]}.{tag[1:]}"):
        plain |= {"wheel_python": one} | ({"other_python": ""} if facts.get("python_fits", one) != one else {})
    return {**facts, **row.values, **plain, **lines, **_of_file(row.values.get("library", ""), facts)}


def _of_file(name: str, facts: Facts) -> dict[str, str]:
    """Return the releases before the catalogue that open a CUDA library of this name."""
    old = old_by_files([name], str(facts.get("installed_cudnn", "")) or None)
    if old is None:
        return {}
    stated = str(facts.get("release", ""))
    tag = old.image_tag(stated if old_release(stated) == old else old.newest, facts.get("python", "3"))
    installed = "" if "cudnn" in name else str(facts.get("installed", ""))
    key = "library_there" if versions.line(installed or "0.0") == old.cuda else "other_cuda"
    named = {key: versions.line(installed)} if versions.names_line(installed or "1") else {}
    return {"library_cuda": old.cuda, "library_cudnn": old.cudnn, "library_tag": tag, **named}


def filled(text: Text, facts: Facts) -> str:
    """Return the first of some texts of which every name is known and that fits the report; else what fits of it."""
    fits: list[str] = []
    for one in (text,) if isinstance(text, str) else text:
        with suppress(KeyError):
            said = one.format_map(facts)
            fits.append(fitting(said, facts["case"]))
            if fits[-1] == said:
                return said or next(filter(None, fits), "")  # an empty text ends the list
    if not fits:
        raise KeyError(text)
    return next(filter(None, fits), "")


def fitting(text: str, case: Case) -> str:
    """Drop the sentences that the report contradicts (`contradicted` in grammar.yaml)."""

    def fits(said: str) -> bool:
        for row, conditions in GRAMMAR.contradicted.items():
            for match in pattern(row, any_case=True).finditer(said):
                if any(case.holds(one.format_map(match.groupdict())) for one in conditions):
                    return False
        return True

    return text if fits(text) else "".join(filter(fits, _SENTENCE.findall(text))).strip()


def bounds(name: str, release: TensorflowRelease) -> str | None:
    """Return the bounds with an upper end, a cap before the wheel's own metadata; None if neither has one."""
    for row in map(parse, (*release.caps, *release.requires)):
        if row.name == name and not row.marker and {one for one, _ in row.bounds} & {"<", "<=", "==", "~="}:
            return name + ",".join(f"{operator}{version}" for operator, version in row.bounds if operator != "!=")
    return None


_FILE = re.compile(r"lib(?P<name>[A-Za-z]+)\.so\.?[0-9.]*\Z", re.ASCII)
_DLL = re.compile(r"(?P<name>cudart|cublas|cublasLt|cudnn)64_(?P<digits>[0-9]{1,3})\.dll\Z", re.ASCII)
_CONDA_TOOLKIT_ENDS = 12
_CUDNN_PER_CUDA_ENDS = 9
_FIRST_WHEEL_OF_CUDNN = "8.5"
_CUDA_OF_CUDNN_9 = 12
_FIRST_CUDNN_OF_CUDA_12 = "8.8"
FIRST_BY_MAJOR = 11  # the first CUDA whose files have the same names in every release of its major


def missing_libraries(rows: list[MessageMatch], case: Case) -> Finding | None:
    """Name the product and the command of libraries that were not found; None if one of them is unknown."""
    found = dict.fromkeys(row.values.get("library", "") for row in rows)
    names = tuple(filter(library_name, found))
    openers = _openers(names, case)
    if not names or not openers or old_release(case.version) or (not case.version and old_by(cuda=case.reported.cuda)):
        return None
    cudnn = [name for name in names if "cudnn" in name]
    built = {"CUDA": {row.cuda for row in openers}, "cuDNN": {cudnn_for(row) for row in openers}}
    known = {name: listed(sorted(filter(None, each), key=versions.key), "or") for name, each in built.items()}
    sure, cuda = all(len(each) == 1 for each in built.values()), len(cudnn) < len(names)
    wanted = [f"CUDA {known['CUDA']}"] * cuda + [f"cuDNN {known['cuDNN']}"] * bool(cudnn)
    product = listed(wanted) + f" for CUDA {known['CUDA']}" * (sure and not cuda)
    lines = span(list(dict.fromkeys(versions.minor(row.version) for row in openers)))
    release = name_of(openers[0]) if openers == [case.release] else f"TensorFlow {lines}"
    if case.reported.tensorflow and case.release not in openers:
        release += f" (not with the stated {case.reported.tensorflow}: another build or installation printed this log)"
    start, windows = PLACES[case.place].start, sure and case.reported.platform == "windows"
    command = _command(openers, case, cuda=cuda, cudnn=bool(cudnn)) if sure or start else ""
    also = f" and cuDNN {known['cuDNN']}" * (not cudnn)  # two archives of NVIDIA's for Windows
    variant = "windows" if windows else "container" if start else "command" if command else "unsure"
    majors = {versions.major(row.cuda or "0") for row in openers}
    if variant == "unsure" and len(majors) == 1 and min(majors) >= FIRST_BY_MAJOR and case.place in {"pip", "conda"}:
        variant, command = "family", apart(openers[-1], case, cuda=cuda, cudnn=bool(cudnn))
    if cuda and openers == [case.release] and is_installed(case, cudnn=bool(cudnn)):
        place = "conda_on_windows" if (case.place, windows) == ("conda", True) else case.place
        installed, opened = case.reported.cuda or "", openers[-1].cuda
        cuda_line = opened if versions.major(installed) < FIRST_BY_MAJOR else versions.minor(installed)
        variant, command = "elsewhere", GRAMMAR.toolkit_paths[place].format(cuda=cuda_line)
        product = product if cuda_line == opened else f"the files of CUDA {cuda_line}"
    said = {"line": rows[0].line, "libraries": listed(names), "found": rows[0].text[:200], "release": release}
    return finding(Code.MISSING_LIBRARY, variant, openers[-1:], **said, product=product, command=command, also=also)


def with_command(row: Finding, case: Case) -> Finding:
    release = case.release  # of one with an image, its tag is the shorter way
    if release is None or not release.cuda:
        return row
    no_image = versions.minor(release.version) not in GRAMMAR.published_tags
    other = row.code is Code.CUDA_MISMATCH and no_image and case.reported.platform != "windows"
    command = _command([release], case, cuda=True, cudnn=True) if row.code is Code.MISSING_LIBRARY or other else ""
    newer = " (11.8 has files of the same names)" if "cuda-libraries-11-8" in command and release.cuda != "11.8" else ""
    brought = f"CUDA {release.cuda}{newer} and cuDNN {cudnn_for(release)}"
    image = f"An image with {brought}, also as the base of your own: `{command}`."
    fix = image if PLACES[case.place].start else f"Install {brought}: `{command}`."
    return msgspec.structs.replace(row, fix=fix) if command else row


def image_tag(version: str) -> str:
    tags = (GRAMMAR.published_tags.get(one) for one in (version, versions.minor(version)))
    return next(filter(None, tags), f"{versions.minor(version)}.0-gpu")


def cudnn_for(release: TensorflowRelease) -> str | None:
    """Return the cuDNN to install: of major 7 the last minor, because TensorFlow 1.15 takes no older one than 7.6."""
    return "7.6" if (release.cudnn or "").startswith("7.") else release.cudnn


def is_installed(case: Case, *, cudnn: bool = True) -> bool:
    """Return True if the report says that the CUDA (and cuDNN) which its release opens is installed where it runs."""
    reported, release = case.reported, case.release
    conda = any(row.field == "cuda" and "cudatoolkit" in row.text for row in reported.evidence)
    places = {"pip", "windows", *["conda"] * conda} if case.holds("!cuda_not_installed_said") else set()
    found = any(row.field == "cuda" and row.trust is Trust.PROVED for row in reported.evidence)  # a program printed it
    if release is None or not reported.cuda or found or case.place not in places:
        return False
    said = any(row.signature == "installed_said" for row in case.messages)
    is_line = versions.major(reported.cuda) >= FIRST_BY_MAJOR or versions.line(reported.cuda) == release.cuda
    is_line = is_line or (said and not versions.names_line(reported.cuda))
    library = not cudnn or said or versions.same_major(reported.cudnn, release.cudnn)
    return library and is_line and versions.same_major(reported.cuda, release.cuda)


def library_name(file: str) -> str:
    """Return the name of a CUDA library without its prefix and version; '' for another file."""
    found = _FILE.match(file) or _DLL.match(file)
    return found["name"] if found is not None else ""


def span_of(case: Case) -> str:
    """Return the range of releases that open the libraries of the log and print its lines; '' if any may."""
    named = [row.values.get("library", "") for row in marked("opens", case.messages)]
    names = tuple(name for name in named if library_name(name) not in {"", "cuda"})
    known = [versions.minor(row.version) for row in _openers(names, case)] if names else []
    if names and not known:
        return ""  # a build that the catalogue does not know
    built = next((row.values["compiled"] for row in case.messages if "." in row.values.get("compiled", "")), "0")
    rows = [row for row in _gpu_builds(case) if row.cudnn is not None and versions.is_prefix(row.cudnn, built)]
    known = known or [versions.minor(row.version) for row in rows]
    first, last = (known[0], known[-1]) if known else _printed_by(case) or ("", "")
    return f">={first},<={last}.99" if first and versions.at_least(last, first) else ""


def _printed_by(case: Case) -> tuple[str, str] | None:
    """Return the first and the last minor line that print the source lines of this log; None if any may."""
    texts = [row.text for row in case.messages]
    ends = [rows for text, rows in GRAMMAR.log_lines.items() if any(re.search(text, one) for one in texts)]
    if not ends:
        return None
    return max((row[0] for row in ends), key=versions.key), min((row[1] for row in ends), key=versions.key)


def _openers(names: tuple[str, ...], case: Case) -> list[TensorflowRelease]:
    """List the releases with GPU support that open all these names, oldest first: only the stated one, if it does.

    Others are left out if they have no wheel for the stated Python, or do not open a library that the log opened.
    """
    rows = _gpu_builds(case)
    windows = case.reported.platform == "windows" or any(_DLL.match(name) for name in names)
    rows = [row for row in rows if not windows or not versions.at_least(row.version, FIRST_WITHOUT_WINDOWS_GPU)]
    found = [row for row in rows if all(opens(row, name) for name in names)]
    if case.release in found:
        return [case.release]
    if any(name.endswith(".so") for name in names):
        return []  # a name without a number is that of any release
    printed = _printed_by(case)
    opened = [row.values["library"] for row in case.messages if row.signature == "opened_library"]
    opened = [name for name in opened if not name.startswith(("libcuda.", "nvcuda"))]
    if printed is not None:
        first, last = versions.key(printed[0]), versions.key(f"{printed[1]}.99")
        found = [row for row in found if first <= versions.key(row.version) <= last]
    nearer = [row for row in found if case.python in (None, *row.pythons)]
    nearest = [row for row in nearer if all(opens(row, name) for name in opened)]
    return nearest or nearer or found


def opens(release: TensorflowRelease, name: str) -> bool:
    dll = _DLL.match(name)
    if dll is None:
        return name != "" and any(own == name or own.startswith(f"{name}.") for own in release.libraries)
    built = release.cudnn if dll["name"] == "cudnn" else release.cuda
    if built is None:
        return False
    major, digits = str(versions.major(built)), dll["digits"]
    return digits in {major, versions.minor(built).replace(".", "")} or (digits, major) == ("110", "11")


def _command(openers: list[TensorflowRelease], case: Case, *, cuda: bool, cudnn: bool) -> str:
    """Write the command that installs them the way the reporter installs; '' if there is none.

    A command with TensorFlow's own version needs a stated release.
    """
    stated = openers == [case.release]
    release = _with_extra(openers[-1], case) if case.place == "pip" else openers[-1]
    toolkit = release.cuda or ""
    if start := PLACES[case.place].start:
        served = case.holds("serving_named") and f"tensorflow/serving:{case.version or release.version}-gpu"
        return start.format(image=served or f"tensorflow/tensorflow:{image_tag(release.version)}")
    by_conda = case.place == "conda" and versions.major(toolkit) < _CONDA_TOOLKIT_ENDS
    if release.and_cuda and case.python not in release.extra_fails_on and not by_conda:
        return f"pip install '{release.package}[and-cuda]=={release.version}'" if stated else ""
    return apart(release, case, cuda=cuda, cudnn=cudnn)


def _with_extra(release: TensorflowRelease, case: Case) -> TensorflowRelease:
    """Return the last of its minor line whose own extra brings its CUDA, else the release itself."""
    line = [row for row in case.catalog.releases(release.package) if row.finds_cuda == "wheels"]
    line = [row for row in line if versions.is_prefix(versions.minor(release.version), row.version)]
    return next((row for row in line[::-1] if case.python not in row.extra_fails_on), release)


def apart(release: TensorflowRelease, case: Case, *, cuda: bool, cudnn: bool) -> str:
    toolkit, library = release.cuda or "", cudnn_for(release) or ""
    jammy = re.search(r"\b2[2-9]\.04", case.reported.os or "") is not None
    if jammy and versions.major(toolkit) == FIRST_BY_MAJOR:  # NVIDIA's packages for it begin with 11.7
        toolkit, library = "11.8", max(library, "8.6", key=versions.key)
    if case.place == "conda" and versions.major(toolkit) < _CONDA_TOOLKIT_ENDS:
        return f"conda install -c conda-forge cudatoolkit={toolkit} cudnn={library}"
    major = versions.major(library)
    apart = major < _CUDNN_PER_CUDA_ENDS
    rpm = phrase("of_rpm").match(case.reported.os or "") is not None
    package = f"libcudnn{major}-{library}.*-1.cuda{toolkit}" if rpm else f"libcudnn{major}={library}.*-1+cuda{toolkit}"
    package = package if apart else f"libcudnn9-cuda-{versions.major(toolkit)}"
    wanted = [f"cuda-libraries-{toolkit.replace('.', '-')}"] * cuda + [f"'{package}'"] * cudnn
    return f"sudo {'yum' if rpm else 'apt-get'} install {' '.join(wanted)}"
