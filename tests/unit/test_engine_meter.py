"""The meter of a container's output: bounds hold however the output arrives."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from envbuilder.engine.meter import Meter
from envbuilder.engine.port import ContainerSpec


@given(
    st.lists(st.binary(max_size=20).map(lambda data: data.replace(b"a", b"\n")), max_size=12),
    st.integers(0, 40),
    st.integers(0, 6),
)
@example([b"\n\n", b"\n"], 40, 2)
def test_what_is_taken_is_the_longest_beginning_within_the_bounds(pieces: list[bytes], size: int, lines: int) -> None:
    """In whatever pieces: no more than allowed, nothing invented, and full only where something is lost."""
    meter = Meter(ContainerSpec("a:b", ("true",), output=size, lines=lines))
    taken = b"".join(map(meter.take, pieces))
    whole = b"".join(pieces)
    assert whole.startswith(taken)
    assert len(taken) <= size
    assert taken.count(b"\n") <= lines
    assert meter.full == (len(taken) < len(whole))
    if meter.full:  # one byte more would be over a bound
        more = whole[: len(taken) + 1]
        assert len(more) > size or more.count(b"\n") > lines or taken.count(b"\n") == lines
