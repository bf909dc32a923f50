"""The suite in a container that no engine of ours runs: what that runs, and who starts it on a node of Slurm.

It holds no key, no login and not the order. It is handed what to run through pipes in a folder that it shares with
`envbuilder fleet prove --beside`, which judges.
"""

from __future__ import annotations

import shlex
from typing import Literal, get_args

EXCHANGE = "/exchange"
"""Where the container has the shared folder."""

SERVE = f"""\
cd {EXCHANGE} || exit 9
until [ -p go ] || [ -e over ]; do sleep 0.2; done
while [ ! -e over ] && read -r word <go && [ "$word" = run ]; do
  /bin/sh probes/start.sh <order >said 2>errors
  echo $? >ended
done
"""
"""What the image under test runs: the suite whenever it is asked, with pipes where an engine would have streams."""

Runtime = Literal["engine", "apptainer", "pyxis"]
"""What runs an image on a node: a container engine, or what a cluster has in its place."""

RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)

_STARTS_S, _ENDS_S = 3600, 5
"""Seconds in which an image is fetched and started, which may take minutes, and in which it ends once it is told to."""

_BESIDE = """\
# The image under test runs in a container of {runtime}; the key, the login and the order stay outside.
beside=$(mktemp -d "$work/beside-XXXXXXXX") || exit 5
trap 'rm -rf "$beside"' EXIT
mkdir "$beside/exchange" "$beside/tmp" || exit 5
{start} &
suite=$!
# The node is ours alone: however the judge ended, nobody waits for what waits for its word.
close() {{
  : >"$beside/exchange/over" || true
  for signal in TERM KILL; do
    for ((look = 0; look < {ends} * 5; look++)); do kill -0 "$suite" 2>/dev/null || return 0; sleep 0.2; done
    kill -"$signal" "$suite" 2>/dev/null || true
  done
}}
# It is fetched first, which may take minutes: nobody judges before it is there.
until [ -e "$beside/exchange/here" ]; do
  kill -0 "$suite" 2>/dev/null || {{ echo "{runtime} did not start the image" >&2; exit 5; }}
  ((SECONDS < {starts})) || {{ echo "{runtime} did not start the image in {starts} s" >&2; close; exit 5; }}
  sleep 0.5
done
code=0
printf '%s' "$order" | envbuilder {arguments} --beside "$beside/exchange" || code=$?
close
exit "$code"
"""

_IN_ENGINE = "printf '%s' \"$order\" | envbuilder {arguments}\n"


def proving(runtime: Runtime, arguments: str, *, gpu: bool) -> str:
    """Write the lines of a job that prove ``$order``, about ``$image``, in ``$work``."""
    if runtime == "engine":
        return _IN_ENGINE.format(arguments=arguments)
    served = shlex.quote(f"export HOME=/tmp TF_CPP_MIN_LOG_LEVEL=0\n: >{EXCHANGE}/here\n{SERVE}")
    words = _apptainer(gpu=gpu) if runtime == "apptainer" else _pyxis(gpu=gpu)
    start = f"env -u ENVBUILDER_SIGNING_KEY {words} /bin/sh -c {served}"
    return _BESIDE.format(runtime=runtime, start=start, arguments=arguments, starts=_STARTS_S, ends=_ENDS_S)


_MOUNTS = f'"$beside/exchange:{EXCHANGE},$beside/tmp:/tmp"'


def _apptainer(*, gpu: bool) -> str:
    """Start a container with processes, home and variables of its own; its image is converted once, and kept."""
    nvidia = " --nv" if gpu else ""
    return f'apptainer exec --containall --cleanenv --pwd /{nvidia} --bind {_MOUNTS} "docker://$image"'


def _pyxis(*, gpu: bool) -> str:
    """Start a step of this job in a container, which is in a user namespace of its own."""
    nvidia = "NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility " if gpu else ""
    options = "--no-container-mount-home --no-container-entrypoint --container-readonly --container-workdir=/"
    return f'{nvidia}srun --overlap --ntasks=1 {options} --container-mounts={_MOUNTS} --container-image="$image"'


def image_word(runtime: Runtime, repository: str, digest: str) -> str:
    """Name an image as a runtime wants it: enroot, which pyxis uses, sets the registry apart."""
    host, _, path = repository.partition("/")
    return f"{host}#{path}@{digest}" if runtime == "pyxis" else f"{repository}@{digest}"
