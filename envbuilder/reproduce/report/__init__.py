"""Reading users' reports: what they say about an environment, line by line, and nothing that they do not say."""
