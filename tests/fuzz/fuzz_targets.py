"""What is fuzzed: for each parser of what others wrote, honest seeds, how it is called, and the ends that are right."""

from __future__ import annotations

import base64
import contextlib
import gzip
import io
import json
import sqlite3
import struct
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, cast

import msgspec
import requests
from fuzz_answers import ANSWERS
from fuzz_doors import DOORS
from fuzz_target import TESTS, Target, file, place, read_all

from envbuilder.attest import envelope, keys, predicates, statement
from envbuilder.attest.demand import Demand
from envbuilder.attest.envelope import KeyOpener, KeySealer
from envbuilder.attest.sbom_contents import read as read_contents
from envbuilder.catalog import store
from envbuilder.cli.output import as_json, flattened
from envbuilder.compat.fleet import FleetHost
from envbuilder.compat.plan import plan
from envbuilder.engine import calls, engine_choice, images, layer_files
from envbuilder.engine.buildkit import Trace
from envbuilder.errors import EnvbuilderError
from envbuilder.image import lockfile
from envbuilder.matrix import Matrix
from envbuilder.probes.suite import elf, fatbin
from envbuilder.pypi import index_config, lazyzip, pages
from envbuilder.refresh import ptx_text, section_table
from envbuilder.registry import credentials, reference, referrers
from envbuilder.report.formats import FORMATS
from envbuilder.reproduce import render
from envbuilder.reproduce.analysis import foresee
from envbuilder.reproduce.report import captured
from envbuilder.support import decoding, terminal_text
from envbuilder.support.yaml_reader import parse_yaml
from envbuilder.validation import validate_request
from envbuilder.validation.checks import CHECKS
from envbuilder.validation.history import History
from envbuilder.validation.stored import users_verdict
from envbuilder.validation.suite_session import Session
from envbuilder.verdict import Verdict, contradiction
from envbuilder.workspace import read_document, write_document


def _matrix(data: bytes) -> None:
    matrix = parse_yaml(data, "m.yaml", Matrix)
    if len(data) < 300:  # a plan of thousands is work, not an attack: it has its own limit
        plan(matrix, store.load())


def _fleet(data: bytes) -> None:
    parse_yaml(data, "f.yaml", tuple[FleetHost, ...])


def _catalogue(data: bytes) -> None:
    """Read a file that ships with the package. libyaml ends the process at nesting without end: left out.

    Whoever can write there can write code; every file of a user is read by a parser that refuses it.
    """
    if any(data.count(deep) > 500 for deep in (b"[", b"{", b"- -")):
        return
    with decoding.damaged("a catalogue"):
        store.parse((("tensorflow.yaml", data),))


def _catalogue_seeds() -> list[bytes]:
    """Take each file's beginning, as far as its last whole row: what is cut in a row is refused before it is read."""
    return [_whole_rows(path.read_bytes().split(b"\n")) for path in store.files()]


def _whole_rows(lines: list[bytes]) -> bytes:
    for count in range(60, 0, -1):
        text = b"\n".join(lines[:count])
        with contextlib.suppress(EnvbuilderError, decoding.DamagedError):
            _catalogue(text)
            return text
    raise AssertionError(f"no row within 60 lines of {lines[0]!r}")


def _report(data: bytes) -> None:
    text = decoding.lossy(data)
    document = foresee(text, store.load()).document
    render.as_text(flattened(document))
    shown = render.as_markdown(flattened(document))
    assert "\x1b" not in terminal_text.text(shown)
    json.loads(as_json(document))


def _capture(data: bytes) -> None:
    captured.parse(decoding.lossy(data))


def _capture_seeds() -> list[bytes]:
    document = {"schema": captured.SCHEMA, "packages": {"tensorflow": "2.20.0"}, "gpus": ["A100"], "log": ["x"]}
    return [json.dumps(document).encode(), json.dumps({"schema": captured.SCHEMA}).encode()]


