"""The record of an image in which the checks on the host found no error; the files of an equal image are not read."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import cast

import msgspec

from envbuilder.engine.port import Image, Layer
from envbuilder.finding import Finding
from envbuilder.image.names import HOST_LABELS
from envbuilder.support import decoding
from envbuilder.validation import suite_plan
from envbuilder.validation.image_context import instruction
from envbuilder.validation.image_files import ImageFiles
from envbuilder.validation.layer_scan import LayerRecord
from envbuilder.validation.suite_plan import Check
from envbuilder.verdict import CheckResult, Measurement
from envbuilder.workspace import digest


class KnownLayer(msgspec.Struct, frozen=True, kw_only=True):
    """A layer: its instruction, diff id, and a digest of its entries, which is the same with every engine."""

    made_by: str
    diff_id: str
    entries: str


class PassedCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    findings: tuple[Finding, ...] = ()
    measurements: dict[str, Measurement] = {}


class KnownImage(msgspec.Struct, frozen=True, kw_only=True):
    """``images/<id>/image.json``; ``files``: digest of the build's files, ``suite``: of the suite that passed."""

    schema: str = "envbuilder/known-image/v1"
    files: str
    suite: str
    recorded: str
    layers: tuple[KnownLayer, ...]
    configuration: dict[str, object]
    checks: dict[str, PassedCheck]


def key_of(context: Mapping[str, str]) -> str:
    """Return one digest of a build's files, of which ``context`` has the digests by path; '' if they are unknown."""
    return digest(msgspec.json.encode(context, order="sorted")) if context else ""


def parse(content: bytes, context: str) -> KnownImage | None:
    """Read a record; None if it is damaged, or of other build files: ``context`` is their key."""
    try:
        found = decoding.from_json(content, KnownImage)
    except decoding.DamagedError:
        return None
    return found if context and found.files == context else None


def describe(image: Image, base: Image, files: ImageFiles, results: Sequence[CheckResult], context: str) -> KnownImage:
    """Return the record of an image: ``results`` are of the checks on the host, ``context`` is as in `parse`."""
    pairs = zip(image.layers[len(base.layers) :], files.records[len(base.layers) :], strict=True)
    layers = (KnownLayer(made_by=_made_by(one), diff_id=one.diff_id, entries=entries(own)) for one, own in pairs)
    return KnownImage(
        files=context,
        suite=suite_plan.digest(),
        recorded=datetime.now(UTC).date().isoformat(),
        layers=tuple(layers),
        configuration=configuration(image, base),
        checks={one.name: PassedCheck(findings=one.findings, measurements=one.measurements) for one in results},
    )


def differences(
    known: KnownImage, image: Image, base: Image | None, checks: Sequence[Check], files: Callable[[], ImageFiles]
) -> tuple[str, ...]:
    """Name what differs between an image and its record; files are read only if the diff ids differ."""
    if base is None:
        return ("its lowest layers are not a base that this host has",)
    if not known.checks.keys() >= {one.name for one in checks}:
        return ("it lacks a check of this suite",)
    now = configuration(image, base)
    names = sorted(now.keys() | known.configuration.keys())
    found = [name for name in names if now.get(name) != known.configuration.get(name)]
    above = image.layers[len(base.layers) :]
    if [one.diff_id for one in above] != [one.diff_id for one in known.layers]:
        if bound := files().budget.reached:
            return (bound,)
        records = files().records[len(base.layers) :]
        for number, (record, own, before) in enumerate(zip_longest(records, above, known.layers), 1):
            if not (own and before and (own.diff_id == before.diff_id or entries(record) == before.entries)):
                found.append(f"layer {number} above the base ({before.made_by if before else _made_by(own)})")
    return tuple(found)


def _made_by(layer: Layer) -> str:
    return instruction(layer.created_by)[:100]


def place(known: KnownImage | None, image: Image) -> range:
    """Return the numbers of an image's layers that are those of a record, by their diff ids; empty if it has others."""
    own = [layer.diff_id for layer in known.layers] if known is not None else []
    ids = [layer.diff_id for layer in image.layers]
    starts = (start for start in range(len(ids) - len(own) + 1) if own and ids[start : start + len(own)] == own)
    return next((range(start, start + len(own)) for start in starts), range(0))


def passed(known: KnownImage, checks: Sequence[Check]) -> tuple[CheckResult, ...]:
    text = f"layers above the base and configuration equal the record of {known.recorded} (suite {known.suite[7:23]})"
    rows = ((check, known.checks[check.name]) for check in checks)
    told = ((check, own, "; ".join((text, *(one.message for one in own.findings)))) for check, own in rows)
    return tuple(check.result("passed", observed, **msgspec.structs.asdict(own)) for check, own, observed in told)


def configuration(image: Image, base: Image) -> dict[str, object]:
    """Return every setting, variable and label by name, and the digest of the instructions above the base.

    Labels of the base, and those that name it or the checkout, are left out: they differ between hosts.
    """
    count = len(image.history) - len(base.history)
    own = image.history[:count] if image.history[count:] == base.history else image.history
    found: dict[str, object] = {"architecture": image.architecture, "history": digest("\n".join(own).encode())}
    for name, value in image.settings.items():
        if name == "env":
            pairs = [text.partition("=")[::2] for text in cast("Sequence[str]", value)]
            found |= {f"env {key}": [text for other, text in pairs if other == key] for key, _ in pairs}
        elif name != "labels":
            found[name] = value
    own_labels = {key: value for key, value in image.labels.items() if base.labels.get(key) != value}
    found |= {f"label {key}": own_labels[key] for key in own_labels.keys() - HOST_LABELS}
    return decoding.from_json(msgspec.json.encode(found, order="sorted"), dict[str, object])  # tuples become lists


def entries(record: LayerRecord) -> str:
    names = ("path", "kind", "mode", "uid", "size", "modified", "target", "digest", "has_capabilities")
    rows = sorted(record.rows, key=lambda row: row.path)
    return digest(msgspec.msgpack.encode([[getattr(row, name) for name in names] for row in rows]))
