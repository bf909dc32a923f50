"""What the lanes of a run share: the results so far, told as they come, and how much time there is left."""

from __future__ import annotations

import threading
import time

from . import pace
from .answer import Answer, Order
from .channel import Writer

LOG_KEPT = 6000
IMPORT = "import"
IDENTITY: Order = {"name": "identity", "group": "identity", "probe": "identify:answer", "limit_s": 45.0}


class Board:
    """The results so far, told as they come; shared by the lanes. ``stuck`` is set where Python does not start.

    ``group_over`` says when a group has to be done and ``over`` when everything has, by the monotonic clock. A group's
    time is that of its paced checks: one with a limit of its own, while it is at work, stops the group's clock, and
    ``stopped`` keeps which one did and what was left.
    """

    def __init__(self, writer: Writer) -> None:
        self.say = writer.send
        self.lock = threading.Lock()
        self.outcomes: dict[str, str] = {}
        self.import_s: float | None = None
        self.hung: dict[str, int] = {}
        self.over = float("inf")
        self.group_over: dict[str, float] = {}
        self.times: dict[str, float] = {}
        self.stopped: dict[str, tuple[str, float]] = {}
        self.quiet_over = threading.Event()
        self.stuck = threading.Event()

    def answer(self, check: Order, result: Answer) -> None:
        """Keep and tell a check's result."""
        if check is IDENTITY:
            self.say({"event": "identity", "identity": result.get("data")})
            return
        result = dict(result, name=check["name"])
        result.setdefault("duration_s", 0.0)
        log = result.get("log", "")
        result["log"] = "" if result["outcome"] in ("passed", "skipped") else log[-LOG_KEPT:]
        with self.lock:
            self._go_on(check)
            self.outcomes[check["name"]] = result["outcome"]
            if check["name"] == IMPORT and result["outcome"] == "passed":
                self.import_s = result["duration_s"]
                self.group_over[check["group"]] = time.monotonic() + self._lane_limit(check["group"])
        self.say({"event": "result", "result": result})

    def limit_of(self, check: Order) -> float:
        """Say how long a check may take: a paced one so many of this run's own imports, half where one has hung."""
        most = float(check["limit_s"])
        if not check.get("paced") or self.import_s is None:
            return most
        return pace.check_limit(most, self.import_s) / (1 + self.hung.get(check["group"], 0))

    def beside_reading(self, check: Order) -> float:
        """Say how long a check that reads much may compute, or wait, while it reads nothing; without end for others."""
        if not check.get("reads"):
            return float("inf")
        times = self.times.get(check["group"], 1.0)
        most = float(check["limit_s"])
        return min(
            most, times * (pace.CHECK_MOST_S if self.import_s is None else pace.check_limit(most, self.import_s))
        )

    def bound(self, group: Order) -> None:
        """Set when a group has to be done that may not take what each of its checks may: its import first, if any."""
        if group.get("bounded"):
            first = next((float(check["limit_s"]) for check in group["checks"] if check["name"] == IMPORT), None)
            self.times[group["name"]] = float(group.get("times", 1.0))
            self.group_over[group["name"]] = time.monotonic() + (first or self._lane_limit(group["name"]))

    def _lane_limit(self, group: str) -> float:
        return pace.lane_limit(self.import_s) * self.times.get(group, 1.0)

    def begins(self, check: Order) -> None:
        """Stop the clock of a bounded group while a check is at work that has a limit of its own."""
        group = check["group"]
        with self.lock:
            if group in self.group_over and group not in self.stopped and not check.get("paced"):
                self.stopped[group] = (check["name"], self.group_over[group] - time.monotonic())
                self.group_over[group] = float("inf")

    def _go_on(self, check: Order) -> None:
        """Let a group's clock go on once the check that stopped it has its answer."""
        name, left = self.stopped.get(check["group"], ("", 0.0))
        if name == check["name"]:
            del self.stopped[check["group"]]
            self.group_over[check["group"]] = time.monotonic() + left

    def until(self, group: str) -> float:
        """Say when a group has to be done: when its own time is over, or the run's."""
        return min(self.over, self.group_over.get(group, self.over))

    def has_hung(self) -> bool:
        """Tell whether any check has hung."""
        return self.over < float("inf")

    def is_over(self, group: str) -> bool:
        """Tell whether there is no time left for a group."""
        return time.monotonic() >= self.until(group)

    def hangs(self, check: Order) -> None:
        """Take note of a hang. From the first one on the whole run has a rest of time: one wait, never a second."""
        if check is IDENTITY:
            return  # what the image says of itself is no check, and no check waits for it
        self.hung[check["group"]] = self.hung.get(check["group"], 0) + 1
        self.over = min(self.over, time.monotonic() + pace.rest_limit(self.import_s))
