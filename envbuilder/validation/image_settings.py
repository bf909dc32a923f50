"""Check an image's variables, the settings of Keras, its user and entry point, and its start-up requirement."""

import fnmatch
import posixpath
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Literal

import msgspec

from envbuilder.compat.rules.driver import requirement_met
from envbuilder.finding import Code, Finding, Severity
from envbuilder.image.render import required_cuda
from envbuilder.support import decoding
from envbuilder.validation.image_context import CheckOutput, ImageContext, escaped, found, listed, may
from envbuilder.validation.image_loader import SYSTEM_SITE, site_of
from envbuilder.validation.installed_files import area_output, module_of
from envbuilder.validation.layer_scan import PATHS
from envbuilder.workspace import packaged_yaml

_Effect = Literal["breaks", "code", "numbers", "slow", "prints", "devices", "disturbs", "unknown"]
_Weight = Literal["error", "warning", "managed"]

_Setting = tuple[Finding, _Effect]  # A finding about a setting, and the kind of its effect
_ASSIGNED = re.compile(r"""(\w+)=("[^"]*"|'[^']*'|\S*)""")
_KERAS_FILE = "keras.json"
_MOST_SETTINGS = 1 << 20  # Bytes of the settings of Keras that are read; Keras writes a hundred
# The result of `CMD ['python', 'app.py']`: one text for a shell, whose first word is not a program.
_LIST_IN_QUOTES = re.compile(r"\['[^']*'\s*[,\]]")


class _EffectRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    severity: _Weight
    follow: frozenset[Code]


