"""What laws share: how many examples are tried, and how two judgements compare."""

from hypothesis import settings

from envbuilder.validation.judge import Judgement
from envbuilder.verdict import LEVELS

WORTH = {"FAILED": 0, "INCONCLUSIVE": 1, "PASSED": 2}
REACHED = ("none", *LEVELS)


def examples(count: int, times: int = 2) -> settings:
    """Try so many examples, and several times as many under the profile ``explore``."""
    explore = settings.get_current_profile_name() == "explore"
    return settings(max_examples=count * times if explore else count, deadline=None)


def no_better(found: Judgement, other: Judgement) -> bool:
    """Compare two judgements by word and level."""
    return WORTH[found.verdict] <= WORTH[other.verdict] and REACHED.index(found.level) <= REACHED.index(other.level)
