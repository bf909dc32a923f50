"""Take two TensorFlow versions from the same wish to images, compare them, and decide by a policy."""

from envbuilder.upgrading.request import UpgradeRequest
from envbuilder.upgrading.stage import upgrade

__all__ = ["UpgradeRequest", "upgrade"]