class _Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table; the file documents its keys. Without an effect it only names known variables."""

    source: str
    names: tuple[str, ...]
    effect: _Effect | None = None
    message: str = ""
    severity: _Weight | None = None
    allowed: tuple[str, ...] = ()
    numbers: tuple[int, int] | None = None
    pattern: str = ""
    absent: bool = False
    below: str = ""
    holds: str = ""
    packaged: bool = False
    without: str = ""
    closed: bool = False
    unreadable: bool = False
    empty: bool = False
    gpu: bool = False

    def applies(self, value: str, subject: ImageContext) -> bool:
        if self.effect is None or (self.gpu and subject.facts.flavor != "gpu") or not (value or self.empty):
            return False
        if value.lower() in self.allowed or not re.search(self.pattern, value):
            return False
        numbers = [int(one) if re.fullmatch("[0-9]{1,12}", one) else -1 for one in value.split(",")]
        if self.numbers is not None and self.numbers[0] <= min(numbers) and max(numbers) <= self.numbers[1]:
            return False
        files, places = subject.files, [one for one in re.split(r"[:\s]+", value) if "/" in one]
        if self.absent:
            missing = [one for one in places if files.resolve(f"{self.below}/{one}") not in files.paths]
            return bool(missing) and len(files.paths) > 1
        if self.closed:
            return subject.files.is_complete and any(not may_write(subject, one) for one in places)
        if self.unreadable:
            return any(not may_read(subject, one) for one in places)
        if self.packaged:
            return bool(places) and all(subject.is_of_system(files.resolve(one)) for one in places)
        if self.holds:
            folders = tuple(f"{files.resolve(one)}/" for one in places)
            return any(path.startswith(folders) and path.endswith(self.holds) for path in files.paths)
        return not (self.without and any(re.match(self.without, path) for path in files.paths))


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    effects: dict[_Effect, _EffectRow]
    prefixes: tuple[str, ...]
    unknown: _Rule
    variables: tuple[_Rule, ...]
    files: dict[str, str]
    shell_words: frozenset[str]


_TABLE = packaged_yaml("validation/image_settings.yaml", _Table)
_RULES = tuple((re.compile("|".join(map(fnmatch.translate, rule.names))), rule) for rule in _TABLE.variables)


def configuration(subject: ImageContext) -> CheckOutput:
    env = subject.image.env
    settings = [*_by_table(subject, env), *_in_files(subject), *keras_settings(subject)]
    others = (*_instructions(subject), *can_start(subject), *scratch(subject))
    settings += [(one, "disturbs" if one.subject == "HEALTHCHECK" else "breaks") for one in others]
    none = f"{len(env)} variables, none of which breaks anything"
    follow = {one.subject: _TABLE.effects[effect].follow for one, effect in settings}
    result = area_output(subject, "configuration", (one for one, _ in settings), none)
    return replace(result, follow={**follow, **result.follow})


def _by_table(subject: ImageContext, env: Mapping[str, str], place: str = "") -> Iterator[_Setting]:
    """Judge variables of the image, or those that a file or an instruction (``place``) sets later."""
    for name, value in env.items():
        rules = [rule for names, rule in _RULES if names.match(name)]
        unknown = [] if rules or not name.startswith(_TABLE.prefixes) else [_TABLE.unknown]
        rule = next((one for one in (*rules, *unknown) if one.applies(value, subject)), None)
        if rule is None or rule.effect is None:
            continue
        weight = rule.severity or _TABLE.effects[rule.effect].severity
        severity = subject.severity if weight == "managed" else Severity(weight)
        row = "setting_of_devices" if rule.effect == "devices" and severity is Severity.ERROR else "setting"
        text, shown = rule.message.format(name=escaped(name), value=escaped(value)), escaped(name)
        row = "setting_of_folder" if rule.closed else row
        if place:
            row, severity, text, shown = "setting_of_place", Severity.WARNING, f"{place}: {text}", f"{place}: {shown}"
        user = subject.image.user
        yield found(row, severity, name=shown, text=text, place=place, value=escaped(value), user=user), rule.effect


def _in_files(subject: ImageContext) -> Iterator[_Setting]:
    texts = {f"/{path}": decoding.lossy(subject.files.content(path) or b"") for path in _TABLE.files}
    onbuild = subject.image.settings.get("on_build")
    words = [str(one).partition(" ") for one in onbuild] if isinstance(onbuild, list | tuple) else []
    texts["ONBUILD"] = "\n".join(rest for instruction, _, rest in words if instruction.upper() == "ENV")
    for place, text in texts.items():
        assigned = _ASSIGNED.findall(re.sub(r"(?m)^\s*#.*", "", text))
        yield from _by_table(subject, {name: value.strip("\"'") for name, value in assigned}, place)


def _instructions(subject: ImageContext) -> Iterator[Finding]:
    volumes = subject.image.settings.get("volumes")
    for volume in volumes if isinstance(volumes, dict) else ():
        folder = f"{subject.files.resolve(str(volume))}/"
        if any("-packages/" in path and path.startswith(folder) for path in subject.files.paths):
            yield found("volume", volume=escaped(str(volume)))
    for folder in re.findall(r"--xla_gpu_cuda_data_dir=(\S*)", subject.image.env.get("XLA_FLAGS", "")):
        if subject.files.file(f"{folder}/nvvm/libdevice/libdevice.10.bc") is None:
            yield found("no_libdevice", folder=escaped(folder))
    check = subject.image.settings.get("healthcheck")
    words = check.get("Test") if isinstance(check, dict) else None
    if isinstance(words, list | tuple) and words[1:] and words[0] != "NONE":
        yield found("health_check", check=escaped(" ".join(map(str, words[1:]))))
        program = str(words[1]).split()[0] if words[0] == "CMD-SHELL" else str(words[1])
        is_program = re.fullmatch(r"[\w./+-]+", program) and program not in _TABLE.shell_words
        if is_program and (why := _no_program(subject, program)):
            yield found("health_check_fails", program=program, why=why)


def keras_settings(subject: ImageContext) -> Iterator[_Setting]:
    """Judge the settings file of Keras: each setting is a row of the table, with the file's name before its own."""
    env = subject.image.env
    folder = env.get("KERAS_HOME") or f"{subject.home}/.keras"
    path = f"{folder}/{_KERAS_FILE}".strip("/")
    if subject.files.file(path) is None:
        return
    shown, content = f"/{escaped(path)}", subject.files.content(path)
    settings, why = None, "it is too large"
    if content is not None and len(content) <= _MOST_SETTINGS:
        try:
            settings, why = decoding.from_loose_json(content), ""
        except decoding.DamagedError as damage:
            why = str(damage)
    if why or not isinstance(settings, dict):
        yield found("keras_unread" if why else "keras_without_settings", path=shown, why=escaped(why)), "breaks"
        return
    skipped = "backend" if env.get("KERAS_BACKEND") else None
    values = {f"{_KERAS_FILE} {name}": str(value) for name, value in settings.items() if name != skipped}
    for one, effect in _by_table(subject, values):
        yield msgspec.structs.replace(one, subject=_KERAS_FILE, fix=f"correct {shown}"), effect


