# ruff: noqa: INP001, T201 - benchmarks are programs, not a package, and print what they measured
"""How long `verify` takes for an image that strangers have attached 3,000 statements to, and how much memory.

Run: ``python benchmarks/referrers.py [--count N]``. Both kinds of registry run on loopback: an OCI 1.1 registry that
lists referrers, and docker-registry, where they stand under a tag. Exits 1 above 10 seconds or 300 MB, or where the
answer is another than yes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import msgspec

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/support"))

from registries import OCI_INDEX, docker_registry, modern_registry
from verdicts import gpu_verdict

from envbuilder.attest import envelope, statement
from envbuilder.attest.keys import PrivateKey, create
from envbuilder.attest.predicates import VerdictPredicate
from envbuilder.registry.client import Repository
from envbuilder.registry.manifests import OCI_MANIFEST, Descriptor, digest_of
from envbuilder.registry.reference import Reference
from envbuilder.registry.referrers import fallback_tag
from envbuilder.verdict import ImageRef

LIMIT_S, LIMIT_MB = 10.0, 300


def manifest(kind: str, config: Descriptor, content: Descriptor, subject: dict[str, object] | None) -> bytes:
    """Write a manifest of one blob."""
    described = [{"mediaType": one.media_type, "digest": one.digest, "size": one.size} for one in (config, content)]
    parts = {"schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": described[0], "layers": described[1:]}
    return json.dumps(parts | ({"artifactType": kind, "subject": subject} if subject else {})).encode()


def publish(host: str, count: int, keys: tuple[PrivateKey, PrivateKey]) -> None:
    """Push an image, one trusted PASSED and so many statements of a stranger, and list them under the tag as well."""
    repository = Repository(Reference(host, "team/image"), {})
    config = repository.put_blob(b"{}", "application/vnd.oci.empty.v1+json")
    image = manifest("", config, config, None)
    digest = digest_of(image)
    repository.put_manifest("image", image, OCI_MANIFEST)
    subject = {"mediaType": OCI_MANIFEST, "digest": digest, "size": len(image)}

    def attach(number: int) -> dict[str, object]:
        verdict = msgspec.structs.replace(gpu_verdict(), image=ImageRef(id=f"n{number}", digest=digest))
        payload = statement.encode(statement.about("x", digest, statement.VERDICT, VerdictPredicate(verdict=verdict)))
        sealed = envelope.encode(envelope.seal(payload, statement.PAYLOAD_TYPE, keys[number > 0]))
        own = Repository(Reference(host, "team/image"), {})
        content = manifest(envelope.ENVELOPE, config, own.put_blob(sealed, envelope.ENVELOPE), subject)
        own.put_manifest(digest_of(content), content, OCI_MANIFEST)
        own.transport.close()
        kind = {"mediaType": OCI_MANIFEST, "artifactType": envelope.ENVELOPE}
        return {**kind, "digest": digest_of(content), "size": len(content)}

    with ThreadPoolExecutor(8) as pool:
        listed = list(pool.map(attach, range(count + 1)))
    index = {"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": listed}
    repository.put_manifest(fallback_tag(digest), json.dumps(index).encode(), OCI_INDEX)


def ask(host: str, key: Path) -> tuple[float, float, int]:
    """Run the command; returns seconds, peak megabytes and exit code."""
    line = [sys.executable, "-m", "envbuilder", "verify", f"{host}/team/image:image", "--key", str(key)]
    begun = time.perf_counter()
    process = subprocess.Popen([*line, "--format", "json"], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    return time.perf_counter() - begun, used.ru_maxrss / 1024, os.waitstatus_to_exitcode(status)


def main() -> int:
    """Print a line for each kind of registry; 1 where a bound or the answer does not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in ("ours", "theirs"):
            (Path(folder) / name).mkdir()
        ours, theirs = (create(Path(folder) / name) for name in ("ours", "theirs"))
        (key,) = (Path(folder) / "ours").glob("*.pub")
        for kind in ("OCI 1.1", "docker-registry"):
            running = modern_registry() if kind == "OCI 1.1" else docker_registry(Path(folder) / "data")
            with running as found:
                host = found if isinstance(found, str) else found[0]
                publish(host, options.count, (ours, theirs))
                seen = [ask(host, key) for _ in range(options.runs)]
            seconds, memory = median(one[0] for one in seen), max(one[1] for one in seen)
            codes = sorted({one[2] for one in seen})
            print(f"{kind}: {options.count} statements of strangers, {seconds:.1f} s, {memory:.0f} MB, exit {codes}")
            good = good and seconds <= LIMIT_S and memory <= LIMIT_MB and codes == [0]
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
