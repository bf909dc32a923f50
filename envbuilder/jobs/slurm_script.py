"""A Slurm script for tasks: an array of one kind of host, whose task n reads order n and proves it on its node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import UsageError, decode
from envbuilder.jobs.fleet_task import Task

OURS = "#!/bin/bash\n# Written by `envbuilder fleet export slurm`.\n"
"""How each of our scripts begins, by which it is known again."""

_SCRIPT = """\
# {title}
#   ENVBUILDER_SIGNING_KEY=/path/of/envbuilder.key sbatch {file}
# The node needs envbuilder and a container engine. ENVBUILDER_WORK is a folder on its own disk.
#SBATCH --job-name={name}
#SBATCH --array=0-{last}
{directives}
# Validation measures: nobody else's work beside it. A node that dies takes its task with it, and that is queued again.
#SBATCH --exclusive
#SBATCH --requeue
# Of the submitter's variables these alone reach the controller, which keeps them: no password, no login.
#SBATCH --export={variables}
set -euo pipefail
umask 077
: "${{ENVBUILDER_SIGNING_KEY:?is the path of a private key}}"
work=${{ENVBUILDER_WORK:-/var/tmp/envbuilder-$(id -u)}}
mkdir -p "$work"
[ -O "$work" ] || {{ echo "$work is not ours" >&2; exit 2; }}
work=$work${{SLURMD_NODENAME:+/$SLURMD_NODENAME}}
mkdir -p "$work"
# What each task is to prove: whom to believe are public keys.
orders=(
{orders}
)
order=${{orders[$SLURM_ARRAY_TASK_ID]}}
cd "$work"
printf '%s' "$order" | envbuilder {arguments}
"""

VARIABLES = ("PATH", "HOME", "ENVBUILDER_SIGNING_KEY", "ENVBUILDER_WORK")


def script(tasks: Sequence[Task], title: str, *, name: str, file: str, log: str) -> str:
    """Write the script of tasks that are all for one kind of host; ``log`` is where a task's words go.

    Raises UsageError for a kind with a GPU that no row of the fleet file gives a constraint: any node would do.
    """
    first = tasks[0]
    return OURS + _SCRIPT.format(
        title=title,
        file=file,
        name=name,
        last=len(tasks) - 1,
        directives="\n".join((f"#SBATCH --output={log}", *_nodes(first))),
        variables=",".join(VARIABLES),
        orders="\n".join(f"  {shlex.quote(decode.lossy(task.order))}" for task in tasks),
        arguments=shlex.join(first.arguments),
    )


def file_name(kind: str) -> str:
    """Name a kind's script."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", kind).strip("-.") + ".sbatch"


def _nodes(task: Task) -> tuple[str, ...]:
    """Say which nodes: those of the first row of the kind that says how Slurm calls them."""
    constraint = next((host.constraint for host in task.hosts if host.constraint), "")
    if not task.gpu:
        return ()
    if not constraint:
        raise UsageError(
            f"no row of the fleet file says how Slurm calls {task.kind}",
            hint=f"give {_called(task.hosts)} a constraint, such as constraint: a100&driver-535",
        )
    return (f"#SBATCH --constraint={constraint}", *(() if task.rehearsal else ("#SBATCH --gres=gpu:1",)))


def _called(hosts: Sequence[FleetHost]) -> str:
    return hosts[0].name if hosts else "its hosts"
