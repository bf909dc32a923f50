"""Read JSON that a stranger wrote: whatever it is, the answer is a value or an error of ours."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from envbuilder.errors import PublishError, decode

_Document = TypeVar("_Document")


class MalformedError(PublishError):
    """Bytes that are not the document they should be."""


def parsed(content: bytes | msgspec.Raw, kind: type[_Document] | Any, what: str) -> Any:  # noqa: ANN401 - of ``kind``
    """Read a document of a type. Raises MalformedError, for nesting without end as well."""
    try:
        return decode.from_json(bytes(content), kind, f"not {what}")
    except decode.DamagedError as error:
        raise MalformedError(str(error)) from error