def _wheel(data: bytes) -> None:
    """Read a wheel as `Client` does: its directory, and each file of it, from bytes that an index gave."""

    def read(start: int, end: int) -> bytes:
        return data[max(0, start) : max(0, end)]

    with decoding.damaged("a wheel"):
        for member in lazyzip.directory(read, len(data))[:50]:
            start = lazyzip.content_at(read, member)
            for _ in zip(lazyzip.unpack(member, iter([read(start, start + member.packed)])), range(40), strict=False):
                pass


def _wheel_seeds() -> list[bytes]:
    made = []
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", method) as archive:
            archive.writestr("a-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: a\nVersion: 1\n" * 20)
            archive.writestr("a/__init__.py", b"\0" * 5000)
        made.append(buffer.getvalue())
    return made


def _index(data: bytes) -> None:
    for kind in ("text/html", pages.JSON_TYPE):
        with contextlib.suppress(decoding.DamagedError), decoding.damaged("a page"):
            pages.parse("numpy", data, kind, "https://index.example/simple/numpy/")


def _index_seeds() -> list[bytes]:
    row = {
        "filename": "numpy-2.0.0-cp311-cp311-manylinux_2_17_x86_64.whl",
        "url": "../../numpy.whl",
        "hashes": {"sha256": "a" * 64},
    }
    document = {
        "meta": {"api-version": "1.1"},
        "name": "numpy",
        "files": [row, {**row, "size": 5, "upload-time": "2024-01-01T00:00:00Z"}],
    }
    html = '<!DOCTYPE html><html><body><a href="numpy-2.0.0.tar.gz#sha256=aa" data-requires-python="&gt;=3.9">numpy-2.0.0.tar.gz</a></body></html>'
    return [json.dumps(document).encode(), html.encode()]


def _elf(data: bytes) -> None:
    with contextlib.suppress(elf.NotElfError):
        elf.Elf(str(file("x.so", data)))


def _elf_seeds() -> list[bytes]:
    found = [path for path in Path(sys.prefix).rglob("*.so") if path.stat().st_size < 60_000]
    return [path.read_bytes() for path in sorted(found, key=lambda path: path.stat().st_size)[:8]] or [_tiny_elf()]


def _tiny_elf() -> bytes:
    return (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
        + bytes(200)
    )


def _fat(data: bytes) -> None:
    pieces = [data[at : at + 777] for at in range(0, len(data), 777)]
    fatbin.architectures(pieces)
    for one in fatbin.fat_binaries(pieces):
        for entry in one.entries[:20]:
            if entry.kind == fatbin.PTX:
                ptx_text.read(entry)
    table = section_table.SectionWatch()
    for _ in table.over(pieces):
        pass
    table.sections()


def _fat_seeds() -> list[bytes]:
    return [path.read_bytes()[:60_000] for path in sorted((TESTS / "data").rglob("*")) if path.is_file()]


@cache
def _key() -> keys.PrivateKey:
    return keys.create(place() / "keys")


def _envelope(data: bytes) -> None:
    sealed_by = KeyOpener((keys.load_public(place() / "keys" / keys.PUBLIC),))
    opened = sealed_by.open(data)
    if not isinstance(opened, envelope.Rejected):
        statement.parse(opened.payload)


def _statement(data: bytes) -> None:
    """Read a statement as if somebody trusted had signed it."""
    found = statement.parse(data)
    with contextlib.suppress(EnvbuilderError):
        from envbuilder.registry.bounded_json import parsed  # noqa: PLC0415

        verdict = parsed(found.predicate, predicates.VerdictPredicate, "a verdict").verdict
        from datetime import UTC, datetime  # noqa: PLC0415

        from envbuilder.attest.envelope import SignedBy  # noqa: PLC0415
        from envbuilder.attest.trust import Evidence, decide  # noqa: PLC0415

        item = Evidence(stored="sha256:" + "a" * 64, statement=found, signed_by=(SignedBy(name="k", expires=""),))
        decide("sha256:" + "b" * 64, (item,), Demand(), datetime(2026, 11, 21, tzinfo=UTC))
        FORMATS["junit"]((verdict,))