def can_start(subject: ImageContext) -> Iterator[Finding]:
    image, count = subject.image, len(subject.files.paths)
    words, kind = (image.entrypoint, "entry point") if image.entrypoint else (image.command, "command")
    program, named = subject.started
    is_set = re.search(r"\bPATH=| -\w*l\w* | --login ", " ".join(words))  # the shell's PATH is another
    is_plain = re.fullmatch(r"[\w./+]+[\w./+-]*", program) and program not in _TABLE.shell_words and not is_set
    for word in dict.fromkeys((*words[:1], *([program] if is_plain else ()))) if count > 1 else ():
        if why := _no_program(subject, word):
            yield found("words_in_one" if " " in word else "no_such_program", kind=kind, word=escaped(word), why=why)
    if words and _LIST_IN_QUOTES.match(words[-1]) and words[0].endswith("sh"):
        yield found("list_in_quotes", kind=kind)
    script = posixpath.normpath(posixpath.join("/", image.workdir, named.get("script", "")))
    if "script" in named and not any(map(subject.files.file, (script, f"{script}/__main__.py"))):
        paths = (path for path in subject.files.paths if path.endswith(f"/{posixpath.basename(script)}"))
        others = [path for path in paths if not (site_of(path) or subject.is_of_system(path))]
        text = "no_main" if any(path.startswith(f"{script}/"[1:]) for path in subject.files.paths) else "no_such_script"
        yield found(text, kind=kind, name=script, way="runs", others=f" ({listed(others)} is)" if others else "")
    for way in ("runs", "imports"):
        yield from _not_found(subject, kind, way) if way in named and count > 1 else ()
    for path, row in list(subject.programs(program).items())[:1]:
        starts = "" if subject.is_of_system(path) else row.interpreter  # a system's package is for the system's Python
        python = (starts or (path if "/" in program else "")).strip("/")
        is_other = PATHS["python-of-system"].match(python) and not _has_tensorflow(subject, python)
        if is_other and subject.is_managed and not image.env.get("PYTHONPATH"):
            yield found("other_python_starts", kind=kind, word=escaped(program), path=f"/{python}")
    for kind, file, name in zip(("user", "group"), ("passwd", "group"), image.user.split(":"), strict=False):
        known = [line.partition(":")[0] for line in subject.lines(f"etc/{file}")]
        if name and not name.isdecimal() and name not in known and (known or subject.files.is_complete):
            yield found("no_such_user", kind=kind, file=file, name=escaped(name))
    yield from _python(subject)


