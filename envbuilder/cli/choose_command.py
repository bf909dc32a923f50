"""``envbuilder choose``: one environment for a host, its image, and lines to copy."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from envbuilder.cli.options import declared


@declared("choose")
def command(form: str, source: str | None, keys: tuple[Path, ...], **values: Any) -> None:  # noqa: ANN401 - click's
    from envbuilder.catalog.store import load
    from envbuilder.cli.output import finish, warn_of_age
    from envbuilder.compat.question import QuestionOptions, question
    from envbuilder.errors import InfrastructureError
    from envbuilder.jobs.choose import as_text, choose_environment, from_registry
    from envbuilder.workspace import project_folder

    flavor, variant, catalog = values.pop("flavor"), values.pop("variant"), warn_of_age(load())
    document = choose_environment(question(QuestionOptions(**values)), flavor, variant, project_folder(), catalog)
    if document.built:  # a record outlives its image
        from envbuilder.engine.docker import connect

        with suppress(InfrastructureError):
            document = msgspec.structs.replace(document, built=connect().image(document.image) is not None)
    finish(from_registry(document, source, keys, catalog) if source else document, form, as_text)
