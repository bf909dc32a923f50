"""axe-core, the accessibility rules that browsers' tools use, fetched once from the npm registry."""

import json
import shutil
import subprocess
from typing import Any

import pytest
from chromium import Browser
from waiting import wait_for

from envbuilder.workspace import cache_dir

VERSION = "4.10.3"
OPTIONS = "{resultTypes: ['violations']}"
"""Only what is wrong is described: the rest of a large page takes long to."""
PATIENCE_S = 300.0
"""A few seconds on a quiet machine."""


def source() -> str:
    """Return axe-core's script from the cache, or by npm; skips the test where neither is to be had."""
    folder = cache_dir() / f"axe-core-{VERSION}"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.is_file():
        npm = shutil.which("npm")
        if npm is None:
            pytest.skip("axe-core needs npm")
        words = [npm, "install", "--silent", "--no-save", "--prefix", str(folder), f"axe-core@{VERSION}"]
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            pytest.skip(f"axe-core cannot be fetched: {done.stderr.strip()[-200:]}")
    return script.read_text()


def violations(page: Browser) -> list[str]:
    """Run every rule on the page as it stands; return what is wrong as lines: rule, count, first place and why."""
    page.js(f"{source()};0")
    page.js(
        f"axeFound = ''; axe.run(document, {OPTIONS}).then((r) => {{ axeFound = JSON.stringify(r.violations) }}); 0"
    )
    found: list[dict[str, Any]] = json.loads(wait_for(lambda: page.js("axeFound"), PATIENCE_S))
    return [
        f"{rule['id']} ({len(rule['nodes'])}): {rule['nodes'][0]['html'][:120]}: {rule['nodes'][0]['failureSummary']}"
        for rule in found
    ]
