"""Names of envbuilder's images in an engine's store: repositories, tags and labels."""

import shlex

from envbuilder.image import host_settings

BASES = "envbuilder/base"  # :<operating system>, bootstrapped
CONTROLS = "envbuilder/control"  # :<name>, broken on purpose
REPRODUCED = "envbuilder/reproduced"  # :<digest of the recipe>, reported environments with deviations

AFTER = "-after-"  # between an environment and the release that its lock was made close to

TOOLS_SYSTEM = "debian-bookworm"
"""The installer's system if only a registry has an environment's base: any with a newer Python."""

ENVIRONMENT_LABEL = "org.envbuilder.environment"  # the environment's id, by the Dockerfile
BASE_KEY_LABEL = "org.envbuilder.base.key"  # the digest of the recipe of a bootstrapped base
BASE_FROM_LABEL = "org.envbuilder.base.from"  # the packages of a bootstrapped base, as a phrase
CONTROL_LABEL = "org.envbuilder.control"  # the control's name
REPRODUCED_LABEL = "org.envbuilder.reproduced"  # the digest of the recipe
OURS = (ENVIRONMENT_LABEL, REPRODUCED_LABEL, CONTROL_LABEL, BASE_KEY_LABEL)
"""An image with one of these labels and without a tag was replaced by a newer build."""

BASE_NAME_LABEL = "org.opencontainers.image.base.name"
BASE_DIGEST_LABEL = "org.opencontainers.image.base.digest"
SOURCE_LABEL = "org.opencontainers.image.source"
REVISION_LABEL = "org.opencontainers.image.revision"
CREATED_LABEL = "org.opencontainers.image.created"
HOST_LABELS = frozenset({BASE_NAME_LABEL, BASE_DIGEST_LABEL, SOURCE_LABEL, REVISION_LABEL, CREATED_LABEL})
"""Labels that differ between hosts and checkouts: the base, the repository and the commit of the build's files.

https://github.com/opencontainers/image-spec/blob/main/annotations.md
"""


def reference(tag: str) -> str:
    return f"{host_settings.repository()}:{tag}"


def run_line(image: str, *, gpus: bool, notebook: bool = False) -> str:
    options = (*(("--gpus", "all") if gpus else ()), *(("-p", "127.0.0.1:8888:8888") if notebook else ()))
    return shlex.join(["docker", "run", "--rm", "-it", *options, image])


def after(environment_id: str, version: str) -> str:
    """Name an environment whose lock was made close to that of another release, for an upgrade."""
    return f"{environment_id}{AFTER}{version}"
