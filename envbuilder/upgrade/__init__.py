"""Build two TensorFlow versions from the same matrix row, compare them, and decide by a policy."""