def _verdicts() -> list[Verdict]:
    sys.path.insert(0, str(TESTS / "support"))
    from factories import failed_verdict, gpu_verdict, inconclusive_verdict, verdict  # noqa: PLC0415

    return [verdict(), failed_verdict(), inconclusive_verdict(), gpu_verdict()]


def _statement_seeds() -> list[bytes]:
    return [statement.encode(predicates.verdict_statement("registry.example/a", one)) for one in _verdicts()[:2]]


def _envelope_seeds() -> list[bytes]:
    _key()
    return [KeySealer(_key()).seal(payload) for payload in _statement_seeds()]


def _registry(data: bytes) -> None:
    with contextlib.suppress(EnvbuilderError):
        referrers._entries(referrers._decode(data))
    with contextlib.suppress(EnvbuilderError):
        reference.parse(decoding.lossy(data[:300]))


def _registry_seeds() -> list[bytes]:
    row = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": "sha256:" + "a" * 64, "size": 7}
    index = {
        "schemaVersion": 2,
        "manifests": [row, {**row, "artifactType": "application/x", "annotations": {"a": "b"}}],
    }
    return [json.dumps(index).encode(), b"registry.example.org:5000/team/image:tag@sha256:" + b"a" * 64]


def _engine(data: bytes) -> None:
    answer: object = decoding.from_json(data, object)
    inspected = answer.get("inspected", answer) if isinstance(answer, dict) else answer
    history = answer.get("history", []) if isinstance(answer, dict) else []
    for parse in (lambda: images.to_image(inspected, history), lambda: layer_files.overlay_folders(inspected)):
        with contextlib.suppress(decoding.DamagedError):
            parse()


def _engine_seeds() -> list[bytes]:
    config = {"Labels": {"a": "b"}, "Env": ["PATH=/bin"], "Entrypoint": ["python"], "Cmd": None, "User": "1000"}
    data = {"UpperDir": "/x/diff", "LowerDir": "/y:/z"}
    inspected = {
        "Id": "sha256:1", "RepoTags": ["a:b"], "Config": config, "RootFS": {"Layers": ["sha256:2", "sha256:3", "sha256:4"]},
        "GraphDriver": {"Name": "overlay2", "Data": data}, "Size": 5,
    }  # fmt: skip
    return [
        json.dumps(
            {"inspected": inspected, "history": [{"Size": 4, "CreatedBy": "RUN x"}, {"CreatedBy": "ENV a=b"}]}
        ).encode()
    ]


class _Answer:
    """A streaming answer of the engine."""

    ok = True

    def __init__(self, data: bytes) -> None:
        self._data = data

    def iter_content(self, size: int) -> Iterator[bytes]:
        """Give it in pieces."""
        return (self._data[at : at + 1000] for at in range(0, len(self._data), min(size, 1000)))


def _records(data: bytes) -> None:
    trace = Trace()
    for record in calls.records("build", cast("requests.Response", _Answer(data))):
        with contextlib.suppress(decoding.DamagedError), decoding.damaged("a trace"):
            list(trace.feed(base64.b64decode(record.aux or "")))


def _trace(data: bytes) -> None:
    trace = Trace()
    with contextlib.suppress(decoding.DamagedError), decoding.damaged("a trace"):
        list(trace.feed(data))
    list(trace.finish())
    trace.failure()


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _trace_seeds() -> list[bytes]:
    vertex = (
        _field(1, b"sha256:1")
        + _field(3, b"[1/2] RUN x")
        + _field(5, b"\x08\x01")
        + _field(6, b"\x08\x02")
        + _field(7, b"boom")
    )
    log = _field(1, b"sha256:1") + _field(4, b"a line\nand half a ")
    return [_field(1, vertex) + _field(3, log), _field(3, log)]


def _record_seeds() -> list[bytes]:
    lines = [{"id": "moby.buildkit.trace", "aux": base64.b64encode(one).decode()} for one in _trace_seeds()]
    return [
        b"\n".join(json.dumps(line).encode() for line in [*lines, {"id": "moby.image.id", "aux": {"ID": "sha256:1"}}])
    ]


