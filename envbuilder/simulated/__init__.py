"""The simulated host: its profile (`profile`), and the C sources of the driver libraries that play it."""
