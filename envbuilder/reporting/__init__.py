"""Write verdicts as a page: one folder that opens from a file, with no network."""

from envbuilder.reporting.collect import Material, collect
from envbuilder.reporting.page import write

__all__ = ["Material", "collect", "write"]
