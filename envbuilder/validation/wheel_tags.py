"""Hold what a distribution was built for, by its own tags, to the Python whose packages it lies among."""

from __future__ import annotations

import re
from collections.abc import Iterator

from envbuilder.finding import Code, Finding, Severity
from envbuilder.validation.file_records import distributions
from envbuilder.validation.outside import Outside, either

_PYTHON = re.compile(r"/python3\.(\d+)/(?:site|dist)-packages\Z")
_TAG = re.compile(r"cp3(\d+)-(cp3\d+[a-z]*|abi3)-")


def of_another_python(subject: Outside) -> Iterator[Finding]:
    """Name distributions whose machine code no tag of theirs offers to this Python: it finds no module of theirs."""
    weight = Severity.ERROR if subject.is_ours else Severity.WARNING
    for one in distributions(subject.files):
        python = _PYTHON.search(f"/{one.site}")
        built = [_TAG.match(tag) for tag in one.tags]
        if python is None or not one.tags or not all(built):
            continue  # without a tag of CPython's own it is for any
        minor = int(python[1])
        if not any(_takes(found[2], int(found[1]), minor) for found in built if found):
            tags = ", ".join(sorted(one.tags))[:100]
            text = f"{one.name} {one.version} is built for another Python than 3.{minor}: {tags}"
            fix = "install it with the Python that is to import it"
            yield either(weight, Code.PACKAGE_CONFLICT, one.name, text, requires=f"3.{minor}", found=tags, fix=fix)


def _takes(abi: str, built: int, minor: int) -> bool:
    """Tell whether a Python takes modules of an ABI: the stable one from the version on that it was built for."""
    return built <= minor if abi == "abi3" else built == minor
