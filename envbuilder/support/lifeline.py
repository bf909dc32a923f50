"""Run a program that ends when its starter does, even by SIGKILL: ``python lifeline.py FD SECONDS COMMAND…``.

FD is the reading end of a pipe whose other end only the starter has; the starter's end closes it in any case. The
program then gets SIGTERM. After its end, or after so many seconds, all processes that it started are killed. Unlike
PR_SET_PDEATHSIG this reaches its children, does not depend on the starter's threads, and has no race at the start.
It imports little of the standard library, because it starts with every program.
"""

import _thread
import os
import signal
import sys
import time

_NOT_STARTED = 127
_LOOK_S = 0.02
_REST_S = 60.0
_CLOSED: list[int] = []
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER


def main() -> None:
    """Start the program, wait for its end or the starter's, and end as the program did."""
    line, patience = int(sys.argv[1]), float(sys.argv[2])
    _adopt()
    child = os.fork()
    if child == 0:
        os.close(line)
        try:
            os.execvp(sys.argv[3], sys.argv[3:])  # noqa: S606 - the command is the starter's
        except OSError as error:
            os.write(2, f"{sys.argv[3]}: {error.strerror}\n".encode())
        finally:
            os._exit(_NOT_STARTED)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):  # the program or the starter handles them
        signal.signal(number, signal.SIG_IGN)
    _thread.start_new_thread(_watch, (line, child, patience))
    status = _status(child)
    if _CLOSED:  # the other thread still kills what is left
        time.sleep(patience + _REST_S)
    _end_as(status)


def _adopt() -> None:
    """Become the parent of orphaned descendants, if the system supports it."""
    try:
        import ctypes  # noqa: PLC0415 - a Python without it has no such call

        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        return


def _status(child: int) -> int:
    """Wait for the program, and reap its orphans meanwhile."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return status


def _watch(line: int, child: int, patience: float) -> None:
    """End the program when the pipe does."""
    try:
        os.read(line, 1)
    finally:
        _CLOSED.append(line)
        until = time.monotonic() + patience
        _send(child, signal.SIGTERM) if patience else None
        while patience and time.monotonic() < until and child in _children(os.getpid()):
            time.sleep(_LOOK_S)
        while left := _below(os.getpid()):
            for pid in left:
                _send(pid, signal.SIGKILL)
            time.sleep(_LOOK_S)
        os._exit(_NOT_STARTED)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def _below(pid: int) -> list[int]:
    """Return the descendants of a process, without zombies."""
    found: list[int] = []
    new = _children(pid)
    while new:
        found += new
        new = [child for parent in new for child in _children(parent)]
    return found


def _children(pid: int) -> list[int]:
    children = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except (OSError, ValueError):
            continue
        if int(parent) == pid and state != b"Z":
            children.append(int(name))
    return children


def _end_as(status: int) -> None:
    """End with the program's exit code, or by the signal that ended it."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        signal.signal(-code, signal.SIG_DFL) if -code not in (signal.SIGKILL, signal.SIGSTOP) else None
        _send(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


if __name__ == "__main__":
    main()
