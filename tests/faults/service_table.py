"""Faults as a service's operator knows them: managers that stop it, odd accounts, two at once, disks that lie."""

from __future__ import annotations

from fault_table import CHECK, QUICK, Fault
from place_table import NOBODY, TROUBLE

LYING = "LD_PRELOAD=$PWD/lie.so"
_LIE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <stdio.h>
static int ours(int fd) {
  char link[64], path[4096]; const char *part = getenv("LIE_ABOUT");
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0 || !part) return 0;
  path[n] = 0;
  return strstr(path, part) != 0;
}
static int number(void) { return atoi(getenv("LIE") ? getenv("LIE") : "5"); }
ssize_t read(int fd, void *to, size_t size) {
  ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
  if (getenv("LIE_READ") && ours(fd)) { errno = number(); return -1; }
  return real(fd, to, size);
}
ssize_t write(int fd, const void *from, size_t size) {
  ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  if (getenv("LIE_WRITE") && ours(fd)) { errno = number(); return -1; }
  if (getenv("LIE_SHORT") && ours(fd) && size > 1) size = size / 2 + 1;
  return real(fd, from, size);
}
int fsync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  if (getenv("LIE_SYNC") && ours(fd)) { errno = number(); return -1; }
  return real(fd);
}
"""
"""A C library that fails for files whose path holds a word, as a network's file system or a dying disk does."""

MADE = f"cat >lie.c <<'END'\n{_LIE}\nEND\ncc -shared -fPIC -o lie.so lie.c -ldl || exit 0\n"
"""Makes it; a host without a compiler has nothing to try."""

KEPT = f"mkdir images; cp -r ${{PYTHONPATH%%:*}}/images/{QUICK} images;"
"""Begins with a context that ships."""

ERRORS = {"EIO": 5, "ESTALE": 116, "EDQUOT": 122, "ENOLCK": 37}

