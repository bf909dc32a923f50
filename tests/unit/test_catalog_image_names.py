"""Image references: published CUDA images with their siblings, plain systems, and what no tag says."""

from __future__ import annotations

import pytest

from envbuilder.catalog.store import load

CATALOG = load()


@pytest.mark.parametrize(
    ("name", "system", "python", "glibc"),
    [
        ("debian:12", "debian-bookworm", "3.11", "2.36"),
        ("debian:12.5-slim", "debian-bookworm", "3.11", "2.36"),
        ("debian:bookworm-20260112-slim", "debian-bookworm", "3.11", "2.36"),
        ("docker.io/library/debian:trixie@sha256:00", "debian-trixie", "3.13", "2.41"),
        ("ubuntu:jammy-20240227", "ubuntu-22.04", "3.10", "2.35"),
        ("registry.example.com:5000/ubuntu:24.04", "ubuntu-24.04", "3.12", "2.39"),
        ("python:3.12", "python-3.12", "3.12", "2.36"),
        ("python:3.12.7-slim", "python-3.12", "3.12", "2.36"),
        ("python:3.9-slim-bullseye", "python-3.9", "3.9", "2.31"),
        ("python:3.13-trixie", "python-3.13", "3.13", "2.41"),
    ],
)
def test_an_official_image_is_its_system(name: str, system: str, python: str, glibc: str) -> None:
    found = CATALOG.plain_image(name)
    assert found is not None
    assert found.system is not None
    assert (found.system.name, found.system.python, found.system.glibc) == (system, python, glibc)


@pytest.mark.parametrize("name", ["alpine", "alpine:3.20", "python:3.11-alpine", "python:3.11-alpine3.19"])
def test_alpine_is_told_from_what_is_not_known(name: str) -> None:
    """No wheel loads on it, whatever its version."""
    found = CATALOG.plain_image(name)
    assert found is not None
    assert found.system is None
    assert found.other == CATALOG.other_system("alpine")


@pytest.mark.parametrize(
    "name",
    [
        "python",
        "python:latest",
        "python:3",
        "python:slim",
        "python:3.12-slim-buster",
        "python:3.12-windowsservercore",
        "python:2.7-slim",
        "debian",
        "debian:stable",
        "debian:12-backports",
        "ubuntu:rolling",
        "ubuntu:30.04",
        "busybox:1",
        "mycompany/python:3.11",
        "mycompany/debian:12",
        "nginx:alpine",
    ],
)
def test_what_a_tag_does_not_say_is_not_known(name: str) -> None:
    assert CATALOG.plain_image(name) is None
    assert CATALOG.image(name) is None


KNOWN = CATALOG.image("nvidia/cuda:12.6.3-cudnn-runtime-ubuntu22.04")


@pytest.mark.parametrize(
    ("tag", "flavor", "cudnn"),
    [
        ("12.6.3-cudnn-runtime-ubuntu22.04", "runtime", "9.5.1.17"),
        ("12.6.3-cudnn-devel-ubuntu22.04", "devel", "9.5.1.17"),
        ("12.6.3-runtime-ubuntu22.04", "runtime", None),
        ("12.6.3-devel-ubuntu22.04", "devel", None),
        ("12.6.3-base-ubuntu22.04", "base", None),
    ],
)
def test_image_of_another_flavour_has_the_same_requirement(tag: str, flavor: str, cudnn: str | None) -> None:
    """It has cuDNN only if its tag says so; a registry and a digest change nothing."""
    found = CATALOG.image(f"docker.io/nvidia/cuda:{tag}@sha256:{'0' * 64}")
    assert found is not None
    assert KNOWN is not None
    assert found == CATALOG.image(f"nvidia/cuda:{tag}")
    assert (found.flavor, found.cudnn, found.require_cuda) == (flavor, cudnn, KNOWN.require_cuda)
    row = CATALOG.flavor(found)
    assert row is not None
    assert row.name == flavor
    assert CATALOG.image(f"nvidia/cuda:{tag.replace('12.6.3', '12.6.9')}") is None


def test_every_published_image_has_a_flavour() -> None:
    assert {row.flavor for row in CATALOG.images} <= {row.name for row in CATALOG.image_flavors}
