"""``envbuilder doctor``: describe this host, its problems, and the environments that it can run."""

from envbuilder.cli.options import declared


@declared("doctor")
def command(matrix: str | None, selectors: tuple[str, ...], form: str) -> None:
    from envbuilder import host
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose, local_matrices
    from envbuilder.cli.output import finish
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.doctor import as_text, diagnose, find_tools
    from envbuilder.workspace import Workspace, cache_dir

    workspace = Workspace.here()
    usual = None if local_matrices(workspace.root) else "tensorflow"
    choice = choose(matrix or usual, selectors, workspace, load())
    diagnosis = diagnose(
        host.describe(),
        connect,
        avx=host.has_avx(),
        arch=host.machine(),
        base=next(system for system in choice.catalog.systems if system.suite),
        tools=find_tools(),
        places=(("results", workspace.out), ("cache", cache_dir())),
        environments=choice.environments,
        catalog=choice.catalog,
    )
    finish(diagnosis, form, as_text)
