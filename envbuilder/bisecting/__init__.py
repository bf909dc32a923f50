"""Find the version at which a command or a check begins to fail: resumable, and for the same reason throughout."""
