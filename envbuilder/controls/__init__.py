"""Environments broken on purpose: what is wrong with each, how it is made so, and the one code that must find it."""
