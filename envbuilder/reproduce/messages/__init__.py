"""Known messages of TensorFlow and the libraries below it."""
