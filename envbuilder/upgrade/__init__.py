"""Take two TensorFlow versions from the same wish to images, compare them, and decide by a policy."""
