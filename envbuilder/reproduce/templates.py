"""Texts of `templates/reproduce`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from envbuilder.workspace import shipped


def filled_template(name: str, filters: Mapping[str, Callable[..., str]] | None = None, **values: object) -> str:
    import jinja2  # noqa: PLC0415 - 40 ms that an answer as JSON does not pay

    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates") / "reproduce"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - not HTML; filters and grammars make foreign text safe
    )
    templates.filters |= filters or {}
    return templates.get_template(f"{name}.j2").render(**values)
