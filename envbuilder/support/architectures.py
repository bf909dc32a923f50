"""The architectures of hosts and images."""

from collections.abc import Mapping
from typing import Literal

ARCHS: Mapping[str, Literal["x86_64", "aarch64"]] = {"amd64": "x86_64", "arm64": "aarch64"}
"""The architectures of wheels by their names in image manifests and Kubernetes."""
