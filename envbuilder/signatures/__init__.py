"""Known messages of TensorFlow and what stands under it: what each means, recognised in reports and in our own runs."""

from __future__ import annotations

from envbuilder.signatures.model import Proof, Signature, Symptom
from envbuilder.signatures.recognise import SIGNATURES, find, get, match

__all__ = ["SIGNATURES", "Proof", "Signature", "Symptom", "find", "get", "match"]
