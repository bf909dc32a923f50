"""Small signed repositories of apt's, of packages of a few files: a mirror of Debian, a vendor's site."""

import gzip
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from servers import QuietHandler, running

FIELDS = "Package: {0}\nVersion: {1}\nArchitecture: {2}\nMaintainer: Nobody <nobody@example.org>\nDescription: {0}\n"


@dataclass
class Signer:
    """A key of nobody's, in a folder of its own: what signs, and what a reader is given."""

    home: Path

    def __post_init__(self) -> None:
        self.home.mkdir(mode=0o700)
        self.gpg("--quick-gen-key", "Nobody <nobody@example.org>", "ed25519", "sign", "never")

    def gpg(self, *words: str, said: bytes = b"") -> bytes:
        """Run gpg with no key of this host's in reach."""
        command = ["gpg", "--homedir", str(self.home), "--batch", "--yes", "--quiet", "--passphrase", "", *words]
        try:
            return subprocess.run(command, input=said, check=True, capture_output=True).stdout
        finally:  # gpg leaves its agent behind
            subprocess.run(["gpgconf", "--homedir", str(self.home), "--kill", "gpg-agent"], check=True)

    def public(self, path: Path, *, armoured: bool = False) -> Path:
        path.write_bytes(self.gpg("--export", *(["--armor"] if armoured else [])))
        return path


@dataclass
class Archive:
    """One repository: packages in ``pool``, lists of each component of a suite, or of a flat one, signed."""

    root: Path
    signer: Signer
    origin: str
    suite: str = ""
    held: dict[str, list[tuple[Path, str]]] = field(default_factory=dict)

    def add(
        self,
        name: str,
        version: str,
        files: Mapping[str, bytes] | None = None,
        *,
        component: str = "main",
        more: str = "",
        arch: str = "amd64",
    ) -> str:
        """Make a package and return its file's digest; ``more`` are further fields of its control file."""
        tree = self.root / "made" / f"{name}_{version.replace(':', '_')}"
        (tree / "DEBIAN").mkdir(parents=True)
        control = FIELDS.format(name, version, arch) + more
        (tree / "DEBIAN/control").write_text(control)
        for path, content in (files or {}).items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
        deb = self.root / "pool" / f"{name}_{version.replace(':', '%3a')}_{arch}.deb"
        deb.parent.mkdir(exist_ok=True)
        words = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(deb)]
        subprocess.run(words, check=True, capture_output=True, env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000"})
        self.held.setdefault(component, []).append((deb, control))
        return hashlib.sha256(deb.read_bytes()).hexdigest()

    def publish(self) -> None:
        top = self.root / "dists" / self.suite if self.suite else self.root
        names: dict[str, bytes] = {}
        for component, debs in self.held.items():
            path = f"{component}/binary-amd64/Packages" if self.suite else "Packages"
            text = "\n".join(self._stanza(deb, control) for deb, control in debs).encode()
            (top / path).parent.mkdir(parents=True, exist_ok=True)
            (top / path).write_bytes(text)
            (top / f"{path}.gz").write_bytes(gzip.compress(text, mtime=0))
            names |= {path: text, f"{path}.gz": (top / f"{path}.gz").read_bytes()}
        sums = "".join(f" {hashlib.sha256(text).hexdigest()} {len(text)} {path}\n" for path, text in names.items())
        named = self.suite or "x"
        head = f"Origin: {self.origin}\nLabel: {self.origin}\nSuite: {named}\nCodename: {named}\n"
        head += f"Components: {' '.join(self.held)}\nArchitectures: amd64\nDate: Fri, 20 Nov 2026 10:00:00 UTC\n"
        release = f"{head}SHA256:\n{sums}".encode()
        (top / "Release").write_bytes(release)
        (top / "InRelease").write_bytes(self.signer.gpg("--clearsign", said=release))

    def _stanza(self, deb: Path, control: str) -> str:
        content = deb.read_bytes()
        place = deb.relative_to(self.root)
        digest = hashlib.sha256(content).hexdigest()
        return f"{control}Filename: ./{place}\nSize: {len(content)}\nSHA256: {digest}\n"


class _Files(SimpleHTTPRequestHandler, QuietHandler): ...


@contextmanager
def served(folder: Path, address: str = "127.0.0.1") -> Iterator[str]:
    server = ThreadingHTTPServer((address, 0), partial(_Files, directory=str(folder)))
    with running(server):
        yield f"http://{address}:{server.server_port}"
