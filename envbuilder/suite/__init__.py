"""What is checked: the table of checks, and the plan made from it for one environment."""

from envbuilder.suite.model import Check, Group, Profile
from envbuilder.suite.planning import Facts, as_markdown, codes_of, digest, plan, probe_files, select
from envbuilder.suite.table import CHECKS, GROUPS

__all__ = [
    "CHECKS",
    "GROUPS",
    "Check",
    "Facts",
    "Group",
    "Profile",
    "as_markdown",
    "codes_of",
    "digest",
    "plan",
    "probe_files",
    "select",
]
