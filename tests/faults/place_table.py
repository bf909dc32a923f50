"""Faults of the place that a command runs in: its account, limits, file systems, names, clock, memory and network."""

from __future__ import annotations

from fault_table import CHECK, QUICK, Fault

NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups --"
"""Another account; needs root."""

TROUBLE = (5,)
"""The machine's trouble, said with a next step."""

NAMES = [
    Fault(f"{name}: {what}", f"export LC_ALL={locale} PYTHONUTF8=0 PYTHONCOERCECLOCALE=0; {line}", codes, says)
    for locale, name in (("C", "an ASCII terminal"), ("C.UTF-8", "UTF-8"))
    for what, line, codes, says in (
        ("a folder with accents", "mkdir grün; cd grün; $E report", (0,), ""),
        ("a matrix that is not there, with accents", "$E plan größe.yaml", (2,), "next:"),
        ("a matrix's name that is no text", "$E plan $'\\377.yaml'", (2,), "next:"),
        ("the same as JSON", "$E plan $'\\377.yaml' --format json", (2,), '"exit_code": 2'),
        ("a folder's name that is no text", "mkdir $'\\377'; cd $'\\377'; $E report", (0,), ""),
        ("a word that is no text", "$E check --tensorflow $'\\377'", (2,), "next:"),
        ("a very long word", '$E explain "$(printf %0100000d 7)"', (2,), ""),
    )
]
FILES = [
    Fault("out leads to itself", "ln -s out out; $E report", TROUBLE, "next:"),
    Fault("out leads nowhere", "ln -s nowhere/deep out; $E report", (0, *TROUBLE), ""),
    # Without a network, and with nothing in uv's cache, nothing can be locked, which is found out first.
    Fault("images leads to itself", "ln -s images images; $E render -s flavor=cpu", (4, *TROUBLE), "next:"),
    Fault(
        "out is on another disk",
        "mkdir out && mount -t tmpfs -o size=4m tmpfs out && $E report; r=$?; umount out; exit $r",
        (0,),
        root=True,
    ),
    Fault(
        "images is on another disk",
        "mkdir images && mount -t tmpfs -o size=4m tmpfs images && cp -r ${PYTHONPATH%%:*}/images/"
        + QUICK
        + " images && echo x >images/" + QUICK + "/Dockerfile && $E render quickstart -s flavor=cpu && $E render quickstart"
        " -s flavor=cpu --check; r=$?; umount images; exit $r",
        (0,),
        root=True,
    ),
    Fault(
        "the disk stands still for three seconds",
        "head -c 12M /dev/zero >d && mkfs.ext4 -q -F d && mkdir m && mount -o loop d m && cd m &&"
        " { (fsfreeze -f . && sleep 3; fsfreeze -u .) & sleep 0.2; $E report; r=$?; wait; cd ..; umount m; exit $r; }",
        (0,),
        root=True,
    ),
    Fault("no file may be read by its maker", f"chmod 777 . $TMPDIR; {NOBODY} bash -c 'umask 777; $E report'", TROUBLE, "next:", root=True),
    Fault("somebody else's folder", f"{NOBODY} env XDG_CACHE_HOME=/nonexistent $E report", TROUBLE, "next:", root=True),
    Fault("somebody else's cache", f"mkdir -m 700 cache; {NOBODY} {CHECK} >/dev/null", (0,), root=True),
    Fault("a folder that may not be entered", f"mkdir -m 777 g; cd g; chmod 0 .; {NOBODY} $E plan >/dev/null", (0, 2, 5), root=True),
    Fault("no home, for nobody", f"chmod 777 .; {NOBODY} env -u HOME -u XDG_CACHE_HOME {CHECK} >/dev/null", (0,), root=True),
    Fault("home cannot be written", f"env -u XDG_CACHE_HOME HOME=/proc {CHECK} >/dev/null", (0,)),
    Fault("the cache is a device", f"XDG_CACHE_HOME=/dev/null {CHECK} >/dev/null", (0,)),
    Fault("the cache is named from here", f"XDG_CACHE_HOME=here {CHECK} >/dev/null", (0,)),
    Fault("no temporary folder", "TMPDIR=/nonexistent $E report", (0,)),
    Fault("a bit for the group on the folder", "chmod 2770 .; $E report; stat -c %a out 2>/dev/null || true", (0,)),
    Fault(
        "the history is locked by somebody",
        "mkdir out; python3 -c \"import sqlite3, time; c = sqlite3.connect('out/history.sqlite3');"
        " c.execute('create table t(a)'); c.execute('begin exclusive'); time.sleep(90)\" & sleep 1;"
        " timeout 80 $E report; r=$?; kill %1; exit $r",
        (0, 5),
        fast=False,
    ),
]  # fmt: skip
PIPES = [
    Fault(f"{what} is {name}", f"mkdir -p out/x images/{QUICK}; {make} {path}; timeout 20 {line}", codes, says)
    for name, make in (("a pipe that nobody writes to", "mkfifo"), ("endless", "ln -s /dev/zero"))
    for what, path, line, codes, says in (
        ("a verdict", "out/x/verdict.json", "$E report", (0, 5), ""),
        ("an image's record", "out/x/image.json", "$E report", (0, 5), ""),
        ("the history", "out/history.sqlite3", "$E report", (0, 5), ""),
        ("a lock", f"images/{QUICK}/requirements.lock", "$E render --check", (1, 2, 5), ""),
        ("a context's Dockerfile", f"images/{QUICK}/Dockerfile", "$E render --check", (1, 2, 5), ""),
        # What a user gives may be a pipe, and then is waited for, as by any program.
        ("a verdict to export", "v.json", "$E export junit v.json", (2,), "next:"),
        ("a fleet", "f.yaml", "$E plan tensorflow --fleet f.yaml", (2,), "larger than"),
        ("a policy", "p.yaml", "$E upgrade 2.19.1 2.20.0 --policy p.yaml", (2,), "larger than"),
        ("a key", "k.pem", "$E verify 127.0.0.1:1/a:b --key k.pem", (2, 7), ""),
    )
    if make != "mkfifo" or path.startswith(("out", "images"))
] + [
    Fault("standard input is endless", "timeout 30 $E reproduce - --dry-run </dev/zero", (0, 2, 8)),
    Fault("standard input is closed", "$E reproduce - --dry-run <&-", (0, 2, 8), fast=True),
    Fault("standard input is closed for a proof", "$E fleet prove - <&-", (2,), "next:"),
    # Python ends by itself before any line of ours is read: nothing that is written in Python can answer that.
    Fault("standard input is a folder", "$E reproduce - --dry-run <.", (1,), "is a directory"),
]
SETTINGS = [
    Fault(f"{name}: the same answer", f"$E plan tensorflow >a; {setting} $E plan tensorflow >b; cmp a b", (0,))
    for name, setting in (
        ("no path to programs", "PATH="),
        ("another order of hashes", "PYTHONHASHSEED=1"),
        ("warnings are errors", "PYTHONWARNINGS=error"),
        ("asserts and docstrings are left out", "PYTHONOPTIMIZE=2"),
        ("Python's own checks are on", "PYTHONDEVMODE=1"),
        ("a time zone that is none", "TZ=Nowhere/None"),
        ("a terminal that is none", "TERM=nonsuch"),
        ("an encoding that is ASCII", "PYTHONIOENCODING=ascii"),
        ("32 open files", "ulimit -n 32;"),
    )
] + [
    Fault(f"a width of {width}", f"COLUMNS={width} $E plan tensorflow >/dev/null", (0,))
    for width in ("-5", "0", "1", "abc", "99999999999999")
] + [
    Fault("help without docstrings", "PYTHONOPTIMIZE=2 $E plan --help", (0,), "Options"),
    Fault("files of a kilobyte at most", "ulimit -f 1; $E report", TROUBLE, "next:"),
    Fault("two versions share a cache", 'cp -r "${PYTHONPATH%%:*}/envbuilder" . && rm -rf envbuilder/probes/__pycache__;'
          f' echo "__version__ = \'0.0.1\'" >envbuilder/__init__.py; {CHECK} >a; here=$PWD; export PYTHONPATH=$here:$PYTHONPATH;'
          f" {CHECK} >b; cmp a b", (0,)),
    Fault("an engine's address that is no text", "DOCKER_HOST=$'\\377' $E clean --dry-run", TROUBLE, "next:"),
    Fault("an engine's settings that are no text", "printf '\\377' >config.json; DOCKER_CONFIG=. $E clean --dry-run", (0, 5)),
]  # fmt: skip
MEMORY = [
    Fault(f"{command}: {size >> 10} MB of address space", f"ulimit -v {size}; $E {command} >/dev/null", (0, 5))
    for command in ("plan tensorflow", "report", "check --tensorflow 2.20.0", "catalog list --format json")
    for size in (90_000, 120_000, 260_000)
] + [
    Fault(
        "nobody may start a thread or a program",
        f"chmod 777 .; {NOBODY} prlimit --nproc=1 -- $E doctor >/dev/null",
        (0, 5),
        root=True,
    ),
]
INDEX_AT = "UV_DEFAULT_INDEX={address} PIP_CONFIG_FILE=/dev/null"
NETWORK = [
    Fault(
        f"catalog refresh: {name}",
        f"{INDEX_AT.format(address=address)} {more}timeout 100 $E catalog refresh 2.99.0",
        codes,
        says,
        server=server,
    )
    for name, address, more, server, codes, says in (
        ("a name that nobody knows", "https://nonesuch.invalid/simple", "", "", TROUBLE, "next:"),
        ("a refused connection", "https://127.0.0.1:1/simple", "", "", TROUBLE, "next:"),
        ("an index by IPv6 alone", "http://[::1]:$PORT/simple", "", "nothing here, by IPv6", (8,), "next:"),
        ("busy until a date", "http://127.0.0.1:$PORT/simple", "", "busy until a date", TROUBLE, "next:"),
        ("a certificate that has ended", "https://127.0.0.1:$PORT/simple", "", "an ended certificate", TROUBLE, "ertificate"),
        ("a certificate of nobody's", "https://127.0.0.1:$PORT/simple", "", "its own certificate", TROUBLE, "ertificate"),
        ("TLS spoken to what has none", "https://127.0.0.1:$PORT/simple", "", "nothing here", TROUBLE, "next:"),
        ("a proxy that wants a login", "http://index.invalid/simple", "HTTP_PROXY=http://127.0.0.1:$PORT http_proxy=http://127.0.0.1:$PORT ", "a proxy's login", TROUBLE, "407"),
        ("a proxy that refuses", "http://index.invalid/simple", "HTTP_PROXY=http://127.0.0.1:1 http_proxy=http://127.0.0.1:1 ", "", TROUBLE, "next:"),
        ("a proxy's address that is none", "http://index.invalid/simple", "HTTP_PROXY=banana://x:y http_proxy=banana://x:y ", "", TROUBLE, "next:"),
        ("certificates that are not there", "https://127.0.0.1:$PORT/simple", "SSL_CERT_FILE=/nonexistent REQUESTS_CA_BUNDLE=/nonexistent ", "its own certificate", (2, 5), "next:"),
    )
] + [
    Fault(
        f"verify: {name}",
        f"$E keys new k >/dev/null && timeout 100 $E verify {reference} --key k/envbuilder.pub",
        codes,
        "REFUSED",
        server=server,
    )
    for name, reference, server, codes in (
        ("a name that nobody knows", "nonesuch.invalid/a:b", "", (5, 7)),
        ("a refused connection", "127.0.0.1:1/a:b", "", (5, 7)),
        ("busy until a date", "127.0.0.1:$PORT/a:b", "busy until a date", (5, 7)),
        ("too many requests", "127.0.0.1:$PORT/a:b", "too many requests", (5, 7)),
        ("a certificate that has ended", "localhost.localdomain:$PORT/a:b", "an ended certificate", (5, 7)),
    )
]  # fmt: skip
CLOCKS = [
    Fault(
        f"{command}: the clock says {moment}",
        f"LD_PRELOAD=$FALSE_CLOCK FAKETIME='@{moment} 00:00:00' DONT_FAKE_MONOTONIC=1 $E {command} >/dev/null",
        codes,
        faketime=True,
    )
    for moment in ("1970-01-02", "1999-12-31", "2038-01-20", "2106-02-08", "2200-01-01")
    for command, codes in (
        ("plan", (0,)),
        ("report", (0,)),
        ("check --tensorflow 2.20.0 --driver 570.124.06 --gpu H100", (0, 1, 8)),
        ("keys new k", (0,)),
    )
] + [
    Fault(
        f"{command}: the clock jumps {name}",
        "echo '+0' >clock; export LD_PRELOAD=$FALSE_CLOCK FAKETIME_TIMESTAMP_FILE=$PWD/clock FAKETIME_NO_CACHE=1"
        f" DONT_FAKE_MONOTONIC=1; (sleep 0.4; echo '{jump}' >clock; sleep 0.2; echo '+0' >clock) & $E {command} >/dev/null",
        (0,),
        faketime=True,
    )
    for name, jump in (("forth", "+400d"), ("back", "-4000d"))
    for command in ("plan tensorflow", "report", "catalog list --format json")
]

