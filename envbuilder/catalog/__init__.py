"""The facts: rows (`model`), the YAML that holds them, and how to look them up."""
