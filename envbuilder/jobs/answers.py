"""Answers as text, from the templates in ``templates/jobs``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from envbuilder.catalog.base_facts import BaseFacts
from envbuilder.support.tables import command, folded, table
from envbuilder.support.templates import text_template
from envbuilder.workspace import shipped


def rendered(name: str, /, wrapped: Callable[..., str] = folded, **values: Any) -> str:  # noqa: ANN401 - the template's
    """Render a template. Functions among the values are filters too."""
    values |= {"wrapped": wrapped, "folded": folded, "command": command, "table": table}
    functions = {key: value for key, value in values.items() if callable(value)}
    path = shipped("templates") / "jobs" / f"{name}.txt.j2"
    return text_template(path, functions).render(values).rstrip()


def base_text(found: BaseFacts) -> str:
    return rendered("base", found=found)
