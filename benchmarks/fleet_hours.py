# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""How many hours N environments on M kinds of host take: a model of a line, and a simulation with hosts that are lost.

A host builds, or pulls and validates, one image at a time. The first proof of an image waits for its build and push;
one that is lost is begun again, as `envbuilder/jobs/fan_out.py` does it.
"""

from __future__ import annotations

import heapq
import json
import random
import sys
import time
from dataclasses import dataclass, replace

from envbuilder.jobs.fan_out import ATTEMPTS


@dataclass(frozen=True)
class Costs:
    """Seconds that each step takes, and the part of all tasks that are lost with their host.

    Measured on two cores with a registry on loopback for a GPU image of 5 GB (`docs/fleet.md` says how).
    """

    build_s: float = 140.0
    push_s: float = 60.0
    pull_s: float = 45.0
    validate_s: float = 60.0
    overhead_s: float = 5.0
    lost: float = 0.01
    rejoin_s: float = 120.0

    @property
    def proof_s(self) -> float:
        """What a proof takes a host."""
        return self.pull_s + self.validate_s + self.overhead_s

    @property
    def make_s(self) -> float:
        """What an image takes a builder."""
        return self.build_s + self.push_s + self.overhead_s


@dataclass(frozen=True)
class Fleet:
    """So many environments on so many kinds of host, with so many hosts of each kind, and builders beside them."""

    environments: int
    kinds: int
    hosts: int
    builders: int


@dataclass(frozen=True)
class Outcome:
    """Hours until the last proof, host hours in all, tasks that were lost, and those given up."""

    hours: float
    host_hours: float
    lost: int
    given_up: int


def modelled(fleet: Fleet, costs: Costs) -> float:
    """Return the hours: the slower of building and proving, and the first image, which everything waits for."""
    again = sum(costs.lost**attempt for attempt in range(ATTEMPTS))
    slow = 0.5 * costs.lost * costs.proof_s + costs.lost * costs.rejoin_s
    making = fleet.environments * (costs.make_s * again) / fleet.builders
    proving = fleet.environments * (costs.proof_s * again + slow) / fleet.hosts
    return (max(making + costs.proof_s, proving + costs.make_s)) / 3600


def one_machine(environments: int, costs: Costs) -> float:
    """Return the hours of a single host that builds and proves on its own kind: nothing is pulled."""
    return environments * (costs.build_s + costs.push_s + costs.validate_s) / 3600


def simulated(fleet: Fleet, costs: Costs, seed: int = 1) -> Outcome:
    """Play it, task by task: whoever is free takes the next image that is there."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    busy = lost = given_up = 0.0
    ready: list[float] = []
    free = [0.0] * fleet.builders
    for _ in range(fleet.environments):
        begun = free[0]
        for _attempt in range(ATTEMPTS):
            took = costs.make_s * chance.uniform(0.8, 1.2)
            if chance.random() >= costs.lost:
                break
            cut = took * chance.random()
            begun += cut + costs.rejoin_s
            busy, lost = busy + cut, lost + 1
        heapq.heapreplace(free, begun + took)
        ready.append(begun + took)
        busy += took
    ready.sort()
    last = 0.0
    for _ in range(fleet.kinds):
        hosts = [0.0] * fleet.hosts
        again: list[tuple[float, int]] = []
        place = 0
        while place < len(ready) or again:
            if again and (place == len(ready) or again[0][0] <= max(ready[place], hosts[0])):
                there, attempt = heapq.heappop(again)
            else:
                there, attempt = ready[place], 1
                place += 1
            begun = max(hosts[0], there)
            took = costs.proof_s * chance.uniform(0.8, 1.2)
            if chance.random() < costs.lost:
                lost += 1
                cut = begun + took * chance.random()
                busy += cut - begun
                heapq.heapreplace(hosts, cut + costs.rejoin_s)
                if attempt < ATTEMPTS:
                    heapq.heappush(again, (cut, attempt + 1))
                else:
                    given_up += 1
            else:
                busy += took
                heapq.heapreplace(hosts, begun + took)
                last = max(last, begun + took)
    return Outcome(last / 3600, busy / 3600, int(lost), int(given_up))


SIZES = (
    Fleet(4, 1, 1, 1),
    Fleet(30, 3, 1, 1),
    Fleet(30, 3, 4, 4),
    Fleet(1_000, 20, 4, 8),
    Fleet(10_000, 200, 10, 40),
    Fleet(10_000, 200, 50, 200),
)


def main() -> int:
    """Print each size by model and by simulation; exit 1 where they are more than a tenth apart."""
    wrong = 0
    for fleet in SIZES:
        for costs in (Costs(), replace(Costs(), lost=0.05)):
            begun = time.perf_counter()
            came = simulated(fleet, costs)
            model = modelled(fleet, costs)
            wrong += abs(model - came.hours) > 0.1 * came.hours + 0.1
            figures = {
                "environments": fleet.environments,
                "kinds": fleet.kinds,
                "hosts_of_each": fleet.hosts,
                "builders": fleet.builders,
                "lost": costs.lost,
                "hours_modelled": round(model, 2),
                "hours_simulated": round(came.hours, 2),
                "host_hours": round(came.host_hours),
                "tasks_lost": came.lost,
                "given_up": came.given_up,
                "one_machine_one_kind_hours": round(one_machine(fleet.environments, costs), 1),
                "simulated_in_s": round(time.perf_counter() - begun, 1),
            }
            print(json.dumps(figures), flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
