"""Version matrices of TensorFlow on NVIDIA GPUs, turned into container images with evidence."""

__version__ = "0.1.0"
