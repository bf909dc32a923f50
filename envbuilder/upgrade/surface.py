"""Compare two public interfaces: removed names, new names, and calls that could break."""

from collections.abc import Collection, Iterable, Iterator, Mapping

import msgspec

from envbuilder.upgrade.document import MemberChange, Parameter, PublicName, SignatureChange, Surface, SurfaceChange

EXAMPLES = 8
"""Classes listed for one member change."""


def compare_surfaces(old: Surface, new: Surface) -> SurfaceChange:
    """Compare two interfaces; class members are grouped by name, because most are inherited."""
    gone = old.names.keys() - new.names.keys()
    came = new.names.keys() - old.names.keys()
    signatures = tuple(_signature_changes(old.names, new.names))
    deprecated = (path for path in old.names.keys() & new.names.keys() if new.names[path].deprecated)
    newly = [path for path in deprecated if not (old.names[path].deprecated or _is_member(path, new.names))]
    return SurfaceChange(
        old_names=len(old.names),
        new_names=len(new.names),
        removed=_outermost(gone, old.names, members=False),
        removed_members=_members(dict.fromkeys(_outermost(gone, old.names, members=True), "")),
        added=_outermost(came, new.names, members=False),
        signatures=tuple(change for change in signatures if not _is_member(change.name, new.names)),
        changed_members=_members({c.name: c.breaks for c in signatures if _is_member(c.name, new.names)}),
        newly_deprecated=tuple(sorted(newly, key=_rank)),
    )


def _rank(path: str) -> tuple[bool, str]:
    return path.startswith("compat."), path


def _is_member(path: str, names: Mapping[str, PublicName]) -> bool:
    parent = names.get(path.rpartition(".")[0])
    return parent is not None and parent.kind == "class"


def _outermost(paths: Collection[str], names: Mapping[str, PublicName], *, members: bool) -> tuple[str, ...]:
    """Keep the names of modules, or the members of classes, without those whose parent is in the list."""
    outer = (path for path in paths if path.rpartition(".")[0] not in paths)
    return tuple(sorted((path for path in outer if _is_member(path, names) is members), key=_rank))


def _members(breaks: Mapping[str, str]) -> tuple[MemberChange, ...]:
    """Group members' paths by name and kind of break; the most classes first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for path, how in breaks.items():
        owner, _, member = path.rpartition(".")
        groups.setdefault((member, how), []).append(owner)
    changes = [
        MemberChange(member=member, classes=tuple(sorted(owners)[:EXAMPLES]), count=len(owners), breaks=how)
        for (member, how), owners in groups.items()
    ]
    return tuple(sorted(changes, key=lambda change: (-change.count, change.member, change.breaks)))


def _signature_changes(old: Mapping[str, PublicName], new: Mapping[str, PublicName]) -> Iterable[SignatureChange]:
    for path in sorted(old.keys() & new.keys(), key=_rank):
        before, after = old[path].signature, new[path].signature
        if before is not None and after is not None and before != after:
            yield SignatureChange(
                name=path, old=written(before), new=written(after), breaks="; ".join(breaking(before, after))
            )


def without_aliases(changes: Iterable[SignatureChange]) -> Iterator[SignatureChange]:
    """Yield the changes by which calls can break, one for each function, with its aliases.

    ``nn.relu``, ``compat.v1.nn.relu`` and ``raw_ops.Relu`` are one function: its change is listed once.
    """
    groups: dict[str, list[SignatureChange]] = {}
    for change in changes:
        if change.breaks:
            groups.setdefault(change.name.rpartition(".")[2].replace("_", "").lower(), []).append(change)
    low = [group for group in groups.values() if all(one.name.startswith("raw_ops.") for one in group)]
    for group in (group for group in groups.values() if group not in low):
        first, *others = sorted(group, key=lambda one: (one.name.startswith(("compat.", "raw_ops.")), one.name))
        more = f" (and {', '.join(one.name for one in others)})" if others else ""
        yield msgspec.structs.replace(first, name=first.name + more)
    for first, *_ in low[:1]:
        named = ", ".join(group[0].name.rpartition(".")[2] for group in low[1:EXAMPLES])
        more = f" (and {len(low) - 1} more of raw_ops: {named}{' …' if len(low) > EXAMPLES else ''})"
        yield msgspec.structs.replace(first, name=first.name + more * (len(low) > 1))


def written(signature: Iterable[Parameter]) -> str:
    """Format parameters as Python does: ``(x, *, axis=None)``."""
    parts: list[str] = []
    starred = False
    for parameter in signature:
        if parameter.kind == "k" and not starred:
            parts.append("*")
        starred = starred or parameter.kind in "vk"
        stars = {"v": "*", "w": "**"}.get(parameter.kind, "")
        parts.append(stars + parameter.name + ("" if parameter.default is None else f"={parameter.default}"))
    return f"({', '.join(parts)})"


def breaking(old: tuple[Parameter, ...], new: tuple[Parameter, ...]) -> Iterator[str]:
    """Yield how a valid call can fail or change its meaning."""
    before, after = ({parameter.name: parameter for parameter in each} for each in (old, new))
    kinds = {parameter.kind for parameter in new}
    for was in old:
        now = after.get(was.name)
        if was.kind in "ak" and (now is None or now.kind not in "ak") and "w" not in kinds:
            yield f"{was.name} is gone"
        elif was.kind == "w" and "w" not in kinds:
            yield f"no longer takes further keywords (**{was.name})"
        elif was.kind == "v" and "v" not in kinds:
            yield f"no longer takes further arguments (*{was.name})"
    for parameter in new:
        required = parameter.name in before and before[parameter.name].default is None
        if parameter.kind in "pak" and parameter.default is None and not required:
            yield f"{parameter.name} is required"
    places = [[parameter.name for parameter in each if parameter.kind in "pa"] for each in (old, new)]
    if "v" in kinds:
        places[1] += places[0][len(places[1]) :]
    moved = [(place, name) for place, name in enumerate(places[0]) if places[1][place : place + 1] != [name]]
    for place, name in moved[:1]:  # a call's positional arguments would reach other parameters from here on
        if name in after:
            yield f"{name} is no longer argument {place + 1}"
    for was in old:
        now = after.get(was.name)
        if now is not None and None not in {was.default, now.default} and now.default != was.default:
            yield f"{was.name} defaults to {now.default}, was {was.default}"
