"""What an image's variables and its folder of start put in front of what is installed."""

from __future__ import annotations

import pytest
from made_images import SITE, SYSTEM, Layer, image_of, outside, package

from envbuilder.finding import Code
from envbuilder.validation.python_environment import entries, hiding_modules

GOOD: Layer = {**SYSTEM, **package("numpy", "2.4.6", {"numpy/__init__.py": b"version = 2\n"})}


@pytest.mark.parametrize(
    ("layer", "env", "workdir", "named"),
    [
        ({"opt/v/numpy.py": b"x"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/numpy/__init__.pyc": b"x"}, "/opt/v", "", "/opt/v/numpy"),
        ({"opt/v/numpy/__init__.so": b"x"}, "/opt/v", "", "/opt/v/numpy"),
        ({"opt/v/numpy/__init__.cpython-311-x86_64-linux-gnu.so": b"x"}, "/opt/v", "", "/opt/v/numpy"),
        ({"opt/real/numpy.py": b"x", "opt/v": "/opt/real"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/numpy.py": "/opt/elsewhere.py"}, "/opt/v", "", "/opt/v/numpy.py"),
        ({"opt/v/usercustomize.py": b"x"}, "/opt/v", "", "/opt/v/usercustomize.py"),
        ({"opt/v/sitecustomize.abi3.so": b"x"}, "/opt/v", "", "/opt/v/sitecustomize.abi3.so"),
        ({"opt/v/_ssl.so": b"x"}, "/opt/v", "", "/opt/v/_ssl.so"),
        ({"srv/real/os.py": b"x", "srv/app": "/srv/real"}, "", "/srv/app", "/srv/app/os.py"),
        ({"srv/v/os.py": b"x"}, "v", "/srv", "/srv/v/os.py"),
    ],
)
def test_a_module_in_front_is_named(layer: Layer, env: str, workdir: str, named: str) -> None:
    """As source, byte code or extension, as a package of each, behind a link, and by the names that Python asks for."""
    subject = outside(image_of(GOOD, layer), env={"PYTHONPATH": env} if env else {}, workdir=workdir)
    (one,) = hiding_modules(subject, {SITE})
    assert one.code is Code.FILES_DIFFER
    assert named in one.message


@pytest.mark.parametrize(
    ("layer", "env", "workdir"),
    [
        ({"opt/v/mine.py": b"x"}, "/opt/v", ""),
        ({"opt/v/numpy/data.txt": b"x", "opt/v/numpy/sub/__init__.py": b"x"}, "/opt/v", ""),
        ({"srv/app/usercustomize.py": b"x"}, "", "/srv/app"),
        ({}, f"/{SITE}", f"/{SITE}"),
    ],
)
def test_what_shadows_nothing_is_not(layer: Layer, env: str, workdir: str) -> None:
    """Modules of names of their own, folders that are no packages, what no start looks for, the packages themselves."""
    subject = outside(image_of(GOOD, layer), env={"PYTHONPATH": env}, workdir=workdir)
    assert list(hiding_modules(subject, {SITE})) == []


def test_a_relative_entry_counts_from_where_the_image_starts() -> None:
    """An empty one is that folder itself."""
    subject = outside(image_of(GOOD), env={"PYTHONPATH": "a::/b/../c"}, workdir="/srv")
    assert entries(subject, "PYTHONPATH") == ["srv/a", "srv", "c"]
