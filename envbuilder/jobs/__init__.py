"""What the commands do that belongs to no single room: run a matrix, show its plan, explain, diagnose a host, clean up."""