def _not_found(subject: ImageContext, kind: str, way: str) -> Iterator[Finding]:
    """Find a module that the start of an image ``runs`` or ``imports``, and that Python does not find."""
    image, files, name, searched = subject.image, subject.files, subject.started[1][way], _searched(subject, way)
    target, top = name.replace(".", "/"), name.partition(".")[0]
    stems = ((posixpath.join(*one).removesuffix("/__main__"), path) for path in files.paths for one in module_of(path))
    there = {stem: path for stem, path in stems if way == "imports" or "/__init__." not in path}
    folders = {posixpath.dirname(path) for path in files.paths}
    places = {files.resolve(f"{folder}/{target}") for folder in searched}
    tops = {files.resolve(f"{folder}/{top}") for folder in searched if PATHS["site"].search(folder)}
    # A package may add modules when it is imported, and a folder may be a package without a file of its own.
    is_open = ("." in name and tops & folders) or (way == "imports" and places & folders) or not searched
    if is_open or places & there.keys() or top in sys.stdlib_module_names:
        return
    named = (path for stem, path in there.items() if f"/{stem}".endswith(f"/{target}"))
    others = sorted((path for path in named if not (site_of(path) or subject.is_of_system(path))), key=len)
    folder = f"/{others[0]}".rpartition(f"/{target}")[0] or "/" if others else ""
    is_known = folder.strip("/") in (image.workdir.strip("/"), *subject.entries("PYTHONPATH"))
    row = "module_elsewhere" if others else "no_main" if places & folders else "no_such_module"
    row = "module_ignored" if others and is_known else row
    yield found(row, kind=kind, way=way, name=name, folder=escaped(folder))


def _searched(subject: ImageContext, way: str) -> list[str]:
    """Return where the Python of an image's start looks for modules; nothing if code of the image may add to it."""
    files, image, options = subject.files, subject.image, {*subject.started[1]}
    is_safe = {"isolated", "safe"} & options or (image.env.get("PYTHONSAFEPATH") and "deaf" not in options)
    found = [] if is_safe and way == "runs" else [image.workdir]
    found += [] if {"isolated", "deaf"} & options else subject.entries("PYTHONPATH")
    found += {folder for folder in map(posixpath.dirname, files.paths) if PATHS["of-every-python"].search(folder)}
    told = [(path, line) for path in files.contents if path.endswith(".pth") for line in subject.lines(path)]
    found += (posixpath.join("/", posixpath.dirname(path), line) for path, line in told)
    code = (path for path, line in told if line.startswith(("import ", "import\t")))
    starts = (path for path in files.paths if PATHS["adds-folders"].search(path) and not subject.is_of_system(path))
    is_open = any(starts) or not all(map(PATHS["adds-none"].search, code))
    return [] if is_open or any(map(files.file, found)) else found


def _has_tensorflow(subject: ImageContext, python: str) -> bool:
    """Return True if TensorFlow is in the environment of a Python; its own links are not followed, as Python does."""
    prefix = posixpath.dirname(posixpath.dirname(python))
    site = subject.files.resolve(f"{prefix}/lib/python{subject.facts.python}/site-packages")
    return f"{site}/tensorflow" in subject.files.paths


def _python(subject: ImageContext) -> Iterator[Finding]:
    paths, minor = subject.files.paths, subject.facts.python
    if not (minor and any("-packages/tensorflow/" in f"{path}/" for path in paths)):
        return
    names = ("python", "python3", f"python{minor}")
    rows = ((name, *row) for name in names for row in reversed(subject.programs(name).items()))
    first = {name: path for name, path, row in rows if may(row, subject.user, "x")}
    others = [name for name in names if name in first and not _has_tensorflow(subject, first[name])]
    if not subject.is_managed:  # another Python than that of an environment may find TensorFlow elsewhere
        notes = ((one, subject.files.content(posixpath.normpath(f"{first[one]}/../../pyvenv.cfg"))) for one in others)
        others = [name for name, text in notes if text is not None and not SYSTEM_SITE.search(text)]
    nowhere = next(filter(None, (_nowhere(subject, name) for name in names)), "")
    if subject.is_managed and (nowhere or not first):
        yield found("no_python_in_path", why=nowhere or "is not in the image")
    elif others:
        yield found("other_python_in_path", subject.severity, name=others[0], found_at=f"/{first[others[0]]}")


