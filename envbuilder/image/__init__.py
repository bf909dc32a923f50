"""Make an image of an environment: lock, render, base, build."""
