"""Every edge is crossed by a helper: what decodes, opens or reads does it where its failures become our errors."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "envbuilder"

HELPERS = frozenset(
    {"errors/decode.py", "errors/programs.py", "errors/lifeline.py", "workspace.py"}
    | {"engine/fake.py", "pypi/lazyzip.py", "validation/process.py"}
)
"""The modules that may decode and read as they like: the helpers, the engine of the tests, and those of `PARSERS`."""

PARSERS = {
    "lazyzip.directory": "decode",
    "lazyzip.content_at": "decode",
    "lazyzip.unpack": "decode",
    "follow": "program",
}
"""Calls of modules that say what they raise: whoever calls them guards them, as if it were done there."""

DECODERS = frozenset(
    {"decode", "convert", "loads", "b64decode", "decompress", "unpack", "unpack_from", "fromstring", "ZipFile"}
    | {"load", "raw_decode", "getdecoder", "iter_unpack", "literal_eval", "frombytes", "message_from_bytes"}
    | {"decode_lines", "parsestr", "parsebytes", "b85decode", "urlsafe_b64decode", "standard_b64decode", "a2b_base64"}
)
VALUES = frozenset(
    {"fromtimestamp", "Decimal", "Fraction", "fromisoformat", "fromhex", "unhexlify", "strptime", "UUID", "ip_address"}
)
FILES = frozenset(
    {"open", "small_file", "read_bytes", "read_text", "write_bytes", "write_text", "unlink", "getlines"}
    | {
        "listdir",
        "scandir",
        "makedirs",
        "rmdir",
        "touch",
        "symlink_to",
        "hardlink_to",
        "rmtree",
        "copyfile",
        "copytree",
    }
)
ONLY_CALLED = frozenset(
    {"stat", "lstat", "iterdir", "mkdir", "chmod", "readlink", "disk_usage", "statvfs", "utime", "mkfifo", "FileIO"}
)
"""Methods of paths whose names are those of modules and fields too: their calls alone count."""

BY_FULL_NAME = frozenset(
    {f"os.{name}" for name in ("remove", "walk", "replace", "rename", "mkdir", "truncate", "chown", "link", "symlink")}
    | {f"shutil.{name}" for name in ("move", "copy", "copy2", "copystat", "chown")}
    | {"fileinput.input", "mmap.mmap", "pkgutil.get_data"}
)
"""Functions on files whose last name is anything's."""

