"""Faults as a service's operator knows them: managers that stop it, odd accounts, two at once, disks that lie."""

from __future__ import annotations

from fault_table import CHECK, QUICK, Fault
from place_table import INDEX_AT, NOBODY, TROUBLE

LYING = "LD_PRELOAD=$PWD/lie.so"
LIE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
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
static void wait_a_little(int fd) {
  if (getenv("LIE_SLOW") && ours(fd)) usleep(1000 * atoi(getenv("LIE_SLOW")));
}
static int number(void) { return atoi(getenv("LIE") ? getenv("LIE") : "5"); }
ssize_t read(int fd, void *to, size_t size) {
  ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
  wait_a_little(fd);
  if (getenv("LIE_READ") && ours(fd)) { errno = number(); return -1; }
  return real(fd, to, size);
}
ssize_t write(int fd, const void *from, size_t size) {
  ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
  wait_a_little(fd);
  if (getenv("LIE_WRITE") && ours(fd)) { errno = number(); return -1; }
  if (getenv("LIE_SHORT") && ours(fd) && size > 1) size = size / 2 + 1;
  return real(fd, from, size);
}
static long ahead(void) {
  char text[32] = {0}; const char *path = getenv("LIE_CLOCK");
  int fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY) : -1;
  if (fd < 0) return 0;
  syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  return atol(text);
}
int clock_gettime(clockid_t clock, struct timespec *to) {
  int wrong = syscall(SYS_clock_gettime, clock, to);
  if (!wrong && clock == CLOCK_REALTIME) to->tv_sec += ahead();
  return wrong;
}
time_t time(time_t *to) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  if (to) *to = now.tv_sec;
  return now.tv_sec;
}
int gettimeofday(struct timeval *restrict to, void *restrict zone) {
  struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
  to->tv_sec = now.tv_sec; to->tv_usec = now.tv_nsec / 1000;
  return 0;
}
int fsync(int fd) {
  int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
  wait_a_little(fd);
  if (getenv("LIE_SYNC") && ours(fd)) { errno = number(); return -1; }
  return real(fd);
}
"""
"""A C library that fails for files whose path holds a word, as a network's file system or a dying disk does."""

MADE = f"cat >lie.c <<'END'\n{LIE}\nEND\ncc -shared -fPIC -o lie.so lie.c -ldl || exit 0\n"
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
SLOW = "/sys/fs/cgroup/blkio/blkio.throttle"
SLOW_DISK = (
    f"[ -w {SLOW}.write_bps_device ] || exit 0; head -c 12M /dev/zero >d && mkfs.ext4 -q -F d && mkdir m && mount -o loop d m"
    " && n=$(lsblk -dno MAJ:MIN $(findmnt -no SOURCE m) | tr -d ' ') &&"
    f" for f in read_bps write_bps; do echo $n 400000 >{SLOW}.${{f}}_device; done; cd m;"
)
"""A disk of 400 kB a second, by the kernel's own brake on a loop device; a host that has none has nothing to try."""
QUICKER = f"cd ..; for f in read_bps write_bps; do echo $n 0 >{SLOW}.${{f}}_device; done; umount m; exit $r"
EDQUOT = "LIE_WRITE=1 LIE=122"

