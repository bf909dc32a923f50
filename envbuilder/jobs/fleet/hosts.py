"""Read hosts from a cluster's description of its nodes: Kubernetes labels, Slurm resources."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from envbuilder.compat.fleet import FleetHost
from envbuilder.errors import UsageError
from envbuilder.support import decoding
from envbuilder.support.architectures import ARCHS

_PRODUCT = "nvidia.com/gpu.product"
_FULL = "nvidia.com/cuda.driver-version.full"
_PARTS = tuple(f"nvidia.com/cuda.driver.{part}" for part in ("major", "minor", "rev"))
_COUNT = "nvidia.com/gpu.count"

_GRES = re.compile(r"gpu:([A-Za-z][\w.-]*)(?::[0-9]+)?(?:\([^)]*\))?\Z")
_ANY_GPU = re.compile(r"gpu(?::[0-9]+)?(?:\([^)]*\))?\Z")
_DRIVER = re.compile(r"(?:nvidia|driver|drv)[-_]?r?([0-9]{3}(?:\.[0-9]+){0,2})\Z", re.IGNORECASE)

_FEATURE = re.compile(r"[A-Za-z0-9_.:+-]{1,64}\Z")
"""A feature that a constraint can contain without quotes."""


@dataclass(frozen=True)
class Discovered:
    """The fleet, and a reason for each node that is left out."""

    fleet: tuple[FleetHost, ...]
    left_out: tuple[str, ...]


class _Meta(msgspec.Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    metadata: _Meta


class _Nodes(msgspec.Struct, frozen=True):
    items: tuple[_Node, ...]


def of_kubernetes(data: bytes) -> Discovered:
    """Read ``kubectl get nodes -o json``. Raises UsageError for anything else.

    The labels are those of NVIDIA's GPU feature discovery: model, driver, count; a node without a GPU has none.
    """
    try:
        nodes = decoding.from_json(data, _Nodes).items
    except decoding.DamagedError as error:
        raise UsageError(
            f"not a list of Kubernetes nodes: {error}", hint="pass the output of `kubectl get nodes -o json`"
        ) from error
    return _gathered((node.metadata.name, _of_labels(node.metadata)) for node in nodes)


def of_slurm(data: bytes) -> Discovered:
    """Read ``sinfo -h -N -o '%N|%G|%f'``. Raises UsageError for a line in another form.

    A node is listed once for each of its partitions. Its resources name the GPU's model (``gpu:a100:4``); a feature has
    to name the driver (``driver-535.104.05``).
    """
    nodes: dict[str, tuple[str, str]] = {}
    for line in decoding.lossy(data).splitlines():
        parts = [part.strip() for part in line.split("|")]
        if len(parts) != 3 or not parts[0]:  # noqa: PLR2004 - name, resources, features
            raise UsageError(
                f"{line!r} is not a node with resources and features",
                hint="pass the output of `sinfo -h -N -o '%N|%G|%f'`",
            )
        nodes[parts[0]] = (parts[1], parts[2])
    return _gathered((name, _of_words(*words)) for name, words in nodes.items())


def as_yaml(fleet: tuple[FleetHost, ...]) -> str:
    """Return a fleet file: one line, in JSON, for each host, or for several equal hosts."""
    empty: tuple[object, ...] = (None, "", [], (), {})
    lines = []
    for host in fleet:
        values = msgspec.to_builtins(host).items()
        kept = {name: one for name, one in values if one not in empty and (name, one) != ("count", 1)}
        lines.append(f"- {decoding.lossy(msgspec.json.encode(kept))}\n")
    return "".join(lines)


def _gathered(nodes: Iterable[tuple[str, FleetHost | str]]) -> Discovered:
    """Count equal nodes, under the name of the first; a text is the reason for leaving a node out."""
    alike: dict[bytes, list[tuple[str, FleetHost]]] = {}
    left_out: list[str] = []
    for name, host in nodes:
        if isinstance(host, str):
            left_out.append(f"{name}: {host}")
        else:
            alike.setdefault(msgspec.json.encode(host), []).append((name, host))
    fleet = []
    for (node, host), *others in alike.values():
        name = re.sub(r"[^A-Za-z0-9._-]", "-", node).lstrip("._-")[:63] or "node"
        fleet.append(msgspec.structs.replace(host, name=name, count=1 + len(others)))
    return Discovered(tuple(fleet), tuple(left_out))


def _of_labels(meta: _Meta) -> FleetHost | str:
    labels = meta.labels
    machine = labels.get("kubernetes.io/arch", "")
    arch = ARCHS.get(machine)
    if arch is None:
        return f"no environment is for its machine type: {machine or 'unknown'}"
    product, driver = labels.get(_PRODUCT, ""), _driver(labels)
    if not product and not driver:
        return FleetHost(name="x", arch=arch, labels={"kubernetes.io/arch": machine})
    if not product or not driver:
        return f"it has no label for its {'driver' if product else 'GPU'}; install GPU feature discovery"
    keys = ("kubernetes.io/arch", _PRODUCT, *((_FULL,) if _FULL in labels else _PARTS))
    selector = {key: labels[key] for key in keys if labels.get(key)}
    count = int(labels[_COUNT]) if labels.get(_COUNT, "").isdecimal() else 1
    return FleetHost(name="x", driver=driver, gpus=(product,) * max(1, min(count, 64)), arch=arch, labels=selector)


def _driver(labels: dict[str, str]) -> str:
    """Return a node's driver, from its newer label or the three older ones, or ''."""
    text = labels.get(_FULL) or ".".join(filter(None, (labels.get(part, "") for part in _PARTS)))
    return text if re.fullmatch(r"[0-9]+(?:\.[0-9]+)*", text) else ""


def _of_words(resources: str, features: str) -> FleetHost | str:
    """Read a node's generic resources and features; Slurm writes ``(null)`` for none."""
    gres = [word for word in re.split(r",(?![^(]*\))", resources) if word and word != "(null)"]
    words = [word for word in features.split(",") if word and word != "(null)"]
    gpus = [found[1] for word in gres if (found := _GRES.match(word))]
    driver = next((found[1] for word in words if (found := _DRIVER.match(word))), "")
    if not gpus and any(map(_ANY_GPU.match, gres)):
        return "its resources name no model of its GPU (gpu:a100:4)"
    if gpus and not driver:
        return "no feature names its driver (driver-535.104.05)"
    constraint = "&".join(word for word in words if _FEATURE.match(word))
    if not gpus:
        return FleetHost(name="x", constraint=constraint)
    return FleetHost(name="x", driver=driver, gpus=tuple(dict.fromkeys(gpus)), constraint=constraint)
