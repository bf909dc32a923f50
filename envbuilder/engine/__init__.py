"""The container engine: one port (`port`), the Docker SDK behind it (`docker`), a fake held to the same contract."""
