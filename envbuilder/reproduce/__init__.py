"""Read a user's report, find its cause, rebuild the environment, compare the messages, and name a fix."""
