"""Values for tests: each builder returns a sound value, and takes what a test wants different."""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from table_rows import beside

from envbuilder.catalog import store
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.finding import Code, Finding, Severity
from envbuilder.upgrade.document import UpgradeDocument
from envbuilder.verdict import CheckResult, EngineRef, GpuSeen, HostRef, ImageRef, Measurement, Phase, Verdict
from envbuilder.workspace import Workspace

_Made = TypeVar("_Made")

REPOSITORY = Path(__file__).parents[2]

H100 = GpuSeen(name="NVIDIA H100 80GB HBM3", compute_capability="9.0", memory=80 << 30)
A100 = GpuSeen(name="NVIDIA A100-SXM4-80GB", compute_capability="8.0")


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _made(name: str, kind: type[_Made]) -> _Made:
    return msgspec.convert(beside(__file__)[name], kind)


def finding(code: Code = Code.DRIVER_TOO_OLD, severity: Severity = Severity.ERROR, **given: Any) -> Finding:
    """Make a finding with a fix and a source."""
    return replace(_made("finding", Finding), code=code, severity=severity, **given)


def environment(**given: Any) -> Environment:
    return replace(_made("environment", Environment), **given)


def resolved(**combination: Any) -> Environment:
    """Resolve a combination of the shipped catalogue: TensorFlow 2.20.0 on Debian 12 unless a test says otherwise."""
    wanted = Combination(**{"tensorflow": "2.20.0", "os": "debian-bookworm", **combination})
    found = resolve(wanted, store.load())
    assert isinstance(found, Environment), found
    return found


def rejection(combination: Combination, text: str = "No wheel is for it.") -> Rejection:
    return Rejection(combination=combination, id=text, findings=(finding(),), sentence=text)


def workspace(folder: Path, *environments: str) -> Workspace:
    """Make a workspace with the committed build contexts of these environments."""
    made = Workspace(folder)
    for name in environments:
        shutil.copytree(REPOSITORY / "images" / name, made.context(name))
    return made


def pin(name: str, version: str) -> str:
    """Write one package of a lock, with a hash that no file has."""
    return f"{name}=={version} \\\n    --hash=sha256:{'0' * 64}\n"


def lock(**versions: str) -> str:
    """Write a lock of packages by name; an underscore stands for a hyphen."""
    return "".join(pin(name.replace("_", "-"), version) for name, version in versions.items())


def tar(files: Mapping[str, bytes | str | None], links: Mapping[str, str] | None = None) -> bytes:
    """Write a layer: a path with its content (None: a directory), and symbolic links with their targets."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE if content is None else tarfile.REGTYPE
            data = content.encode() if isinstance(content, str) else content or b""
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
        for name, target in (links or {}).items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return buffer.getvalue()


def gpu_environment(**given: Any) -> Environment:
    return replace(_made("gpu environment", Environment), **given)


def check(name: str = "import", outcome: str = "passed", **given: Any) -> CheckResult:
    values: dict[str, Any] = {"level": "cpu", "duration_s": 1.5, "expected": "imports", "observed": "imports"}
    return CheckResult(name=name, outcome=outcome, **{**values, **given})  # type: ignore[arg-type]


def verdict(**given: Any) -> Verdict:
    """Make a PASSED verdict of a CPU image that has a manifest digest."""
    values: dict[str, Any] = {
        "environment": environment(),
        "image": ImageRef(id=digest("image"), digest=digest("manifest"), size=1_750_000_000, reference="x:y"),
        "lock": digest("lock"),
        "suite": digest("suite"),
        "engine": EngineRef(name="docker", version="20.10.24", builder="buildkit"),
        "host": HostRef(kernel="6.1.0", cpus=2, cpu_model="a processor", memory=24 << 30),
        "simulated": False,
        "verdict": "PASSED",
        "level": "cpu",
        "requires": ("static", "load", "cpu"),
        "checks": (
            check("labels", level="static", duration_s=0.01),
            check("libraries", level="load", duration_s=0.1),
            check("import", measurements={"import": Measurement(3.2, "s"), "peak": Measurement(6e8, "B")}),
        ),
        "timeline": (
            Phase(phase="import", cold_s=(5.1, 5.3), warm_s=(2.1, 2.0, 2.2)),
            Phase(phase="first-op", cold_s=(0.3,), warm_s=(0.2, 0.2)),
        ),
        "started": "2026-11-20T10:00:00+00:00",
        "finished": "2026-11-20T10:03:00+00:00",
    }
    return Verdict(**{**values, **given})


def gpu_verdict(**given: Any) -> Verdict:
    values: dict[str, Any] = {
        "environment": gpu_environment(),
        "host": HostRef(driver="535.104.05", gpus=(H100,), kernel="6.1.0", cpus=64),
        "level": "gpu",
        "requires": ("static", "load", "cpu", "gpu"),
        "checks": (*verdict().checks, check("matmul", level="gpu")),
    }
    return verdict(**{**values, **given})


def failed_verdict(**given: Any) -> Verdict:
    found = finding()
    values: dict[str, Any] = {
        "verdict": "FAILED",
        "level": "static",
        "checks": (
            check("labels", level="static"),
            check("import", "failed", observed="ImportError: no", findings=(found,), log="Traceback <&>"),
        ),
        "findings": (found,),
        "reasons": ("import failed",),
    }
    return verdict(**{**values, **given})


def inconclusive_verdict(**given: Any) -> Verdict:
    """Make an INCONCLUSIVE verdict: a GPU image without a GPU."""
    values: dict[str, Any] = {
        "environment": gpu_environment(),
        "verdict": "INCONCLUSIVE",
        "level": "load",
        "requires": ("static", "load", "gpu"),
        "checks": (
            check("libraries", level="load"),
            check("matmul", "skipped", level="gpu", observed="no GPU on this host"),
            check("conv", "timeout", level="gpu", observed="no answer in 60 s"),
        ),
        "reasons": ("matmul was skipped: no GPU on this host",),
    }
    return verdict(**{**values, **given})


def upgrade(text: str = "a note") -> UpgradeDocument:
    """Make a comparison that rejects: one clause violated, one package changed."""
    made = _made("upgrade", UpgradeDocument)
    return replace(made, clauses=(replace(made.clauses[0], says=text),), gaps=(text,))
