"""``envbuilder reproduce``: find the environment, the cause and the fix of a user's report."""

from envbuilder.cli.options import declared


@declared("reproduce")
def command(report: str, *, dry_run: bool, prove: bool, form: str) -> None:
    from envbuilder import host
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish
    from envbuilder.reproduce.analysis import analyse, with_command
    from envbuilder.reproduce.document import as_markdown, as_text
    from envbuilder.reproduce.transcript import read_report
    from envbuilder.support.console import Console
    from envbuilder.workspace import Workspace

    text, driver = read_report(report), host.describe().driver
    if dry_run:
        document = with_command(analyse(text, load(), driver).document)
    else:  # the engine and the suite take half of the start-up time
        from envbuilder.engine.docker import connect
        from envbuilder.jobs.reproduction import ReproduceTools, reproduce

        tools = ReproduceTools(load(), Workspace.here(), connect(), Console().say)
        document = reproduce(text, tools, driver, prove=prove)
    finish(document, form, as_text, as_markdown)
