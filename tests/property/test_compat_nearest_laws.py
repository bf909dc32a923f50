"""Laws of the one search for the nearest: it is what trying everything finds, and every command gives its answer."""

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from real_questions import CATALOG, questions
from small_catalogs import catalogs, combinations, full_combinations, targets

from envbuilder import versions
from envbuilder.catalog.model import Catalog
from envbuilder.compat.check import findings_of
from envbuilder.compat.nearest import AXES, MAX_IMAGES, Buildable, Installable, Near, nearest, other_images
from envbuilder.compat.question import Question
from envbuilder.compat.resolve import Resolver
from envbuilder.environment import Combination, Environment
from envbuilder.finding import compatible
from envbuilder.matrix import Targets

Asked = Question | Combination
Given_up = tuple[str, frozenset[str], str | None]
"""A version, the axes that are given up for it, and the base image that is taken instead."""


def opened(asked: Asked, axes: tuple[str, ...], version: str, catalog: Catalog) -> Iterator[Asked]:
    """Give axes up for a version; a base image is replaced by another one first."""
    free: dict[str, str | tuple[str, ...] | None] = {axis: () if axis == "packages" else None for axis in axes}
    if "base_image" in axes:
        assert isinstance(asked, Question)
        for image in other_images(asked.base_image, version, catalog)[:MAX_IMAGES]:
            yield msgspec.structs.replace(asked, tensorflow=version, **{**free, "base_image": image.name})
    yield msgspec.structs.replace(asked, tensorflow=version, **free)


def tried(asked: Asked, works: Callable[[Asked], bool], catalog: Catalog) -> Given_up | None:
    """Find the nearest by trying everything in the order that is promised: the law, spelt out."""
    own = catalog.version(asked.tensorflow)
    final = [text for text in catalog.versions if versions.is_final(text)]
    here = sum(versions.key(text) < versions.key(own or asked.tensorflow) for text in final)
    places = sorted(range(len(final)), key=lambda place: (abs(place - here), -place))
    given_ = tuple(axis for axis in AXES if getattr(asked, axis, None))
    for count in range(len(given_) + 2):
        for version in (*((own,) if own else ()), *(final[place] for place in places if final[place] != own)):
            for axes in itertools.combinations(given_, count if version == own else count - 1) if count else ((),):
                if not count and version != own:
                    break
                for near in opened(asked, axes, version, catalog):
                    if works(near):
                        return version, frozenset(axes), getattr(near, "base_image", None)
    return None


def given_up(asked: Asked, near: Near[Any] | None, catalog: Catalog) -> Given_up | None:
    """Read the same from a search's answer."""
    if near is None:
        return None
    changed = {change.field for change in near.changes}
    version = catalog.version(near.combination.tensorflow)
    assert version is not None
    assert ("tensorflow" in changed) == (version != catalog.version(asked.tensorflow))
    axes = frozenset(field if field in AXES else "packages" for field in changed - {"tensorflow"})
    return version, axes, getattr(near.combination, "base_image", None)


@examples(6)
@given(questions)
def test_nearest_installable_is_that_of_trying_everything(question: Question) -> None:
    works = cache(lambda asked: compatible(findings_of(asked, CATALOG)) is True)
    near = nearest(question, Installable(CATALOG))
    assert given_up(question, near, CATALOG) == tried(question, works, CATALOG)
    if near is not None:
        assert near.predicate == "installable"
        assert works(near.combination)
        kept = ("driver", "gpus", "capabilities", "os", "arch", "avx")
        assert all(getattr(near.combination, name) == getattr(question, name) for name in kept)
        assert bool(near.changes) is not works(question)


@examples(100)
@given(catalogs(), st.one_of(combinations, full_combinations), targets)
def test_nearest_buildable_is_that_of_trying_everything(catalog: Catalog, asked: Combination, hosts: Targets) -> None:
    resolver = Resolver(catalog, hosts)
    near = nearest(asked, Buildable(resolver))
    found = tried(asked, lambda one: isinstance(resolver.resolve(cast("Combination", one)), Environment), catalog)
    assert given_up(asked, near, catalog) == found
    if near is not None:
        assert near.predicate == "buildable"
        assert all(getattr(near.combination, name) == getattr(asked, name) for name in ("os", "flavor", "arch"))
        for change in near.changes:
            assert (change.old, change.new) == (getattr(asked, change.field), getattr(near.combination, change.field))
