"""Laws of the resolver: it agrees with brute force, a rejection is really unsatisfiable."""

from collections.abc import Iterator

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from laws import examples
from small_catalogs import CUDNNS, GPUS, TOOLKITS, WHEELS, catalogs, combinations, targets

from envbuilder.catalog.model import Catalog
from envbuilder.catalog.rows import TensorflowRelease
from envbuilder.compat.resolve import resolve
from envbuilder.environment import Combination, Environment, Rejection
from envbuilder.matrix import Targets


def numbers(text: str) -> tuple[int, ...]:
    """Read a version as integers: the oracle compares in its own way."""
    return tuple(map(int, text.split(".")))


def host_works(release: TensorflowRelease, python: str | None, system: str | None, catalog: Catalog) -> bool:
    """Tell by trying every system whether one of them carries the wheel."""
    wheel = release.wheels[0]
    return any(
        system in {None, row.name}
        and python in {None, row.python}
        and row.python in wheel.pythons
        and numbers(row.glibc) >= numbers(wheel.glibc)
        for row in catalog.systems
    )


def wheel_sets(catalog: Catalog) -> Iterator[tuple[str, str]]:
    """List every CUDA and cuDNN that can be installed: the sets of some release, with any cuDNN of their line."""
    for cuda in {row.cuda for row in catalog.tensorflow if row.cuda_wheels and row.cuda}:
        line = next(row for row in WHEELS if row.package.endswith(cuda.split(".")[0]))
        yield from ((cuda, version) for version in line.versions)


def stack_works(release: TensorflowRelease, cuda: str, cudnn: str, wished: Targets) -> bool:
    """Tell from first principles whether a build runs with these libraries on every driver and GPU."""
    toolkit = next(row for row in TOOLKITS if row.version == cuda)
    built = next(row for row in TOOLKITS if row.version == release.cuda)
    kernels = next(row for row in CUDNNS if numbers(cudnn)[:2] == numbers(row.version))
    assert kernels.first_capability is not None, "every cuDNN of the small catalogue has one"
    loads = all(name in toolkit.sonames or "cudnn" in name for name in release.libraries)
    assert release.cudnn is not None, "every release of the small catalogue has one"
    accepted = numbers(cudnn)[0] == numbers(release.cudnn)[0] and numbers(cudnn)[:2] >= numbers(release.cudnn)
    made_for = numbers(cuda)[0] in {numbers(text)[0] for text in kernels.cuda}
    gpus = [gpu for gpu in GPUS if gpu.name in wished.gpus]
    for gpu in gpus:
        cap = numbers(gpu.compute_capability)
        if cap < numbers(toolkit.first_capability) or cap < numbers(kernels.first_capability):
            return False
        native = any(numbers(code)[0] == cap[0] and numbers(code)[1] <= cap[1] for code in release.cubins)
        if not native and not any(numbers(ptx) <= cap for ptx in release.ptx):
            return False
        for driver in wished.drivers:
            dropped = numbers(driver)[0] >= 590 and cap < (8, 0)
            if dropped or numbers(driver) < numbers(gpu.minimum_driver):
                return False
            if not native and built.driver and numbers(driver) < numbers(built.driver):
                return False
    enough = all(numbers(driver) >= numbers(toolkit.minimum_driver) for driver in wished.drivers)
    return loads and accepted and made_for and enough


def satisfiable(combination: Combination, catalog: Catalog, wished: Targets) -> bool:
    """Tell by brute force over every system and every set of wheels whether a combination can work."""
    release = next((row for row in catalog.tensorflow if row.version == combination.tensorflow), None)
    if release is None or not host_works(release, combination.python, combination.os, catalog):
        return False
    if combination.flavor == "cpu":
        return True
    assert release.cuda is not None, "every release of the small catalogue has one"
    line = numbers(release.cuda)[0]
    return release.gpu and any(
        combination.cuda in {None, cuda}
        and (combination.cudnn is None or numbers(cudnn)[:2] == numbers(combination.cudnn))
        and (combination.cuda is not None or numbers(cuda)[0] == line)
        and stack_works(release, cuda, cudnn, wished)
        for cuda, cudnn in wheel_sets(catalog)
    )


@examples(133)
@given(catalogs(), combinations, targets)
def test_resolver_agrees_with_brute_force(catalog: Catalog, combination: Combination, wished: Targets) -> None:
    result = resolve(combination, catalog, wished)
    assert isinstance(result, Environment) == satisfiable(combination, catalog, wished), result
    if isinstance(result, Rejection):
        assert result.findings
        assert result.sentence.endswith(".")
        return
    axes = ("python", "os", *(("cuda", "cudnn") if combination.flavor == "gpu" else ()))
    for axis in axes:
        value, given_ = getattr(result, axis), getattr(combination, axis)
        assert given_ is None or value == given_ or value.startswith(f"{given_}."), axis
        assert (axis in result.chosen) == (given_ is None), axis


@examples(40)
@given(catalogs(), combinations, targets, st.randoms(use_true_random=False))
def test_order_of_rows_is_irrelevant(catalog: Catalog, combination: Combination, wished: Targets, random) -> None:
    other = msgspec.structs.replace(
        catalog,
        tensorflow=tuple(random.sample(catalog.tensorflow, len(catalog.tensorflow))),
        gpus=tuple(random.sample(catalog.gpus, len(catalog.gpus))),
        drivers=tuple(random.sample(catalog.drivers, len(catalog.drivers))),
    )
    assert resolve(combination, other, wished) == resolve(combination, catalog, wished)
