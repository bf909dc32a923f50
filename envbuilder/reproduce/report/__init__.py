"""Read users' reports line by line; unstated values are never guessed."""
