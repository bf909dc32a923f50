"""``envbuilder plan``: environments of a matrix, rejected combinations, and the hosts that can run them."""

import json
from functools import partial
from typing import Any

import click

from envbuilder.cli.options import declared, read_options


@declared("plan")
def command(form: str, *, everything: bool, newest: bool, **values: Any) -> None:  # noqa: ANN401 - click's values
    from envbuilder.catalog.store import load
    from envbuilder.choice import choose
    from envbuilder.cli.output import finish, warn_of_age
    from envbuilder.jobs.plan import PlanOptions, newest_for, newest_text, plan_matrix, plan_text
    from envbuilder.workspace import Workspace

    catalog, workspace = warn_of_age(load()), Workspace.here()
    if form == "github":
        choice = choose(values["matrix"], values["selectors"], workspace, catalog)
        rows = [{"environment": one.id, "tag": one.image_tag, "flavor": one.flavor} for one in choice.environments]
        click.echo(json.dumps({"include": rows}))
        return
    if newest or values["driver"] or values["gpus"]:
        finish(newest_for(read_options(PlanOptions, values), catalog), form, newest_text)
    document = plan_matrix(read_options(PlanOptions, values), workspace.root, catalog)
    finish(document, form, partial(plan_text, everything=everything))
