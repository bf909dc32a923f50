"""The folders that come with the package, and templates of text that is not HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuilder.support.tables import command, folded, table

if TYPE_CHECKING:
    import jinja2


_PACKAGE = Path(__file__).resolve().parents[1]


def shipped(kind: str) -> Path:
    """Return the folder ``templates`` or ``matrices`` of the installed package, or of its checkout."""
    installed = _PACKAGE / "data" / kind
    return installed if installed.is_dir() else _PACKAGE.parent / kind


def rendered(name: str, /, wrapped: Callable[..., str] = folded, **values: Any) -> str:  # noqa: ANN401 - the template's
    """Render an answer of a command: ``templates/NAME.txt.j2``. Functions among the values are filters too."""
    values |= {"wrapped": wrapped, "folded": folded, "command": command, "table": table}
    functions = {key: value for key, value in values.items() if callable(value)}
    return text_template(f"{name}.txt.j2", functions).render(values).rstrip()


def text_template(
    name: str, filters: Mapping[str, Callable[..., Any]] | None = None, **delimiters: str
) -> jinja2.Template:
    """Read a template, named by its path below ``templates``; those of its folder may be included.

    A value that it names and does not get is an error. The filter `shortened` cuts a text between words.
    """
    import jinja2  # noqa: PLC0415 - 40 ms that an answer as JSON does not pay

    path = shipped("templates") / name
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(path.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701 - filters, grammars and the templates' own quotes make foreign text safe
        **delimiters,  # type: ignore[arg-type]
    )
    templates.filters |= {"shortened": partial(textwrap.shorten, placeholder=" …"), **(filters or {})}
    return templates.get_template(path.name)
