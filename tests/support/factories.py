"""Values for tests: each builder returns a sound value, and takes what a test wants different."""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from envbuilder.catalog import store
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment
from envbuilder.finding import Code, Finding, Severity
from envbuilder.upgrade.document import Clause, ComparedImage, Differences, PackageChange, UpgradeDocument
from envbuilder.verdict import CheckResult, EngineRef, GpuSeen, HostRef, ImageRef, Measurement, Phase, Verdict
from envbuilder.workspace import Workspace

REPOSITORY = Path(__file__).parents[2]

H100 = GpuSeen(name="NVIDIA H100 80GB HBM3", compute_capability="9.0", memory=80 << 30)
A100 = GpuSeen(name="NVIDIA A100-SXM4-80GB", compute_capability="8.0")


def digest(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def finding(code: Code = Code.DRIVER_TOO_OLD, severity: Severity = Severity.ERROR, **given: Any) -> Finding:
    """Make a finding with a fix and a source."""
    values = {
        "subject": "driver 470.57.02",
        "message": "CUDA 12.5 needs driver 525.60.13 or newer",
        "requires": "525.60.13",
        "found": "470.57.02",
        "fix": "Install driver 525.60.13 or newer.",
        "sources": ("https://docs.nvidia.com/deploy/cuda-compatibility/",),
    }
    return Finding(code=code, severity=severity, **{**values, **given})


def environment(**given: Any) -> Environment:
    values: dict[str, Any] = {
        "id": "tf2.20.0-py311-cpu-bookworm",
        "tensorflow": "2.20.0",
        "package": "tensorflow",
        "python": "3.11",
        "os": "debian-bookworm",
        "arch": "x86_64",
        "flavor": "cpu",
        "cuda": None,
        "cudnn": None,
        "minimum_driver": None,
        "requirements": ("tensorflow==2.20.0",),
        "cuda_wheels": (),
        "constraints": (),
        "libraries": (),
    }
    return Environment(**{**values, **given})


def resolved(**combination: Any) -> Environment:
    """Resolve a combination of the shipped catalogue: TensorFlow 2.20.0 on Debian 12 unless a test says otherwise."""
    wanted = Combination(**{"tensorflow": "2.20.0", "os": "debian-bookworm", **combination})
    found = resolve(wanted, store.load())
    assert isinstance(found, Environment), found
    return found


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
    values: dict[str, Any] = {
        "id": "tf2.20.0-py311-cu12.5-cudnn9.3-bookworm",
        "flavor": "gpu",
        "cuda": "12.5",
        "cudnn": "9.3",
        "minimum_driver": "525.60.13",
        "cuda_wheels": ("nvidia-cublas-cu12==12.5.3.2",),
    }
    return environment(**{**values, **given})


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
    old = environment(id="tf2.19.1-py311-cpu-bookworm", tensorflow="2.19.1")
    return UpgradeDocument(
        old=ComparedImage(tensorflow="2.19.1", environment=old, verdict="PASSED", level="cpu"),
        new=ComparedImage(tensorflow="2.20.0", environment=environment(), verdict="PASSED", level="cpu"),
        flavor="cpu",
        decision="REJECT",
        policy="default",
        clauses=(
            Clause(clause="max_start_ratio", says=text, otherwise="reject", state="violated", limit=1.25, found="1.6"),
        ),
        differences=Differences(
            packages=(
                PackageChange(
                    name="numpy",
                    change="changed",
                    old="1.26.4",
                    new="2.1.3",
                    old_licence="BSD-3-Clause",
                    new_licence="BSD-3-Clause",
                    old_size=60_000_000,
                    new_size=62_000_000,
                ),
            )
        ),
        rounds=12,
        gaps=(text,),
        finished="2026-11-20T10:03:00+00:00",
    )
