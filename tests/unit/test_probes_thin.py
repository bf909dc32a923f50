"""Taking machine code for other GPUs out of an object: what is left loads, is the same, holds what a driver takes."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import random
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from device_code import CUBIN, PTX, container, entry, shared_object
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from thin_proof import Mapped, Proof, prove

from envbuilder.catalog.gpu_code import runs_cubin
from envbuilder.probes.kept_code import StrangeError, number, wanted
from envbuilder.probes.omit import digest_of_file
from envbuilder.probes.suite import fatbin
from envbuilder.probes.suite.elf import Elf
from envbuilder.probes.thin import main, thinned

ARCHITECTURES = (60, 70, 80, 89, 90)


def mapped(path: Path) -> mmap.mmap:
    """Map a file for reading."""
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def payload(seed: int, size: int) -> bytes:
    """Return bytes that stand nowhere else, a multiple of eight as nvcc writes them."""
    return random.Random(seed).randbytes(size)  # noqa: S311 - the same bytes each time


def kernels(seed: int, size: int = 5000, architectures: Sequence[int] = ARCHITECTURES, *, ptx: int = 90) -> bytes:
    """Make a fat binary with machine code for these architectures, and PTX for one where it is not 0."""
    machine = [entry(CUBIN, one, payload(seed * 1000 + one, size)) for one in architectures]
    return container(*machine, *([entry(PTX, ptx, payload(seed, size))] if ptx else []))


_NUMBERS = itertools.count()


def thin_copy(library: Path, *gpus: str) -> Path:
    """Write what is left of a library for some GPUs beside it."""
    image = mapped(library)
    edit = thinned(image, gpus)
    assert edit is not None
    to = library.with_name(f"libthin-{next(_NUMBERS)}.so")  # never over one that this process has loaded
    shutil.copy(library, to)
    edit.write_over(str(to))
    assert to.read_bytes() == b"".join(edit.over(image)), "written in place as planned"
    assert to.stat().st_size == edit.size
    return to


def proved(library: Path, *gpus: str) -> Proof:
    """Thin a library and prove what is left."""
    return prove(library, thin_copy(library, *gpus), gpus)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an object with device code of each kind."""
    return shared_object(
        tmp_path_factory.mktemp("device"),
        [kernels(one) for one in range(12)],
        [kernels(100 + one, 200) for one in range(5)],
        [kernels(200 + one, 3000, ()) for one in range(3)],
    )


def test_what_is_left_is_the_same_and_smaller(library: Path) -> None:
    """All but the others' machine code is at its address, byte for byte; whole pages of that are out of the file."""
    found = proved(library, "8.0")
    assert (found.listed, found.generated, found.architectures) == (15, 5, frozenset({80}))
    left = thin_copy(library, "8.0")
    assert found.gone > 12 * 4 * 5000
    assert library.stat().st_size - left.stat().st_size > 12 * 4 * 5000 - 2 * 4096
    sections = Elf(str(left)).sections
    assert {".nv_fatbin", ".nvFatBinSegment", ".dynsym", ".text"} <= sections.keys()
    assert ".symtab" not in sections


def test_the_thinned_object_loads_and_points_to_what_was_kept(library: Path) -> None:
    """The loader takes it, functions answer, and each pointer leads to the fat binary of the same kernels."""
    opened = ctypes.CDLL(str(thin_copy(library, "8.0")))
    assert opened.answer() == 42
    for name, count, first, size in (("listed", 12, 0, 5000), ("generated", 5, 100, 200)):
        function = getattr(opened, name)
        function.restype = ctypes.c_void_p
        for one in range(count):
            wished = kernels(first + one, size, (80,))
            assert ctypes.string_at(function(one), len(wished)) == wished


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf is not here")
def test_another_reader_of_elf_files_has_nothing_to_say(library: Path) -> None:
    """Binutils reads every table of what is left without a warning."""
    words = ["readelf", "--all", "--wide", str(thin_copy(library, "8.0"))]
    done = subprocess.run(words, capture_output=True, check=True)
    assert done.stderr == b""


@pytest.mark.parametrize("gpus", [("6.0",), ("8.6",), ("8.9", "9.0"), ("12.0",), ("7.5", "8.0", "10.0")])
def test_each_gpu_keeps_what_its_driver_takes(library: Path, gpus: tuple[str, ...]) -> None:
    """For any GPUs the proof holds: the newest code of the own major stays, PTX always, one entry at least."""
    assert proved(library, *gpus).listed == 15


