"""Data of tests in YAML: `test_x.yaml` next to `test_x.py` has the rows of each test, below the names of the columns.

A column `id` is the name of the case. Programs that a test runs are there too.
"""

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

Test = TypeVar("Test", bound=Callable[..., None])


@cache
def beside(test_file: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(Path(test_file).with_suffix(".yaml").read_text())
    return found


def rows(test: Test) -> Test:
    """Run a test for each of its rows."""
    names, *cases = beside(inspect.getfile(inspect.unwrap(test)))[test.__name__]
    named = names[0] == "id"
    ids = [case[0] for case in cases] if named else None
    run: Test = pytest.mark.parametrize(names[named:], [case[named:] for case in cases], ids=ids)(test)
    return run
