"""What is checked: the table of checks, and the plan made from it for one environment."""
