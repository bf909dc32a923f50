"""Environments broken on purpose: what is wrong with each, how it is made so, and the one code that must find it."""

from envbuilder.controls.judging import Answer, answer
from envbuilder.controls.model import Base, Control, Copy, Env, FromWheel, Run
from envbuilder.controls.recipe import broken_lock, dockerfile
from envbuilder.controls.table import CONTROLS, named

__all__ = [
    "CONTROLS",
    "Answer",
    "Base",
    "Control",
    "Copy",
    "Env",
    "FromWheel",
    "Run",
    "answer",
    "broken_lock",
    "dockerfile",
    "named",
]
