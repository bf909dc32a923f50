"""The names of our images in an engine's store: repositories, tags and labels, for who makes and who frees them."""

from __future__ import annotations

ENVIRONMENTS = "envbuilder/tensorflow"
"""Environments' images are tagged ``envbuilder/tensorflow:<environment id>``."""
BASES = "envbuilder/base"
"""Bootstrapped bases are tagged ``envbuilder/base:<operating system>``."""
TOOLS_SYSTEM = "debian-bookworm"
"""The system on which the installer runs where an environment's base is only a registry's: any with a newer Python."""
CONTROLS = "envbuilder/control"
"""Images broken on purpose are tagged ``envbuilder/control:<name>``."""
REPRODUCED = "envbuilder/reproduced"
"""Reported environments with deviations are tagged ``envbuilder/reproduced:<digest of the recipe>``."""

_AFTER = "-after-"
"""Joins an environment's id to the release whose lock its own was kept close to, for an upgrade."""

ENVIRONMENT_LABEL = "org.envbuilder.environment"
"""Carries the environment's id; the Dockerfile sets it."""
BASE_KEY_LABEL = "org.envbuilder.base.key"
"""Carries the digest of the recipe that a base was bootstrapped by."""
BASE_FROM_LABEL = "org.envbuilder.base.from"
"""Says which packages a base was bootstrapped from."""
CONTROL_LABEL = "org.envbuilder.control"
"""Carries the control's name."""
REPRODUCED_LABEL = "org.envbuilder.reproduced"
"""Carries the digest of the recipe."""
OURS = (ENVIRONMENT_LABEL, REPRODUCED_LABEL, CONTROL_LABEL, BASE_KEY_LABEL)
"""An image with one of these and without a tag was replaced by a newer build."""

BASE_NAME_LABEL = "org.opencontainers.image.base.name"
BASE_DIGEST_LABEL = "org.opencontainers.image.base.digest"
"""What an image was built on (https://github.com/opencontainers/image-spec/blob/main/annotations.md)."""


def reference(environment_id: str) -> str:
    """Name the image of an environment in the engine's store."""
    return f"{ENVIRONMENTS}:{environment_id}"


def after(environment_id: str, version: str) -> str:
    """Name an environment whose lock was kept close to that of another release, for an upgrade."""
    return f"{environment_id}{_AFTER}{version}"


def is_after(name: str) -> bool:
    """Tell whether an image, or an environment, has such a name."""
    return _AFTER in name
