"""Write the report's folder: one page with its style and script inside, and the verdicts that it rests on."""

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
from envbuilder.report import drawing
from envbuilder.report.grid import SIGNS
from envbuilder.report.report_data import Material
from envbuilder.report.view import view
from envbuilder.workspace import shipped, write_atomically, write_document


def write(material: Material, folder: Path, now: datetime) -> Path:
    """Write the page and its data into a folder; returns the page's path.

    Files of other names in the folder are left alone.
    """
    page = view(material)
    for one in page.environments:
        write_document(folder / one.data, one.verdict)
    path = folder / "index.html"
    write_atomically(path, _render(material, now).encode())
    return path


def _render(material: Material, now: datetime) -> str:
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
    templates.filters |= {"bytes": drawing.size, "seconds": drawing.seconds}
    return templates.get_template("page.html.j2").render(
        page=view(material),
        signs=SIGNS,
        kind_class=_KIND_CLASS,
        generated=now.strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        # Ours, from files that ship: marked as safe, and named by digest in the page's own security policy.
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
"""How the page colours a state; its word is always written too."""


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
