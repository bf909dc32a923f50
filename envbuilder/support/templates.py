"""Templates of text that is not HTML."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jinja2


def text_template(
    path: Path, filters: Mapping[str, Callable[..., Any]] | None = None, **delimiters: str
) -> jinja2.Template:
    """Read a template; those of its folder may be included. A value that it names and does not get is an error.

    The filter `shortened` cuts a text between words.
    """
    import jinja2  # noqa: PLC0415 - 40 ms that an answer as JSON does not pay

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