SLOWLY = [
    Fault("a slow disk: report", f"{SLOW_DISK} $E report && sync; r=$?; {QUICKER}", (0,), root=True, fast=False),
    Fault("a slow disk: keys, twice", f"{SLOW_DISK} $E keys new k && sync && $E keys new k; r=$?; {QUICKER}", (2,), "never overwritten", root=True, fast=False),
    Fault("a slow disk: a context is rendered as on any", f"cp -r ${{PYTHONPATH%%:*}}/images/{QUICK} good; {SLOW_DISK} mkdir images; cp -r ../good images/{QUICK}; echo x >images/{QUICK}/Dockerfile;"
          f" $E render quickstart -s flavor=cpu && sync && diff -r ../good images/{QUICK}; r=$?; {QUICKER}", (0,), root=True, fast=False),
    Fault("a slow disk: the cache", f"{SLOW_DISK} {CHECK} >../a; XDG_CACHE_HOME=$PWD/c {CHECK} >../b && XDG_CACHE_HOME=$PWD/c {CHECK} >../c && cmp ../a ../b && cmp ../a ../c; r=$?; {QUICKER}", (0,), root=True, fast=False),
] + [
    Fault(f"{name}: every read and write takes {ms} ms", f"{MADE}{KEPT if 'render' in line else ''}{LYING} LIE_SLOW={ms} LIE_ABOUT={about} timeout 100 {line}", codes)
    for ms in (5, 100)
    for name, about, line, codes in (
        ("report", "/out/", "$E report", (0,)),
        ("a context", "/images/", "$E render quickstart -s flavor=cpu --check", (0,)),
        ("the cache", "/cache/envbuilder", f"{CHECK}", (0,)),
        ("keys", "/k/", "$E keys new k", (0,)),
    )
] + [
    Fault(f"a killed command on a slow disk, after {after} s", f"{MADE}{LYING} LIE_SLOW=100 LIE_ABOUT=/out/ timeout -s KILL {after} $E report; find out -name '.*.tmp' -exec touch -d @0 {{}} +; $E report && ! ls -A out | grep tmp", (0,))
    for after in ("0.4", "0.8")
]  # fmt: skip
QUOTAS = [
    Fault(f"a full quota: {name}", f"{MADE}{KEPT if 'render' in line else ''} {before}{LYING} {EDQUOT} LIE_ABOUT={about} {line}", codes, says)
    for name, about, before, line, codes, says in (
        ("the cache", "/cache/envbuilder", "", f"{CHECK}", (0,), ""),
        ("out", "/out/", "", "$E report", TROUBLE, "quota"),
        ("a context", "/images/", f"echo x >images/{QUICK}/Dockerfile; ", "$E render quickstart -s flavor=cpu", TROUBLE, "quota"),
        ("a capture", "/.c.json", "", "$E capture --output c.json", (2, 5), "next:"),
    )
] + [
    Fault(f"a disk for {inodes} files: {name}", line, codes, says, inodes=inodes)
    for inodes in (3, 5)
    for name, line, codes, says in (
        ("the cache", f"XDG_CACHE_HOME=$PWD/a/b/c {CHECK} >/dev/null", (0,), ""),
        ("keys", "$E keys new k; r=$?; [ $r = 0 ] || { [ ! -e k/envbuilder.key ] && exit $r; }", (0, 5), ""),
        ("a context", "$E render quickstart -s flavor=cpu", (2, 4, 5), "next:"),
    )
]  # fmt: skip
JUMPS = f"{MADE}echo 0 >clock; export {LYING} LIE_CLOCK=$PWD/clock;"
"""A clock on the wall that stands in a file and is set while the command works; what counts seconds goes on as ever."""

STEPS = [
    Fault(
        f"the clock is set {name}: {what}",
        f"{JUMPS} {before} (sleep 0.3; echo {jump} >clock) & {line}",
        codes,
        says,
        server=server,
    )
    for name, jump in (("forth by six hours", "21600"), ("back by six hours", "-21600"), ("back by a year", "-31536000"))
    for what, before, line, codes, says, server in (
        ("keys that end in an hour", "", "$E keys new k --expires 1h && ls k/envbuilder.pub", (0,), "envbuilder.pub", ""),
        ("an index that is busy", "", f"{INDEX_AT.format(address='http://127.0.0.1:$PORT/simple')} timeout 100 $E catalog refresh 2.99.0", TROUBLE, "next:", "an internal error"),
        ("a registry that is busy", "$E keys new k >/dev/null;", "timeout 100 $E verify 127.0.0.1:$PORT/a:b --key k/envbuilder.pub", (5, 7), "REFUSED", "an internal error"),
        ("an engine that answers nonsense", "", "DOCKER_HOST=tcp://127.0.0.1:$PORT timeout 60 $E clean --dry-run", TROUBLE, "next:", "null"),
        ("what a killed command left", "mkdir out; touch out/.report.html.99999999_1.0.tmp; touch -d '+1 year' out/.report.html.99999999_1.0.tmp;", "$E report; $E report && rm -f out/.[!.]*.tmp", (0,), "", ""),
    )
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
FAULTS: tuple[Fault, ...] = (*DISKS, *SLOWLY, *QUOTAS, *STEPS, *MANAGERS, *TOGETHER, *PEOPLE)
