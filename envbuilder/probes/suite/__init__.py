"""The validation suite: only this folder goes into a container and into the digest of the suite."""
