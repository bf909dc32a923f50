"""Write the report's folder: one page with its style and script inside, and its verdicts as JSON."""

import base64
import hashlib
from datetime import datetime
from pathlib import Path

from jinja2 import Environment as Templates
from jinja2 import FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from envbuilder import __version__
from envbuilder.report import charts
from envbuilder.report.page_content import SIGNS, PageContent, PageState, Run, page_content
from envbuilder.report.report_data import Material
from envbuilder.support import decoding, terminal_text
from envbuilder.support.templates import shipped
from envbuilder.workspace import packaged, read_document, write_atomically, write_document

_STATE = "last.json"


def write(material: Material, folder: Path, now: datetime) -> Path:
    """Write the page and its data into a folder and return the page's path; other files there stay."""
    page = page_content(material, now, read_document(folder / _STATE, PageState))
    for run in (run for one in page.environments for run in (*one.strip, one.run)):
        path = folder / "verdicts" / f"{run.id}.json"
        if not path.exists():
            write_document(path, run.verdict)
    path = folder / "index.html"
    generated = now.strftime("%Y-%m-%d %H:%M UTC")
    write_atomically(path, _render(page, material, generated).encode(errors="replace"))
    state = PageState(written=generated, words={one.name: one.word for one in page.environments})
    write_document(folder / _STATE, state)
    return path


def _render(page: PageContent, material: Material, generated: str) -> str:
    source = shipped("templates") / "report"
    style, script = (decoding.text(packaged(source / name)) for name in ("style.css", "script.js"))
    templates = Templates(
        loader=FileSystemLoader(source),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=lambda value: terminal_text.text(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"bytes": charts.size, "seconds": charts.seconds}
    return templates.get_template("page.html.j2").render(
        page=page,
        charts=charts,
        signs=SIGNS,
        generated=generated,
        version=__version__,
        # Files of this package: marked as safe, and named by digest in the page's own security policy.
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        style_digest=_digest(style),
        script_digest=_digest(script),
        data=_data(page, material),
    )


def _data(page: PageContent, material: Material) -> Markup:
    """Return the runs of all strips and the packages of their locks, for the comparison, as JSON within a script."""
    runs = {run.id: _compared(run) for one in page.environments for run in (*one.strip, one.run)}
    text = terminal_text.json_text(decoding.lossy(decoding.to_json({"runs": runs, "packages": material.packages})))
    for character in "<>&":  # so that nothing in it ends the script
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704


def _compared(run: Run) -> dict[str, object]:
    """Return what the comparison of two verdicts shows of one; figures are numbers, everything else is a text."""
    verdict = run.verdict
    return {
        "name": run.name,
        "title": run.title,
        "facts": {
            "verdict": verdict.verdict,
            "level": verdict.level,
            "host": run.host,
            "suite": verdict.suite,
            "engine": f"{verdict.engine.name} {verdict.engine.version}",
            "image": verdict.image.digest or verdict.image.id,
            "reasons": "; ".join(verdict.reasons),
        },
        "size": verdict.image.size,
        "lock": verdict.lock,
        "checks": {check.name: check.outcome for check in verdict.checks},
        "seconds": charts.medians(verdict.timeline),
    }


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
