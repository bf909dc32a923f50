"""The list of targets is complete: whatever reads what others wrote is entered by one of them."""

from __future__ import annotations

import contextlib
import io

import pytest
from doors import doors, entered
from fuzz_target import Target
from fuzz_targets import TARGETS

from envbuilder.errors import EnvbuilderError
from envbuilder.support import decoding

BY_OTHERS = {
    ("choice.py", "read_fleet"): "fleet",
    ("cli/fleet_command.py", "make"): "orders",
    ("cli/fleet_command.py", "_proven"): "orders",
    ("image/ensure.py", "_kept"): "kept",
    ("jobs/fleet_run.py", "_is_left"): "orders",
    ("jobs/slurm_script.py", "_image"): "orders",
    ("publish/stating.py", "validated"): "document",
    ("pypi/simple_api.py", "Client._page"): "index",
    ("pypi/simple_api.py", "_as_ours"): "wheel",
    ("upgrade/bisect.py", "bisect"): "document",
    ("upgrade/job.py", "read_policy"): "policy",
    ("validation/record.py", "validate_and_record"): "document",
    ("validation/validate_request.py", "_built"): "kept",
    ("engine/docker.py", "connect"): "asked",  # and 41 strange answers over a socket: tests/unit/test_engine_faults.py
}
"""Doors that need an engine, an index or a registry before them, and the target that reads the same by the same call."""


def test_every_door_has_a_target() -> None:
    """Each function that decodes or parses is entered by a target's own seeds, or reads what another target's does."""
    every = doors()
    assert len(every) > 80, "the search for doors finds next to none"
    assert every - entered(TARGETS) == BY_OTHERS.keys()


REFUSED = {
    "bundle": 1,  # this host has no way to the trust root: what comes after is its own library's
    "verdict": 1,  # one that contradicts itself
}
"""How many seeds of a target are refused, and why: what is mutated of such a seed does not get far either."""


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_a_target_is_fed_what_its_parser_takes(target: Target) -> None:
    """Honest seeds come through: a parser that refuses all of them at its first look is not fuzzed beyond that."""
    refusals: tuple[type[Exception], ...] = (EnvbuilderError, decoding.DamagedError, *target.raises)
    refused = []
    for seed in target.seeds():
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                target.run(seed)
        except refusals as error:
            refused.append(str(error))
    assert len(refused) == REFUSED.get(target.name, 0), refused
    assert not [text for text in refused if "not a Sigstore bundle" in text]


def test_what_stands_for_a_door_is_a_target() -> None:
    """Each exception names a target that there is."""
    assert set(BY_OTHERS.values()) <= {target.name for target in TARGETS}
