"""Write pending validations as jobs of Slurm or Kubernetes, from templates.

The results return through the registry: each job attaches its verdict to the image's digest.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from envbuilder.errors import UsageError
from envbuilder.jobs.fleet.job import Job, name_part
from envbuilder.support import decoding
from envbuilder.support.architectures import ARCHS
from envbuilder.support.templates import text_template
from envbuilder.workspace import read_users, remove, shipped, write_atomically

_TEMPLATES = {"slurm": Path("slurm.sbatch"), "kubernetes": Path("kubernetes-job.yaml")}

_SELECTORS = {
    "slurm": ("constraint", "a Slurm constraint", "constraint: a100&driver-535"),
    "kubernetes": ("labels", "Kubernetes labels", "`kubectl get nodes --show-labels` shows them"),
}
"""The field of the fleet file that selects nodes, in words and with a hint."""


def export_jobs(
    scheduler: str, jobs: Iterable[Job], matrix: str, cluster: Mapping[str, Any], folder: Path
) -> Iterator[Path]:
    """Write one file for each host class into a folder, and yield the paths.

    Files of an earlier export are removed if nothing is pending for their host class. ``cluster`` has the options for
    Kubernetes. Raises UsageError if the fleet file does not say how the scheduler names a GPU's host class: any node
    would take the job.
    """
    if scheduler == "kubernetes" and not cluster["runner"]:
        hint = "--runner IMAGE; docs/how-to/validate-a-fleet.md shows how to build it"
        raise UsageError("Kubernetes needs an image that contains envbuilder", hint=hint)
    files = render_jobs(scheduler, jobs, matrix, cluster)
    marker = f"Written by `envbuilder fleet export {scheduler}`".encode()
    for old in folder.glob(f"*{_TEMPLATES[scheduler].suffix}"):
        if old.name not in files and marker in read_users(old)[:200]:
            remove(old)
    for name, content in files.items():
        write_atomically(folder / name, content.encode())
        yield folder / name


def render_jobs(scheduler: str, jobs: Iterable[Job], matrix: str, cluster: Mapping[str, Any]) -> dict[str, str]:
    """Return the files by name."""
    by_class: dict[str, list[Job]] = {}
    for job in {job.name: job for job in jobs}.values():
        by_class.setdefault(job.spec.host_class, []).append(job)
    template = text_template(shipped("templates") / f"{_TEMPLATES[scheduler]}.j2", {"quote": shlex.quote})
    files = {}
    for host_class, same in by_class.items():
        first, name = same[0].spec, "-".join(re.findall(r"[a-zA-Z0-9.]+", host_class)) + _TEMPLATES[scheduler].suffix
        # Named by its content: a scheduler that does not change a job takes the next export as well.
        key = hashlib.sha256("\n".join(job.name for job in same).encode()).hexdigest()[:12]
        files[name] = template.render(
            file=name,
            job_name=f"envbuilder-{name_part(first.gpu)}-{key}",
            matrix=matrix,
            first=first,
            specs=[decoding.lossy(job.data) for job in same],
            nodes=_nodes(scheduler, same[0]) if first.gpu else {},
            arch=next(name for name, arch in ARCHS.items() if arch == first.arch),
            cluster=cluster,
        )
    return files


def _nodes(scheduler: str, job: Job) -> Any:  # noqa: ANN401 - a constraint of Slurm, or labels of Kubernetes
    """Return what selects the nodes of a host class, from the first row of the fleet file that has it."""
    field, words, hint = _SELECTORS[scheduler]
    if scheduler == "kubernetes" and " MIG " in job.spec.gpu:
        text = f"a pod cannot tell a MIG slice from its board, and {job.spec.host_class} is a slice"
        raise UsageError(text, hint="run `envbuilder fleet run` on that node")
    if found := next(filter(None, (getattr(host, field) for host in job.hosts)), None):
        return found
    add = f"add {field} to {job.hosts[0].name if job.hosts else 'its hosts'}: {hint}"
    raise UsageError(f"no row of the fleet file has {words} for {job.spec.host_class}", hint=add)
