"""The container engine: one port (`port`) and the Docker SDK behind it (`docker`)."""
