"""Validate an image, or the environment at hand: run the suite in it and judge what came of it."""
