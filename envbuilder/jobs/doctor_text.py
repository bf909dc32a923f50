"""Write the diagnosis of a host for people."""

from __future__ import annotations

from envbuilder.jobs.doctor import Diagnosis
from envbuilder.support.console import table


def as_text(diagnosis: Diagnosis) -> str:
    """Write the host's facts, the troubles with what mends them, and which environments run here."""
    host, engine = diagnosis.host, diagnosis.engine
    gpus = ", ".join(f"{gpu.name} (compute capability {gpu.compute_capability})" for gpu in host.gpus)
    registry = {True: "answers", False: "does not answer", None: "not asked: no engine"}[diagnosis.registry]
    facts = [
        ("kernel", host.kernel),
        ("processor", f"{host.cpus} x {host.cpu_model}{' (no AVX)' if diagnosis.avx is False else ''}"),
        ("memory", f"{host.memory / 1e9:.1f} GB"),
        ("driver", host.driver or "none"),
        ("GPUs", gpus or "none"),
        ("engine", f"{engine.name} {engine.version}, {engine.builder}, {engine.storage}" if engine else "none"),
        ("GPU runtime", "there" if engine and engine.gpu_runtime else "none"),
        ("registry", registry),
        *((tool.name, f"{tool.path or 'not installed'} ({tool.purpose})") for tool in diagnosis.tools),
        *((f"disk for {disk.purpose}", f"{disk.free / 1e9:.0f} GB free at {disk.path}") for disk in diagnosis.disk),
    ]
    words = {True: "runs", False: "does not", None: "no claim"}
    rows = [(cell.environment, words[cell.compatible], cell.why) for cell in diagnosis.environments]
    troubles = [f"trouble: {trouble.what}\n  next: {trouble.fix}" for trouble in diagnosis.troubles]
    parts = [table(("host", ""), facts), *troubles, table(("environment", "here", "why"), rows)]
    return "\n\n".join(parts)
