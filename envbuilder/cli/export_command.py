"""``envbuilder export``: verdicts and build plans for other tools."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from envbuilder.cli.options import FilePath, select_option


@click.command("export")
@click.argument(
    "form", type=click.Choice(["junit", "sarif", "markdown", "openmetrics", "bake", "policy"]), metavar="FORMAT"
)
@click.argument("files", nargs=-1, type=FilePath(path_type=Path, dir_okay=False), metavar="[VERDICT.json]…")
@select_option
@click.option("--store", type=FilePath(path_type=Path, dir_okay=False), help="Take verdicts from this history.")
@click.option("--since", metavar="TIME", help="Take verdicts from the history, since a date or an age (30d).")
@click.option("--matrix", help="For bake: the matrix whose environments are built.")
@click.option("--to", metavar="HOST/REPOSITORY", help="For bake: where the images go; for policy: where they are.")
@click.option("--identity", default="", help="For policy: the Sigstore identity that is trusted; with --issuer.")
@click.option("--issuer", default="", help="For policy: who vouches for --identity.")
@click.option(
    "--key", "keys", multiple=True, type=FilePath(path_type=Path), help="For policy: a trusted public key (PEM)."
)
@click.option("--on", metavar="KINDS", help="For policy: a PASSED on each of these: 'H100/535, A100/550'.")
@click.option(
    "--level", type=click.Choice(["static", "load", "cpu", "gpu", "multi-gpu"]), help="For policy: at least this."
)
@click.option("-o", "--output", type=FilePath(path_type=Path, dir_okay=False), help="A file instead of the output.")
def command(
    form: str,
    files: tuple[Path, ...],
    selectors: tuple[str, ...],
    store: Path | None,
    since: str | None,
    matrix: str | None,
    to: str | None,
    identity: str,
    issuer: str,
    keys: tuple[Path, ...],
    on: str | None,
    level: str | None,
    output: Path | None,
) -> None:
    r"""Write verdicts as FORMAT: junit, sarif, markdown or openmetrics; or a build plan as bake.

    `policy` writes what a cluster admits, for kyverno or sigstore-policy-controller: images of --to with a verdict that
    the identity signed keylessly or, for kyverno, one of the keys.

    \b
    Examples:
      envbuilder export junit -o junit.xml
      envbuilder export markdown >> "$GITHUB_STEP_SUMMARY"
      envbuilder export sarif out/*/verdict.json -o envbuilder.sarif
      envbuilder export openmetrics --store /shared/history.sqlite3 -o /var/lib/node_exporter/envbuilder.prom
      envbuilder export bake --to registry.example.org/ml/tensorflow -o docker-bake.json
      envbuilder export policy sigstore-policy-controller --to registry.example.org/ml/tensorflow --on H100/535 \
          --identity ci@example.org --issuer https://accounts.example.org
      envbuilder export policy kyverno --to registry.example.org/ml/tensorflow --key team.pub
    """
    from envbuilder.catalog.store import load
    from envbuilder.report.export import Source, export_bake, export_verdicts
    from envbuilder.validation.history import moment
    from envbuilder.workspace import Workspace, write_atomically

    workspace = Workspace(Path.cwd())
    if form == "bake":
        text = export_bake(matrix, selectors, to, workspace, load())
    elif form == "policy":
        text = _policy([str(path) for path in files], to or "", identity, issuer, keys, on, level)
    else:
        start = moment(since, datetime.now(UTC)) if since else None
        text = export_verdicts(form, Source(files, store, start), selectors, workspace)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_atomically(output, text.encode())


def _policy(
    names: list[str], to: str, identity: str, issuer: str, keys: tuple[Path, ...], on: str | None, level: str | None
) -> str:
    from typing import cast

    from envbuilder.attest.keys import load_public_keys
    from envbuilder.attest.kinds import parse_kinds
    from envbuilder.catalog.store import load
    from envbuilder.errors import UsageError
    from envbuilder.publish.admission import CONTROLLERS, Admission, policy
    from envbuilder.publish.tags import destination
    from envbuilder.verdict import Level

    if len(names) != 1 or names[0] not in CONTROLLERS:
        raise UsageError("say for which admission controller", hint=f"envbuilder export policy {'|'.join(CONTROLLERS)}")
    if not to or bool(identity) != bool(issuer) or not (identity or keys):
        raise UsageError(
            "a policy needs --to, and --key or --identity with --issuer", hint="who signed, and which images are meant"
        )
    trusted = tuple(key for path in keys for key in load_public_keys(path))
    kinds = parse_kinds(on, load().gpu_model) if on else ()
    reached = cast("Level", level or ("gpu" if kinds else "cpu"))
    asked = Admission(destination(to).name, identity, issuer, reached, kinds, trusted)
    return policy(names[0], asked, datetime.now(UTC))
