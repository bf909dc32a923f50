"""Write pending validations as jobs of Slurm or Kubernetes, from templates.

The results return through the registry: each job attaches its verdict to the image's digest.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from envbuilder.errors import UsageError
from envbuilder.jobs.fleet.job import Job, name_part
from envbuilder.support import decoding
from envbuilder.support.architectures import ARCHS
from envbuilder.support.templates import text_template
from envbuilder.workspace import packaged_yaml


class _Scheduler(msgspec.Struct, frozen=True):
    template: str
    field: str
    words: str
    hint: str


_SCHEDULERS = packaged_yaml("jobs/fleet/schedulers.yaml", dict[str, _Scheduler])


def render_jobs(name: str, jobs: Iterable[Job], matrix: str, runner: str, pull_secret: str) -> dict[str, str]:
    """Return one file for each host class, by its name.

    Raises UsageError if the fleet file does not say how the scheduler names a GPU's host class: any node would take
    the job.
    """
    if name == "kubernetes" and not runner:
        hint = "--runner IMAGE; docs/how-to/validate-a-fleet.md shows how to build it"
        raise UsageError("Kubernetes needs an image that contains envbuilder", hint=hint)
    by_class: dict[str, list[Job]] = {}
    for job in {job.name: job for job in jobs}.values():
        by_class.setdefault(job.spec.host_class, []).append(job)
    scheduler = _SCHEDULERS[name]
    template = text_template(f"{scheduler.template}.j2", {"quote": shlex.quote})
    files = {}
    for host_class, same in by_class.items():
        first = same[0].spec
        file = "-".join(re.findall(r"[a-zA-Z0-9.]+", host_class)) + Path(scheduler.template).suffix
        # Named by its content: a scheduler that does not change a job takes the next export as well.
        key = hashlib.sha256("\n".join(job.name for job in same).encode()).hexdigest()[:12]
        files[file] = template.render(
            file=file,
            job_name=f"envbuilder-{name_part(first.gpu)}-{key}",
            matrix=matrix,
            first=first,
            specs=[decoding.lossy(job.data) for job in same],
            nodes=_nodes(scheduler, same[0]) if first.gpu else {},
            arch=next(name for name, arch in ARCHS.items() if arch == first.arch),
            runner=runner,
            pull_secret=pull_secret,
        )
    return files


def _nodes(scheduler: _Scheduler, job: Job) -> Any:  # noqa: ANN401 - a constraint of Slurm, or labels of Kubernetes
    """Return what selects the nodes of a host class, from the first row of the fleet file that has it."""
    if found := next(filter(None, (getattr(host, scheduler.field) for host in job.hosts)), None):
        return found
    add = f"add {scheduler.field} to {job.hosts[0].name if job.hosts else 'its hosts'}: {scheduler.hint}"
    raise UsageError(f"no row of the fleet file has {scheduler.words} for {job.spec.host_class}", hint=add)
