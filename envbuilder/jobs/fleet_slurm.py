"""Write what is left of a fleet's proofs as Slurm's job arrays: a script a kind of host, a task an image."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import UsageError
from envbuilder.jobs.fleet_document import FleetDocument, ProofRow
from envbuilder.workspace import read_users, write_atomically, writing

_OURS = "#!/bin/bash\n# Written by `envbuilder fleet export slurm`.\n"
"""How each of our scripts begins, by which it is known again."""

_SCRIPT = """\
# {kind}: {count} of {matrix}, each validated by its digest on a node of this kind, the verdict attached to the digest.
#   ENVBUILDER_SIGNING_KEY=/path/of/envbuilder.key sbatch {name}
# The node needs envbuilder and a container engine. ENVBUILDER_WORK is a folder on its own disk.
#SBATCH --job-name=envbuilder
#SBATCH --array=0-{last}
{directives}
# Validation measures: nobody else's work beside it. A node that dies takes its task with it, and that is queued again.
#SBATCH --exclusive
#SBATCH --requeue
# Of the submitter's variables these alone reach the controller, which keeps them: no password, no login.
#SBATCH --export=PATH,HOME,ENVBUILDER_SIGNING_KEY,ENVBUILDER_WORK
set -euo pipefail
umask 077
key=${{ENVBUILDER_SIGNING_KEY:?is the path of a private key}}
work=${{ENVBUILDER_WORK:-/var/tmp/envbuilder-$(id -u)}}
mkdir -p "$work"
[ -O "$work" ] || {{ echo "$work is not ours" >&2; exit 2; }}
images=(
{images}
)
cd "$work"
exec envbuilder validate "${{images[$SLURM_ARRAY_TASK_ID]}}" --attach --key "$key"
"""


def batches(document: FleetDocument, fleet: tuple[FleetHost, ...]) -> Mapping[str, str]:
    """Return scripts by file name, one for each kind of host on which something is left.

    Raises UsageError for a kind with a GPU that no row of the fleet file gives a constraint: any node would do.
    """
    kinds: dict[str, list[ProofRow]] = {}
    for row in document.rows:
        if row.left:
            kinds.setdefault(row.kind, []).append(row)
    return {_file(kind): _script(kind, rows, document, fleet) for kind, rows in kinds.items()}


def write_batches(scripts: Mapping[str, str], folder: Path) -> Iterable[Path]:
    """Write the scripts into a folder; yields their paths. Ours for kinds on which nothing is left are removed."""
    for old in folder.glob("*.sbatch"):
        if old.name not in scripts and read_users(old).startswith(_OURS.encode()):
            with writing(old):
                old.unlink(missing_ok=True)
    for name, script in scripts.items():
        write_atomically(folder / name, script.encode())
        yield folder / name


def _file(kind: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", kind).strip("-.") + ".sbatch"


def _script(kind: str, rows: list[ProofRow], document: FleetDocument, fleet: tuple[FleetHost, ...]) -> str:
    images = dict.fromkeys(f"{document.repository}@{row.digest}" for row in rows)
    return _OURS + _SCRIPT.format(
        kind=kind,
        count=len(images),
        matrix=document.matrix,
        name=_file(kind),
        last=len(images) - 1,
        directives="\n".join(_directives(rows[0], fleet)),
        images="\n".join(f"  {shlex.quote(image)}" for image in images),
    )


def _directives(row: ProofRow, fleet: tuple[FleetHost, ...]) -> list[str]:
    """Say which nodes: those of the first row of the kind that says how Slurm calls them."""
    made = [f"#SBATCH --output={Path(_file(row.kind)).stem}-%A_%a.log"]
    if not row.gpu:
        return made
    constraint = next((host.constraint for host in fleet if host.name in row.hosts and host.constraint), "")
    if not constraint:
        raise UsageError(
            f"no row of the fleet file says how Slurm calls {row.kind}",
            hint=f"give {row.hosts[0]} a constraint, such as constraint: a100&driver-535",
        )
    return [*made, f"#SBATCH --constraint={constraint}", "#SBATCH --gres=gpu:1"]
