"""The simulated host: its profile, and the C sources of its driver libraries."""
