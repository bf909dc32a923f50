"""Texts of `templates/reproduce`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from envbuilder.workspace import shipped

NO_FILTERS: Mapping[str, Callable[..., Any]] = {}


def filled_template(name: str, filters: Mapping[str, Callable[..., Any]] = NO_FILTERS, /, **values: object) -> str:
    import jinja2  # noqa: PLC0415 - 40 ms that an answer as JSON does not pay

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates") / "reproduce"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - not HTML; filters and grammars make foreign text safe
    )
    templates.filters |= filters
    return templates.get_template(f"{name}.j2").render(**values)
