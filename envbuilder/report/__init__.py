"""Write verdicts as a page: one folder that opens from a file, with no network."""
