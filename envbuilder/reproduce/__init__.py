"""Reproduce what a user reported: read it, predict it, rebuild it, compare what comes of it, and find what works."""