def _no_program(subject: ImageContext, word: str) -> str:
    rows = subject.programs(word).values()
    if any(may(row, subject.user, "x") for row in rows):
        return ""
    user = escaped(subject.image.user or "root")
    closed = next((f"may not be executed by {user} (mode {row.mode & 0o7777:o})" for row in rows), "")
    return closed or _nowhere(subject, word) or "is not in the image"


def _nowhere(subject: ImageContext, word: str) -> str:
    """Say to what a link before the first program of that name leads, if that is not in the image; '' for none."""
    files, resolve = subject.files, subject.files.resolve
    before = takewhile(lambda path: files.file(path) is None, subject.places(word))
    links = (path for path in before if path in files.paths and resolve(path) not in files.paths)
    shown = (f"leads by {listed([path])} to {listed([resolve(path)])}, which is not in the image" for path in links)
    return next(shown, "")


def scratch(subject: ImageContext) -> Iterator[Finding]:
    user = subject.user
    if not subject.files.is_complete:
        return
    if subject.files.file("bin/sh") is None:
        yield found("no_shell", subject.severity)
    roots = [row[0] for row in subject.accounts if row[2] == "0" and row[0] != "root"]
    if roots:
        yield found("accounts_of_root", names=escaped(", ".join(roots)))
    if not may_write(subject, "tmp"):
        yield found("closed_tmp", subject.severity, user=escaped(subject.image.user))
    is_asked = subject.is_managed and subject.home.strip("/") and not subject.image.env.get("HOME")
    if is_asked and not may_write(subject, subject.home):
        yield found("closed_home", user=escaped(subject.image.user), number=user, path=escaped(subject.home))


def may_read(subject: ImageContext, path: str) -> bool:
    """Return True if the image's user may read a file, and enter each folder on the way to it."""
    real, paths = subject.files.resolve(path), subject.files.paths
    needs = {real: "r"} | {real[: one.start()]: "x" for one in re.finditer("/", real)}
    return all(may(paths[one].row, subject.user, right) for one, right in needs.items() if one in paths)


def may_write(subject: ImageContext, path: str) -> bool:
    """Return True if the image's user may write to a folder, or make it if it is missing."""
    real = subject.files.resolve(path)
    while real and real not in subject.files.paths:
        real = posixpath.dirname(real)
    row = subject.files.paths[real].row if real else None
    return not subject.user or (row is not None and row.kind == "folder" and may(row, subject.user, "wx"))


def requirement(subject: ImageContext) -> CheckOutput:
    """Read the image's start-up requirement as the container runtime does, and check which hosts it admits."""
    env, built = subject.image.env, subject.facts.cuda or ""
    given = {name: value for name, value in sorted(env.items()) if name.startswith("NVIDIA_REQUIRE_")}
    findings = [one for name, value in given.items() for one in _requirement(name, value, built)]
    if subject.is_managed and not any(value.strip() for value in given.values()):
        findings.append(found("requires_nothing", least=required_cuda(built or "12.0")))
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() not in ("", "0", "false"):
        findings.append(found("requirement_disabled"))
    observed = "; ".join(f"{name}={escaped(value)}" for name, value in given.items()) or "no requirement"
    return CheckOutput(tuple(findings), observed)


def _requirement(name: str, value: str, built: str) -> Iterator[Finding]:
    met = partial(requirement_met, value, brand=None, capability=None)
    about = partial(found, name=name, value=escaped(value), built=built)
    try:
        newest = met(cuda="99.0", driver="999.0")  # newer than any
    except ValueError as error:
        yield about("requirement_invalid", why=escaped(str(error)))
        return
    least = required_cuda(built) if built else ""
    if newest is None:
        yield about("requirement_of_brands")
    if newest is False:
        yield about("requirement_of_no_host")
    elif built and met(cuda=built, driver=None) is False:
        yield about("requirement_too_new")
    elif built and met(cuda=least, driver=None) is False:
        yield about("requirement_too_strict", least=least)
