"""Read stored verdicts: each is judged again, for a file is not believed because it can be parsed."""

from __future__ import annotations

from pathlib import Path

from envbuilder.errors import InputError, Problem
from envbuilder.support import console, decoding
from envbuilder.verdict import Verdict, contradiction
from envbuilder.workspace import read_document, read_users


def read_verdict(path: Path) -> Verdict | None:
    """Read a verdict of ours; None where there is none to believe. Says on standard error what is wrong with one."""
    verdict = read_document(path, Verdict)
    why = contradiction(verdict) if verdict else ""
    if why:
        console.warn(f"{path} {why}; it is left out")
        return None
    return verdict


def users_verdict(path: Path) -> Verdict:
    """Read a verdict from a file that the user names. Raises InputError where it is none, or contradicts itself."""
    hint = "envbuilder run writes out/<id>/verdict.json"
    try:
        verdict = decoding.from_json(read_users(path), Verdict, "no verdict that can be read")
    except decoding.DamagedError as error:
        raise InputError((Problem(str(path), 0, "", str(error)),), hint=hint) from error
    if why := contradiction(verdict):
        raise InputError((Problem(str(path), 0, "", why),), hint=hint)
    return verdict
