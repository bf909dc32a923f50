"""``envbuilder doctor``: this host, what is in its way, and which environments it can run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from envbuilder.cli.options import format_option, matrix_argument, select_option

if TYPE_CHECKING:
    from envbuilder.jobs.doctor import Diagnosis


@click.command("doctor")
@matrix_argument
@select_option
@format_option
def command(matrix: str | None, selectors: tuple[str, ...], form: str) -> None:
    r"""Describe this host: driver, GPUs, engine, GPU runtime, disk; and which environments it can run.

    MATRIX is a file, or the name of one that ships (default: tensorflow, the vetted set). Needs no engine.

    \b
    Examples:
      envbuilder doctor
      envbuilder doctor my.yaml -s flavor=gpu
      envbuilder doctor --format json
    """
    from envbuilder import host
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.doctor import diagnose, find_tools
    from envbuilder.schemas import as_json
    from envbuilder.workspace import Workspace, cache_dir

    workspace = Workspace(Path.cwd())
    choice = choose(matrix or "tensorflow", selectors, workspace, load())
    diagnosis = diagnose(
        host.describe(),
        connect,
        avx=host.has_avx(),
        base=next(system for system in choice.catalog.systems if system.suite),
        tools=find_tools(),
        places=(("results", workspace.out), ("cache", cache_dir())),
        environments=choice.environments,
        catalog=choice.catalog,
    )
    click.echo(as_json(diagnosis) if form == "json" else _text(diagnosis))


def _text(diagnosis: Diagnosis) -> str:
    from envbuilder.console import table

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
