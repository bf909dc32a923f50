"""Package indexes as pip and uv are configured: projects, files, and members of wheels."""