META = "contexts/meta/$(printf far | sha256sum | cut -d' ' -f1)"
"""Where Docker keeps what it knows of a context called ``far``."""

DOCKERS = [
    Fault(
        f"Docker's settings: {name}",
        f"mkdir -p c/{META}; m=c/{META}/meta.json; {make}; env -u DOCKER_HOST DOCKER_CONFIG=c {more}"
        " timeout 30 $E clean --dry-run --format json >j; r=$?; python3 -m json.tool <j >&2 && exit $r",
        TROUBLE,
        says,
    )
    for name, make, more, says in (
        ("a context that is not there", "true", "DOCKER_CONTEXT=far", "docker context"),
        ("a current context that is not there", "echo '{\"currentContext\": \"near\"}' >c/config.json", "", "docker context"),
        ("a context's name that leads out", "true", "DOCKER_CONTEXT=../../far", "docker context"),
        ("a context that was cut", "echo '{' >$m", "DOCKER_CONTEXT=far", "meta.json"),
        ("a context that is a pipe", "mkfifo $m", "DOCKER_CONTEXT=far", "meta.json"),
        ("a context without an engine", "echo '{\"Name\": \"far\", \"Endpoints\": {}}' >$m", "DOCKER_CONTEXT=far", "names no engine"),
        ("a configuration that is a pipe", "mkfifo c/config.json", "", "config.json"),
        ("a configuration that is a terminal", "ln -s /dev/ptmx c/config.json", "", "config.json"),
        ("a configuration without end", "ln -s /dev/zero c/config.json", "", "config.json"),
        ("a context far away that nobody answers for", "echo '{\"Endpoints\": {\"docker\": {\"Host\": \"tcp://127.0.0.1:1\"}}}' >$m", "DOCKER_CONTEXT=far", "no container engine answers"),
    )
] + [
    Fault(f"an engine's address: {name}", f"timeout 30 env DOCKER_HOST={address} $E clean --dry-run", TROUBLE, "next:")
    for name, address in (
        ("a space", "' '"), ("no scheme", "localhost"), ("no port", "tcp://127.0.0.1"), ("a port of letters", "tcp://127.0.0.1:abc"),
        ("a port beyond all", "tcp://127.0.0.1:99999"), ("half an IPv6", "'tcp://[::1'"), ("with an escape", "$'tcp://\\033[2J'"),
        ("a folder", "unix:///tmp"), ("longer than a socket's", "unix:///$(printf %0200d 7)"), ("a name of dots", "tcp://a..b:1"),
        ("another system's", "npipe:////./pipe/docker"), ("by ssh", "ssh://nobody@127.0.0.1:1"),
    )
]  # fmt: skip
EMPTY = [
    Fault(f"an empty word: {words}", f"$E {words}", (2,), "next:")
    for words in (
        "verify r.example/a:b --key k --driver ''",
        "verify r.example/a:b --key ''",
        "verify r.example/a:b --key k --on ''",
        "keys new ''",
        "keys new k --expires ''",
        "report -o ''",
        "plan ''",
        "validate r.example/a:b --simulate ''",
    )
]
ODD_YAML = [
    Fault(f"a matrix: {name}", f"{make} >m.yaml; timeout 20 $E plan m.yaml 2>&1 | cut -c -400; exit ${{PIPESTATUS[0]}}", (2,), "next:")
    for name, make in (
        ("an escape beyond Unicode", "printf 'name: \"\\\\U00110000\"'"),
        ("a hexadecimal number of 5,000 digits", "printf 'name: 0x%05000d' 1"),
        ("a text of 900 kB", "(printf 'name: X'; head -c 900000 /dev/zero | tr '\\0' a)"),
        ("UTF-16", "printf 'name: x' | iconv -t utf-16"),
        ("UTF-16 without its mark", "printf 'name: x' | iconv -t utf-16le"),
        ("a merge key", "printf 'name: x\\n<<: {a: b}'"),
        ("two documents", "printf 'name: x\\n---\\nname: y'"),
    )
] + [
    Fault("a matrix: through a pipe", "$E plan <(cat ${PYTHONPATH%%:*}/matrices/quickstart.yaml) >a; $E plan >b; cmp a b", (0,)),
]  # fmt: skip
SETTINGS_OF_OTHERS = [
    Fault(f"lock: {name}", f"{make}; {variable} timeout 30 $E lock quickstart -s flavor=cpu", (2,), "next:")
    for name, make, variable in (
        ("pip's settings without end", "true", "PIP_CONFIG_FILE=/dev/zero"),
        ("pip's settings are a pipe", "mkfifo p", "PIP_CONFIG_FILE=p"),
        ("uv's settings are a pipe", "mkfifo p", "UV_CONFIG_FILE=p"),
        ("uv's settings without end", "true", "UV_CONFIG_FILE=/dev/zero"),
    )
]
SIZES = [
    Fault(f"clean: a cache of {size}", f"$E clean --cache {size}", (2,), "--cache") for size in ("nan", "inf", "1e400")
]
FAULTS: tuple[Fault, ...] = (
    *NAMES, *FILES, *PIPES, *SETTINGS, *MEMORY, *NETWORK, *CLOCKS, *DOCKERS, *EMPTY, *ODD_YAML, *SETTINGS_OF_OTHERS, *SIZES,
)  # fmt: skip
