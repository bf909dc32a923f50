"""The faults that are injected: a name, how it is done, and the end that is expected."""

from __future__ import annotations

from dataclasses import dataclass

from strange_server import ANSWERS, WORDS


@dataclass(frozen=True)
class Fault:
    """One fault of the machine or of what lies on it.

    ``line`` is run by a shell in an empty folder on a small disk of its own; ``E`` is envbuilder. ``codes`` are the
    exit codes that are right, ``says`` must stand in what it prints. ``server`` is how a server answers whose port is
    ``$PORT``; ``inodes`` how many files the disk may hold. One that is not ``fast`` waits for a limit of time. What
    needs another account or a mount needs ``root``, a false clock libfaketime (``$FALSE_CLOCK``).
    """

    name: str
    line: str
    codes: tuple[int, ...]
    says: str = ""
    server: str = ""
    inodes: int = 0
    fast: bool = True
    root: bool = False
    faketime: bool = False


QUICK = "tf2.20.0-py311-cpu-bookworm-runtime"
FILL = "head -c 40M /dev/zero >fill 2>/dev/null;"
CHECK = "$E check --tensorflow 2.20.0 --driver 570.124.06 --gpu H100"

FULL_STREAMS = [
    Fault(f"{command}: standard output is full", f"$E {command} >/dev/full", (5,), "No space left")
    for command in ("plan", "explain PTX_JIT", "check --tensorflow 2.20.0", "plan --format json")
]
CLOSED = [
    Fault(f"{command}: {name}", f"$E {command} {how}", (0,))
    for command in ("plan", "explain PTX_JIT", "catalog list")
    for name, how in (("no standard output", ">&-"), ("no standard error", "2>&-"), ("no standard input", "<&-"))
]
GONE_READERS = [
    Fault(f"{command}: the reader has gone", f"$E {command} | true; exit ${{PIPESTATUS[0]}}", (141, 0))
    for command in ("plan", "--help", "catalog list --format json", "schema verdict")
]
MATRICES = [
    Fault(f"a matrix: {name}", f"printf '{content}' >m.yaml; $E plan m.yaml", (2,), says)
    for name, content, says in (
        ("empty", "", "empty"),
        ("not UTF-8", "name: \\377", "not UTF-8"),
        ("NUL", "name: \\0", ""),
        ("a tab", "name:\\n\\t- x", "not YAML"),
        ("a timestamp tag", "name: !!timestamp x", "m.yaml:1"),
        ("a truth tag", "name: !!bool maybe", "m.yaml:1"),
        ("a number tag", "name: !!int x", "m.yaml:1"),
        ("a bomb", "a: &a [x,x]\\nb: &b [*a,*a]\\nname: [*b,*b]", ""),
        ("a python object", "name: !!python/object/apply:os.system [id]", ""),
        ("a key twice", "name: a\\nname: b", "twice"),
        ("a list", "- a", ""),
    )
] + [
    Fault("a matrix: deep", "python3 -c 'print(\"[\"*50000)' >m.yaml; $E plan m.yaml", (2,)),
    Fault(
        "a matrix: 90,000 unknown keys",
        "seq -f 'k%.0f: 1' 90000 >m.yaml; $E plan m.yaml 2>&1 | tail -3; exit ${PIPESTATUS[0]}",
        (2,),
        "mend these first",
    ),
    Fault("a matrix: larger than is read", "head -c 2M /dev/zero >m.yaml; $E plan m.yaml", (2,), "larger than"),
    Fault("a matrix: endless", "ln -s /dev/zero m.yaml; timeout 20 $E plan m.yaml", (2,)),
    Fault("a matrix: a folder", "mkdir m.yaml; $E plan m.yaml", (2,), "next:"),
    Fault("a matrix: none", "$E plan nonsuch.yaml", (2,), "next:"),
]
CACHES = [
    Fault(f"the catalogue's cache: {name}", f"{CHECK} >a; {how}; {CHECK} >b; cmp a b", (0,), "")
    for name, how in (
        ("one byte changed", "printf X | dd of=$(ls $XDG_CACHE_HOME/envbuilder/catalog-*) bs=1 seek=40 conv=notrunc"),
        ("cut", "truncate -s 100 $XDG_CACHE_HOME/envbuilder/catalog-*"),
        ("empty", "truncate -s 0 $XDG_CACHE_HOME/envbuilder/catalog-*"),
        ("zeroes", "f=$(ls $XDG_CACHE_HOME/envbuilder/catalog-*); head -c 90000 /dev/zero >$f"),
        ("a folder", "f=$(ls $XDG_CACHE_HOME/envbuilder/catalog-*); rm $f; mkdir $f"),
        ("a file for its folder", "rm -r $XDG_CACHE_HOME/envbuilder; touch $XDG_CACHE_HOME/envbuilder"),
    )
] + [
    Fault("no cache can be made", f"{CHECK} >a; {FILL} rm -r $XDG_CACHE_HOME; {CHECK} >/dev/null", (0,)),
    Fault("no home", f"env -u HOME -u XDG_CACHE_HOME {CHECK} >/dev/null", (0,)),
]
STORED = [
    Fault(f"report over {name}", f"mkdir -p out/x; {how}; $E report", (0,), says)
    for name, how, says in (
        ("a verdict that is not UTF-8", 'printf \'{"schema":"\\377"}\' >out/x/verdict.json', "set aside"),
        ("a verdict that was cut", "printf '{\"schema\":' >out/x/verdict.json", "set aside"),
        ("an empty verdict", "touch out/x/verdict.json", "set aside"),
        ("a deep verdict", "head -c 100000 /dev/zero | tr '\\0' '[' >out/x/verdict.json", "set aside"),
        ("another version's verdict", 'echo \'{"schema":"envbuilder/verdict/v9"}\' >out/x/verdict.json', ""),
        ("an image record that is not UTF-8", "printf '\\377' >out/x/image.json", "set aside"),
    )
] + [
    Fault(
        "report over a history that is none",
        "mkdir out; head -c 9000 /dev/zero >out/history.sqlite3; $E report",
        (0, 5),
    ),
    Fault(
        "report over a history of text",
        "mkdir out; yes text | head -c 9000 >out/history.sqlite3; $E report",
        (5,),
        "next:",
    ),
    Fault("report over a history that is a folder", "mkdir -p out/history.sqlite3; $E report", (5,), "next:"),
    Fault(
        "export of a file that is none",
        "printf '\\377' >v.json; $E export junit v.json; r=$?; ls v.json; exit $r",
        (2,),
    ),
]
DISKS = [
    Fault("render: the disk is full", f"{FILL} $E render -s flavor=cpu", (5, 2), "next:"),
    Fault("report: the disk is full", f"{FILL} $E report", (5,), "next:"),
    Fault("report: out is a file", "touch out; $E report", (5,), "next:"),
    Fault("report: the page is a folder", "mkdir -p page/index.html; $E report -o page", (5,), "next:"),
    Fault(
        "export: the target is a folder",
        "mkdir v.xml; $E export junit -o v.xml",
        (2,),
        "is a directory",
    ),
    Fault("report: a file may not grow", "ulimit -f 0; $E report", (5, 153), ""),
    Fault("plan: few open files", "ulimit -n 12; $E plan >/dev/null", (0, 5)),
    Fault("report: few open files", "ulimit -n 10; $E report", (0, 5)),
    Fault("the working folder was removed", "mkdir g; cd g; rmdir ../g; $E plan", (2,), "next:"),
    Fault(
        "render: a lock that is not UTF-8",
        f"mkdir -p images/{QUICK}; printf '\\377' >images/{QUICK}/requirements.lock; $E render --check",
        (2,),
        "UTF-8",
    ),
    Fault(
        "render: a lock that is a folder", f"mkdir -p images/{QUICK}/requirements.lock; $E render --check", (1, 2, 5)
    ),
    Fault(
        "lock: a link to itself",
        f"mkdir -p images/{QUICK}; ln -s requirements.lock images/{QUICK}/requirements.lock; $E render --check",
        (1, 2, 5),
    ),
]
ENGINES = [
    Fault(f"{command}: {name}", f"{how} $E {command}", (5,), "next:")
    for command in ("run", "build", "clean", "validate x:y")
    for name, how in (
        ("no engine", "DOCKER_HOST=unix:///nonexistent.sock"),
        ("an engine's address that is none", "DOCKER_HOST=banana://x"),
        ("nobody listens", "DOCKER_HOST=tcp://127.0.0.1:1"),
    )
] + [
    Fault("doctor: no engine", "DOCKER_HOST=unix:///nonexistent.sock $E doctor >/dev/null", (0,)),
]
REPORTS = [
    Fault(f"a report: {name}", f"{how}; timeout 60 $E reproduce r.txt --dry-run", (0, 1, 2, 8))
    for name, how in (
        ("empty", "touch r.txt"),
        ("bytes", "head -c 100000 /dev/urandom >r.txt"),
        ("one line of a megabyte", "head -c 1000000 /dev/zero | tr '\\0' a >r.txt"),
        ("a million newlines", "yes '' | head -1000000 >r.txt"),
        ("escapes", "printf '\\033]0;owned\\007\\033[2JTensorFlow 2.20.0\\n' >r.txt"),
        ("a folder", "mkdir r.txt"),
        ("none", "true"),
    )
]
CAPTURES = [
    Fault("capture: the target is a folder", "mkdir c; $E capture --output c", (2,), "is a directory"),
    Fault("capture: a Python that is none", "$E capture --python /nonexistent", (2, 5), "next:"),
    Fault("keys: the folder is a file", "touch k; $E keys new k", (2,), "is a file"),
    Fault("keys: the disk is full", f"{FILL} $E keys new k; r=$?; rm fill; $E keys new k && exit $r", (5,), "next:"),
    Fault("keys: there already", "$E keys new k && $E keys new k", (2,), "never overwritten"),
]

