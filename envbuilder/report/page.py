"""Write the report's folder: one page with its style and script inside, and its verdicts as JSON."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from envbuilder import __version__
from envbuilder.errors import InfrastructureError
from envbuilder.report import charts
from envbuilder.report.page_content import SIGNS, PageContent, page_content
from envbuilder.report.report_data import Material
from envbuilder.upgrade.text import WHOLE
from envbuilder.workspace import shipped, write_atomically, write_document


def write(material: Material, folder: Path, now: datetime) -> Path:
    """Write the page and its data into a folder and return the page's path; other files there stay."""
    page = page_content(material)
    for one in page.environments:
        write_document(folder / one.data, one.verdict)
    path = folder / "index.html"
    write_atomically(path, _render(page, now).encode())
    return path


def _render(page: PageContent, now: datetime) -> str:
    source = shipped("templates") / "report"
    try:
        style, script = (source / "style.css").read_text(), (source / "script.js").read_text()
    except OSError as error:
        raise InfrastructureError(f"the page's templates are missing: {error}", hint="reinstall envbuilder") from error
    templates = Templates(
        loader=FileSystemLoader(source),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"bytes": charts.size, "seconds": charts.seconds}
    return templates.get_template("page.html.j2").render(
        page=page,
        signs=SIGNS,
        whole_sections=WHOLE,
        kind_class=_KIND_CLASS,
        generated=now.strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        # Files of this package: marked as safe, and named by digest in the page's own security policy.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        style_digest=_digest(style),
        script_digest=_digest(script),
    )


_KIND_CLASS = {
    "passed": "w-passed",
    "failed": "w-failed",
    "stale": "w-inconclusive",
    "inconclusive": "w-inconclusive",
    "refused": "w-inconclusive",
    "missing": "w-not-run",
}
"""The colour of a state; the page always writes its word too."""


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
