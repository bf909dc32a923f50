"""A Slurm script for tasks: an array of one kind of host, whose task n reads order n and proves it on its node."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import UsageError
from envbuilder.jobs.fleet_task import PROVE, ProofOrder, Task
from envbuilder.jobs.served_suite import Runtime, image_word, proving
from envbuilder.support import decoding

OURS = "#!/bin/bash\n# Written by `envbuilder fleet export slurm`.\n"
"""How each of our scripts begins, by which it is known again."""

_SCRIPT = """\
# {title}
#   ENVBUILDER_SIGNING_KEY=/path/of/envbuilder.key sbatch {file}
# The node needs envbuilder and {needs}. ENVBUILDER_WORK is a folder on its own disk.
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
mkdir -p "$work" || exit 5
[ -O "$work" ] || {{ echo "$work is not ours" >&2; exit 2; }}
work=$work${{SLURMD_NODENAME:+/$SLURMD_NODENAME}}
mkdir -p "$work" || exit 5
# What each task is to prove: whom to believe are public keys.
{orders}
cd "$work"
{proving}"""

VARIABLES = ("PATH", "HOME", "ENVBUILDER_SIGNING_KEY", "ENVBUILDER_WORK")


def script(tasks: Sequence[Task], title: str, *, name: str, file: str, log: str, runtime: Runtime = "engine") -> str:
    """Write the script of tasks that are all for one kind of host; ``log`` is where a task's words go.

    ``runtime`` is what runs an image on the node. Raises UsageError for a kind with a GPU that no row of the fleet file
    gives a constraint: any node would do.
    """
    first = tasks[0]
    orders = _array("order", (decoding.lossy(task.order) for task in tasks))
    if runtime != "engine":
        orders = f"{orders}\n{_array('image', (_image(task, runtime) for task in tasks))}"
    return OURS + _SCRIPT.format(
        title=title,
        file=file,
        name=name,
        needs="a container engine" if runtime == "engine" else runtime,
        last=len(tasks) - 1,
        directives="\n".join((f"#SBATCH --output={log}", *_nodes(first))),
        variables=",".join(VARIABLES),
        orders=orders,
        proving=proving(runtime, shlex.join(first.arguments), gpu=bool(first.gpu)),
    )


def _array(name: str, words: Iterable[str]) -> str:
    """Write the shell's lines that give each task of an array its own word."""
    lines = "\n".join(f"  {shlex.quote(word)}" for word in words)
    return f"{name}s=(\n{lines}\n)\n{name}=${{{name}s[$SLURM_ARRAY_TASK_ID]}}"


def _image(task: Task, runtime: Runtime) -> str:
    if task.rehearsal:
        raise UsageError(f"nothing plays a driver in {runtime}", hint="rehearse on nodes with a container engine")
    if task.arguments != PROVE:
        raise UsageError(f"nothing is built in {runtime}", hint="build on hosts with a container engine")
    order = decoding.from_json(task.order, ProofOrder)
    return image_word(runtime, order.repository, order.digest)


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
