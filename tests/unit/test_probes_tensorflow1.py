"""TensorFlow before 2.4: the names of today, eager execution, and the timing of sessions."""

from __future__ import annotations

import sys
import types
from typing import Any, Self

import pytest

from envbuilder.probes.suite import startup, tensorflow1_compat


def namespace(**names: Any) -> Any:
    return types.SimpleNamespace(**names)


def first_line(asked: list[str]) -> Any:
    """Make what TensorFlow 1.15 looks like: sessions at the top, the later interface below ``compat.v2``."""
    later = types.ModuleType("tensorflow._api.v1.compat.v2")
    later.__version__ = "1.15.5"  # type: ignore[attr-defined]
    later.config = namespace(experimental=namespace(list_physical_devices="listed"))  # type: ignore[attr-defined]
    later.random = namespace(experimental=namespace(Generator="drawn"))  # type: ignore[attr-defined]
    later.compat = namespace(v1=namespace(enable_v2_behavior=lambda: asked.append("again")), v2="another")  # type: ignore[attr-defined]
    plain = types.ModuleType("tensorflow")
    plain.__version__ = "1.15.5"  # type: ignore[attr-defined]
    plain.compat = namespace(v1=namespace(enable_v2_behavior=lambda: asked.append("eager")), v2=later)  # type: ignore[attr-defined]
    plain.__spec__ = "where it lies"  # type: ignore[assignment]
    return plain


def test_tensorflow_1_gets_the_later_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    plain = first_line(asked)
    monkeypatch.setitem(sys.modules, "tensorflow", plain)
    for _ in range(2):
        tensorflow1_compat.prepare("1.15.5", "framework", "cpu_checks:matmul")
    tf = sys.modules["tensorflow"]
    assert tf is plain.compat.v2
    assert asked == ["eager"]
    assert tf.__spec__ == "where it lies"
    assert (tf.config.list_physical_devices, tf.random.Generator) == ("listed", "drawn")
    assert tf.config.experimental.enable_tensor_float_32_execution(False) is None


@pytest.mark.parametrize(
    ("release", "group", "probe"),
    [
        ("2.4.4", "framework", "cpu_checks:matmul"),
        ("2.20.0", "gpu", "gpu:matmul"),
        ("1.15.5", "framework", tensorflow1_compat.IMPORTS),
        ("1.15.5", "static", "packages:as_locked"),
        ("", "framework", "cpu_checks:matmul"),
        ("nightly", "framework", "cpu_checks:matmul"),
    ],
)
def test_other_releases_and_checks_import_nothing(
    release: str, group: str, probe: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)  # an import would raise
    tensorflow1_compat.prepare(release, group, probe)


def test_traces_are_counted_in_every_release() -> None:
    cache = namespace(primary={"one": 1, "two": 2})
    assert tensorflow1_compat.traces(namespace(experimental_get_tracing_count=lambda: 3)) == 3
    assert tensorflow1_compat.traces(namespace(_get_tracing_count=lambda: 2)) == 2
    assert tensorflow1_compat.traces(namespace(_stateful_fn=None, _stateless_fn=namespace(_function_cache=cache))) == 2
    assert tensorflow1_compat.traces(namespace()) == 0


class Session:
    product = 64.0

    def __init__(self, graph: object = None) -> None:
        self.graph = graph

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        return

    def run(self, _fetched: object, _given: object) -> Any:
        product = self.product
        return {(0, 0): product}


class Scope:
    def as_default(self) -> Scope:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        return


def framework() -> Any:
    return namespace(
        Graph=Scope,
        device=lambda _: Scope(),
        matmul=lambda *_: "product",
        float32="float32",
        compat=namespace(v1=namespace(Session=Session, placeholder=lambda *_: "given")),
    )


def test_parts_of_a_session_are_timed() -> None:
    times = startup._session(framework(), "/CPU:0")
    assert [name for name, _ in times] == ["first session", "first run", "second run"]
    assert all(seconds >= 0 for _, seconds in times)


def test_wrong_product_of_a_session_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "product", 63.0)
    with pytest.raises(ArithmeticError, match="63 where 64"):
        startup._session(framework(), "/CPU:0")