UNMISTAKABLE = frozenset({"read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "rmdir", "symlink_to"})
"""Methods that nothing but a path has: a value of that name is one that somebody may call, whoever's it is."""

PROGRAMS = frozenset({"subprocess.run", "subprocess.Popen", "subprocess.check_output"})
GUARDS = {
    "decode": frozenset({"damaged", "reading", "_as_ours"}),
    "value": frozenset({"damaged"}),
    "file": frozenset({"writing", "asking", "temporary_folder", "reading", "_reached"}),
}
"""Blocks within which a call may stand that decodes, reads a value, or works on a file."""

CATCHES = {"file": ("OSError",), "value": ("ValueError",), "program": ("OSError",), "timed": ("OSError", "Timeout")}
"""What an ``except`` has to name to guard a call on a file, a value, a program, and one with a limit of time."""


ONLY_IN: dict[str, tuple[str, ...]] = {
    "subprocess": ("errors/programs.py",),
    "multiprocessing": (),
    "pty": (),
    "pickle": (),
    "marshal": (),
    "shelve": (),
    "runpy": (),
    "ctypes": ("errors/lifeline.py",),
    "docker": ("engine/",),
    "requests": ("engine/", "pypi/", "registry/"),
    "urllib3": ("engine/", "pypi/", "registry/"),
    "urllib.request": (),
    "http.client": (),
    "ftplib": (),
    "smtplib": (),
    "asyncio": (),
    "socket": ("engine/",),
    "ssl": ("registry/",),
    "sqlite3": ("validation/history.py",),
    "yaml": ("yaml_reader.py", "catalog/store.py", "reproduce/messages/recognise.py"),
    "tomllib": ("pypi/uvconf.py", "image/user_config.py"),
    "configparser": ("pypi/pipconf.py",),
    "csv": ("errors/decode.py",),
    "html.parser": ("pypi/pages.py",),
    "xml": ("report/formats/junit.py",),
    "tarfile": ("engine/", "image/debian.py"),
    "zipfile": ("image/wheel_records.py",),
    "gzip": ("engine/layer_files.py",),
    "bz2": ("validation/packed_files.py",),
    "lzma": ("validation/packed_files.py",),
    "tempfile": (),
    "glob": (),
    "fcntl": ("image/bases.py", "publish/journal.py"),
}
"""Modules that reach outside, or read what others wrote in a way of their own, and the only places that use them."""

NEVER = frozenset(
    {"eval", "exec", "compile", "__import__", "breakpoint", "os.system", "os.popen", "os.fork", "os.startfile"}
    | {f"os.{verb}{form}" for verb in ("exec", "spawn") for form in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")}
    | {"os.posix_spawn", "os.posix_spawnp", "shutil.unpack_archive", "shutil.make_archive"}
)
"""What nothing in the package calls, wherever it stands, but for `ITS_WORK`."""

ITS_WORK = {
    "errors/lifeline.py": frozenset({"os.fork", "os.execvp"}),
    "cli/fleet_command.py": frozenset({"os.execv"}),  # a worker becomes Dask's own
}

EDGES = DECODERS | VALUES | FILES
ORIGINS = (
    *("json", "msgspec", "base64", "binascii", "zlib", "struct", "datetime", "pathlib", "io", "os", "builtins", ""),
    *("codecs", "csv", "ast", "array", "email", "uuid", "ipaddress", "time", "shutil", "mmap", "linecache"),
)
MODULES_OF_EDGES = frozenset({*ORIGINS} - {"", "builtins"})
"""Modules of which a function may not be asked for by a name that nobody can read here."""

AT_ONCE = frozenset(
    {"all", "any", "dict", "frozenset", "join", "list", "max", "min", "next", "set", "sorted", "sum", "tuple", "update"}
)
"""What takes all that a generator yields before it returns: within a guard, so is the generator."""

"""Where the names of `EDGES` come from, as far as imports tell; any other import's is a function of ours."""


@dataclass(frozen=True)
class Names:
    """What a module's names stand for, by its imports: ``loads`` is ``json.loads`` after ``from json import loads``."""

    origin: dict[str, str]

    @classmethod
    def of(cls, tree: ast.AST) -> Names:
        """Read every import, those inside functions too."""
        origin: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for name in node.names:
                    origin[name.asname or name.name.partition(".")[0]] = (
                        name.name if name.asname else name.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for name in node.names:
                    origin[name.asname or name.name] = f"{node.module or ''}.{name.name}"
        return cls(origin)

    def full(self, node: ast.expr) -> str:
        """Return what an expression names, its first part as it was imported."""
        text = ast.unparse(node)
        first, dot, rest = text.partition(".")
        return self.origin.get(first, first) + dot + rest


_COPIES = frozenset({"msgspec", "dataclasses"})
"""Whose ``replace`` copies a value. A path's takes one argument, text's two."""


def kind_of(node: ast.Call, names: Names) -> str:
    """Name the edge that a call crosses; '' for one that crosses none, or cannot fail by what it is given."""
    called = names.full(node.func)
    name = called.rpartition(".")[2]
    if told := PARSERS.get(ast.unparse(node.func)) or _told_otherwise(called, node, names):
        return told
    if called in PROGRAMS:
        return "timed" if any(one.arg == "timeout" for one in node.keywords) else "program"
    first = called.partition(".")[0]
    if name in {"replace", "rename"} and len(node.args) == 1 and not node.keywords and first not in _COPIES:
        return "file"
    if node.args and all(isinstance(one, ast.Constant) for one in node.args) and name in VALUES:
        return ""  # ours, and seen to be right whenever the module is imported
    if called == "str" and len(node.args) + len(node.keywords) > 1:
        return "decode"
    spelt = {"getattr": 1, "attrgetter": 0, "methodcaller": 0}.get(name, len(node.args))
    if len(node.args) > spelt and isinstance(named_by := node.args[spelt], ast.Constant):
        name = str(named_by.value)
    named = {"decode": DECODERS, "value": VALUES, "file": FILES}
    kind = next((kind for kind, names in named.items() if name in names), "")
    return "" if called.startswith("envbuilder.") or is_safe(called, node) else kind


def _told_otherwise(called: str, node: ast.Call, names: Names) -> str:
    """Name the edge of a call that its last name alone does not tell; '' for any other."""
    last = called.rpartition(".")[2]
    if called in BY_FULL_NAME or (last in ONLY_CALLED and not called.startswith("envbuilder.")):
        anonymous = called == "mmap.mmap" and ast.unparse(node.args[0]) == "-1"  # memory, and no file
        return "" if anonymous else "file"
    unread = called == "getattr" and len(node.args) > 1 and not isinstance(node.args[1], ast.Constant)
    return "decode" if unread and names.full(node.args[0]).partition(".")[0] in MODULES_OF_EDGES else ""


def crossings(path: Path) -> Counter[str]:
    """Count a module's unguarded calls of what crosses an edge, by the call's last name."""
    found: Counter[str] = Counter()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    _count(tree, frozenset(), found, Names.of(tree))
    return found


def _count(node: ast.AST, guards: frozenset[str], found: Counter[str], names: Names) -> None:
    match node:
        case ast.Call():
            _count_call(node, guards, found, names)
            return
        case ast.With():
            _count_with(node, guards, found, names)
            return
        case ast.Try():
            inner = guards | caught_by([one for handler in node.handlers for one in exceptions(handler)])
            for line in node.body:
                _count(line, inner, found, names)
            for part in (*node.handlers, *node.orelse, *node.finalbody):
                _count(part, guards, found, names)
            return
        case ast.Lambda() | ast.FunctionDef() | ast.AsyncFunctionDef() | ast.GeneratorExp():
            guards = frozenset()  # it is called later, and elsewhere
        case ast.Subscript(slice=ast.Constant(value=str(name))) if name in EDGES and _is_namespace(node.value):
            found[name] += 1
            return
        case ast.Attribute() | ast.Name() if is_edge(node, names):  # no call: a value that somebody may call
            found[names.full(node).rpartition(".")[2]] += 1
            return
    for child in ast.iter_child_nodes(node):
        _count(child, guards, found, names)


def _count_call(node: ast.Call, guards: frozenset[str], found: Counter[str], names: Names) -> None:
    kind = kind_of(node, names)
    if kind and kind not in guards:
        found[names.full(node.func).rpartition(".")[2]] += 1
    called = () if is_edge(node.func, names) else (node.func,)
    at_once = names.full(node.func).rpartition(".")[2] in AT_ONCE
    for value in (*called, *node.args, *(keyword.value for keyword in node.keywords)):
        if at_once and isinstance(value, ast.GeneratorExp):
            for child in ast.iter_child_nodes(value):
                _count(child, guards, found, names)
        else:
            _count(value, guards, found, names)


def _is_namespace(node: ast.expr) -> bool:
    """Tell whether an expression is all that a module or a class has, by name."""
    return ast.unparse(node).endswith(".__dict__") or ast.unparse(node).startswith(("vars(", "globals(", "locals("))


def _count_with(node: ast.With, guards: frozenset[str], found: Counter[str], names: Names) -> None:
    """Count within a block: each of its items guards those after it, and all of them its lines."""
    inner = guards
    for item in node.items:
        _count(item, inner, found, names)
        if isinstance(item.context_expr, ast.Call):
            called = item.context_expr
            helper = ast.unparse(called.func).rpartition(".")[2]
            inner |= {kind for kind, helpers in GUARDS.items() if helper in helpers and is_ours(called, names)}
            if helper == "suppress":
                inner |= caught_by([ast.unparse(one).rpartition(".")[2] for one in called.args])
    for line in node.body:
        _count(line, inner, found, names)


def is_edge(value: ast.expr, names: Names) -> bool:
    """Tell whether a value is a function that crosses an edge, by its import: a field of that name is none."""
    if not isinstance(value, ast.Attribute | ast.Name):
        return False
    full = names.full(value)
    origin, _, last = full.rpartition(".")
    if isinstance(value, ast.Attribute) and last in UNMISTAKABLE:
        return True
    known = ast.unparse(value).partition(".")[0] in names.origin or full == "open"
    return known and last in EDGES and origin.partition(".")[0] in ORIGINS


def is_ours(called: ast.Call, names: Names) -> bool:
    """Tell whether a guard is the helper that it is named as, and not another function of that name."""
    first = ast.unparse(called.func).partition(".")[0]
    return names.origin.get(first, "envbuilder.").startswith("envbuilder.")


def exceptions(handler: ast.ExceptHandler) -> list[str]:
    """Name what a handler catches; nothing where it only passes it on."""
    if handler.type is None or any(_passes_on(line, handler.name) for line in handler.body):
        return []
    types = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [ast.unparse(one).rpartition(".")[2] for one in types]


def _passes_on(line: ast.stmt, name: str | None) -> bool:
    if not isinstance(line, ast.Raise):
        return False
    return line.exc is None or (name is not None and ast.unparse(line.exc) == name)


def caught_by(exceptions: Sequence[str]) -> frozenset[str]:
    """Name the edges that are guarded where these exceptions are caught."""
    caught = {{"TimeoutExpired": "Timeout", "SubprocessError": "Timeout"}.get(name, name) for name in exceptions}
    return frozenset(kind for kind, wanted in CATCHES.items() if caught.issuperset(wanted))


def is_safe(called: str, node: ast.Call) -> bool:
    """Tell whether a call cannot fail by what it is given: encoding of our own text, a decoder that replaces."""
    last = called.rpartition(".")[2]
    values = [ast.unparse(value) for value in (*node.args, *(keyword.value for keyword in node.keywords))]
    if last == "decode":
        return "'replace'" in values or "encode" in called or "format" in called
    if last == "loads":
        return all("encode(" in value or "decode.to_json(" in value for value in values)
    return called.startswith("yaml.") or (last == "open" and called == "opener.open")


def outside(path: Path, place: str) -> list[str]:
    """Name what a module imports or calls that it has no business with."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = Names.of(tree)
    imported = [
        name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in (one.name for one in node.names)
    ]
    imported += [
        f"{node.module}.{name.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and not node.level
        for name in node.names
    ]
    found = [
        name
        for name in imported
        for module, places in ONLY_IN.items()
        if f"{name}.".startswith(f"{module}.") and not place.startswith(places)
    ]
    values = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute | ast.Name))
    found += [name for name in (*imported, *map(names.full, values)) if name in NEVER]
    by_name = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args)
    for node in by_name:  # a module or a function by a text: named outright, or not at all
        if names.full(node.func) in {"importlib.import_module", "getattr"} and isinstance(node.args[-1], ast.Constant):
            text = str(node.args[-1].value)
            found += [text for one in (*ONLY_IN, *NEVER) if text == one or one.endswith(f".{text}")]
    return found


def every() -> Counter[tuple[str, str]]:
    """Count the crossings of the package, but for the probes, which run in images, and the helpers."""
    found: Counter[tuple[str, str]] = Counter()
    for path in sorted(modules()):
        place = path.relative_to(PACKAGE).as_posix()
        if place not in HELPERS:
            found.update({(place, name): count for name, count in crossings(path).items()})
    return found


def test_every_edge_has_its_helper() -> None:
    """No module decodes, unpacks, opens, reads or starts a program where a failure would not become one of ours."""
    assert every() == Counter(), "use envbuilder.errors.decode and envbuilder.workspace"


def modules() -> list[Path]:
    """List the package's modules, but for what runs in images."""
    inside = ("probes/", "controls/defects/", "simulated/sources/")
    return [path for path in PACKAGE.rglob("*.py") if not path.relative_to(PACKAGE).as_posix().startswith(inside)]


def test_what_reaches_outside_has_its_place() -> None:
    """Each module that reaches outside, or reads others' formats, is used in its room alone; nothing evaluates text."""
    found = {
        (place, name)
        for path in modules()
        for place in (path.relative_to(PACKAGE).as_posix(),)
        for name in outside(path, place)
        if name not in ITS_WORK.get(place, ())
    }
    assert not found


EVASIONS = (
    "from json import loads as read\nread(x)",
    "from msgspec import json as j\nj.decode(x)",
    "import json\nread = json.loads\nread(x)",
    "import json\nlist(map(json.loads, lines))",
    "import functools\nread = functools.partial(open, 'a')\nread()",
    "import json\ngetattr(json, 'loads')(x)",
    "from pathlib import Path\nPath.read_text(p)",
    "with damaged('x'):\n    read = lambda: json.loads(x)\nread()",
    "with damaged('x'):\n    def read():\n        return json.loads(x)\nread()",
    "from somewhere import damaged\nwith damaged('x'):\n    json.loads(x)",
    "with open(p) as f, writing(p):\n    pass",
    "with nothing(), open(p) as f, writing(p):\n    pass",
    "try:\n    open(p)\nexcept NotAnOSError:\n    pass",
    "try:\n    open(p)\nexcept OSError:\n    raise",
    "try:\n    pass\nexcept OSError:\n    open(p)",
    "try:\n    pass\nfinally:\n    p.read_bytes()",
    "p.replace(q)",
    "import os\nos.open(p, 0)",
    "rows = [json.loads(line) for line in lines]",
    "class A:\n    rows = open(p)",
    "@decorated(open(p))\ndef f(): pass",
    "def f(file=open(p)): pass",
    "async def f():\n    json.loads(x)",
    "match json.loads(x):\n    case _: pass",
    "x = await_(p.read_text())",
    "while (line := p.read_text()): pass",
    "f'{p.read_text()}'",
    "return_ = json.loads if a else None",
    "default = {'read': json.loads}",
    "json.load(f)",
    "json.JSONDecoder().raw_decode(x)",
    "import operator\noperator.attrgetter('loads')(json)(x)",
    "import operator\noperator.methodcaller('read_text')(p)",
    "vars(json)['loads'](x)",
    "json.__dict__['loads'](x)",
    "str(data, 'utf-8')",
    "str(data, encoding='utf-8')",
    "import codecs\ncodecs.getdecoder('utf-8')(x)",
    "import os\nos.listdir(p)",
    "import os\nos.scandir(p)",
    "p.rmdir()",
    "p.touch()",
    "p.symlink_to(q)",
    "import shutil\nshutil.rmtree(p)",
    "import shutil\nshutil.copyfile(a, b)",
    "import os\nos.makedirs(p)",
    "import ast\nast.literal_eval(x)",
    "import array\narray.array('d').frombytes(x)",
    "import email\nemail.message_from_bytes(x)",
    "import uuid\nuuid.UUID(x)",
    "import ipaddress\nipaddress.ip_address(x)",
    "import time\ntime.strptime(x, '%Y')",
    "import base64\nbase64.b85decode(x)",
    "import base64\nbase64.urlsafe_b64decode(x)",
    "import binascii\nbinascii.a2b_base64(x)",
    "import linecache\nlinecache.getlines(p)",
    "import struct\nstruct.iter_unpack('<I', x)",
    "try:\n    open(p)\nexcept OSError as error:\n    raise error",
    "with writing(p):\n    rows = (q.read_text() for q in ps)\nlist(rows)",
    "with writing(p):\n    f((q.read_text() for q in ps))",
    "read = p.read_text\nread()",
    "list(map(p.read_text, codings))",
    "name = 'loads'\ngetattr(json, name)(x)",
    "import msgspec\nmsgspec.json.Decoder(T).decode_lines(x)",
    "from datetime import datetime\ndatetime.fromtimestamp(x)",
    "from decimal import Decimal\nDecimal(x)",
    "from fractions import Fraction\nFraction(x)",
    "from email.parser import Parser\nParser().parsestr(x)",
    "import os\nos.remove(p)",
    "import os\nos.replace(p, q)",
    "from os import rename\nrename(p, q)",
    "import os\nlist(os.walk(p))",
    "import shutil\nshutil.move(p, q)",
    "from shutil import copy\ncopy(p, q)",
    "import fileinput\nfileinput.input(p)",
    "import io\nio.FileIO(p)",
    "import mmap\nmmap.mmap(f, 0)",
    "import pkgutil\npkgutil.get_data('a', 'b')",
    "p.stat()",
    "list(p.iterdir())",
    "p.mkdir()",
    "p.chmod(0o644)",
    "p.readlink()",
    "import os\nos.mkfifo(p)",
    "import shutil\nshutil.disk_usage(p)",
)
"""Ways past a search that looks for a call's name in a guarded block. Each crosses an edge unguarded."""


@pytest.mark.parametrize("code", EVASIONS)
def test_an_evasion_is_found(code: str, tmp_path: Path) -> None:
    """No other spelling hides a crossing: an alias, a value passed on, a function called later, a false guard."""
    path = tmp_path / "m.py"
    path.write_text(f"import json\nfrom envbuilder.workspace import writing\n{code}\n")
    assert crossings(path).total() > 0


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess",
        "from subprocess import run",
        "import subprocess as sp",
        "from urllib.request import urlopen",
        "import urllib.request",
        "import requests",
        "from docker import from_env",
        "import yaml",
        "import pickle",
        "import os\nos.system('x')",
        "from os import system",
        "import os as o\no.popen('x')",
        "eval('1')",
        "run = exec",
        "__import__('subprocess')",
        "import importlib\nimportlib.import_module('subprocess')",
        "import os\ngetattr(os, 'system')('x')",
        "def f():\n    import socket",
        "import tempfile",
    ],
)
def test_a_way_outside_is_found(code: str, tmp_path: Path) -> None:
    """No module reaches a program, the network or a dangerous format past its room, however it names it."""
    path = tmp_path / "m.py"
    path.write_text(f"{code}\n")
    assert outside(path, "jobs/m.py")


def test_crossings_are_found(tmp_path: Path) -> None:
    """The search itself: decoders and readers count, our own encoding and what replaces do not."""
    path = tmp_path / "m.py"
    path.write_text(
        "msgspec.json.decode(x)\nopen(p)\np.read_text()\nb.decode('utf-8', 'replace')\nb.decode(errors='replace')\n"
        "base64.b64encode(x).decode()\ndecode.from_json(x, T)\n"
        "with damaged('x'):\n    json.loads(x)\n    open(q)\n"
        "try:\n    p.read_bytes()\n    json.loads(x)\nexcept (ValueError, OSError):\n    p.read_bytes()\n"
        "with writing(p), p.open('w') as f:\n    pass\n"
    )
    assert crossings(path) == Counter({"decode": 1, "open": 2, "read_text": 1, "loads": 1, "read_bytes": 1})


def test_unguarded_programs_and_values_are_found(tmp_path: Path) -> None:
    """A program with a limit of time needs both of its failures caught; a time or a number that is none, its own."""
    path = tmp_path / "m.py"
    path.write_text(
        "subprocess.run(a)\nsubprocess.run(a, timeout=1)\ndatetime.fromisoformat(x)\nzlib.decompress(x)\n"
        "try:\n    subprocess.run(a)\n    subprocess.run(a, timeout=1)\nexcept OSError:\n    pass\n"
        "try:\n    subprocess.run(a, timeout=1)\nexcept (OSError, subprocess.TimeoutExpired):\n    pass\n"
        "try:\n    datetime.fromisoformat(x)\n    zlib.decompress(x)\nexcept ValueError:\n    pass\n"
        "with damaged('x'):\n    zlib.decompress(x)\n    bytes.fromhex(x)\njson.loads(msgspec.json.encode(x))\n"
    )
    assert crossings(path) == Counter({"run": 3, "fromisoformat": 1, "decompress": 2})