def _archive(data: bytes) -> None:
    for stream in layer_files.from_archive([data[at : at + 5000] for at in range(0, len(data), 5000)]):
        for number, one in enumerate(stream.files):
            if one.kind == "file" and number < 100:
                for _ in one.pieces():
                    pass


def _archive_seeds() -> list[bytes]:
    def tar(**files: bytes) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as made:
            for name, content in files.items():
                info = tarfile.TarInfo(name.replace("__", "/"))
                info.size = len(content)
                made.addfile(info, io.BytesIO(content))
        return buffer.getvalue()

    layer = tar(etc__a=b"content", etc__passwd=b"root")
    return [
        tar(a__layer=b"", **{"blobs__sha256__x": layer, "manifest.json": b"[]"}),
        tar(**{"blobs__sha256__x": gzip.compress(layer, mtime=0), "manifest.json": b"[]"}),
    ]


def _results(data: bytes) -> None:
    """Follow a run whose messages have the right token and any content, one a line."""
    session = Session(CHECKS[:6], lambda _: None, token="k")
    for payload in data.split(b"\n")[:200]:
        session.feed(b"k " + payload + b"\n")
    session.results()
    session.violations()
    session.timeline()
    session.driver()
    session.feed(data)


def _result_seeds() -> list[bytes]:
    events: list[dict[str, Any]] = [{"event": "start", "python": "3.11", "executable": "/p"}]
    for check in CHECKS[:6]:
        result = {
            "name": check.name,
            "tier": check.level,
            "outcome": "failed",
            "duration_s": 1.0,
            "observed": "x",
            "log": "y",
        }
        finding = {"code": "UNKNOWN", "severity": "error", "subject": "s", "message": "m"}
        more = {
            "findings": [finding],
            "measurements": {"a": {"value": 1.0, "unit": "s"}},
            "phases": {"p": {"cold_s": [1.0]}},
        }
        events += [{"event": "begin", "name": check.name}, {"event": "result", "result": {**result, **more}}]
    driver = {"driver": "535.1", "cuda": "12.2", "count": 1, "gpus": [{"name": "A100", "uuid": "u", "memory": 1}]}
    events.append({"event": "result", "result": {"name": "driver", "tier": "gpu", "outcome": "passed", "data": driver}})
    whole = b"\n".join(json.dumps(event).encode() for event in [*events, {"event": "end"}])
    return [whole, *(json.dumps(event).encode() for event in events[-3:])]


def _verdict(data: bytes) -> None:
    verdict = users_verdict(file("v.json", data))
    contradiction(verdict)
    for form in FORMATS.values():
        form((verdict,))
    terminal_text.text(validate_request.as_text(flattened(verdict)))


def _verdict_seeds() -> list[bytes]:
    return [msgspec.json.encode(one) for one in _verdicts()]


def _document(data: bytes) -> None:
    """Read a file of ours that lay on a disk which lies."""
    with contextlib.redirect_stderr(io.StringIO()):
        found = read_document(file("d.json", data), Verdict)
    if found is not None:
        write_document(place() / "e.json", found)


def _history(data: bytes) -> None:
    folder = place()
    for suffix in ("-wal", "-shm"):
        (folder / f"h.sqlite3{suffix}").unlink(missing_ok=True)
    history = History(file("h.sqlite3", data))
    for ask in (history.since, history.count, lambda: history.add(_verdicts()[:1])):
        with contextlib.suppress(EnvbuilderError):
            ask()


def _history_seeds() -> list[bytes]:
    path = place() / "seed.sqlite3"
    History(path).add(_verdicts())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    return [path.read_bytes()]


