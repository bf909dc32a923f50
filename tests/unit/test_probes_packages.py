"""Installed packages compared with the lock and with each other's requirements, without pip."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envbuilder.probes.suite import installed, packages

LOCKED = [("numpy", "1.26.4"), ("tensorflow", "2.20.0"), ("opt-einsum", "3.4.0")]


@pytest.mark.parametrize(
    ("found", "subjects"),
    [
        ([("numpy", "1.26.4"), ("tensorflow", "2.20.0"), ("opt_einsum", "3.4.0")], []),
        ([("numpy", "2.0.0"), ("tensorflow", "2.20.0"), ("opt-einsum", "3.4.0")], ["numpy"]),
        ([("tensorflow", "2.20.0"), ("opt-einsum", "3.4.0")], ["numpy"]),
        ([*LOCKED, ("rich", "13.0")], ["rich"]),
        ([*LOCKED, ("numpy", "1.24.0")], ["numpy"]),
        ([*LOCKED, ("pip", "24.0"), ("setuptools", "70.0")], []),
    ],
)
def test_every_difference_from_the_lock_is_reported(found: list[tuple[str, str]], subjects: list[str]) -> None:
    findings = packages.compare(LOCKED, found)
    assert [one["subject"] for one in findings] == subjects
    assert {one["code"] for one in findings} <= {"LOCK_MISMATCH"}


def metadata(folder: Path, name: str, version: str, *requires: str) -> None:
    place = folder / f"{name}-{version}.dist-info"
    place.mkdir()
    lines = [
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {text}" for text in requires),
        "",
        "Requires-Dist: no",
    ]
    (place / "METADATA").write_text("\n".join(lines))


def test_distributions_are_read_from_their_metadata(tmp_path: Path) -> None:
    metadata(tmp_path, "Opt_Einsum", "3.4.0", "numpy>=1.7")
    found = installed.distributions([str(tmp_path), str(tmp_path)])
    assert [(one.name, one.version, one.requires) for one in found] == [("opt-einsum", "3.4.0", ["numpy>=1.7"])]


@pytest.mark.parametrize(
    ("requirement", "problem"),
    [
        ("numpy<2.0,>=1.26", ""),
        ("numpy>=2", "numpy 1.26.4 is installed"),
        ("absl-py", "absl-py is not installed"),
        ("NumPy (>=1.0)", ""),
        ("tensorboard~=2.20; extra == 'board'", ""),
        ("gone; python_version < '3.0'", ""),
        ("gone; sys_platform == 'linux' and python_version >= '3.0'", "gone is not installed"),
        ("gone; sys_platform == 'win32' or platform_system == 'Linux'", "gone is not installed"),
    ],
)
def test_requirements(requirement: str, problem: str) -> None:
    assert packages.unmet(requirement, {"numpy": "1.26.4", "tensorflow": "2.20.0"}) == problem


RELEASES = st.builds(
    lambda numbers, suffix: ".".join(map(str, numbers)) + suffix,
    st.lists(st.integers(0, 12), min_size=1, max_size=4),
    st.sampled_from(["", "", "", "rc1", "a2", ".post1", ".dev3"]),
)


@given(RELEASES, st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]), RELEASES)
@example("2.0.0rc1", "<", "2.0.0")
@example("1.26.4", "==", "1.26.4.0")
@example("1.26.4.post1", ">", "1.26.4")
@example("0.0.post1", ">", "0")
def test_clauses_agree_with_packaging(version: str, operator: str, wanted: str) -> None:
    if operator in "<>" and "post" in wanted:
        return  # what lies beside V.post1 is decided differently by different versions of packaging
    expected = SpecifierSet(operator + wanted).contains(version, prereleases=True)
    assert packages.satisfied(version, operator + wanted) is expected


@given(RELEASES, st.lists(st.integers(0, 9), min_size=2, max_size=3))
def test_wildcards_and_compatible_releases_agree_with_packaging(version: str, numbers: list[int]) -> None:
    text = ".".join(map(str, numbers))
    for clause in (f"=={text}.*", f"!={text}.*", f"~={text}"):
        expected = SpecifierSet(clause).contains(version, prereleases=True)
        if "~=" in clause and Version(version).is_prerelease:
            continue
        if len(Version(version).release) < len(numbers):
            continue  # padding with zeros, which no real requirement rests on
        assert packages.satisfied(version, clause) is expected, clause
