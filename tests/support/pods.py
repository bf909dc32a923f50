"""Run a pod of a manifest by the container engine, with the pod's restrictions; make an image with envbuilder in it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import envbuilder

ROOT = Path(envbuilder.__file__).parents[1]


def runner_image(folder: Path, base: str, tag: str) -> str:
    """Make an image with this envbuilder and what it needs, on a base that brings the same Python."""
    site = folder / "site"
    for name in sorted(_needed("envbuilder") | _needed("cryptography")):
        for file in metadata.distribution(name).files or ():
            source, place = Path(str(file.locate())), site / file
            if source.is_file() and ".." not in file.parts:
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
    shutil.copytree(
        ROOT / "envbuilder", site / "envbuilder", ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )
    for kind in ("templates", "matrices", "policies"):
        shutil.copytree(ROOT / kind, site / "envbuilder" / "data" / kind, dirs_exist_ok=True)
    program = folder / "envbuilder"
    program.write_text('#!/bin/sh\nPYTHONPATH=/opt/site exec python3 -m envbuilder "$@"\n')
    program.chmod(0o755)
    (folder / "Dockerfile").write_text(f"FROM {base}\nCOPY site /opt/site\nCOPY envbuilder /usr/local/bin/envbuilder\n")
    subprocess.run(["docker", "build", "-q", "-t", tag, str(folder)], check=True, capture_output=True)
    return tag


def _needed(name: str, seen: frozenset[str] = frozenset()) -> set[str]:
    """Name a distribution and everything that it requires, without its extras."""
    found = {name}
    for line in metadata.requires(name) or ():
        if "extra ==" not in line:
            other = re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0]
            if other.lower() not in seen | {"uv"}:
                try:
                    metadata.distribution(other)
                except metadata.PackageNotFoundError:
                    continue  # for another system or Python
                found |= _needed(other, seen | {one.lower() for one in found} | {other.lower()})
    return found


def run_pod(spec: Mapping[str, Any], folder: Path, contents: Mapping[str, Mapping[str, bytes]]) -> tuple[int, str]:
    """Run a pod's containers with its restrictions until the judge ends; returns its exit code and what it said.

    ``contents`` are the files of each ConfigMap or Secret volume, by the volume's name.
    """
    places: dict[str, Path] = {}
    user = f"{spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}"
    for volume in spec["volumes"]:
        place = folder / volume["name"]
        place.mkdir(parents=True)
        for name, content in contents.get(volume["name"], {}).items():
            (place / name).write_bytes(content)
            (place / name).chmod(0o444)
        place.chmod(0o777)
        places[volume["name"]] = place
    names = {
        container["name"]: f"envbuilder-test-pod-{container['name']}-{folder.parent.name}"
        for container in spec["containers"]
    }
    try:
        for container in spec["containers"]:
            words = ["docker", "run", "-d", "--name", names[container["name"]], *_words(container, places, user)]
            subprocess.run(words, check=True, capture_output=True)
        waited = subprocess.run(
            ["docker", "wait", names["judge"]], check=True, capture_output=True, text=True, timeout=900
        )
        said = subprocess.run(["docker", "logs", names["judge"]], check=True, capture_output=True, text=True)
        served = subprocess.run(
            ["docker", "wait", names["suite"]], check=True, capture_output=True, text=True, timeout=60
        )
        assert served.stdout.strip() == "0", "the served side ends when it is told to"
        return int(waited.stdout), said.stdout + said.stderr
    finally:
        subprocess.run(["docker", "rm", "-f", *names.values()], check=False, capture_output=True)


def _words(container: Mapping[str, Any], places: Mapping[str, Path], user: str) -> list[str]:
    """Write a container of a pod as options of `docker run`: each restriction of the manifest, and no more rights."""
    closed = container["securityContext"]
    assert closed["readOnlyRootFilesystem"]
    assert closed["allowPrivilegeEscalation"] is False
    words = ["--user", user, "--read-only", "--security-opt", "no-new-privileges", "--network", "host"]
    words += [f"--cap-drop={name}" for name in closed["capabilities"]["drop"]]
    words += [word for one in container["env"] for word in ("--env", f"{one['name']}={one['value']}")]
    words += ["--workdir", container["workingDir"]] if "workingDir" in container else []
    for mount in container["volumeMounts"]:
        how = ":ro" if mount.get("readOnly") else ""
        words += ["--volume", f"{places[mount['name']]}:{mount['mountPath']}{how}"]
    first, *rest = container["command"]
    return [*words, "--entrypoint", first, container["image"], *rest]
