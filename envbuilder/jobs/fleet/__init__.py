"""A fleet: validate each environment on each class of host, and read the results from the registry."""
