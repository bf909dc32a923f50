"""What runs inside an image, or on a host with no container: the standard library plus the framework under test."""
