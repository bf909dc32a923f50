"""How many examples of a law are tried: a fixed set in `make test`, new and more ones in `make test-full`."""

from __future__ import annotations

from hypothesis import settings

MORE = 3


def examples(count: int) -> settings:
    """Try so many examples, and three times as many under the profile ``explore``."""
    explore = settings.get_current_profile_name() == "explore"
    return settings(max_examples=count * MORE if explore else count, deadline=None)