DISKS = [
    Fault(f"report: {how.lower()} ends in {name}", f"{MADE}{LYING} LIE_{how}=1 LIE={number} LIE_ABOUT=/out/ $E report", codes, "next:")
    for name, number in ERRORS.items()
    for how, codes in (("WRITE", TROUBLE),)
] + [
    Fault("a lock is read from a stale handle", f"{MADE}mkdir -p images/{QUICK}; echo a==1 >images/{QUICK}/requirements.lock;"
          f" {LYING} LIE_READ=1 LIE=116 LIE_ABOUT=requirements.lock $E render --check", (2, 5), "next:"),
    Fault("a matrix is read from a dying disk", f"{MADE}echo 'name: a' >m.yaml; {LYING} LIE_READ=1 LIE_ABOUT=m.yaml $E plan m.yaml", (2, 5), "next:"),
    Fault("every write takes a part", f"{MADE}{LYING} LIE_SHORT=1 LIE_ABOUT=/out/ $E report && test -s out/report.html -o -d out", (0,)),
    Fault("the cache's disk is dying", f"{MADE}{CHECK} >a; {LYING} LIE_READ=1 LIE_ABOUT=/cache/envbuilder {CHECK} >b; cmp a b", (0,)),
    Fault("a key is written to a full quota", f"{MADE}{LYING} LIE_WRITE=1 LIE=122 LIE_ABOUT=/k/ $E keys new k; r=$?; rm -rf k; $E keys new k && exit $r", TROUBLE, "next:"),
    Fault("out is mounted read-only", "mkdir out && mount --bind out out && mount -o remount,bind,ro out && $E report; r=$?; umount out; exit $r", TROUBLE, "next:", root=True),
    Fault("images is mounted read-only", f"{KEPT} echo x >images/{QUICK}/Dockerfile && mount --bind images images && mount -o remount,bind,ro images && $E render -s flavor=cpu; r=$?; umount images; exit $r", (2, 5), "next:", root=True),
]  # fmt: skip
MANAGERS = [
    Fault("a service manager stops it", "setsid bash -c '$E report & p=$!; sleep 0.3; kill -TERM -$$' ; sleep 1; $E report", (0,)),
    Fault("stopped and continued", "$E plan tensorflow >a & p=$!; sleep 0.3; kill -STOP $p; sleep 1; kill -CONT $p; wait $p && $E plan tensorflow >b; cmp a b", (0,)),
    Fault("the memory's killer takes it", "$E report & p=$!; sleep 0.4; kill -KILL $p; wait $p; $E report", (0,)),
    Fault("a terminal that hangs up", "script -qec '$E plan' /dev/null </dev/null >o 2>&1; grep -q tf2 o", (0,)),
    Fault("every signal is ignored", "trap '' HUP INT TERM PIPE; $E plan >/dev/null", (0,)),
    Fault("a pipe's reader has gone and SIGPIPE is ignored", "trap '' PIPE; $E plan --format json | true; exit ${PIPESTATUS[0]}", (141, 0)),
    Fault("the lowest priority", "nice -n 19 $E plan >/dev/null", (0,)),
    Fault("processor time runs out", "ulimit -t 1; $E plan tensorflow --format json >/dev/null; r=$?; [ $r = 0 -o $r -gt 128 ]", (0,)),
    Fault("alarms are left behind", "python3 -c \"import os, signal; signal.setitimer(signal.ITIMER_REAL, 600); os.execlp('bash', 'bash', '-c', os.environ['E'] + ' plan >/dev/null')\"", (0,)),
    Fault("many descriptors are inherited", 'for n in $(seq 20 200); do eval "exec $n</dev/null"; done; $E plan >/dev/null', (0,)),
]  # fmt: skip
TOGETHER = [
    Fault("two reports in one workspace", "$E report & p=$!; $E report; r=$?; wait $p || exit 9; exit $r", (0,)),
    Fault("four renders in one workspace", f"{KEPT} echo x >images/{QUICK}/Dockerfile; for n in 1 2 3; do $E render quickstart -s flavor=cpu & done; $E render quickstart -s flavor=cpu; wait; $E render quickstart -s flavor=cpu --check", (0,)),
    Fault("two make the same keys", "$E keys new k & p=$!; $E keys new k; a=$?; wait $p; b=$?; [ $((a + b)) = 2 ] && ls k/envbuilder.key", (0,), "k/envbuilder.key"),
    Fault("eight begin with no cache", f"for n in 1 2 3 4 5 6 7 8; do {CHECK} >$n & done; wait; for n in 2 3 4 5 6 7 8; do cmp 1 $n || exit 9; done", (0,)),
    Fault("the workspace is moved meanwhile", "mkdir w; (cd w; $E report; echo $? >../code) & sleep 0.3; mv w v; wait; grep -E '^(0|2|5)$' code", (0,)),
    Fault("the cache is emptied meanwhile", f"(for n in 1 2 3 4 5 6 7 8 9; do rm -rf cache; sleep 0.1; done) & {CHECK} >/dev/null; r=$?; wait; exit $r", (0,)),
]  # fmt: skip
PEOPLE = [
    Fault(f"umask {mask}", f"umask {mask}; $E keys new k && stat -c %a k/envbuilder.key", (0,), "600")
    for mask in ("000", "022", "077")
] + [
    Fault("another account without a name", f"chmod 777 .; setpriv --reuid 61234 --regid 61234 --clear-groups -- env -u HOME -u USER {CHECK} >/dev/null", (0,), root=True),
    Fault("no account at all may read the package's settings", f"chmod 777 .; {NOBODY} env HOME=/root {CHECK} >/dev/null", (0,), root=True),
    Fault("argument with an escape", "$E explain $'\\033[2JX'", (2,), "next:"),
    Fault("argument of newlines", "$E explain $'A\\n::error::x'", (2,), "next:"),
    Fault("argument of NUL's neighbours", "$E check --tensorflow $'2.20.0\\001'", (2,), "next:"),
    Fault("an empty argument", "$E check --tensorflow ''", (2,), "next:"),
    Fault("a thousand selectors", "$E plan tensorflow $(for n in $(seq 1000); do echo -s no$n; done)", (2, 3), "next:"),
    Fault("an argument that is an option", "$E plan -- --help", (2,), "next:"),
    Fault("bytes in a variable", "ENVBUILDER_X=$'\\377' LANG=$'\\377' $E plan >/dev/null", (0,)),
    Fault("variables by the thousand", "for n in $(seq 3000); do export V$n=$n; done; $E plan >/dev/null", (0,)),
    Fault("an odd time zone", "TZ=:/etc/passwd $E report", (0,)),
    Fault("a time zone with escapes", "TZ=$'\\033[2J' $E report", (0,)),
    Fault("somebody's Python settings", "mkdir s; echo 'raise SystemExit(99)' >s/sitecustomize.py; PYTHONSAFEPATH=1 $E plan >/dev/null", (0,)),
    Fault("a module of the user's in front", "echo 'raise SystemExit(99)' >yaml.py; PYTHONSAFEPATH=1 $E plan >/dev/null", (0,)),
]  # fmt: skip
FAULTS: tuple[Fault, ...] = (*DISKS, *MANAGERS, *TOGETHER, *PEOPLE)
