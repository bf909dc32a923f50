"""An environment of a few kilobytes for the soak: real locks, builds, containers and verdicts, without a framework.

Its TensorFlow is a wheel of one line, from an index of the soak's own, so that a run takes seconds and next to no
processor, and ends as FAILED: what the suite's first checks find passes, what computes cannot. Everything is kept in
one folder, its index on one port, since both are in the build's cache and thereby in the image.
"""

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from certificates import certificate
from index_server import Site, serving
from made_images import package, zipped
from registries import free_port

REPOSITORY = Path(__file__).parents[2]
VERSION = "2.17.0"
TINY = f"tf{VERSION}-py39-cpu-bullseye"
"""An environment that nobody builds otherwise: its tag in the engine is the soak's."""

MATRIX = f"""name: soak
axes:
  tensorflow: ["{VERSION}"]
  os: [debian-bullseye]
  flavor: [cpu]
"""
_WHEEL = f"tensorflow_cpu-{VERSION}-py3-none-any.whl"
_IMPORT_S = 0.3
"""How long its import takes, asleep: less than an import can take is a finding."""

_RENEWED_S = 50 * 86400.0
"""How old a certificate may be, of those that hold for sixty days: with another one, the image is built anew."""


def write_tiny(folder: Path, wheel: bytes) -> None:
    (folder / "m.yaml").write_text(MATRIX)
    context = folder / "images" / TINY
    context.mkdir(parents=True)
    digest = hashlib.sha256(wheel).hexdigest()
    (context / "requirements.lock").write_text(f"tensorflow-cpu=={VERSION} \\\n    --hash=sha256:{digest}\n")


def tiny_wheel() -> bytes:
    text = f'"""Nothing of TensorFlow but its name."""\nimport time\n\n__version__ = "{VERSION}"\ntime.sleep({_IMPORT_S})\n'
    return zipped(package("tensorflow_cpu", VERSION, {"tensorflow/__init__.py": text.encode()}))


@contextmanager
def tiny_world(place: Path) -> Iterator[dict[str, str]]:
    """Serve the index that the environment comes from; yields the variables that lead a command to it."""
    place.mkdir(parents=True, exist_ok=True)
    address = _bridge()
    bundle = place / "cert.pem"
    if not bundle.exists() or time.time() - bundle.stat().st_mtime > _RENEWED_S:
        certificate(place, address, days=60, root=False)
    port = place / "port"
    if not port.exists():
        port.write_text(str(free_port()))
    site = Site()
    site.add("tensorflow-cpu", _WHEEL, tiny_wheel())
    installer = _installer(place)
    site.add("uv", installer.name, installer.read_bytes())
    with serving(site, (address, int(port.read_text())), bundle):
        trusted = dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "CURL_CA_BUNDLE"), str(bundle))
        yield {**trusted, "UV_DEFAULT_INDEX": site.url, "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}


def _bridge() -> str:
    """Return the address at which containers reach this host."""
    words = ["docker", "network", "inspect", "bridge", "--format", "{{(index .IPAM.Config 0).Gateway}}"]
    return subprocess.run(words, capture_output=True, check=True, text=True).stdout.strip()


def _installer(place: Path) -> Path:
    """Fetch the installer that build stages use, once."""
    context = REPOSITORY / "images" / "shared" / "tools.lock"
    found = re.search(r"^uv==(\S+)", context.read_text(), re.MULTILINE)
    assert found
    if not (kept := sorted(place.glob(f"uv-{found[1]}-*.whl"))):
        words = ["-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", f"uv=={found[1]}"]
        subprocess.run([sys.executable, *words, "-d", place], check=True)
        kept = sorted(place.glob(f"uv-{found[1]}-*.whl"))
    return kept[0]
