"""How a registry can fail or refuse: callers decide by the fault. Its JSON is read, and waited for, within limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from multiprocessing import TimeoutError as LateError
from multiprocessing.pool import ThreadPool
from typing import Any, TypeVar

import msgspec

from envbuilder.errors import EnvbuilderError, InfrastructureError, PublishError, Reason
from envbuilder.support import decoding


class _RegistryError(EnvbuilderError):
    def __init__(self, fault: Reason, message: str, *, hint: str = "") -> None:
        self.fault = fault
        super().__init__(message, hint=hint)


class RegistryFailedError(_RegistryError, InfrastructureError):
    """The registry or the network failed: the answer says nothing about an image."""


class RegistryRefusedError(_RegistryError, PublishError):
    """The registry refused, or its answer breaks the protocol."""


class MalformedError(RegistryRefusedError):
    """Bytes that are not the expected document."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.BAD_ANSWER, message)


_Document = TypeVar("_Document")

MAX_VALUES = 1_000_000
"""Values in one document: a list of 20,000 attachments with their annotations has a fifth of them. More values take a
hundred times the memory of their bytes."""


def parsed(content: bytes | msgspec.Raw, kind: type[_Document] | Any, what: str) -> Any:  # noqa: ANN401 - of ``kind``
    """Read a document of a type. Raises MalformedError, also for endless nesting and too many values."""
    data = bytes(content)
    if data.count(b",") > MAX_VALUES:
        raise MalformedError(f"not {what}: it holds more than {MAX_VALUES:,} values")
    try:
        return decoding.from_json(data, kind, f"not {what}")
    except decoding.DamagedError as error:
        raise MalformedError(str(error)) from error


def check_unambiguous(content: bytes, what: str, fields: Iterable[str] = ()) -> None:
    """Raise MalformedError if an object has a key twice: readers differ in which value they take.

    With ``fields``, keys that differ only in case are equal, and a field has to be spelled as it is here: Go's readers
    ignore case.
    """
    spelling = {field.casefold(): field for field in fields}

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found: dict[str, str] = {}
        for name, _ in pairs:
            key = name.casefold() if spelling else name
            if key in found or spelling.get(key, name) != name:
                raise ValueError(f"it says {name[:60]!r} twice or in another case")
            found[key] = name
        return dict(pairs)

    try:
        with decoding.damaged(f"not {what}"):
            json.loads(content, object_pairs_hook=once)
    except decoding.DamagedError as error:
        raise MalformedError(str(error)) from error


WORKERS = 16
"""Threads, and so requests at once."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_parallel(work: Callable[[_Item], _Result], items: Iterable[_Item]) -> tuple[_Result, ...]:
    """Return the results in the order of the items. Raises the first error."""
    waiting = tuple(items)
    with ThreadPool(min(WORKERS, len(waiting)) or 1) as pool:
        return tuple(pool.imap(work, waiting))


def within(seconds: float | None, work: Callable[[], _Result]) -> _Result:
    """Do some work in a thread and wait for it so long, without ``seconds`` to its end.

    Raises RegistryFailedError (TOO_SLOW). A late thread is left behind: as a daemon it does not keep the process alive.
    """
    with ThreadPool(1) as pool:
        try:
            return pool.apply_async(work).get(seconds)
        except LateError as error:
            text = f"the registry took more than {seconds:.1f} s"
            hint = "try again; is it overloaded, or are thousands of documents attached to this image?"
            raise RegistryFailedError(Reason.TOO_SLOW, text, hint=hint) from error
