"""How a registry can fail or refuse. Each way has a name, which callers decide by."""

from __future__ import annotations

from enum import StrEnum

from envbuilder.errors import InfrastructureError, PublishError


class Fault(StrEnum):
    """What went wrong; stable names for scripts."""

    UNREACHABLE = "UNREACHABLE"
    TLS_FAILED = "TLS_FAILED"
    BAD_CERTIFICATE = "BAD_CERTIFICATE"
    SERVER_ERROR = "SERVER_ERROR"
    THROTTLED = "THROTTLED"
    TOO_SLOW = "TOO_SLOW"
    ACCESS_DENIED = "ACCESS_DENIED"
    NOT_THERE = "NOT_THERE"
    REJECTED = "REJECTED"
    BAD_ANSWER = "BAD_ANSWER"
    BAD_REDIRECT = "BAD_REDIRECT"
    BAD_LINK = "BAD_LINK"
    TOO_LARGE = "TOO_LARGE"
    TOO_MANY = "TOO_MANY"
    ALTERED = "ALTERED"


class RegistryFailedError(InfrastructureError):
    """The registry or the network failed: the answer says nothing about an image."""

    def __init__(self, fault: Fault, message: str, *, hint: str = "") -> None:
        self.fault = fault
        super().__init__(message, hint=hint)


class RegistryRefusedError(PublishError):
    """The registry refused, or its answer breaks the protocol."""

    def __init__(self, fault: Fault, message: str, *, hint: str = "") -> None:
        self.fault = fault
        super().__init__(message, hint=hint)
