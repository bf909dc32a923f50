"""How a registry can fail or refuse. Callers decide by the fault."""

from __future__ import annotations

from envbuilder.errors import EnvbuilderError, InfrastructureError, PublishError, Reason


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
