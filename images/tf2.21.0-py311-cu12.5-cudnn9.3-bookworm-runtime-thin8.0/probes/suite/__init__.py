"""The validation suite: this folder, and nothing beside it, goes into a container and into the suite's digest."""
