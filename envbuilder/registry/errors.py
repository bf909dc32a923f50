"""How a registry can fail or refuse: callers decide by the fault. Its JSON is read within limits."""

from collections.abc import Collection
from typing import Any

import msgspec

from envbuilder.errors import EnvbuilderError, InfrastructureError, PublishError, Reason
from envbuilder.support import decoding
from envbuilder.support.terminal_text import without_logins

MAX_VALUES = 1_000_000  # which take a hundred times the memory of their bytes; 20,000 attachments have a fifth


class _RegistryError(EnvbuilderError):
    def __init__(self, fault: Reason, message: str, *, hint: str = "") -> None:
        self.fault = fault  # its next step is in publish/reasons.yaml, unless there is a better one
        super().__init__(without_logins(message, 1), hint=without_logins(hint, 1))


class RegistryFailedError(_RegistryError, InfrastructureError):
    """The registry or the network failed: the answer says nothing about an image."""


class RegistryRefusedError(_RegistryError, PublishError):
    """The registry refused, or its answer breaks the protocol."""


class MalformedError(RegistryRefusedError):
    def __init__(self, message: str) -> None:
        super().__init__(Reason.BAD_ANSWER, message)


def parsed(content: bytes | msgspec.Raw, kind: type, what: str, fields: Collection[str] | None = None) -> Any:  # noqa: ANN401 - of ``kind``
    """Read a document of a type. Raises MalformedError, also for endless nesting and too many values.

    With ``fields``, no object has a key twice, and these fields (and the type's) are spelled as they are here.
    """
    data = bytes(content)
    if data.count(b",") > MAX_VALUES:
        raise MalformedError(f"not {what}: it holds more than {MAX_VALUES:,} values")
    try:
        return decoding.from_exact_json(data, kind, f"not {what}", fields)
    except decoding.DamagedError as error:
        raise MalformedError(str(error)) from error