@given(
    st.lists(st.tuples(st.sampled_from([PTX, CUBIN]), st.integers(50, 121)), min_size=1, max_size=8),
    st.sets(st.integers(50, 121), max_size=4),
)
def test_no_gpu_loses_what_it_would_take(entries: list[tuple[int, int]], gpus: set[int]) -> None:
    """The best code for a wanted GPU stays, by the catalogue's own rule; so does PTX, and of nothing else the first."""

    def words(one: int) -> str:
        return f"{one // 10}.{one % 10}"

    stay = wanted(entries, gpus)
    kept = [one for one, stays in zip(entries, stay, strict=True) if stays]
    best = {
        max(fits)
        for gpu in gpus
        if (fits := [arch for kind, arch in entries if kind == CUBIN and runs_cubin(words(arch), words(gpu))])
    }
    assert {arch for kind, arch in kept if kind == CUBIN} == best or len(kept) == 1
    assert [one for one in entries if one[0] == PTX] == [one for one in kept if one[0] == PTX]
    assert kept
    assert number(words(121)) == 121


@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.generate])  # a compiler runs for each
@given(data=st.data())
def test_any_mixture_of_sizes_and_architectures_is_thinned_as_proved(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Whatever the fat binaries hold, and whatever size they have, the proof holds and the result is not larger."""
    one = st.tuples(
        st.integers(0, 10**6), st.sampled_from([8, 800, 9000]), st.sets(st.sampled_from(ARCHITECTURES)), st.booleans()
    )
    drawn = [
        [
            kernels(seed, size, sorted(found) or (75,), ptx=90 if ptx else 0)
            for seed, size, found, ptx in data.draw(st.lists(one, min_size=low, max_size=5))
        ]
        for low in (1, 0, 0)
    ]
    library = shared_object(tmp_path_factory.mktemp("any"), *drawn)
    gpus = [f"{one // 10}.{one % 10}" for one in data.draw(st.sets(st.integers(60, 100), min_size=1, max_size=3))]
    edit = thinned(mapped(library), gpus)
    if edit is None:
        held = [one for content in (*drawn[0], *drawn[1], *drawn[2]) for one in fatbin.parts(content, 0, len(content))]
        assert not held or all(any(wanted([one[:2]], [number(gpu)]) for gpu in gpus) for one in held)
        return
    assert edit.size <= library.stat().st_size
    prove(library, thin_copy(library, *gpus), gpus)


def test_what_was_thinned_is_not_thinned_again(library: Path) -> None:
    """Where nothing of others is left there is no plan: the same list made twice is the same."""
    assert thinned(mapped(thin_copy(library, "8.0")), ["8.0"]) is None


def test_the_same_is_made_of_the_same(library: Path) -> None:
    """The digest is the same whenever it is made, whatever the order in which GPUs are named."""
    image = mapped(library)
    first, second = thinned(image, ["8.0", "9.0"]), thinned(image, ["9.0", "8.0", "8.0"])
    assert first is not None
    assert second is not None
    assert first.digest(image) == second.digest(image)


def test_a_pointer_that_is_not_the_lists_stops_it(tmp_path: Path) -> None:
    """Where something else knows an address in the device code, nothing is moved: it would then be wrong."""
    library = shared_object(tmp_path, [kernels(1), kernels(2)], extra="const void *other = l1;")
    with pytest.raises(StrangeError, match="not one of the list's"):
        thinned(mapped(library), ["8.0"])


def test_a_pointer_into_the_middle_stops_it(tmp_path: Path) -> None:
    """The list has to point to beginnings."""
    library = shared_object(tmp_path, [kernels(1), kernels(2)])
    content = bytearray(library.read_bytes())
    old = Mapped(library)
    place = next(iter(old.pointers()))
    at = next(offset + place - start for start, end, offset in old.loads if start <= place < end)
    content[at] += 8
    library.write_bytes(content)
    with pytest.raises(StrangeError, match="not one of the list's"):
        thinned(mapped(library), ["8.0"])


def test_a_symbol_that_others_see_stops_it(tmp_path: Path) -> None:
    """Where the linker is told the name of a place in the device code, others may know its address."""
    library = shared_object(
        tmp_path, [kernels(1)], assembly='.section .nv_fatbin,"a"\n.globl seen\n.set seen, l0\n.type seen,@object'
    )
    with pytest.raises(StrangeError, match="symbol"):
        thinned(mapped(library), ["8.0"])


@pytest.mark.parametrize("more", ['.section .nv_fatbin,"a"\n.quad 7\n.quad 7', '.section .nv_fatbin,"a"\n.zero 64'])
def test_bytes_that_are_no_fat_binary_stop_it(tmp_path: Path, more: str) -> None:
    """A section with something between or behind its fat binaries is not known, and stays as it is."""
    library = shared_object(tmp_path, [kernels(1)], assembly=more)
    with pytest.raises(StrangeError, match="no fat binary"):
        thinned(mapped(library), ["8.0"])


def test_a_fat_binary_that_nothing_points_to_stops_it(tmp_path: Path) -> None:
    """One that is not in the list is found by ways that are not known here."""
    more = tmp_path / "more.bin"
    more.write_bytes(kernels(9))
    library = shared_object(tmp_path, [kernels(1)], assembly='.section .nv_fatbin,"a"\n.balign 8\n.incbin "more.bin"')
    with pytest.raises(StrangeError, match="1 fat binaries are not in the list"):
        thinned(mapped(library), ["8.0"])


def test_an_object_without_other_machine_code_has_no_plan(tmp_path: Path) -> None:
    """PTX alone, or code for the wanted GPU alone, is left as it is; so is an object with no device code at all."""
    for number_, binaries in enumerate(([kernels(1, 900, ())], [kernels(1, 900, (80,))], [])):
        folder = tmp_path / str(number_)
        folder.mkdir()
        if not binaries:
            (folder / "a.c").write_text("int answer(void) { return 1; }")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", "libdevice.so", "a.c"], cwd=folder, check=True)
            assert thinned(mapped(folder / "libdevice.so"), ["8.0"]) is None
        else:
            assert thinned(mapped(shared_object(folder, binaries)), ["8.0"]) is None


@pytest.mark.parametrize("kept", [0, 40, 64, 100, 4096, 30_000, -1, -64, -2000])
def test_damaged_objects_are_refused_or_left_alone(library: Path, tmp_path: Path, kept: int) -> None:
    """A truncated file raises nothing but what is documented, and no plan is longer than the file."""
    bad = tmp_path / "bad.so"
    bad.write_bytes(library.read_bytes()[:kept] or b"x" * 4096)
    try:
        edit = thinned(mapped(bad), ["8.0"])
    except StrangeError:
        return
    assert edit is None or edit.size <= bad.stat().st_size


def test_noise_in_the_tables_raises_nothing_else(library: Path, tmp_path: Path) -> None:
    """Bytes that were changed anywhere in header, segments or sections end in a plan, in none, or in a refusal."""
    content, chance, seen = library.read_bytes(), random.Random(7), set[str]()  # noqa: S311 - each run the same
    table = int.from_bytes(content[40:48], "little")
    for _ in range(300):
        bad = bytearray(content)
        for _ in range(chance.randint(1, 4)):
            place = chance.choice(
                (chance.randrange(16, 64), chance.randrange(64, 700), chance.randrange(table, len(bad)))
            )
            bad[place] = chance.randrange(256)
        (tmp_path / "bad.so").write_bytes(bad)
        try:
            seen.add("none" if thinned(mapped(tmp_path / "bad.so"), ["8.0"]) is None else "planned")
        except StrangeError:
            seen.add("refused")
    assert seen == {"none", "planned", "refused"}


def test_the_proof_sees_every_byte_that_is_another(library: Path) -> None:
    """Of what is loaded of the result no byte can be changed, and none of the list's pointers, without being seen."""
    thin, chance = thin_copy(library, "8.0"), random.Random(3)  # noqa: S311 - each run the same
    content, new = thin.read_bytes(), Mapped(thin)
    places = [chance.randrange(offset + 64 * (start == 0), offset + end - start) for start, end, offset in new.loads]
    binaries = next(one for one in new.sections if one.name == ".nv_fatbin")
    places += [chance.randrange(binaries.offset, binaries.offset + binaries.size) for _ in range(12)]
    places += [
        next(offset + one - start for start, end, offset in new.loads if start <= one < end) for one in new.pointers()
    ]
    for place in places:
        thin.write_bytes(content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :])
        with pytest.raises((AssertionError, struct.error)):
            prove(library, thin, ["8.0"])
    thin.write_bytes(content)
    with pytest.raises(AssertionError):
        prove(library, thin, ["9.0"])
    with pytest.raises(AssertionError):
        prove(library, library, ["8.0"])


def test_anybody_with_the_wheel_can_compute_what_a_list_says(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Run on a file it prints the digest and the bytes that a build leaves; 1 and the reason where it would stop."""
    left = thin_copy(library, "8.0")
    assert main([str(library), "8.0"]) == 0
    assert capsys.readouterr().out == f"{digest_of_file(str(left))} {left.stat().st_size}\n"
    assert main([str(left), "8.0"]) == 0
    assert capsys.readouterr().out == "whole\n"
    strange = shared_object(tmp_path, [kernels(1), kernels(2)], extra="const void *other = l1;")
    assert main([str(strange), "8.0"]) == 1
    assert "not one of the list's" in capsys.readouterr().err