def _lock(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        lockfile.parse(decoding.lossy(data))


def _configuration(data: bytes) -> None:
    """Read the same bytes as every configuration file of a user."""
    path = file("uv.toml", data)
    for environ in ({"UV_CONFIG_FILE": str(path)}, {"PIP_CONFIG_FILE": str(path), "UV_NO_CONFIG": "1"}):
        with contextlib.suppress(EnvbuilderError):
            found = index_config.configured({**environ, "HOME": str(place())}, folder=place(), prefix=place())
            index_config.for_uv(found, {})
    file("config.json", data)
    with contextlib.suppress(EnvbuilderError):
        credentials.find("registry.example.org", {"DOCKER_CONFIG": str(place())})
    with contextlib.suppress(EnvbuilderError):
        engine_choice.resolved({"DOCKER_CONFIG": str(place())})


def _configuration_seeds() -> list[bytes]:
    auth = base64.b64encode(b"user:password").decode()
    return [
        b'index-url = "https://index.example/simple"\nextra-index-url = ["https://more.example"]\n[[index]]\nurl = "x"\ndefault = true\n[pip]\nindex-url = "y"\n',
        b"[global]\nindex-url = https://user:secret@index.example/simple\nextra-index-url =\n  https://a\n  https://b\nproxy = http://p:1\n",
        json.dumps(
            {"auths": {"https://registry.example.org/v2/": {"auth": auth}, "b": {"identitytoken": "t"}}}
        ).encode(),
        json.dumps({"credHelpers": {"registry.example.org": "../../bin/sh"}, "credsStore": "none"}).encode(),
    ]


def _keys(data: bytes) -> None:
    path = file("k.pem", data)
    path.chmod(0o600)
    for load in (keys.load_public_keys, keys.load_private):
        with contextlib.suppress(EnvbuilderError):
            load(path)


def _keys_seeds() -> list[bytes]:
    _key()
    return [path.read_bytes() for path in sorted((place() / "keys").iterdir())]


def _contents(data: bytes) -> None:
    class Files:
        def content(self, path: str) -> bytes | None:
            return data if path.endswith("os-release") else None

        def kept(self) -> Iterable[tuple[str, bytes]]:
            yield "var/lib/dpkg/status", data
            yield "usr/lib/python3.11/site-packages/a-1.dist-info/METADATA", data

        def __getattr__(self, name: str) -> Any:
            return ()

    read_contents(cast("Any", Files()))


def _contents_seeds() -> list[bytes]:
    return [
        b"Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36\n\nPackage: x\nVersion: 1\n",
        b"Metadata-Version: 2.1\nName: a\nVersion: 1\nLicense: MIT\nClassifier: License :: OSI\n",
        b'ID=debian\nVERSION_CODENAME="bookworm"\n',
    ]


TARGETS: tuple[Target, ...] = (
    Target("matrix", read_all("matrices/*.yaml"), _matrix),
    Target(
        "fleet",
        lambda: [
            b"- {name: a, driver: 535.104.05, gpus: [H100, A100]}\n- {name: b, driver: null, gpus: []}\n",
            *read_all("fleets/*.yaml")(),
        ],
        _fleet,
    ),
    Target("catalogue", _catalogue_seeds, _catalogue),
    Target("report", read_all("tests/corpus/*.txt"), _report),
    Target("capture", _capture_seeds, _capture),
    Target("wheel", _wheel_seeds, _wheel),
    Target("index", _index_seeds, _index),
    Target("elf", _elf_seeds, _elf),
    Target("fat-binary", _fat_seeds, _fat),
    Target("envelope", _envelope_seeds, _envelope),
    Target("statement", _statement_seeds, _statement),
    Target("registry", _registry_seeds, _registry),
    Target("engine", _engine_seeds, _engine),
    Target("records", _record_seeds, _records),
    Target("trace", _trace_seeds, _trace),
    Target("archive", _archive_seeds, _archive),
    Target("results", _result_seeds, _results),
    Target("verdict", _verdict_seeds, _verdict),
    Target("document", _verdict_seeds, _document),
    Target("history", _history_seeds, _history),
    Target("lock", read_all("images/*cpu*/requirements.lock"), _lock),
    Target("configuration", _configuration_seeds, _configuration),
    Target("keys", _keys_seeds, _keys),
    Target("packages", _contents_seeds, _contents),
    *ANSWERS,
    *DOORS,
)
