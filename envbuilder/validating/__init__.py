"""Validate an image, or the environment at hand: run the suite in it and judge what came of it."""

from envbuilder.validating.recording import record, validate_and_record
from envbuilder.validating.session import Progress
from envbuilder.validating.stage import ValidationRequest, validate, validate_here

__all__ = [
    "Progress",
    "ValidationRequest",
    "record",
    "validate",
    "validate_and_record",
    "validate_here",
]
