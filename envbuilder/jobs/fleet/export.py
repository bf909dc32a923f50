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

_TEMPLATES = {"slurm": "slurm.sbatch", "kubernetes": "kubernetes-job.yaml"}

_ANSWERS = (1, 2, 3, 4, 6, 8, 70)
"""Exit codes of `fleet prove` after which another attempt is useless: an answer, a mistake, a bug."""


Cluster = Mapping[str, Any]
"""A Kubernetes cluster: names of the image ``runner``, ``namespace``, ``key_secret`` (the signing key as
``envbuilder.key``), ``pull_secret`` (the registry's login), and ``gpu_claim``, a ResourceClaimTemplate in place of the
resource `nvidia.com/gpu`; '' for none."""


def export_jobs(scheduler: str, jobs: Iterable[Job], matrix: str, cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Write one file for each host class into a folder, and yield the paths.

    Files of an earlier export are removed if nothing is pending for their host class. Raises UsageError if the fleet
    file does not say how the scheduler names a GPU's host class: any node would take the job.
    """
    if scheduler == "kubernetes" and not cluster["runner"]:
        hint = "--runner IMAGE; docs/how-to/validate-a-fleet.md shows how to build it"
        raise UsageError("Kubernetes needs an image that contains envbuilder", hint=hint)
    files = render_jobs(scheduler, jobs, matrix, cluster)
    marker = f"Written by `envbuilder fleet export {scheduler}`".encode()
    for old in (path for path in folder.glob("*") if path.suffix == Path(_TEMPLATES[scheduler]).suffix):
        if old.name not in files and marker in read_users(old)[:200]:
            remove(old)
    for name, content in files.items():
        write_atomically(folder / name, content.encode())
        yield folder / name


def render_jobs(scheduler: str, jobs: Iterable[Job], matrix: str, cluster: Cluster) -> dict[str, str]:
    """Return the files by name."""
    by_class: dict[str, list[Job]] = {}
    for job in {job.name: job for job in jobs}.values():
        by_class.setdefault(job.spec.host_class, []).append(job)
    template = text_template(shipped("templates") / f"{_TEMPLATES[scheduler]}.j2", {"quote": shlex.quote})
    nodes, files = {"slurm": _slurm_nodes, "kubernetes": _kubernetes_nodes}[scheduler], {}
    for host_class, same in by_class.items():
        name = f"{'-'.join(re.findall(r'[a-zA-Z0-9.]+', host_class))}{Path(_TEMPLATES[scheduler]).suffix}"
        # Named by its content: a scheduler that does not change a job takes the next export as well.
        key = hashlib.sha256("\n".join(job.name for job in same).encode()).hexdigest()[:12]
        files[name] = template.render(
            file=name,
            job_name=f"envbuilder-{name_part(same[0].spec.gpu)}-{key}",
            host_class=host_class,
            matrix=matrix,
            specs=[decoding.lossy(job.data) for job in same],
            gpu=bool(same[0].spec.gpu),
            nodes=nodes(same[0]),
            cluster=cluster,
            answers=_ANSWERS,
        )
    return files


def _slurm_nodes(job: Job) -> str:
    """Return the constraint of a host class, from the first row of the fleet file that has one."""
    constraint = next((host.constraint for host in job.hosts if host.constraint), "")
    if job.spec.gpu and not constraint:
        raise UsageError(
            f"no row of the fleet file has a Slurm constraint for {job.spec.host_class}",
            hint=f"add one to {job.hosts[0].name if job.hosts else 'its hosts'}: constraint: a100&driver-535",
        )
    return constraint if job.spec.gpu else ""


def _kubernetes_nodes(job: Job) -> dict[str, str]:
    """Return the node selector of a host class, from the first row of the fleet file that has labels."""
    labels = next((host.labels for host in job.hosts if host.labels), {})
    if " MIG " in job.spec.gpu:
        raise UsageError(
            f"a pod cannot tell a MIG slice from its board, and {job.spec.host_class} is a slice",
            hint="run `envbuilder fleet run` on that node",
        )
    if job.spec.gpu and not labels:
        raise UsageError(
            f"no row of the fleet file has Kubernetes labels for {job.spec.host_class}",
            hint="add those that `kubectl get nodes --show-labels` shows, such as nvidia.com/gpu.product",
        )
    arch = next(name for name, arch in ARCHS.items() if arch == job.spec.arch)
    return {"kubernetes.io/arch": arch, **(labels if job.spec.gpu else {})}
