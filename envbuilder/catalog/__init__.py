"""Facts: their rows, the YAML files, and lookups."""
