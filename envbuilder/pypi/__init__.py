"""The package index, as pip and uv are configured to use it: what it holds, and single members of its wheels."""