REGISTRIES = [
    Fault(
        f"verify: a registry that is {word}",
        "$E keys new k >/dev/null && $E verify 127.0.0.1:$PORT/a:b --key k/envbuilder.pub",
        (5, 7),
        "REFUSED",
        server=word,
        fast=word in ANSWERS,
    )
    for word in WORDS
]
INDEX = "UV_DEFAULT_INDEX=http://127.0.0.1:$PORT/simple PIP_CONFIG_FILE=/dev/null"
INDEXES = [
    Fault(
        f"catalog refresh: an index that is {word}",
        f"{INDEX} $E catalog refresh 2.99.0",
        (8,) if word in {"nothing here", "not UTF-8"} else (5,),
        "next:",
        server=word,
        fast=word not in {"busy for ever", "a reset", "no end"},
    )
    for word in WORDS
    if word not in {"hanging", "a drop a second"}
] + [
    Fault(
        f"lock: an index that is {word}",
        # Tests are closed to the network, for which uv's own word would keep it from this index too.
        f"{INDEX} UV_OFFLINE=0 UV_CACHE_DIR=$TMPDIR/../uv UV_HTTP_TIMEOUT=5 $E lock quickstart -s flavor=cpu; r=$?;"
        " ! ls images/*/requirements.lock 2>/dev/null && exit $r",
        (4, 5),
        "next:",
        server=word,
        fast=False,
    )
    for word in ("nothing here", "an internal error", "a portal", "bytes", "null", "a part", "no HTTP", "a circle")
]
NO_ENGINES = [
    Fault(
        f"clean: an engine that is {word}", "DOCKER_HOST=tcp://127.0.0.1:$PORT $E clean", (5,), "next:", server=word
    )
    for word in (*ANSWERS, "a reset")
] + [
    Fault(
        "run: an engine that hangs", "DOCKER_HOST=tcp://127.0.0.1:$PORT $E run", (5,), "next:", server="hanging",
        fast=False,
    ),
]  # fmt: skip
TIGHT = [
    Fault(f"{command}: a disk for {inodes} files", f"$E {command}", codes, inodes=inodes)
    for command, codes in (("render -s flavor=cpu", (5, 2)), ("report", (5, 0)), ("plan", (0,)))
    for inodes in (2, 8)
] + [
    Fault(f"{command}: {name}", f"{limit}; $E {command} >/dev/null", codes)
    for command, codes in (("plan", (0, 5)), ("report", (0, 5)))
    for name, limit in (
        ("a small stack", "ulimit -s 512"),
        ("no core files, no locked memory", "ulimit -c 0; ulimit -l 0"),
        ("16 open files", "ulimit -n 16"),
    )
]
SIGNALS = [
    Fault(
        f"{command}: SIG{name} after {after} s",
        f"timeout -s {name} {after} $E {command} >/dev/null 2>&1; r=$?; "
        f"[ $r = 124 -o $r = 0 -o $r = 130 -o $r = 137 ] || exit 99; $E {command} >/dev/null",
        (0,),
    )
    for command in ("report", "plan --format json", "catalog list")
    for name in ("INT", "TERM", "HUP", "KILL")
    for after in ("0.1", "0.5")
]

FAULTS: tuple[Fault, ...] = (
    *FULL_STREAMS,
    *CLOSED,
    *GONE_READERS,
    *MATRICES,
    *CACHES,
    *STORED,
    *DISKS,
    *ENGINES,
    *REPORTS,
    *CAPTURES,
    *REGISTRIES,
    *INDEXES,
    *NO_ENGINES,
    *TIGHT,
    *SIGNALS,
)
