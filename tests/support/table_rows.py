"""Data of tests in YAML: `test_x.yaml` next to `test_x.py` has the rows of each test, below the names of the columns.

A column `id` is the name of the case. Lists and maps become what the test's annotation of the column says, such as a
struct. Programs that a test runs are there too.
"""

import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import msgspec
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
    ids, kinds = [case[0] for case in cases] if named else None, get_type_hints(test)

    def value(name: str, given: Any) -> Any:
        return msgspec.convert(given, kinds.get(name, Any)) if isinstance(given, list | dict) else given

    values = [[value(*cell) for cell in zip(names[named:], case[named:], strict=True)] for case in cases]
    run: Test = pytest.mark.parametrize(names[named:], values, ids=ids)(test)
    return run
