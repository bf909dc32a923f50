"""What commands do across rooms: run a matrix, show its plan, explain, diagnose a host, clean up."""
