"""``envbuilder catalog``: show facts, compare them with artefacts, propose rows for new releases."""

from functools import partial

import click

from envbuilder.catalog import store
from envbuilder.cli.options import declared
from envbuilder.cli.output import finish
from envbuilder.support.console import Console


class _Catalog(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; `look` is the older name of `inspect`."""
        return super().get_command(ctx, "inspect" if cmd_name == "look" else cmd_name)


@click.group("catalog", cls=_Catalog)
def command() -> None: ...


@declared("catalog list", command)
def list_command(table: str | None, form: str, *, selectors: tuple[str, ...], verbose: bool) -> None:
    from envbuilder.cli import catalog_listing as listing

    found = listing.list_catalog(store.load(), table, selectors)
    finish(found, form, partial(listing.as_text, table=table, sources=verbose))


@declared("catalog table", command)
def table_command(table: str | None, form: str) -> None:
    from envbuilder.jobs import compatibility

    catalog = store.load()
    as_text = compatibility.as_csv if form == "csv" else partial(compatibility.as_text, catalog=catalog)
    finish(compatibility.compatibility(catalog, table), form, as_text)


@declared("catalog verify", command)
def verify_command(version: tuple[str, ...], form: str, *, binary: bool, fresh: bool, everything: bool) -> None:
    from envbuilder.pypi.client import open_index
    from envbuilder.refresh import evidence, verify_catalog
    from envbuilder.refresh.agreement import as_text

    kept = None if fresh else evidence.stored()
    found = verify_catalog.run(store.load(), open_index(fresh=fresh), version, Console(), binary=binary, kept=kept)
    finish(found, form, partial(as_text, everything=everything))


@declared("catalog refresh", command)
def refresh_command(version: tuple[str, ...], package: str | None, form: str, *, write: bool) -> None:
    from envbuilder.pypi.client import open_index
    from envbuilder.refresh import evidence, propose, rows_file

    proposer = propose.Proposer(store.load(), open_index(), propose.today(), Console().say, evidence.stored())
    found = propose.refresh(proposer, version, package)
    if write:
        for name in rows_file.write(found.tables):
            click.echo(f"wrote {name}", err=True)
    finish(found, form, propose.as_text)


@declared("catalog inspect", command)
def inspect_command(image: str, form: str) -> None:
    from envbuilder.engine.docker import connect
    from envbuilder.jobs.base_inspection import inspect_base
    from envbuilder.support.templates import rendered
    from envbuilder.workspace import Workspace, write_document

    with (shown := Console()).live(), shown.task(image) as task:
        found = inspect_base(connect(), image, store.load(), task.update)
    write_document(Workspace.here().base(found.digest), found)
    finish(found, form, lambda facts: rendered("jobs/base", found=facts))
